// Package facilitator settles the payments of other x402 servers: /verify,
// /settle and /supported of the x402 specification, version 2 §7, for scheme
// exact with the transfer method permit2. Such a payment is a submission. It is
// saved as an intent like the payments of our own orders, and shares their
// transactions and guarantees.
//
// A submission is known by its chain, owner and Permit2 nonce. The same payload
// has one outcome, however often it is submitted; another payload with the same
// nonce is refused. A server that keeps no record of what it served cannot tell a
// repeated payment from a new one and would serve twice for it: with TellOnce
// only one caller gets the answer that the payment is settled.
package facilitator

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"boxoffice"
	"boxoffice/internal/payment"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
)

// Errors of a Store that are outcomes.
var (
	ErrNotFound    = errors.New("facilitator: no such payment was submitted")
	ErrPermitTaken = errors.New("facilitator: the permit belongs to an order of this service")
)

// Store saves submissions. Every method is one transaction.
type Store interface {
	// Submitted returns the payment that was submitted with the permit's owner and
	// nonce, or ErrNotFound.
	Submitted(ctx context.Context, chainID uint64, permit payment.Permit) (payment.Intent, error)
	// Submit saves a submission, unless one with its owner and nonce is saved; it
	// returns the saved one. It returns ErrPermitTaken if the nonce pays for an
	// order of our own.
	Submit(ctx context.Context, intent payment.Intent) (payment.Intent, error)
	// LastTransaction returns the newest transaction of the open slot that carries
	// an intent, nil if none does.
	LastTransaction(ctx context.Context, intentID boxoffice.UUID) (*common.Hash, error)
	// AnsweredCaller returns the caller to which we answered that the submission is
	// settled, "" if none.
	AnsweredCaller(ctx context.Context, submissionID boxoffice.UUID) (caller string, err error)
	// ReserveAnswer saves that caller gets the answer that the submission is
	// settled. It reports false if another caller got it.
	ReserveAnswer(ctx context.Context, submissionID boxoffice.UUID, caller string) (bool, error)
	// ReleaseAnswer undoes ReserveAnswer, because the answer could not be sent.
	ReleaseAnswer(ctx context.Context, submissionID boxoffice.UUID, caller string) error
}

// Verifier checks a payment. One that fails a check is a *payment.Rejection.
type Verifier interface {
	VerifyPermit(ctx context.Context, requirements x402.Requirements, paid *x402.Payment) (payment.Verified, error)
}

// Config is what a Facilitator needs.
type Config struct {
	ChainID    uint64
	Store      Store
	Verifier   Verifier
	Signer     common.Address   // pays the gas
	Assets     []common.Address // the tokens that are settled
	Recipients []common.Address // the addresses that may be paid; empty: any
	Wait       time.Duration    // how long /settle waits for the outcome
	TellOnce   bool             // whether only one caller gets the answer that a payment is settled
	Accepted   func()           // called after a payment was saved: wakes the settler
	Now        func() time.Time
	Log        *slog.Logger
}

// Facilitator verifies and settles what other servers submit.
type Facilitator struct {
	Config
	mu      sync.Mutex
	decided chan struct{} // closed at the next decision
}

// New returns a Facilitator. A settler has to run on the same store.
func New(c Config) *Facilitator {
	return &Facilitator{Config: c, decided: make(chan struct{})}
}

// Decided wakes the calls that wait, because payments were decided.
func (f *Facilitator) Decided() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.decided)
	f.decided = make(chan struct{})
}

func (f *Facilitator) nextDecision() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.decided
}

// Supported returns what the facilitator settles.
func (f *Facilitator) Supported() x402.Supported {
	return x402.Supported{
		Kinds: []x402.Kind{{
			X402Version: x402.Version, Scheme: x402.SchemeExact, Network: x402.Network(f.ChainID),
			Extra: map[string]any{"assetTransferMethod": x402.MethodPermit2},
		}},
		Extensions: []string{},
		Signers:    map[string][]string{"eip155:*": {f.Signer.Hex()}},
	}
}

// submission is a request to verify or settle a payment.
type submission struct {
	paid         x402.Payment // Raw holds the members that we know; Hash is over everything that was sent
	requirements x402.Requirements
}

func (s *submission) permit() payment.Permit {
	scheme := s.paid.Payload.Payload
	return payment.Permit{Authorization: scheme.Authorization, Signature: scheme.Signature}
}

func (s *submission) payer() string { return s.permit().From.Hex() }

