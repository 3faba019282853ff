package payment_test

import (
	"fmt"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/payment"
	"boxoffice/internal/test/devchain"
	"boxoffice/x402"
)

// Intents that would settle go into one transaction. The others fail without one,
// with a reason that says what the payer has to change.
func TestBatch(t *testing.T) {
	w := newWorld(t)
	var good []payment.Intent
	for n := range 10 {
		good = append(good, w.pay(n, 1))
	}
	spent, poor, unallowed := w.pay(10, 3), w.pay(11, 1), w.pay(12, 1)
	late := w.pay(13, 1, func(p *payment.Permit) { p.Deadline = x402.NewUint256(uint64(w.chainNow().Unix()) + 1) })
	w.invalidate(10, 1<<3)
	w.spend(11, wealth-price+1)
	w.approve(12, price-1)
	w.advance(10 * time.Second)
	w.mine()
	w.round()
	if slots := w.slots(); len(slots) != 1 || len(slots[0].Intents) != len(good) {
		t.Fatalf("%d slots", len(slots))
	}
	w.want(spent, boxoffice.PaymentFailed, x402.ReasonNonceSpent)
	w.want(poor, boxoffice.PaymentFailed, x402.ReasonInsufficientBalance)
	w.want(unallowed, boxoffice.PaymentFailed, x402.ReasonAllowanceRequired)
	w.want(late, boxoffice.PaymentFailed, x402.ReasonDeadlineExpired)
	w.mine()
	w.round()
	for _, intent := range good {
		w.want(intent, boxoffice.Paid, "")
	}
	if n := w.transactions(); n != 1 {
		t.Errorf("%d transactions", n)
	}
	w.audit()
}

// More payments than fit one transaction go into several at once.
func TestBatchesInFlight(t *testing.T) {
	w := newWorld(t, func(s *setup) { s.settler.MaxBatch, s.settler.MaxInFlight = 3, 2 })
	for n := range 10 {
		w.pay(n, 1)
	}
	w.round()
	w.round()
	w.round() // there is no room for a third slot
	slots := w.slots()
	if len(slots) != 2 || len(slots[0].Intents) != 3 || len(slots[1].Intents) != 3 {
		t.Fatalf("%d slots", len(slots))
	}
	w.finish()
	w.audit()
}

// The configured batch is bounded by the gas of a transaction.
func TestBatchBoundedByGas(t *testing.T) {
	w := newWorld(t, func(s *setup) { s.settler.MaxBatch, s.evm.MaxTxGas = 1000, 60_000+4*290_000 })
	for n := range 6 {
		w.pay(n, 1)
	}
	w.round()
	if slots := w.slots(); len(slots) != 1 || len(slots[0].Intents) != 4 {
		t.Fatalf("%d slots", len(slots))
	}
	w.finish()
	w.audit()
}

// Nothing settles before its confirmations. The status of a batch is no evidence:
// it is success although calls in it reverted.
func TestEvidence(t *testing.T) {
	w := newWorld(t, func(s *setup) { s.settler.Confirmations = 3 })
	settles, fails := w.pay(1, 1), []payment.Intent{w.pay(2, 1), w.pay(3, 1)}
	w.round()
	w.dev.DropPending()
	w.approve(2, 0)
	w.invalidate(3, 1<<1)
	w.round() // sends it again
	w.mine()
	for range 2 {
		w.round()
		w.want(settles, boxoffice.PaymentPending, "")
		w.mine()
	}
	w.round()
	w.want(settles, boxoffice.Paid, "")
	w.finish()
	w.want(fails[0], boxoffice.PaymentFailed, x402.ReasonAllowanceRequired)
	w.want(fails[1], boxoffice.PaymentFailed, x402.ReasonNonceSpent)
	w.audit()
}

// Identical payments (one payer, one amount) in one batch are told apart by their
// nonces: one whose nonce was spent before does not settle by the transfer of
// another.
func TestIdenticalPayments(t *testing.T) {
	for spent := range 3 {
		t.Run(fmt.Sprint(spent), func(t *testing.T) {
			w := newWorld(t)
			identical := []payment.Intent{w.pay(1, 0), w.pay(1, 1), w.pay(1, 2)}
			w.round()
			w.dev.DropPending()
			w.invalidate(1, 1<<spent)
			w.round()
			w.mine()
			w.finish()
			for n, intent := range identical {
				if n == spent {
					w.want(intent, boxoffice.PaymentFailed, x402.ReasonNonceSpent)
				} else {
					w.want(intent, boxoffice.Paid, "")
				}
			}
			w.audit()
		})
	}
}

