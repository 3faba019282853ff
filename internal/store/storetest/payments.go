package storetest

import (
	"context"
	"testing"

	"boxoffice"
	"boxoffice/internal/order"
	"boxoffice/internal/payment"
)

var paymentTests = map[string]func(*testing.T, Store){
	"Begin": func(t *testing.T, store Store) {
		record, intent := begin(t, store, alice, 7)
		record.Status, record.Payment = boxoffice.PaymentPending, &intent
		got, err := store.Order(t.Context(), alice, record.ID)
		fatal(t, err)
		same(t, got, record)
		waiting, err := store.Waiting(t.Context(), chainID, 10)
		fatal(t, err)
		same(t, waiting, []payment.Intent{intent})
	},

	"BeginUnknownOrder": func(t *testing.T, store Store) {
		intent := paying(t, quoted(t, alice), wallet, 1)
		wantError(t, beginPayment(t.Context(), store, intent, nil), order.ErrStale)
		wantError(t, beginPayment(t.Context(), store, intent, &intent.ID), order.ErrStale)
	},

	"BeginWhenPending": func(t *testing.T, store Store) {
		record, first := begin(t, store, alice, 1)
		second := paying(t, record, wallet, 2)
		wantError(t, beginPayment(t.Context(), store, second, nil), order.ErrStale)
		wantError(t, beginPayment(t.Context(), store, second, &first.ID), order.ErrStale)
		_, last := status(t, store, record)
		same(t, last, &first)
	},

	"BeginWhenPaid": func(t *testing.T, store Store) {
		record, first := pay(t, store, alice, 1)
		second := paying(t, record, wallet, 2)
		wantError(t, beginPayment(t.Context(), store, second, nil), order.ErrStale)
		wantError(t, beginPayment(t.Context(), store, second, &first.ID), order.ErrStale)
		wantStatus(t, store, record, boxoffice.Paid)
	},

	"BeginRace": func(t *testing.T, store Store) {
		record := create(t, store, alice)
		intents := make([]payment.Intent, racers)
		for i := range intents {
			intents[i] = paying(t, record, wallet, uint64(i))
		}
		if won := race(t, order.ErrStale, func(ctx context.Context, i int) error {
			return beginPayment(ctx, store, intents[i], nil)
		}); won != 1 {
			t.Errorf("%d payments began", won)
		}
		waiting, err := store.Waiting(t.Context(), chainID, 2*racers)
		fatal(t, err)
		_, last := status(t, store, record)
		same(t, waiting, []payment.Intent{*last})
	},

	"PermitRace": func(t *testing.T, store Store) {
		intents := make([]payment.Intent, racers)
		for i := range intents {
			intents[i] = paying(t, create(t, store, alice), wallet, 1)
		}
		if won := race(t, order.ErrPermitTaken, func(ctx context.Context, i int) error {
			return beginPayment(ctx, store, intents[i], nil)
		}); won != 1 {
			t.Errorf("%d orders got the same permit", won)
		}
	},

	"PermitTaken": func(t *testing.T, store Store) {
		_, first := begin(t, store, alice, 1)
		record := create(t, store, bob)
		wantError(t, beginPayment(t.Context(), store, paying(t, record, wallet, 1), nil), order.ErrPermitTaken)
		wantStatus(t, store, record, boxoffice.Quoted)

		// It stays with the first order, also when the failed payment is final.
		fatal(t, settle(t.Context(), store, nil, decisions{failed(first, true)}, now))
		wantError(t, beginPayment(t.Context(), store, paying(t, record, wallet, 1), nil), order.ErrPermitTaken)

		// The nonce of another owner, or of another chain, is another permit.
		elsewhere := paying(t, create(t, store, alice), wallet, 1)
		elsewhere.ChainID++
		fatal(t, beginPayment(t.Context(), store, elsewhere, nil))
		fatal(t, beginPayment(t.Context(), store, paying(t, record, other, 1), nil))
	},

	"ReplaceAfterFailure": func(t *testing.T, store Store) {
		record, first := begin(t, store, alice, 1)
		fatal(t, settle(t.Context(), store, nil, decisions{failed(first, false)}, now))
		second := paying(t, record, wallet, 1) // the same permit, which belongs to this order
		wantError(t, beginPayment(t.Context(), store, second, nil), order.ErrStale)
		wantError(t, beginPayment(t.Context(), store, second, &second.ID), order.ErrStale)
		fatal(t, beginPayment(t.Context(), store, second, &first.ID))
		wantStatus(t, store, record, boxoffice.PaymentPending)

		fatal(t, settle(t.Context(), store, nil, decisions{failed(second, false)}, now))
		third := paying(t, record, wallet, 2)
		wantError(t, beginPayment(t.Context(), store, third, &first.ID), order.ErrStale) // it is not the last payment
		fatal(t, beginPayment(t.Context(), store, third, &second.ID))
		_, last := status(t, store, record)
		same(t, last, &third)
	},

	"ReplaceRace": func(t *testing.T, store Store) {
		record, first := begin(t, store, alice, 100)
		fatal(t, settle(t.Context(), store, nil, decisions{failed(first, true)}, now))
		intents := make([]payment.Intent, racers)
		for i := range intents {
			intents[i] = paying(t, record, wallet, uint64(i))
		}
		if won := race(t, order.ErrStale, func(ctx context.Context, i int) error {
			return beginPayment(ctx, store, intents[i], &first.ID)
		}); won != 1 {
			t.Errorf("%d payments replaced the first", won)
		}
	},

	"WaitingOldestFirst": func(t *testing.T, store Store) {
		var want []payment.Intent
		for i := range uint64(5) {
			intent := paying(t, create(t, store, alice), wallet, i)
			intent.SubmittedAt = now - boxoffice.Timestamp(i)
			fatal(t, beginPayment(t.Context(), store, intent, nil))
			want = append([]payment.Intent{intent}, want...)
		}
		elsewhere := paying(t, create(t, store, alice), wallet, 9)
		elsewhere.ChainID++
		fatal(t, beginPayment(t.Context(), store, elsewhere, nil))
		got, err := store.Waiting(t.Context(), chainID, 3)
		fatal(t, err)
		same(t, got, want[:3])
		got, err = store.Waiting(t.Context(), chainID, 10)
		fatal(t, err)
		same(t, got, want)
	},

	"PendingAmount": func(t *testing.T, store Store) {
		wantPending := func(intent payment.Intent, chain uint64, want uint64) {
			t.Helper()
			got, err := store.PendingAmount(t.Context(), intent.Permit, chain)
			fatal(t, err)
			same(t, got, amount(want))
		}
		_, waiting := begin(t, store, alice, 1)
		_, underway := begin(t, store, bob, 2) // of the same wallet, but of another requester
		fatal(t, openSlot(t.Context(), store, carrying(0, underway)))
		wantPending(waiting, chainID, 600)
		pay(t, store, alice, 3)
		_, unsettled := begin(t, store, alice, 4)
		fatal(t, settle(t.Context(), store, nil, decisions{failed(unsettled, false)}, now))
		wantPending(waiting, chainID, 600)
		wantPending(waiting, chainID+1, 0)
		wantPending(paying(t, quoted(t, alice), other, 1), chainID, 0)
		elsewhere := waiting
		elsewhere.Permit.Permitted.Token = address("another token")
		wantPending(elsewhere, chainID, 0)
	},

	"PendingAmountBeyondAllBalances": func(t *testing.T, store Store) {
		var last payment.Intent
		for nonce := range uint64(2) {
			record := quoted(t, alice)
			record.Requirements.Amount = most
			_, _, err := store.Create(t.Context(), record)
			fatal(t, err)
			last = paying(t, record, wallet, nonce)
			fatal(t, beginPayment(t.Context(), store, last, nil))
		}
		got, err := store.PendingAmount(t.Context(), last.Permit, chainID)
		fatal(t, err)
		same(t, got, most)
	},

	"LargestNonce": func(t *testing.T, store Store) {
		record := create(t, store, alice)
		intent := payingWith(t, record, wallet, most)
		fatal(t, beginPayment(t.Context(), store, intent, nil))
		_, last := status(t, store, record)
		same(t, last, &intent)
		again := payingWith(t, create(t, store, bob), wallet, most)
		wantError(t, beginPayment(t.Context(), store, again, nil), order.ErrPermitTaken)
	},
}
