package order

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"boxoffice"
	"boxoffice/internal/crash"
	"boxoffice/internal/payment"
	"boxoffice/x402"
)

// Pay accepts a payment for an order (docs/protocol.md §4.4, mode 2) and waits at
// most Wait for its outcome. Everything that it returns was saved before, so a
// requester that received no response can send the same bytes again.
//
//  1. If the order already has this payment, Pay returns the saved outcome, also after
//     the quote expired.
//  2. An order whose payment is pending or settled accepts no other payment.
//  3. After a failure another payment is accepted only if the two can never both
//     settle.
//  4. The Verifier checks the payment. Until here nothing is saved and nothing is sent.
//  5. The intent is saved and the order becomes payment_pending, in one transaction.
//     Then the settler settles the intent, also after a crash.
func (f *Flow) Pay(
	ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID,
	paid *x402.Payment, approval boxoffice.Signature,
) (boxoffice.Status, error) {
	record, err := f.load(ctx, requester, id)
	if err != nil {
		return boxoffice.Status{}, err
	}
	if record.Payment == nil || record.Payment.PayloadHash != paid.Hash {
		if err := f.accept(ctx, record, paid, approval); err != nil {
			return boxoffice.Status{}, err
		}
	}
	return f.await(ctx, requester, id)
}

func (f *Flow) accept(ctx context.Context, record Record, paid *x402.Payment, approval boxoffice.Signature) error {
	if !record.takesPayment() {
		return errOtherPayment
	}
	if err := f.mustBePayable(record); err != nil {
		return err
	}
	if err := f.mustNotPayTwice(record.Payment, paid); err != nil {
		return err
	}
	challenge := f.challenge(record)
	quoteApproval, err := challenge.Approve(f.ServiceName, paid.Hash)
	if err != nil {
		return err
	}
	if quoteApproval.ChainID != f.ChainID { // the operator changed the configuration; the quote keeps its terms
		return unavailable(fmt.Errorf(
			"the quote is for chain %d, payments settle on chain %d", quoteApproval.ChainID, f.ChainID))
	}
	verified, err := f.Verifier.Verify(ctx, payment.Demand{
		Requirements: record.Requirements,
		ResourceURL:  challenge.ResourceURL,
		Approval:     quoteApproval,
		Payer:        record.Quote.Payer,
	}, paid, approval)
	if rejection, ok := errors.AsType[*payment.Rejection](err); ok {
		return &boxoffice.Problem{
			Code: boxoffice.PaymentRejected, Reason: string(rejection.Reason), Detail: rejection.Detail,
		}
	}
	if err != nil {
		return unavailable(err)
	}
	crash.At(crash.PaymentVerified)
	return f.begin(ctx, record, payment.Intent{
		ID: boxoffice.NewUUID(), OrderID: record.ID, ChainID: quoteApproval.ChainID,
		Permit: verified.Permit, FromBlock: verified.Block,
		Payload: paid.Raw, PayloadHash: paid.Hash, QuoteSignature: approval,
		SubmittedAt: boxoffice.At(f.Now()), Progress: payment.Progress{State: payment.Waiting},
	})
}

// mustNotPayTwice refuses another payment after a failed one if both could settle.
// Anyone who has the signature of the failed payment can settle it until its nonce
// is spent or its deadline has passed. Another payment is safe if the settler saw
// one of these in the confirmed chain, or if both payments spend the same Permit2
// nonce. The clock alone is no proof: another transaction may have settled the
// permit in its last second, and the settler may not have looked since.
func (f *Flow) mustNotPayTwice(last *payment.Intent, paid *x402.Payment) error {
	if last == nil || last.Final {
		return nil
	}
	next := paid.Payload.Payload.Authorization
	if next.From == last.Permit.From && next.Nonce == last.Permit.Nonce {
		return nil
	}
	deadline, _ := last.Permit.Deadline.Uint64() // fits: it was verified
	return &boxoffice.Problem{
		Code:       boxoffice.PaymentConflict,
		RetryAfter: max(retryAfterDeadline, int(int64(deadline)-f.Now().Unix())+retryAfterDeadline),
		Detail: fmt.Sprintf("the failed payment could still settle: "+
			"sign again with its Permit2 nonce %s, or wait until its deadline has passed", last.Permit.Nonce),
	}
}

// retryAfterDeadline is how many seconds after a deadline the settler has certainly
// seen a confirmed block that is later than it.
const retryAfterDeadline = 30

func (f *Flow) begin(ctx context.Context, record Record, intent payment.Intent) error {
	err := f.Store.BeginPayment(ctx, intent, Begin(&record, &intent))
	switch {
	case err == nil:
		crash.At(crash.PaymentSaved)
		f.Accepted()
		return nil
	case errors.Is(err, ErrPermitTaken):
		return &boxoffice.Problem{
			Code:   boxoffice.PaymentConflict,
			Detail: "this Permit2 nonce pays for another order; sign with another nonce",
		}
	case !errors.Is(err, ErrStale):
		return unavailable(err)
	}
	// Another submit was first. If it had the same payment, both have its outcome.
	current, err := f.load(ctx, record.Requester, record.ID)
	if err != nil {
		return err
	}
	if current.Payment == nil || current.Payment.PayloadHash != intent.PayloadHash {
		return errOtherPayment
	}
	return nil
}

var errOtherPayment = &boxoffice.Problem{
	Code:   boxoffice.PaymentConflict,
	Detail: "the order already has another payment that is pending or settled; read the order before paying",
}

// await returns the status of the order as soon as it is no longer pending, at the
// latest after Wait.
func (f *Flow) await(ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID) (boxoffice.Status, error) {
	timeout := time.NewTimer(f.Wait)
	defer timeout.Stop()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		changed := f.changed.next()
		status, err := f.Status(ctx, requester, id)
		if err != nil || !status.Status.Pending() {
			return status, err
		}
		select {
		case <-changed:
		case <-poll.C: // another process may have changed it
		case <-timeout.C:
			return status, nil
		case <-ctx.Done():
			return boxoffice.Status{}, unavailable(ctx.Err())
		}
	}
}

const pollEvery = 500 * time.Millisecond

// notifier lets any number of goroutines wait until some order has changed.
type notifier struct {
	mu   sync.Mutex
	wait chan struct{}
}

// next returns a channel that the next call of announce closes.
func (n *notifier) next() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.wait == nil {
		n.wait = make(chan struct{})
	}
	return n.wait
}

// announce wakes every goroutine that waits.
func (n *notifier) announce() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.wait != nil {
		close(n.wait)
		n.wait = nil
	}
}
