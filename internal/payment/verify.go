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

// Demand is what an order requires of its payment.
type Demand struct {
	Requirements x402.Requirements       // as saved with the quote
	ResourceURL  string                  // of the challenge
	Approval     boxoffice.QuoteApproval // without PaymentHash, which comes from the payment
	Payer        *common.Address         // the only wallet that may pay, if the quote names one
}

// PendingPayments returns what payers already have to pay.
type PendingPayments interface {
	// PendingAmount returns how much of the permit's token the pending intents of the
	// permit's owner will move: the waiting ones and the sent ones.
	PendingAmount(ctx context.Context, permit Permit, chainID uint64) (boxoffice.Amount, error)
}

// Verifier decides whether a payment is accepted.
type Verifier struct{ VerifierConfig }

// VerifierConfig is what a Verifier needs.
type VerifierConfig struct {
	Standings Standings
	Pending   PendingPayments
	KeysOnly  bool         // Standings cannot ask wallets with code: the payer's key must have made both signatures
	Ready     func() error // returns why no payment can be settled now
	Now       func() time.Time
}

// NewVerifier returns a Verifier.
func NewVerifier(c VerifierConfig) *Verifier { return &Verifier{c} }

// Verified is a payment that passed every check.
type Verified struct {
	Permit Permit
	Block  uint64 // the newest block at that time; the permit's nonce was unspent there
}

// Verify checks a payment and the approval of its quote against a demand, in the
// order of docs/protocol.md §6.7: the terms, the two signatures, then the chain. If
// the payer's own key did not make a signature, the payer may be a wallet with code:
// then the chain is asked whether that wallet accepts it. If a check fails, the error
// is a *Rejection. Any other error means that the chain or the store did not answer,
// or that no payment can be settled now.
func (v *Verifier) Verify(ctx context.Context, demand Demand, paid *x402.Payment,
	approval boxoffice.Signature) (Verified, error) {
	return v.verify(ctx, demand, paid, &approval)
}

// VerifyPermit checks a payment to another server, as Verify does but without the
// approval of a quote: only our own quotes have one.
func (v *Verifier) VerifyPermit(ctx context.Context, requirements x402.Requirements,
	paid *x402.Payment) (Verified, error) {
	chainID, err := x402.ChainID(requirements.Network)
	if err != nil {
		return Verified{}, reject(x402.ReasonInvalidNetwork, "%v", err)
	}
	demand := Demand{Requirements: requirements, Approval: boxoffice.QuoteApproval{ChainID: chainID}}
	if paid.Resource != nil {
		demand.ResourceURL = paid.Resource.URL // it names a resource of the other server
	}
	return v.verify(ctx, demand, paid, nil)
}

func (v *Verifier) verify(ctx context.Context, demand Demand, paid *x402.Payment,
	approval *boxoffice.Signature) (Verified, error) {
	permit := Permit{Authorization: paid.Payload.Payload.Authorization, Signature: paid.Payload.Payload.Signature}
	if rejection := demand.checkTerms(paid, v.Now().Unix()); rejection != nil {
		return Verified{}, rejection
	}
	signed, rejection := demand.readSignatures(paid, permit, approval)
	if rejection != nil {
		return Verified{}, rejection
	}
	if v.KeysOnly {
		if rejection := signed.check(Standing{}, permit); rejection != nil {
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

// maxTimeout is the longest maxTimeoutSeconds that counts: a day. Another server names
// any, and a failed payment is looked at again until its deadline.
const maxTimeout = 86_400

// checkTerms checks what the payment says against the demand, without signatures.
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
	latest := now + min(d.Requirements.MaxTimeoutSeconds, maxTimeout) + x402.MaxDeadlineSlack
	switch deadline := seconds(auth.Deadline); {
	case deadline < now+x402.MinDeadlineSlack:
		return reject(x402.ReasonDeadlineExpired, "deadline must be at least %d seconds ahead", x402.MinDeadlineSlack)
	case deadline > latest:
		return reject(x402.ReasonDeadlineTooFar, "deadline must be at most %d seconds ahead", latest-now)
	}
	return nil
}

// checkChain checks the signatures of wallets with code, the balance, the allowance,
// the nonce and the simulation, by one request of the standing.
func (v *Verifier) checkChain(ctx context.Context, demand Demand, permit Permit,
	signed signatures) (block uint64, err error) {
	pending, err := v.Pending.PendingAmount(ctx, permit, demand.Approval.ChainID)
	if err != nil {
		return 0, err
	}
	standings, err := v.Standings.Standing(ctx, []Permit{permit}, signed.approvals...)
	if err != nil {
		return 0, err
	}
	standing, amount := standings[0], permit.Permitted.Amount
	if rejection := signed.check(standing, permit); rejection != nil {
		return 0, rejection
	}
	needed, fits := pending.Add(amount)
	switch {
	case !fits || standing.Balance.Cmp(needed) < 0:
		return 0, reject(x402.ReasonInsufficientBalance, "the payer holds %s and needs %s, pending payments included",
			standing.Balance, needed)
	case standing.Allowance.Cmp(amount) < 0:
		return 0, reject(x402.ReasonAllowanceRequired,
			"the payer's allowance for Permit2 %s is %s and has to be at least %s", x402.Permit2, standing.Allowance,
			amount)
	case standing.Spent:
		return 0, reject(x402.ReasonNonceSpent, "the Permit2 nonce %s is spent; sign with another", permit.Nonce)
	case standing.Failure == nil, standing.Failure.Reason == x402.ReasonNotYetValid:
		// A permit that is not valid yet settles soon: checkTerms compared validAfter with
		// our clock, and the newest block is only older than that.
		return standing.Block, nil
	}
	return 0, standing.Failure
}

func reject(reason x402.Reason, format string, args ...any) *Rejection {
	return &Rejection{Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

// seconds returns u as Unix seconds, or the largest int64 if it does not fit.
func seconds(u x402.Uint256) int64 {
	n, fits := u.Uint64()
	if !fits || n > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(n)
}
