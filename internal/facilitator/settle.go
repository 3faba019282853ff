package facilitator

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"boxoffice"
	"boxoffice/internal/payment"
	"boxoffice/x402"
)

// Caller identifies who calls. A server that keeps a record of what it served
// sends an Idempotency-Key, which is the same whenever it repeats the call.
type Caller string

// Named returns the caller with an Idempotency-Key; without a key every call
// has another caller.
func Named(key string) Caller {
	if key == "" {
		return Caller("call:" + boxoffice.NewUUID())
	}
	return Caller(fmt.Sprintf("key:%x", sha256.Sum256([]byte(key))))
}

func (c Caller) hasKey() bool { return strings.HasPrefix(string(c), "key:") }

// Settle settles a payment, waits at most Wait for its outcome and sends it with
// send. A payment that is still pending then is answered ReasonPending; the same
// call later gets its outcome. An error means that the chain or the store did not
// answer, or that send failed: nothing is lost, and the caller makes the same call
// again.
//
//  1. The same payload again is the same payment. Another payload with the same
//     owner and nonce is refused.
//  2. The payment is verified. Nothing is saved about one that is refused.
//  3. The intent is saved. The settler settles it, also if the caller disconnects.
//  4. The first caller that gets the answer "settled" is saved before the answer is
//     sent. With TellOnce no other caller gets it, unless sending it failed.
func (f *Facilitator) Settle(
	ctx context.Context, request x402.FacilitatorRequest, caller Caller, send func(x402.Settlement) error,
) error {
	s, refused := f.read(request)
	if s == nil {
		return send(x402.Settlement{
			ErrorReason: refused.Reason, ErrorMessage: refused.Detail, Network: x402.Network(f.ChainID),
		})
	}
	if refused != nil {
		return send(f.failure(s, refused))
	}
	intent, err := f.Store.Submitted(ctx, f.ChainID, s.permit())
	if errors.Is(err, ErrNotFound) {
		intent, err = f.accept(ctx, s)
	}
	if err == nil && intent.PayloadHash != s.paid.Hash {
		err = otherPayload
	}
	if rejection, ok := errors.AsType[*payment.Rejection](err); ok {
		return send(f.failure(s, rejection))
	}
	if err != nil {
		return err
	}
	answer, err := f.await(ctx, s)
	switch {
	case err != nil:
		return err
	case !answer.Success:
		return send(answer)
	}
	return f.sendSettled(ctx, s, answer, intent.SubmissionID, caller, send)
}

// sendSettled answers a caller that the payment is settled, if this caller may get
// that answer. A caller without a key cannot repeat its call, so what it could not
// receive is left to the next one.
func (f *Facilitator) sendSettled(
	ctx context.Context, s *submission, answer x402.Settlement, id boxoffice.UUID,
	caller Caller, send func(x402.Settlement) error,
) error {
	reserved, err := f.Store.ReserveAnswer(ctx, id, string(caller))
	if err == nil && !reserved && f.TellOnce {
		return send(f.failure(s, served))
	}
	if err == nil {
		err = send(answer)
	}
	if err != nil && !caller.hasKey() {
		err = errors.Join(err, f.Store.ReleaseAnswer(context.WithoutCancel(ctx), id, string(caller)))
	}
	return err
}

// accept verifies and saves a payment. If another call saved one with the same
// owner and nonce first, accept returns that one.
func (f *Facilitator) accept(ctx context.Context, s *submission) (payment.Intent, error) {
	verified, err := f.Verifier.VerifyPermit(ctx, s.requirements, &s.paid)
	if err != nil {
		// Another call with the same payment may have been first, and be the reason
		// for the rejection: it has spent the nonce, for one.
		if earlier, found := f.Store.Submitted(ctx, f.ChainID, s.permit()); found == nil {
			return earlier, nil
		}
		return payment.Intent{}, err
	}
	saved, err := f.Store.Submit(ctx, payment.Intent{
		ID: boxoffice.NewUUID(), SubmissionID: boxoffice.NewUUID(), ChainID: f.ChainID, Permit: verified.Permit,
		Payload: s.paid.Raw, PayloadHash: s.paid.Hash, FromBlock: verified.Block, SubmittedAt: boxoffice.At(f.Now()),
		Progress: payment.Progress{State: payment.Waiting},
	})
	if errors.Is(err, ErrPermitTaken) {
		return payment.Intent{}, refuse(x402.ReasonOtherPayload, "this owner and nonce pay for something else")
	}
	if err != nil {
		return payment.Intent{}, err
	}
	f.Log.InfoContext(ctx, "payment submitted", "intent", saved.ID, "submission", saved.SubmissionID,
		"payTo", verified.Permit.Witness.To, "asset", verified.Permit.Permitted.Token)
	f.Accepted()
	return saved, nil
}

// pollEvery is how often a waiting call reads the store, because another process
// may have decided the payment.
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

// outcome returns the answer about a decided payment.
func (f *Facilitator) outcome(s *submission, intent *payment.Intent) (answer x402.Settlement, known bool) {
	switch {
	case intent.Evidence != nil: // also if a reorganisation removed the transfer: it is sent again
		return x402.Settlement{
			Success: true, Transaction: intent.Evidence.TxHash.Hex(), Network: x402.Network(f.ChainID),
			Payer: s.payer(), Amount: intent.Permit.Permitted.Amount.String(),
		}, true
	case intent.State == payment.Failed:
		return f.failure(s, refuse(x402.Reason(intent.Reason), "the payment could not be settled")), true
	}
	return x402.Settlement{}, false
}

// pending returns the answer about a payment that is not decided yet. Servers of
// the official packages repeat the call at once if it names a transaction.
func (f *Facilitator) pending(ctx context.Context, s *submission, id boxoffice.UUID) (x402.Settlement, error) {
	last, err := f.Store.LastTransaction(ctx, id)
	if err != nil {
		return x402.Settlement{}, err
	}
	answer := f.failure(s, refuse(
		x402.ReasonPending, "the payment is pending; send the same request again to get its outcome"))
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
