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
		fatal(t, beginPayment(t.Context(), store, intent, nil))
		waiting, err := store.Waiting(t.Context(), chainID, 10)
		fatal(t, err)
		same(t, waiting, []payment.Intent{intent})
	},

	"Reverts": func(t *testing.T, store Store) {
		_, intent := begin(t, store, alice, 1)
		outcomes := []payment.Outcome{payment.OutcomeReverted, payment.OutcomeReleased, payment.OutcomeReverted}
		for nonce, outcome := range outcomes {
			slot := carrying(uint64(nonce), intent)
			fatal(t, openSlot(t.Context(), store, slot))
			decision := payment.Decision{Intent: sent(intent, slot), Outcome: outcome}
			fatal(t, settle(t.Context(), store, &slot.ID, decisions{decision}, now))
			intent = after(decision)
		}
		if intent.Reverts != 2 {
			t.Errorf("%d reverts", intent.Reverts)
		}
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

	// A reorganisation that removes the transfer leaves the order paid. The intent is
	// settled again by the same transfer or by another, or it fails.
	"Undone": func(t *testing.T, store Store) {
		for name, then := range map[string]struct {
			nonce    uint64
			decision func(payment.Intent) payment.Decision
			want     func(*payment.Intent)
		}{
			"settled by the same": {
				1,
				func(i payment.Intent) payment.Decision { return settledBy(i, transfer(1)) },
				func(i *payment.Intent) { i.State, i.Evidence = payment.Settled, transfer(1) },
			},
			"settled by another": {
				2,
				func(i payment.Intent) payment.Decision { return settledBy(i, transfer(2)) },
				func(i *payment.Intent) { i.State, i.Evidence = payment.Settled, transfer(2) },
			},
			"failed": {
				3,
				func(i payment.Intent) payment.Decision { return failed(i, true) },
				func(i *payment.Intent) {
					i.State, i.Evidence, i.Reason, i.Final = payment.Failed, transfer(1), failed(*i, true).Reason, true
				},
			},
		} {
			t.Run(name, func(t *testing.T) {
				record, intent := begin(t, store, alice, then.nonce)
				fatal(t, settle(t.Context(), store, nil, decisions{settledBy(intent, transfer(1))}, now+minute))
				intent = after(settledBy(intent, transfer(1)))
				undone := decisions{undo(intent)}
				fatal(t, settle(t.Context(), store, nil, undone, now+2*minute))
				wantError(t, settle(t.Context(), store, nil, undone, now+2*minute), payment.ErrStale)
				got, last := status(t, store, record)
				if got != boxoffice.Paid || last.State != payment.Waiting || !last.Undone() {
					t.Errorf("the order is %s, its payment %s", got, last.State)
				}
				fatal(t, settle(t.Context(), store, nil, decisions{then.decision(after(undone[0]))}, now+3*minute))
				then.want(&intent)
				stored, err := store.Order(t.Context(), alice, record.ID)
				fatal(t, err)
				same(t, stored.Payment, &intent)
				if stored.Status != boxoffice.Paid || *stored.PaidAt != now+minute {
					t.Errorf("the order is %s", stored.Status)
				}
				if intent.State == payment.Settled { // the next case settles by the same log
					fatal(t, settle(t.Context(), store, nil, decisions{undo(intent)}, now))
				}
			})
		}
	},

	// A slot that opens again carries the intents that it had settled, but not one that
	// was sent in another slot since.
	"Reopen": func(t *testing.T, store Store) {
		_, early := begin(t, store, alice, 0)
		record, settled := begin(t, store, alice, 1)
		_, moved := begin(t, store, alice, 2)
		before, slot := carrying(4, early), carrying(5, settled, moved)
		ours := transfer(7)
		ours.TxHash = slot.Txs[0].Hash
		fatal(t, openSlot(t.Context(), store, before))
		fatal(t, settle(t.Context(), store, &before.ID, decisions{settledBy(sent(early, before), transfer(6))}, now))
		fatal(t, openSlot(t.Context(), store, slot))
		fatal(t, settle(t.Context(), store, &slot.ID, decisions{
			settledBy(sent(settled, slot), ours), released(sent(moved, slot)),
		}, now))
		later := carrying(6, moved)
		fatal(t, openSlot(t.Context(), store, later))
		settled, moved = after(settledBy(sent(settled, slot), ours)), sent(moved, later)
		slot.Intents, later.Intents = []payment.Intent{settled, moved}, []payment.Intent{moved}

		closed, err := store.ClosedSlots(t.Context(), chainID, wallet, 0)
		fatal(t, err)
		same(t, closed, []payment.Slot(nil))
		closed, err = store.ClosedSlots(t.Context(), chainID+1, sender, 0)
		fatal(t, err)
		same(t, closed, []payment.Slot(nil))
		closed, err = store.ClosedSlots(t.Context(), chainID, sender, 5)
		fatal(t, err)
		same(t, closed, []payment.Slot{slot})
		changes := payment.Resend(closed)
		stale := []payment.Change{changes[0]}
		stale[0].From.Reverts++
		wantError(t, store.ReopenSlots(t.Context(), closed, stale), payment.ErrStale)
		fatal(t, store.ReopenSlots(t.Context(), closed, changes))
		wantError(t, store.ReopenSlots(t.Context(), closed, nil), payment.ErrStale) // open again
		settled.State, settled.SlotID = payment.Sent, &slot.ID
		slot.Intents = []payment.Intent{settled}
		slots, err := store.Slots(t.Context(), chainID)
		fatal(t, err)
		same(t, slots, []payment.Slot{slot, later})
		wantStatus(t, store, record, boxoffice.Paid)
		fatal(t, store.AddTx(t.Context(), slot.ID, signed(99)))
		fatal(t, settle(t.Context(), store, &slot.ID, decisions{settledBy(settled, ours)}, now))
	},

	// A decision about an intent in one slot does not count once another slot carries
	// the intent, even if the first slot is open again.
	"DecidedInAnotherSlot": func(t *testing.T, store Store) {
		record, intent := begin(t, store, alice, 1)
		first, second := carrying(1, intent), carrying(2, intent)
		fatal(t, openSlot(t.Context(), store, first))
		inFirst := sent(intent, first)
		fatal(t, settle(t.Context(), store, &first.ID, decisions{released(inFirst)}, now))
		fatal(t, openSlot(t.Context(), store, second))
		fatal(t, store.ReopenSlots(t.Context(), []payment.Slot{first}, nil))
		for _, stale := range []payment.Decision{released(inFirst), settledBy(inFirst, transfer(1))} {
			wantError(t, settle(t.Context(), store, &first.ID, decisions{stale}, now), payment.ErrStale)
		}
		_, last := status(t, store, record)
		same(t, *last, sent(intent, second))
	},

	"Carried": func(t *testing.T, store Store) {
		_, first := begin(t, store, alice, 1)
		_, second := begin(t, store, alice, 2)
		slot := carrying(1, second, first)
		fatal(t, openSlot(t.Context(), store, slot))
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
