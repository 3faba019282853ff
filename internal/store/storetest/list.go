package storetest

import (
	"testing"

	"boxoffice/internal/payment"
)

var paymentListTests = map[string]func(*testing.T, Store){
	// What an operator sees of a payment of an order, which two transactions carried,
	// and of a submission.
	"Payments": func(t *testing.T, store Store) {
		record, ordered := begin(t, store, alice, 1)
		submitted := submission(t, 2)
		submitted.SubmittedAt++
		_, err := store.Submit(t.Context(), submitted)
		fatal(t, err)
		slot := carrying(5, ordered)
		fatal(t, openSlot(t.Context(), store, slot))
		newer := signed(900)
		newer.SignedAt++
		fatal(t, store.AddTx(t.Context(), slot.ID, newer))
		evidence := &payment.Evidence{TxHash: newer.Hash, LogIndex: 1, BlockNumber: 7, SettledAt: now + minute}
		for range 2 { // saving a cost again changes nothing
			fatal(t, store.SaveCost(t.Context(), newer.Hash, 53_000, 12))
		}
		fatal(t, settle(t.Context(), store, &slot.ID, decisions{settledBy(sent(ordered, slot), evidence)}, now))

		want := payment.PaymentEntry{
			ID: ordered.ID, OrderID: record.ID, State: payment.Settled, Payer: wallet, Asset: token,
			Amount: amount(300), Nonce: amount(1),
			SubmittedAt: now, SettledAt: pointer(now + minute), SettledBy: pointer(newer.Hash),
			Transactions: []payment.PaymentTx{
				{Hash: slot.Txs[0].Hash, WalletNonce: 5, FeeCap: slot.Txs[0].FeeCap, SignedAt: now},
				{
					Hash: newer.Hash, WalletNonce: 5, FeeCap: newer.FeeCap, SignedAt: now + 1,
					GasUsed: pointer(int64(53_000)), FeeGwei: pointer(int64(12)),
				},
			},
		}
		waiting := payment.PaymentEntry{
			ID: submitted.ID, SubmissionID: submitted.SubmissionID, State: payment.Waiting, Payer: wallet, Asset: token,
			Amount: amount(300), Nonce: amount(2), SubmittedAt: now + 1,
		}
		for query, entries := range map[payment.PaymentQuery][]payment.PaymentEntry{
			{Limit: 10}:                         {waiting, want},
			{Limit: 1}:                          {waiting},
			{State: payment.Settled, Limit: 10}: {want},
			{State: payment.Failed, Limit: 10}:  nil,
		} {
			got, err := store.Payments(t.Context(), query)
			fatal(t, err)
			same(t, got, entries)
		}
		totals, err := store.PaymentTotals(t.Context())
		fatal(t, err)
		same(t, totals, payment.PaymentTotals{
			Waiting: 1, Settled: 1, OldestPending: pointer(now + 1),
			Gas: payment.Gas{Transactions: 1, Payments: 1, GasUsed: 53_000, FeesGwei: 12},
		})
	},

	"Totals": func(t *testing.T, store Store) {
		empty, err := store.PaymentTotals(t.Context())
		fatal(t, err)
		same(t, empty, payment.PaymentTotals{})
		_, dead := begin(t, store, alice, 1)
		_, unsettled := begin(t, store, alice, 2)
		_, carried := begin(t, store, bob, 3)
		fatal(t, settle(t.Context(), store, nil, decisions{failed(dead, true), failed(unsettled, false)}, now))
		fatal(t, openSlot(t.Context(), store, carrying(1, carried)))
		totals, err := store.PaymentTotals(t.Context())
		fatal(t, err)
		same(t, totals, payment.PaymentTotals{Sent: 1, Failed: 2, Unsettled: 1, OldestPending: pointer(now)})
		undecided, err := store.Undecided(t.Context())
		fatal(t, err)
		same(t, undecided, []payment.Undecided{{ChainID: chainID, Payments: 2, Sent: 1}})
	},
}
