package storetest

import (
	"context"
	"testing"

	"boxoffice"
	"boxoffice/internal/facilitator"
	"boxoffice/internal/order"
	"boxoffice/internal/payment"
)

// submission returns a payment that another server submits, with a Permit2 nonce
// of the wallet.
func submission(t testing.TB, nonce uint64) payment.Intent {
	t.Helper()
	intent := paying(t, quoted(t, alice), wallet, nonce)
	intent.OrderID, intent.SubmissionID, intent.QuoteSignature = "", boxoffice.NewUUID(), boxoffice.Signature{}
	return intent
}

var submissionTests = map[string]func(*testing.T, Store){
	"Submit": func(t *testing.T, store Store) {
		first := submission(t, 1)
		_, err := store.Submitted(t.Context(), chainID, first.Permit)
		wantError(t, err, facilitator.ErrNotFound)
		for _, again := range []payment.Intent{first, submission(t, 1), submission(t, 1)} {
			saved, err := store.Submit(t.Context(), again)
			fatal(t, err)
			same(t, saved, first)
		}
		got, err := store.Submitted(t.Context(), chainID, first.Permit)
		fatal(t, err)
		same(t, got, first)
		next := submission(t, 2)
		saved, err := store.Submit(t.Context(), next)
		fatal(t, err)
		same(t, saved, next)
		waiting, err := store.Waiting(t.Context(), chainID, 10)
		fatal(t, err)
		if len(waiting) != 2 {
			t.Errorf("%d submissions are waiting", len(waiting))
		}
	},

	"SubmitRace": func(t *testing.T, store Store) {
		saved := make([]payment.Intent, racers)
		race(t, nil, func(ctx context.Context, i int) (err error) {
			saved[i], err = store.Submit(ctx, submission(t, 1))
			return err
		})
		for _, intent := range saved {
			same(t, intent, saved[0])
		}
	},

	// A Permit2 nonce pays for an order or for a submission, never for both.
	"PermitOfOrderAndSubmission": func(t *testing.T, store Store) {
		_, err := store.Submit(t.Context(), submission(t, 1))
		fatal(t, err)
		record := create(t, store, alice)
		wantError(t, beginPayment(t.Context(), store, paying(t, record, wallet, 1), nil), order.ErrPermitTaken)
		fatal(t, beginPayment(t.Context(), store, paying(t, record, wallet, 2), nil))
		_, err = store.Submit(t.Context(), submission(t, 2))
		wantError(t, err, facilitator.ErrPermitTaken)
	},

	// A submission shares a slot with the payment of an order, and becomes no order.
	"Settle": func(t *testing.T, store Store) {
		record, ordered := begin(t, store, alice, 1)
		submitted, err := store.Submit(t.Context(), submission(t, 2))
		fatal(t, err)
		slot := carrying(1, ordered, submitted)
		fatal(t, openSlot(t.Context(), store, slot))
		replacement := signed(1)
		fatal(t, store.AddTx(t.Context(), slot.ID, replacement))
		last, err := store.LastTransaction(t.Context(), submitted.ID)
		fatal(t, err)
		same(t, last, &replacement.Hash)
		waiting, err := store.Submit(t.Context(), submission(t, 3))
		fatal(t, err)
		last, err = store.LastTransaction(t.Context(), waiting.ID)
		fatal(t, err)
		if last != nil {
			t.Errorf("%s carries a waiting submission", last)
		}
		decision := settledBy(sent(submitted, slot), transfer(2))
		both := decisions{settledBy(sent(ordered, slot), transfer(1)), decision}
		fatal(t, settle(t.Context(), store, &slot.ID, both, now))

		got, err := store.Submitted(t.Context(), chainID, submitted.Permit)
		fatal(t, err)
		same(t, got, after(decision))
		last, err = store.LastTransaction(t.Context(), submitted.ID)
		fatal(t, err)
		if last != nil {
			t.Errorf("%s still carries a settled submission", last)
		}
		unadmitted, err := store.Unadmitted(t.Context(), 10)
		fatal(t, err)
		if len(unadmitted) != 1 || unadmitted[0].ID != record.ID {
			t.Errorf("%d orders to admit", len(unadmitted))
		}
	},

	// A submission whose transfer a reorganisation removed waits again, and is settled
	// by another transfer.
	"Undone": func(t *testing.T, store Store) {
		intent, err := store.Submit(t.Context(), submission(t, 1))
		fatal(t, err)
		for _, next := range []func() payment.Decision{
			func() payment.Decision { return settledBy(intent, transfer(1)) },
			func() payment.Decision { return undo(intent) },
			func() payment.Decision { return settledBy(intent, transfer(2)) },
		} {
			decision := next()
			fatal(t, settle(t.Context(), store, nil, decisions{decision}, now))
			intent = after(decision)
			got, err := store.Submitted(t.Context(), chainID, intent.Permit)
			fatal(t, err)
			same(t, got, intent)
		}
		same(t, intent.Evidence, transfer(2))
	},

	// A failed submission that could still be settled is unresolved.
	"Unresolved": func(t *testing.T, store Store) {
		intent, err := store.Submit(t.Context(), submission(t, 1))
		fatal(t, err)
		for _, final := range []bool{false, true} {
			decision := failed(intent, final)
			fatal(t, settle(t.Context(), store, nil, decisions{decision}, now))
			intent = after(decision)
			want := []payment.Intent{intent}
			if final {
				want = nil
			}
			got, err := store.Unresolved(t.Context(), chainID, 10)
			fatal(t, err)
			same(t, got, want)
		}
	},

	// The largest log index of a facilitator's answer, which names no real log.
	"LargestLogIndex": func(t *testing.T, store Store) {
		intent, err := store.Submit(t.Context(), submission(t, 1))
		fatal(t, err)
		evidence := &payment.Evidence{TxHash: digest(1), LogIndex: 1<<63 - 1, SettledAt: now}
		fatal(t, settle(t.Context(), store, nil, decisions{settledBy(intent, evidence)}, now))
		got, err := store.Submitted(t.Context(), chainID, intent.Permit)
		fatal(t, err)
		same(t, got.Evidence, evidence)
	},

	// One caller gets the answer, as often as it asks, until that is released.
	"ReserveAnswer": func(t *testing.T, store Store) {
		saved, err := store.Submit(t.Context(), submission(t, 1))
		fatal(t, err)
		reserve := func(caller string, want bool, answered string) {
			t.Helper()
			reserved, err := store.ReserveAnswer(t.Context(), saved.SubmissionID, caller)
			fatal(t, err)
			same(t, reserved, want)
			got, err := store.AnsweredCaller(t.Context(), saved.SubmissionID)
			fatal(t, err)
			same(t, got, answered)
		}
		another, err := store.Submit(t.Context(), submission(t, 2))
		fatal(t, err)
		unanswered := func(submission payment.Intent) {
			t.Helper()
			caller, err := store.AnsweredCaller(t.Context(), submission.SubmissionID)
			fatal(t, err)
			same(t, caller, "")
		}
		unanswered(saved)
		reserve("a", true, "a")
		unanswered(another)
		fatal(t, store.ReleaseAnswer(t.Context(), another.SubmissionID, "a"))
		reserve("b", false, "a")
		reserve("a", true, "a")
		fatal(t, store.ReleaseAnswer(t.Context(), saved.SubmissionID, "b"))
		reserve("b", false, "a")
		fatal(t, store.ReleaseAnswer(t.Context(), saved.SubmissionID, "a"))
		reserve("b", true, "b")
	},

	"Exposed": func(t *testing.T, store Store) {
		_, intent := begin(t, store, alice, 1)
		mark := func(want bool) {
			t.Helper()
			before, err := store.MarkExposed(t.Context(), intent.ID)
			fatal(t, err)
			same(t, before, want)
		}
		mark(false)
		mark(true)
		fatal(t, store.ClearExposed(t.Context(), intent.ID))
		mark(false)
	},
}