// A transfer that settled one intent does not settle another of the same payer and
// amount whose nonce was spent in the same block.
func TestTransferOfAnother(t *testing.T) {
	w := newWorld(t)
	first := w.pay(1, 1)
	w.round()
	other := w.pay(1, 2)
	w.dev.DropPending()
	// The payer spends the other nonce in the block that settles the first.
	w.must(w.wallet.Broadcast(t.Context(), w.slots()[0].Txs[0]))
	w.invalidate(1, 1<<2)
	w.finish()
	w.want(first, boxoffice.Paid, "")
	w.want(other, boxoffice.PaymentFailed, x402.ReasonNonceSpent)
	w.audit()
}

// A transaction of somebody else settles an intent: a waiting, a sent and a failed
// one.
func TestSettledBySomebodyElse(t *testing.T) {
	for name, before := range map[string]func(w *world, p payment.Intent){
		"before it was sent": func(w *world, p payment.Intent) {},
		"after it was sent": func(w *world, p payment.Intent) {
			w.round()
			w.dev.DropPending()
		},
		"after it failed": func(w *world, p payment.Intent) {
			w.approve(1, 0)
			w.round()
			w.want(p, boxoffice.PaymentFailed, x402.ReasonAllowanceRequired)
			w.approve(1, wealth)
			w.advance(16 * time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			intent, identical := w.pay(1, 1), w.pay(1, 2)
			before(w, intent)
			receipt := w.settleAs(devchain.PayerKey(), intent.Permit)
			w.finish()
			settled := w.want(intent, boxoffice.Paid, "")
			if settled.Evidence.TxHash != receipt.TxHash {
				t.Errorf("credited by %s, want %s", settled.Evidence.TxHash, receipt.TxHash)
			}
			if name != "after it failed" {
				w.want(identical, boxoffice.Paid, "")
			}
			w.audit()
		})
	}
}

// Of two payments that together overdraw their payer one fails without a
// transaction, whether the other is in the same batch or in an open slot.
func TestOverdrawn(t *testing.T) {
	for _, slotOpen := range []bool{false, true} {
		w := newWorld(t)
		w.spend(1, wealth-price-price/2)
		first := w.pay(1, 1)
		if slotOpen {
			w.round()
		}
		second := w.pay(1, 2)
		w.round()
		w.finish()
		w.want(first, boxoffice.Paid, "")
		failed := w.want(second, boxoffice.PaymentFailed, x402.ReasonInsufficientBalance)
		if failed.Reverts != 0 || w.transactions() != 1 {
			t.Errorf("it was sent: %d transactions", w.transactions())
		}
		w.audit()
	}
}

// A payment that passes every simulation and reverts in every transaction costs the
// gas of MaxTries calls, then it fails.
func TestBoundedGas(t *testing.T) {
	w := newWorld(t)
	reverting, neighbour := w.pay(1, 1), w.pay(2, 1)
	for try := 1; try <= 3; try++ {
		w.round()
		slots := w.slots()
		if len(slots) != 1 || len(slots[0].Intents) != map[bool]int{true: 2, false: 1}[try == 1] {
			t.Fatalf("try %d: %d slots with %d payments", try, len(slots), len(slots[0].Intents))
		}
		w.dev.DropPending()
		w.approve(1, 0)
		w.must(w.wallet.Broadcast(t.Context(), slots[0].Txs[0]))
		w.mine()
		w.approve(1, wealth)
	}
	w.round()
	w.want(neighbour, boxoffice.Paid, "")
	if failed := w.want(reverting, boxoffice.PaymentFailed, x402.ReasonTransactionFailed); failed.Reverts != 3 {
		t.Errorf("%d reverts", failed.Reverts)
	}
	w.finish()
	if n := w.transactions(); n != 3 {
		t.Errorf("%d transactions", n)
	}
	w.audit()
}

// Gas for each payment, as a share of the gas of a single settle.
func TestGasShares(t *testing.T) {
	perPayment := func(pay func(w *world)) float64 {
		w := newWorld(t)
		pay(w)
		w.round()
		hash := w.slots()[0].Txs[0].Hash
		w.mine()
		w.round()
		w.audit()
		receipt, err := w.dev.Client().TransactionReceipt(t.Context(), hash)
		w.must(err)
		return float64(receipt.GasUsed) / float64(len(w.orders))
	}
	single := perPayment(func(w *world) { w.pay(0, 0) })
	spread := perPayment(func(w *world) {
		for n := range 50 {
			w.pay(n, 0)
		}
	})
	consecutive := perPayment(func(w *world) {
		for n := range 50 {
			w.pay(0, uint64(n))
		}
	})
	t.Logf("gas a payment: single %.0f; 50 payers %.0f (%.3f); 50 consecutive nonces of one payer %.0f (%.3f)",
		single, spread, spread/single, consecutive, consecutive/single)
	if spread/single > 0.66 || consecutive/single > 0.30 {
		t.Errorf("shares %.3f and %.3f, at most 0.66 and 0.30", spread/single, consecutive/single)
	}
}
