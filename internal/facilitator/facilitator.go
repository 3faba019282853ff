// Package facilitator settles the payments of other x402 servers: /verify,
// /settle and /supported of the x402 specification, version 2 §7, for scheme
// exact with the transfer method permit2. What is submitted is saved as an
// intent among our own, so it shares our batches and our guarantees.
//
// A payment is known by its chain, owner and Permit2 nonce. Submitting the same
// payload again, however often and whenever, gets the one outcome that it has;
// another payload with the same nonce is refused. Whoever cannot tell a repeated
// payment from a new one would serve twice: where TellOnce is set, one caller
// alone is told that a payment is settled.
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

// The outcomes of a Store that are not failures of it.
var (
	ErrNotFound    = errors.New("facilitator: no such payment was submitted")
	ErrPermitTaken = errors.New("facilitator: the permit is bound to an order of this service")
)

// Store is what the facilitator keeps. Every method is one transaction.
type Store interface {
	// Submitted returns the payment that was submitted with the permit's owner
	// and nonce, or ErrNotFound.
	Submitted(ctx context.Context, chainID uint64, permit payment.Permit) (payment.Intent, error)
	// Submit saves a payment with the requirements that it was submitted with,
	// unless one with its owner and nonce was before; it returns the one that is
	// saved. It returns ErrPermitTaken if the nonce pays for an order of our own.
	Submit(ctx context.Context, intent payment.Intent, requirements []byte) (payment.Intent, error)
	// LastTransaction returns the transaction that was last broadcast for a
	// payment under way, nil if there is none.
	LastTransaction(ctx context.Context, intentID boxoffice.UUID) (*common.Hash, error)
	// Answered returns the caller who was told that the payment is settled, "" if
	// nobody was.
	Answered(ctx context.Context, intentID boxoffice.UUID) (caller string, err error)
	// Answer notes that caller is told, before it is. It reports whether caller
	// may be: nobody else was.
	Answer(ctx context.Context, intentID boxoffice.UUID, caller string) (bool, error)
	// Unanswer takes the note back: caller could not be told.
	Unanswer(ctx context.Context, intentID boxoffice.UUID, caller string) error
}

// Config is what a Facilitator needs.
type Config struct {
	ChainID    uint64
	Store      Store
	Verifier   *payment.Verifier
	Signer     common.Address   // pays the gas
	Assets     []common.Address // the tokens that are settled
	Recipients []common.Address // who may be paid; empty: everybody
	Wait       time.Duration    // how long /settle waits for the outcome
	TellOnce   bool             // whether success is told to one caller alone
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

// New returns a Facilitator. A settler has to run over the same store.
func New(c Config) *Facilitator {
	return &Facilitator{Config: c, decided: make(chan struct{})}
}

// Decided tells the facilitator that payments were decided: it answers the calls
// that wait.
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

// Supported says what the facilitator settles.
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

// submission is a request that was read.
type submission struct {
	paid         x402.Payment // Raw holds the members that we know; Hash is over all that was sent
	requirements x402.Requirements
}

func (s *submission) permit() payment.Permit {
	scheme := s.paid.Payload.Payload
	return payment.Permit{Authorization: scheme.Authorization, Signature: scheme.Signature}
}

func (s *submission) payer() string { return s.permit().From.Hex() }

// read reads a request. Members that we do not know are passed over, since they
// are between the other server and its client; the digest covers them.
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
	s.paid.Payload = x402.Payload{X402Version: payload.X402Version, Accepted: payload.Accepted, Payload: payload.Payload}
	if s.paid.Raw, err = json.Marshal(s.paid.Payload); err != nil {
		return nil, refuse(x402.ReasonPayload, "paymentPayload is malformed")
	}
	s.paid.Hash = digest
	return s, f.mayPay(s)
}

// mayPay refuses what this facilitator does not settle for anybody.
func (f *Facilitator) mayPay(s *submission) *payment.Rejection {
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

// Verify says whether a payment would settle, for a caller as in Settle. One
// that was submitted before would, until somebody was told that it is settled:
// its server may not have heard the outcome, and asks again from the start. An
// error means that the chain or the store did not answer.
func (f *Facilitator) Verify(ctx context.Context, request x402.FacilitatorRequest, caller Caller) (x402.Verification, error) {
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

// verifyAgain returns why a payment that was submitted before is not valid any
// more, nil if it is.
func (f *Facilitator) verifyAgain(ctx context.Context, s *submission, intent *payment.Intent, caller Caller) error {
	switch {
	case intent.PayloadHash != s.paid.Hash:
		return otherPayload
	case intent.Evidence == nil && intent.State == payment.Failed:
		return refuse(x402.Reason(intent.Reason), "this payment was submitted and failed")
	}
	told, err := f.Store.Answered(ctx, intent.ID)
	if err == nil && told != "" && told != string(caller) {
		return served
	}
	return err
}

var (
	otherPayload = refuse(x402.ReasonOtherPayload, "another payload with this owner and nonce was submitted before")
	served       = refuse(x402.ReasonNonceSpent, "this payment is settled, and another call was told so")
)

func invalid(s *submission, why *payment.Rejection) x402.Verification {
	return x402.Verification{InvalidReason: onTheWire(why.Reason), InvalidMessage: why.Detail, Payer: s.payer()}
}

// onTheWire says in the official facilitators' words what they have a word for.
func onTheWire(reason x402.Reason) x402.Reason {
	if reason == x402.ReasonNonceSpent {
		return x402.ReasonInvalidNonce
	}
	return reason
}
