package facilitator

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"boxoffice"
	"boxoffice/internal/payment"
	"boxoffice/x402"
)

// Caller is who asks. A server that remembers what
// it served names itself and the sale with an Idempotency-Key, and is told again
// as often as it asks.
type Caller string

// Named returns the caller with an Idempotency-Key, a new one without.
func Named(key string) Caller {
	if key == "" {
		return Caller("call:" + boxoffice.NewUUID())
	}
	return Caller(fmt.Sprintf("key:%x", sha256.Sum256([]byte(key))))
}

func (c Caller) remembers() bool { return strings.HasPrefix(string(c), "key:") }

// Settle settles a payment, waits a moment for its outcome and tells it. A
// payment that is under way after that is ReasonPending; the same call again
// tells what has become of it. An error means that the chain or the store did
// not answer, or the error is tell's: nothing is lost, and the same call is to
// be made again.
//
//  1. The same payload again is the same payment; another payload with its owner
//     and nonce is refused.
//  2. Everything is verified. A payment that is refused here leaves no trace.
//  3. The intent is saved. From here on the settler owns it; a caller that goes
//     away changes nothing.
//  4. The first caller who is told that it is settled is noted. Where TellOnce
//     is set nobody else is told, unless that one could not be.
func (f *Facilitator) Settle(ctx context.Context, request x402.FacilitatorRequest, caller Caller, tell func(x402.Settlement) error) error {
	s, refused := f.read(request)
	if s == nil {
		return tell(x402.Settlement{ErrorReason: refused.Reason, ErrorMessage: refused.Detail, Network: x402.Network(f.ChainID)})
	}
	if refused != nil {
		return tell(f.failure(s, refused))
	}
	intent, err := f.Store.Submitted(ctx, f.ChainID, s.permit())
	if errors.Is(err, ErrNotFound) {
		intent, err = f.accept(ctx, s)
	}
	if err == nil && intent.PayloadHash != s.paid.Hash {
		err = otherPayload
	}
	if rejection, ok := errors.AsType[*payment.Rejection](err); ok {
		return tell(f.failure(s, rejection))
	}
	if err != nil {
		return err
	}
	answer, err := f.await(ctx, s)
	switch {
	case err != nil:
		return err
	case !answer.Success:
		return tell(answer)
	}
	return f.tellSettled(ctx, s, answer, intent.ID, caller, tell)
}

// tellSettled tells a caller that the payment is settled, if it may know.
func (f *Facilitator) tellSettled(ctx context.Context, s *submission, answer x402.Settlement, id boxoffice.UUID, caller Caller, tell func(x402.Settlement) error) error {
	free, err := f.Store.Answer(ctx, id, string(caller))
	if err == nil && !free && f.TellOnce {
		return tell(f.failure(s, served))
	}
	if err == nil {
		err = tell(answer)
	}
	if err != nil && !caller.remembers() {
		err = errors.Join(err, f.Store.Unanswer(context.WithoutCancel(ctx), id, string(caller)))
	}
	return err
}

// accept verifies and saves a payment. The one it returns may be another, with
// the same owner and nonce, that was faster.
func (f *Facilitator) accept(ctx context.Context, s *submission) (payment.Intent, error) {
	verified, err := f.Verifier.VerifyPermit(ctx, s.requirements, &s.paid)
	if err != nil {
		// Its twin may have been faster, and be what speaks against it now.
		if earlier, found := f.Store.Submitted(ctx, f.ChainID, s.permit()); found == nil {
			return earlier, nil
		}
		return payment.Intent{}, err
	}
	requirements, err := json.Marshal(s.requirements)
	if err != nil {
		return payment.Intent{}, err
	}
	saved, err := f.Store.Submit(ctx, payment.Intent{
		ID: boxoffice.NewUUID(), OrderID: boxoffice.NewUUID(), ChainID: f.ChainID, Permit: verified.Permit, FromBlock: verified.Block,
		Payload: s.paid.Raw, PayloadHash: s.paid.Hash, SubmittedAt: boxoffice.At(f.Now()), Progress: payment.Progress{State: payment.Waiting},
	}, requirements)
	if errors.Is(err, ErrPermitTaken) {
		return payment.Intent{}, refuse(x402.ReasonOtherPayload, "this owner and nonce pay for something else")
	}
	if err != nil {
		return payment.Intent{}, err
	}
	f.Log.InfoContext(ctx, "payment submitted", "intent", saved.ID, "payTo", verified.Permit.Witness.To, "asset", verified.Permit.Permitted.Token)
	f.Accepted()
	return saved, nil
}

// pollEvery is how often a call that waits looks for a decision of another
// process.
const pollEvery = 500 * time.Millisecond

func (f *Facilitator) await(ctx context.Context, s *submission) (x402.Settlement, error) {
	timeout := time.NewTimer(f.Wait)
	defer timeout.Stop()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		decided := f.nextDecision()
		intent, err := f.Store.Submitted(ctx, f.ChainID, s.permit())
		if err != nil {
			return x402.Settlement{}, err
		}
		if answer, known := f.outcome(s, &intent); known {
			return answer, nil
		}
		select {
		case <-decided:
		case <-poll.C:
		case <-timeout.C:
			return f.pending(ctx, s, intent.ID)
		case <-ctx.Done():
			return x402.Settlement{}, ctx.Err()
		}
	}
}

// outcome is the answer about a payment that is decided.
func (f *Facilitator) outcome(s *submission, intent *payment.Intent) (answer x402.Settlement, known bool) {
	switch {
	case intent.Evidence != nil: // also if the chain took it back: it is sent again
		return x402.Settlement{
			Success: true, Transaction: intent.Evidence.TxHash.Hex(), Network: x402.Network(f.ChainID),
			Payer: s.payer(), Amount: intent.Permit.Permitted.Amount.String(),
		}, true
	case intent.State == payment.Failed:
		return f.failure(s, refuse(x402.Reason(intent.Reason), "the payment could not be settled")), true
	}
	return x402.Settlement{}, false
}

// pending is the answer about a payment that is not decided yet. Servers of the
// official packages ask again at once if it names a transaction.
func (f *Facilitator) pending(ctx context.Context, s *submission, id boxoffice.UUID) (x402.Settlement, error) {
	last, err := f.Store.LastTransaction(ctx, id)
	if err != nil {
		return x402.Settlement{}, err
	}
	answer := f.failure(s, refuse(x402.ReasonPending, "the payment is under way; send the same request again to learn its outcome"))
	if last != nil {
		answer.Transaction = last.Hex()
	}
	return answer, nil
}

func (f *Facilitator) failure(s *submission, why *payment.Rejection) x402.Settlement {
	return x402.Settlement{
		ErrorReason: onTheWire(why.Reason), ErrorMessage: why.Detail,
		Network: x402.Network(f.ChainID), Payer: s.payer(),
	}
}
