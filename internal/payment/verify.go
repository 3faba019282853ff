package payment

import (
	"context"
	"fmt"
	"math"
	"time"

	"boxoffice"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
)

// Demand is what an order asks of the payment that is to settle it.
type Demand struct {
	Requirements x402.Requirements       // frozen when the quote was saved
	ResourceURL  string                  // of the challenge
	Approval     boxoffice.QuoteApproval // its PaymentHash is filled in from the payment
	Payer        *common.Address         // the only wallet that may pay, if the quote names one
}

// Commitments knows what owners have already promised.
type Commitments interface {
	// Promised returns the sum of what the owner's intents that are waiting or
	// sent will move of the permit's token.
	Committed(ctx context.Context, permit Permit, chainID uint64) (boxoffice.Amount, error)
}

// Verifier decides whether a payment is accepted.
type Verifier struct{ VerifierConfig }

// VerifierConfig is what a Verifier needs.
type VerifierConfig struct {
	Standings   Standings
	Commitments Commitments
	KeysOnly    bool         // Standings do not tell who has code: every signature has to be that of a key
	Ready       func() error // returns why no payment can be settled now
	Now         func() time.Time
}

// NewVerifier returns a Verifier.
func NewVerifier(c VerifierConfig) *Verifier { return &Verifier{c} }

// Verified is a payment that passed every check.
type Verified struct {
	Permit Permit
	Block  uint64 // the newest block then: the permit's nonce was not spent
}

// Verify checks a payment and the approval of its quote against a demand, in
// the order of the design: what can be told from the bytes, then the two
// signatures, then the chain. A signature that is not of the payer's own key is
// the chain's matter: the payer may be a wallet with code, which is asked in the
// same round trip. A payment that fails a check is a *Rejection; any other error
// means that the chain or the store did not answer, or that nothing can be
// settled now.
func (v *Verifier) Verify(ctx context.Context, demand Demand, paid *x402.Payment, approval boxoffice.Signature) (Verified, error) {
	return v.verify(ctx, demand, paid, &approval)
}

func (v *Verifier) verify(ctx context.Context, demand Demand, paid *x402.Payment, approval *boxoffice.Signature) (Verified, error) {
	permit := Permit{Authorization: paid.Payload.Payload.Authorization, Signature: paid.Payload.Payload.Signature}
	if rejection := demand.checkTerms(paid, v.Now().Unix()); rejection != nil {
		return Verified{}, rejection
	}
	signed, rejection := demand.readSignatures(paid, permit, approval)
	if rejection != nil {
		return Verified{}, rejection
	}
	if v.KeysOnly {
		if rejection := signed.judge(Standing{}, permit); rejection != nil {
			return Verified{}, rejection
		}
	}
	if err := v.Ready(); err != nil {
		return Verified{}, err
	}
	block, err := v.checkChain(ctx, demand, permit, signed)
	if err != nil {
		return Verified{}, err
	}
	return Verified{Permit: permit, Block: block}, nil
}

func (d Demand) checkTerms(paid *x402.Payment, now int64) *Rejection {
	if field := d.Requirements.Mismatch(paid.Accepted); field != "" {
		return reject(x402.ReasonRequirements, "accepted.%s differs from the challenge", field)
	}
	if paid.Resource != nil && paid.Resource.URL != d.ResourceURL {
		return reject(x402.ReasonResource, "resource.url must be %s", d.ResourceURL)
	}
	auth := paid.Payload.Payload.Authorization
	switch {
	case auth.Spender != x402.ExactProxy:
		return reject(x402.ReasonSpender, "spender must be the x402 exact proxy %s", x402.ExactProxy)
	case auth.Witness.To != d.Requirements.PayTo:
		return reject(x402.ReasonRecipient, "witness.to must be %s", d.Requirements.PayTo)
	case auth.Permitted.Token != d.Requirements.Asset:
		return reject(x402.ReasonToken, "permitted.token must be %s", d.Requirements.Asset)
	case auth.Permitted.Amount != d.Requirements.Amount:
		return reject(x402.ReasonAmount, "permitted.amount must be %s", d.Requirements.Amount)
	case seconds(auth.Witness.ValidAfter) > now:
		return reject(x402.ReasonNotYetValid, "witness.validAfter lies in the future")
	}
	latest := now + d.Requirements.MaxTimeoutSeconds + x402.MaxDeadlineSlack
	switch deadline := seconds(auth.Deadline); {
	case deadline < now+x402.MinDeadlineSlack:
		return reject(x402.ReasonDeadlineExpired, "deadline must be at least %d seconds ahead", x402.MinDeadlineSlack)
	case deadline > latest:
		return reject(x402.ReasonDeadlineTooFar, "deadline must be at most %d seconds ahead", latest-now)
	}
	return nil
}

func (v *Verifier) checkChain(ctx context.Context, demand Demand, permit Permit, signed signatures) (block uint64, err error) {
	promised, err := v.Commitments.Committed(ctx, permit, demand.Approval.ChainID)
	if err != nil {
		return 0, err
	}
	standings, err := v.Standings.Standing(ctx, []Permit{permit}, signed.asks...)
	if err != nil {
		return 0, err
	}
	standing, amount := standings[0], permit.Permitted.Amount
	if rejection := signed.judge(standing, permit); rejection != nil {
		return 0, rejection
	}
	needed, fits := promised.Add(amount)
	switch {
	case !fits || standing.Balance.Cmp(needed) < 0:
		return 0, reject(x402.ReasonInsufficientBalance, "the payer holds %s and needs %s, pending payments included", standing.Balance, needed)
	case standing.Allowance.Cmp(amount) < 0:
		return 0, reject(x402.ReasonAllowanceRequired, "the payer's allowance for Permit2 %s is %s and has to be at least %s", x402.Permit2, standing.Allowance, amount)
	case standing.Spent:
		return 0, reject(x402.ReasonNonceSpent, "the Permit2 nonce %s is spent; sign with another", permit.Nonce)
	case standing.Failure != nil && standing.Failure.Reason != x402.ReasonNotYetValid: // the newest block trails the clock
		return 0, standing.Failure
	}
	return standing.Block, nil
}

func reject(reason x402.Reason, format string, args ...any) *Rejection {
	return &Rejection{Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

// seconds returns u as Unix seconds, the farthest future if it does not fit.
func seconds(u x402.Uint256) int64 {
	n, fits := u.Uint64()
	if !fits || n > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(n)
}
