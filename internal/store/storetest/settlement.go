package storetest

import (
	"context"
	"errors"
	"testing"

	"boxoffice"
	"boxoffice/internal/order"
	"boxoffice/internal/payment"
)

var settlementTests = map[string]func(*testing.T, Store){
	"HoldLease": func(t *testing.T, store Store) {
		for _, step := range []struct {
			name       string
			holder     string
			now, until boxoffice.Timestamp
			want       bool
		}{
			{"free", "a", now, now + minute, true},
			{"held by another", "b", now, now + 2*minute, false},
			{"held by another until the last moment", "b", now + minute - 1, now + 2*minute, false},
			{"renewed", "a", now + 1, now + 2*minute, true},
			{"held after renewal", "b", now + minute, now + 3*minute, false},
			{"ended", "b", now + 2*minute, now + 3*minute, true},
			{"lost to the new holder", "a", now + 2*minute, now + 4*minute, false},
			{"given up", "b", now + 2*minute, now + 2*minute, true},
			{"taken after it was given up", "a", now + 2*minute, now + 4*minute, true},
			{"the clock of another is behind by the length of the lease", "b", now, now + minute, false},
			{"the clock was set back by more", "b", now - 1, now + minute, true},
		} {
			held, err := store.HoldLease(t.Context(), "settler", step.holder, step.now, step.until)
			fatal(t, err)
			if held != step.want {
				t.Errorf("%s: held is %t", step.name, held)
			}
		}
		held, err := store.HoldLease(t.Context(), "another settler", "a", now, now+minute)
		fatal(t, err)
		same(t, held, true)
	},

	"LeaseRace": func(t *testing.T, store Store) {
		if won := race(t, payment.ErrStale, func(ctx context.Context, i int) error {
			held, err := store.HoldLease(ctx, "settler", string(rune('a'+i)), now, now+minute)
			if err == nil && !held {
				err = payment.ErrStale
			}
			return err
		}); won != 1 {
			t.Errorf("%d settlers hold one lease", won)
		}
	},

	"OpenSlot": func(t *testing.T, store Store) {
		_, first := begin(t, store, alice, 1)
		_, second := begin(t, store, bob, 2)
		_, third := begin(t, store, alice, 3)
		late, early := carrying(12, third, first), carrying(11, second)
		early.Sender = wallet // an older settlement key
		fatal(t, openSlot(t.Context(), store, late))
		fatal(t, openSlot(t.Context(), store, early))
		replacement, another := signed(900), signed(800)
		fatal(t, store.AddTx(t.Context(), late.ID, replacement))
		fatal(t, store.AddTx(t.Context(), late.ID, another))

		for _, slot := range []payment.Slot{late, early} {
			for i := range slot.Intents {
				slot.Intents[i] = sent(slot.Intents[i], slot)
			}
		}
		late.Txs = append(late.Txs, replacement, another)
		got, err := store.Slots(t.Context(), chainID)
		fatal(t, err)
		same(t, got, []payment.Slot{early, late})

		waiting, err := store.Waiting(t.Context(), chainID, 10)
		fatal(t, err)
		same(t, waiting, []payment.Intent(nil))
		elsewhere, err := store.Slots(t.Context(), chainID+1)
		fatal(t, err)
		same(t, elsewhere, []payment.Slot(nil))
	},

	"OpenSlotStale": func(t *testing.T, store Store) {
		_, taken := begin(t, store, alice, 1)
		_, waiting := begin(t, store, alice, 2)
		open := carrying(5, taken)
		fatal(t, openSlot(t.Context(), store, open))
		sameTx := carrying(6, waiting)
		sameTx.Txs[0].Hash = open.Txs[0].Hash
		elsewhere := carrying(6, waiting)
		elsewhere.ChainID++
		for name, slot := range map[string]payment.Slot{
			"nonce taken":          carrying(5, waiting),
			"intent sent already":  carrying(6, waiting, taken),
			"intent unknown":       carrying(6, waiting, paying(t, quoted(t, alice), wallet, 3)),
			"intent twice":         carrying(6, waiting, waiting),
			"transaction saved":    sameTx,
			"intent of else chain": elsewhere,
		} {
			t.Run(name, func(t *testing.T) {
				wantError(t, openSlot(t.Context(), store, slot), payment.ErrStale)
				got, err := store.Waiting(t.Context(), chainID, 10)
				fatal(t, err)
				same(t, got, []payment.Intent{waiting})
				slots, err := store.Slots(t.Context(), slot.ChainID)
				fatal(t, err)
				if slot.ChainID != chainID {
					same(t, slots, []payment.Slot(nil))
				} else if len(slots) != 1 || len(slots[0].Txs) != 1 {
					t.Errorf("open slots: %v", slots)
				}
			})
		}
		fatal(t, openSlot(t.Context(), store, carrying(6, waiting)))
	},

	"OpenSlotRace": func(t *testing.T, store Store) {
		_, intent := begin(t, store, alice, 1)
		if won := race(t, payment.ErrStale, func(ctx context.Context, i int) error {
			return openSlot(ctx, store, carrying(uint64(i), intent))
		}); won != 1 {
			t.Errorf("%d slots carry one payment", won)
		}
	},

	"WalletNonceRace": func(t *testing.T, store Store) {
		intents := make([]payment.Intent, racers)
		for i := range intents {
			_, intents[i] = begin(t, store, alice, uint64(i))
		}
		if won := race(t, payment.ErrStale, func(ctx context.Context, i int) error {
			return openSlot(ctx, store, carrying(1, intents[i]))
		}); won != 1 {
			t.Errorf("%d slots have one wallet nonce", won)
		}
	},

	"AddTxStale": func(t *testing.T, store Store) {
		_, intent := begin(t, store, alice, 1)
		slot := carrying(1, intent)
		wantError(t, store.AddTx(t.Context(), slot.ID, signed(2)), payment.ErrStale)
		fatal(t, openSlot(t.Context(), store, slot))
		wantError(t, store.AddTx(t.Context(), slot.ID, slot.Txs[0]), payment.ErrStale)
		fatal(t, settle(t.Context(), store, &slot.ID, decisions{settledBy(sent(intent, slot), transfer(1))}, now))
		wantError(t, store.AddTx(t.Context(), slot.ID, signed(2)), payment.ErrStale)
	},

	"SettleSlot": func(t *testing.T, store Store) {
		good, goodIntent := begin(t, store, alice, 1)
		bad, badIntent := begin(t, store, alice, 2)
		back, backIntent := begin(t, store, bob, 3)
		slot := carrying(1, goodIntent, badIntent, backIntent)
		fatal(t, openSlot(t.Context(), store, slot))
		at := now + 3*minute
		fatal(t, settle(t.Context(), store, &slot.ID, decisions{
			settledBy(sent(goodIntent, slot), transfer(1)), reverted(sent(badIntent, slot)),
			released(sent(backIntent, slot)),
		}, at))

		goodIntent.State, goodIntent.Evidence = payment.Settled, transfer(1)
		good.Status, good.PaidAt, good.Payment = boxoffice.Paid, &at, &goodIntent
		badIntent.Reverts = 1
		bad.Status, bad.Payment = boxoffice.PaymentPending, &badIntent
		back.Status, back.Payment = boxoffice.PaymentPending, &backIntent
		for _, want := range []order.Record{good, bad, back} {
			got, err := store.Order(t.Context(), want.Requester, want.ID)
			fatal(t, err)
			same(t, got, want)
		}

		slots, err := store.Slots(t.Context(), chainID)
		fatal(t, err)
		same(t, slots, []payment.Slot(nil))
		wantError(t, settle(t.Context(), store, &slot.ID, nil, now), payment.ErrStale) // closed
		wantError(t, openSlot(t.Context(), store, carrying(1, backIntent)), payment.ErrStale)
		fatal(t, openSlot(t.Context(), store, carrying(2, backIntent))) // released: it can be sent again
	},

	"SettleIsAllOrNothing": func(t *testing.T, store Store) {
		paid, paidIntent := pay(t, store, bob, 9)
		finalOrder, final := begin(t, store, bob, 8)
		fatal(t, settle(t.Context(), store, nil, decisions{failed(final, true)}, now))
		first, firstIntent := begin(t, store, alice, 1)
		second, secondIntent := begin(t, store, alice, 2)
		waiting, waitingIntent := begin(t, store, alice, 3)
		slot := carrying(1, firstIntent, secondIntent)
		fatal(t, openSlot(t.Context(), store, slot))
		unknown := paying(t, quoted(t, alice), wallet, 4)
		stale := firstIntent
		firstIntent, secondIntent = sent(firstIntent, slot), sent(secondIntent, slot)
		good := settledBy(firstIntent, transfer(1))
		noEvidence, noReason, noOutcome := settledBy(secondIntent, nil), failed(waitingIntent, false), released(secondIntent)
		noReason.Reason, noOutcome.Outcome = "", "perhaps"

		for name, test := range map[string]struct {
			slot      *boxoffice.UUID
			decisions []payment.Decision
			want      error // nil: any other error, because the caller made a mistake
		}{
			"an intent of the slot undecided": {
				&slot.ID, decisions{good}, payment.ErrStale,
			},
			"a sent intent failed": {
				&slot.ID, decisions{good, failed(secondIntent, false)}, nil,
			},
			"an intent unknown": {
				&slot.ID, decisions{good, released(secondIntent), failed(unknown, false)}, payment.ErrStale,
			},
			"an intent settled before": {
				&slot.ID, decisions{good, released(secondIntent), failed(paidIntent, true)}, payment.ErrStale,
			},
			"an intent settled twice": {
				&slot.ID, decisions{good, good, released(secondIntent)}, payment.ErrStale,
			},
			"an intent final before": {
				&slot.ID, decisions{good, released(secondIntent), settledBy(final, transfer(3))}, payment.ErrStale,
			},
			"an intent sent meanwhile": {
				nil, decisions{failed(waitingIntent, false), settledBy(stale, transfer(1))}, payment.ErrStale,
			},
			"a waiting intent released": {
				&slot.ID, decisions{good, released(secondIntent), released(waitingIntent)}, nil,
			},
			"a log credited before": {
				&slot.ID, decisions{good, settledBy(secondIntent, transfer(9))}, payment.ErrCredited,
			},
			"a log credited twice": {
				&slot.ID, decisions{good, settledBy(secondIntent, transfer(1))}, payment.ErrCredited,
			},
			"a sent intent without its slot": {
				nil, decisions{failed(waitingIntent, false), good}, nil,
			},
			"a slot unknown": {
				pointer(boxoffice.NewUUID()), decisions{failed(waitingIntent, false)}, payment.ErrStale,
			},
			"sent intents with another slot": {
				pointer(boxoffice.NewUUID()), decisions{good, released(secondIntent)}, nil,
			},
			"a sent intent released, no slot": {
				nil, decisions{released(firstIntent)}, nil,
			},
			"settled without evidence": {
				&slot.ID, decisions{good, noEvidence}, nil,
			},
			"failed without a reason": {
				&slot.ID, decisions{good, released(secondIntent), noReason}, nil,
			},
			"an outcome that there is not": {
				&slot.ID, decisions{good, noOutcome}, nil,
			},
			"failed again, and not final": {
				nil, decisions{failed(waitingIntent, false), failed(waitingIntent, false)}, payment.ErrStale,
			},
		} {
			t.Run(name, func(t *testing.T) {
				err := settle(t.Context(), store, test.slot, test.decisions, now+minute)
				if test.want != nil {
					wantError(t, err, test.want)
				} else if err == nil || errors.Is(err, payment.ErrStale) || errors.Is(err, payment.ErrCredited) {
					t.Errorf("got error %v, want one that is neither ErrStale nor ErrCredited", err)
				}
				wantStatus(t, store, paid, boxoffice.Paid)
				wantStatus(t, store, finalOrder, boxoffice.PaymentFailed)
				wantStatus(t, store, first, boxoffice.PaymentPending)
				wantStatus(t, store, second, boxoffice.PaymentPending)
				wantStatus(t, store, waiting, boxoffice.PaymentPending)
				slots, err := store.Slots(t.Context(), chainID)
				fatal(t, err)
				if len(slots) != 1 || len(slots[0].Intents) != 2 {
					t.Errorf("open slots: %v", slots)
				}
			})
		}
		fatal(t, settle(t.Context(), store, &slot.ID,
			decisions{good, released(secondIntent), failed(waitingIntent, true)}, now))
	},

	"SettleRace": func(t *testing.T, store Store) {
		record, intent := begin(t, store, alice, 1)
		slot := carrying(1, intent)
		fatal(t, openSlot(t.Context(), store, slot))
		intent = sent(intent, slot)
		if won := race(t, payment.ErrStale, func(ctx context.Context, i int) error {
			if i%2 == 0 {
				return settle(ctx, store, &slot.ID, decisions{settledBy(intent, transfer(uint64(i)))}, now)
			}
			return settle(ctx, store, &slot.ID, decisions{released(intent)}, now)
		}); won != 1 {
			t.Errorf("%d settlers decided one payment", won)
		}
		got, last := status(t, store, record)
		settled, released := last.State == payment.Settled, last.State == payment.Waiting
		if (got == boxoffice.Paid) != settled || (got == boxoffice.PaymentPending) != released {
			t.Errorf("the order is %s, its payment %s", got, last.State)
		}
	},

	"EvidenceRace": func(t *testing.T, store Store) {
		intents := make([]payment.Intent, racers)
		for i := range intents {
			_, intents[i] = begin(t, store, alice, uint64(i))
		}
		if won := race(t, payment.ErrCredited, func(ctx context.Context, i int) error {
			return settle(ctx, store, nil, decisions{settledBy(intents[i], transfer(1))}, now)
		}); won != 1 {
			t.Errorf("one Transfer log paid %d orders", won)
		}
	},

	"LogsOfOneTransaction": func(t *testing.T, store Store) {
		_, first := begin(t, store, alice, 1)
		_, second := begin(t, store, alice, 2)
		one, two := transfer(1), transfer(1)
		two.LogIndex++
		fatal(t, settle(t.Context(), store, nil, decisions{settledBy(first, one), settledBy(second, two)}, now))
	},

	"Unresolved": func(t *testing.T, store Store) {
		unresolved := func() []payment.Intent {
			t.Helper()
			intents, err := store.Unresolved(t.Context(), chainID, 10)
			fatal(t, err)
			return intents
		}
		late, lateIntent := begin(t, store, alice, 1)
		dead, deadIntent := begin(t, store, alice, 2)
		replaced, replacedIntent := begin(t, store, alice, 3)
		begin(t, store, alice, 4)
		pay(t, store, alice, 5)
		same(t, unresolved(), []payment.Intent(nil))

		fatal(t, settle(t.Context(), store, nil, decisions{
			failed(lateIntent, false), failed(deadIntent, false), failed(replacedIntent, false),
		}, now))
		for _, intent := range []*payment.Intent{&lateIntent, &deadIntent, &replacedIntent} {
			intent.State, intent.Reason = payment.Failed, failed(*intent, false).Reason
		}
		same(t, unresolved(), []payment.Intent{lateIntent, deadIntent, replacedIntent})

		// A payment that was replaced cannot be settled, because its order has another.
		next := paying(t, replaced, wallet, 3)
		fatal(t, beginPayment(t.Context(), store, next, &replacedIntent.ID))
		same(t, unresolved(), []payment.Intent{lateIntent, deadIntent})
		undecided, err := store.Undecided(t.Context()) // these two, the next one and that of order 4
		fatal(t, err)
		same(t, undecided, []payment.Undecided{{ChainID: chainID, Payments: 4}})
		again := decisions{settledBy(replacedIntent, transfer(3))}
		wantError(t, settle(t.Context(), store, nil, again, now), payment.ErrStale)
		fatal(t, settle(t.Context(), store, nil, decisions{failed(next, true)}, now))
		wantError(t, settle(t.Context(), store, nil, again, now), payment.ErrStale)

		// When the permit can never settle any more, only Final changes, and only once.
		because := failed(deadIntent, true)
		because.Reason = "permit2_nonce_spent"
		fatal(t, settle(t.Context(), store, nil, decisions{because}, now))
		deadIntent.Final = true
		got, last := status(t, store, dead)
		same(t, last, &deadIntent)
		same(t, got, boxoffice.PaymentFailed)
		same(t, unresolved(), []payment.Intent{lateIntent})
		wantError(t, settle(t.Context(), store, nil, decisions{because}, now), payment.ErrStale)

		// A transfer after the failure is credited.
		before := lateIntent
		fatal(t, settle(t.Context(), store, nil, decisions{settledBy(lateIntent, transfer(1))}, now+minute))
		lateIntent.State, lateIntent.Reason, lateIntent.Evidence = payment.Settled, "", transfer(1)
		got, last = status(t, store, late)
		same(t, last, &lateIntent)
		same(t, got, boxoffice.Paid)
		same(t, unresolved(), []payment.Intent(nil))
		wantError(t, settle(t.Context(), store, nil, decisions{failed(before, true)}, now), payment.ErrStale)
	},

	"LateSettlementAgainstReplacement": func(t *testing.T, store Store) {
		record, first := begin(t, store, alice, 1)
		fatal(t, settle(t.Context(), store, nil, decisions{failed(first, false)}, now))
		first = after(failed(first, false))
		second := paying(t, record, wallet, 1)
		if won := race(t, payment.ErrStale, func(ctx context.Context, i int) error {
			if i%2 == 0 {
				return beginPayment(ctx, store, second, &first.ID)
			}
			return settle(ctx, store, nil, decisions{settledBy(first, transfer(1))}, now)
		}); won != 1 {
			t.Errorf("%d transitions left one state", won)
		}
		got, last := status(t, store, record)
		if paid := got == boxoffice.Paid; paid != (last.ID == first.ID) {
			t.Errorf("the order is %s with payment %s", got, last.State)
		}
	},
}
