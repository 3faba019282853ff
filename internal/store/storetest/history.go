package storetest

import (
	"testing"

	"boxoffice"
	"boxoffice/internal/payment"
)

var historyTests = map[string]func(*testing.T, Store){
	"FromBlock": func(t *testing.T, store Store) {
		intent := paying(t, create(t, store, alice), wallet, 1)
		intent.FromBlock = 1 << 40
		fatal(t, store.BeginPayment(t.Context(), intent, nil))
		waiting, err := store.Waiting(t.Context(), chainID, 10)
		fatal(t, err)
		same(t, waiting, []payment.Intent{intent})
	},

	"Reverts": func(t *testing.T, store Store) {
		_, intent := begin(t, store, alice, 1)
		for nonce, outcome := range []payment.Outcome{payment.OutcomeReverted, payment.OutcomeReleased, payment.OutcomeReverted} {
			slot := carrying(uint64(nonce), intent)
			fatal(t, store.OpenSlot(t.Context(), slot))
			fatal(t, store.Settle(t.Context(), &slot.ID, []payment.Decision{{IntentID: intent.ID, Outcome: outcome}}, now))
		}
		intent.Reverts = 2
		waiting, err := store.Waiting(t.Context(), chainID, 10)
		fatal(t, err)
		same(t, waiting, []payment.Intent{intent})
	},

	"Settled": func(t *testing.T, store Store) {
		pay(t, store, alice, 1)
		_, second := pay(t, store, alice, 2)
		_, third := pay(t, store, bob, 3)
		begin(t, store, bob, 4)
		for intent, n := range map[*payment.Intent]uint64{&second: 2, &third: 3} {
			intent.State, intent.Evidence = payment.Settled, transfer(n)
		}
		got, err := store.Settled(t.Context(), chainID, transfer(2).BlockNumber, 10)
		fatal(t, err)
		same(t, got, []payment.Intent{third, second})
		got, err = store.Settled(t.Context(), chainID, 0, 1)
		fatal(t, err)
		same(t, got, []payment.Intent{third})
		got, err = store.Settled(t.Context(), chainID+1, 0, 10)
		fatal(t, err)
		same(t, got, []payment.Intent(nil))
	},

	// What the chain takes back leaves the order paid, and can be settled again
	// by the same transfer, by another, or not at all.
	"Undone": func(t *testing.T, store Store) {
		for name, then := range map[string]struct {
			decision func(payment.Intent) payment.Decision
			want     func(*payment.Intent)
		}{
			"settled by the same": {
				func(i payment.Intent) payment.Decision { return settledBy(i, transfer(1)) },
				func(i *payment.Intent) { i.State, i.Evidence = payment.Settled, transfer(1) },
			},
			"settled by another": {
				func(i payment.Intent) payment.Decision { return settledBy(i, transfer(2)) },
				func(i *payment.Intent) { i.State, i.Evidence = payment.Settled, transfer(2) },
			},
			"failed": {
				func(i payment.Intent) payment.Decision { return failed(i, true) },
				func(i *payment.Intent) {
					i.State, i.Evidence, i.Reason, i.Final = payment.Failed, transfer(1), failed(*i, true).Reason, true
				},
			},
		} {
			t.Run(name, func(t *testing.T) {
				record, intent := begin(t, store, alice, map[string]uint64{"settled by the same": 1, "settled by another": 2, "failed": 3}[name])
				fatal(t, store.Settle(t.Context(), nil, []payment.Decision{settledBy(intent, transfer(1))}, now+minute))
				undone := []payment.Decision{{IntentID: intent.ID, Outcome: payment.OutcomeUndone}}
				fatal(t, store.Settle(t.Context(), nil, undone, now+2*minute))
				wantError(t, store.Settle(t.Context(), nil, undone, now+2*minute), payment.ErrStale)
				got, last := status(t, store, record)
				if got != boxoffice.Paid || last.State != payment.Waiting || !last.Undone() {
					t.Errorf("the order is %s, its payment %s", got, last.State)
				}
				fatal(t, store.Settle(t.Context(), nil, []payment.Decision{then.decision(intent)}, now+3*minute))
				then.want(&intent)
				after, err := store.Order(t.Context(), alice, record.ID)
				fatal(t, err)
				same(t, after.Payment, &intent)
				if after.Status != boxoffice.Paid || *after.PaidAt != now+minute {
					t.Errorf("the order is %s", after.Status)
				}
				if intent.State == payment.Settled { // leaves the log to the next
					fatal(t, store.Settle(t.Context(), nil, undone, now))
				}
			})
		}
	},

	// A slot that opens again has what it had settled, and not what went on since.
	"Reopen": func(t *testing.T, store Store) {
		_, early := begin(t, store, alice, 0)
		record, settled := begin(t, store, alice, 1)
		_, released := begin(t, store, alice, 2)
		before, slot := carrying(4, early), carrying(5, settled, released)
		ours := transfer(7)
		ours.TxHash = slot.Txs[0].Hash
		fatal(t, store.OpenSlot(t.Context(), before))
		fatal(t, store.Settle(t.Context(), &before.ID, []payment.Decision{settledBy(early, transfer(6))}, now))
		fatal(t, store.OpenSlot(t.Context(), slot))
		fatal(t, store.Settle(t.Context(), &slot.ID, []payment.Decision{
			settledBy(settled, ours), {IntentID: released.ID, Outcome: payment.OutcomeReleased},
		}, now))
		later := carrying(6, released)
		fatal(t, store.OpenSlot(t.Context(), later))

		n, err := store.ReopenSlots(t.Context(), chainID, wallet, 0)
		fatal(t, err)
		same(t, n, 0)
		n, err = store.ReopenSlots(t.Context(), chainID, sender, 5)
		fatal(t, err)
		same(t, n, 1)
		settled.State, settled.Evidence = payment.Sent, ours
		released.State = payment.Sent
		slot.Intents, later.Intents = []payment.Intent{settled}, []payment.Intent{released}
		slots, err := store.Slots(t.Context(), chainID, sender)
		fatal(t, err)
		same(t, slots, []payment.Slot{slot, later})
		wantStatus(t, store, record, boxoffice.Paid)
		fatal(t, store.AddTx(t.Context(), slot.ID, signed(99)))
		fatal(t, store.Settle(t.Context(), &slot.ID, []payment.Decision{settledBy(settled, ours)}, now))
	},

	"Carried": func(t *testing.T, store Store) {
		_, first := begin(t, store, alice, 1)
		_, second := begin(t, store, alice, 2)
		slot := carrying(1, second, first)
		fatal(t, store.OpenSlot(t.Context(), slot))
		fatal(t, store.AddTx(t.Context(), slot.ID, signed(5)))
		ours, carried, err := store.Carried(t.Context(), signed(5).Hash)
		fatal(t, err)
		if !ours {
			t.Error("our transaction is not ours")
		}
		same(t, carried, []boxoffice.UUID{second.ID, first.ID})
		ours, carried, err = store.Carried(t.Context(), signed(6).Hash)
		fatal(t, err)
		if ours || len(carried) > 0 {
			t.Errorf("a foreign transaction is ours and carried %v", carried)
		}
	},
}