// read decodes a request. It ignores unknown members, because they concern only
// the other server and its client; the hash covers them.
func (f *Facilitator) read(request x402.FacilitatorRequest) (*submission, *payment.Rejection) {
	s := new(submission)
	digest, err := boxoffice.HashJSON(request.PaymentPayload)
	if err != nil {
		return nil, refuse(x402.ReasonPayload, "paymentPayload has no canonical form")
	}
	var payload struct {
		X402Version int                 `json:"x402Version"`
		Accepted    x402.Requirements   `json:"accepted"`
		Payload     x402.Permit2Payload `json:"payload"`
	}
	if err := json.Unmarshal(request.PaymentPayload, &payload); err != nil {
		return nil, refuse(x402.ReasonPayload, "paymentPayload is not a payload of scheme exact with permit2")
	}
	if err := json.Unmarshal(request.PaymentRequirements, &s.requirements); err != nil {
		return nil, refuse(x402.ReasonRequirements, "paymentRequirements is malformed")
	}
	s.paid.Payload = x402.Payload{
		X402Version: payload.X402Version, Accepted: payload.Accepted, Payload: payload.Payload,
	}
	if s.paid.Raw, err = json.Marshal(s.paid.Payload); err != nil {
		return nil, refuse(x402.ReasonPayload, "paymentPayload is malformed")
	}
	s.paid.Hash = digest
	return s, f.checkTerms(s)
}

// checkTerms refuses what this facilitator does not settle.
func (f *Facilitator) checkTerms(s *submission) *payment.Rejection {
	terms := s.requirements
	switch {
	case s.paid.X402Version != x402.Version:
		return refuse(x402.ReasonVersion, "x402Version must be 2")
	case terms.Scheme != x402.SchemeExact:
		return refuse(x402.ReasonUnsupported, "the scheme must be exact")
	case terms.Network != x402.Network(f.ChainID):
		return refuse(x402.ReasonInvalidNetwork, "the network must be "+x402.Network(f.ChainID))
	case terms.Extra == nil || terms.Extra.AssetTransferMethod != x402.MethodPermit2:
		return refuse(x402.ReasonUnsupported, "extra.assetTransferMethod must be permit2")
	case !slices.Contains(f.Assets, terms.Asset):
		return refuse(x402.ReasonAssetRefused, "this facilitator does not settle that token")
	case len(f.Recipients) > 0 && !slices.Contains(f.Recipients, terms.PayTo):
		return refuse(x402.ReasonRecipientRefused, "this facilitator does not settle to that recipient")
	case terms.Amount.IsZero():
		return refuse(x402.ReasonRequirements, "amount must be above 0")
	}
	return nil
}

func refuse(reason x402.Reason, detail string) *payment.Rejection {
	return &payment.Rejection{Reason: reason, Detail: detail}
}

// Verify returns whether a payment would settle. A payment that was submitted
// before is valid until another caller got the answer that it is settled: its
// server may not have received the outcome and starts again with /verify. An
// error means that the chain or the store did not answer.
func (f *Facilitator) Verify(
	ctx context.Context, request x402.FacilitatorRequest, caller Caller,
) (x402.Verification, error) {
	s, refused := f.read(request)
	if s == nil {
		return x402.Verification{InvalidReason: refused.Reason, InvalidMessage: refused.Detail}, nil
	}
	if refused != nil {
		return invalid(s, refused), nil
	}
	earlier, err := f.Store.Submitted(ctx, f.ChainID, s.permit())
	switch {
	case err == nil:
		err = f.verifyAgain(ctx, s, &earlier, caller)
	case errors.Is(err, ErrNotFound):
		_, err = f.Verifier.VerifyPermit(ctx, s.requirements, &s.paid)
	}
	if rejection, ok := errors.AsType[*payment.Rejection](err); ok {
		return invalid(s, rejection), nil
	}
	if err != nil {
		return x402.Verification{}, err
	}
	return x402.Verification{IsValid: true, Payer: s.payer()}, nil
}

// verifyAgain returns why a payment that was submitted before is no longer valid,
// nil if it is valid.
func (f *Facilitator) verifyAgain(ctx context.Context, s *submission, intent *payment.Intent, caller Caller) error {
	switch {
	case intent.PayloadHash != s.paid.Hash:
		return otherPayload
	case intent.Evidence == nil && intent.State == payment.Failed:
		return refuse(x402.Reason(intent.Reason), "this payment was submitted and failed")
	}
	answered, err := f.Store.AnsweredCaller(ctx, intent.SubmissionID)
	if err == nil && answered != "" && answered != string(caller) {
		return served
	}
	return err
}

var (
	otherPayload = refuse(x402.ReasonOtherPayload, "another payload with this owner and nonce was submitted before")
	served       = refuse(x402.ReasonNonceSpent, "this payment is settled, and another call got that answer")
)

func invalid(s *submission, why *payment.Rejection) x402.Verification {
	return x402.Verification{InvalidReason: onTheWire(why.Reason), InvalidMessage: why.Detail, Payer: s.payer()}
}

// onTheWire returns the reason that official facilitators use for the same.
func onTheWire(reason x402.Reason) x402.Reason {
	if reason == x402.ReasonNonceSpent {
		return x402.ReasonInvalidNonce
	}
	return reason
}
