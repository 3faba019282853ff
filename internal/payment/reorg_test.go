package payment_test

import (
	"flag"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/contracts"
	"boxoffice/internal/payment"
	"boxoffice/internal/test/devchain"
	"boxoffice/internal/test/faultrpc"
	"boxoffice/x402"
)

// A reorganisation before the confirmations changes no decision.
func TestReorgBeforeConfirmation(t *testing.T) {
	for _, evicted := range []bool{false, true} {
		w := newWorld(t, func(s *setup) { s.settler.Confirmations = 3 })
		intent := w.pay(1, 1)
		w.round()
		w.mine()
		w.mine()
		w.round()
		w.reorg(2)
		if evicted {
			w.dev.DropPending()
		}
		w.round()
		w.want(intent, boxoffice.PaymentPending, "")
		w.mine()
		w.mine()
		w.round()
		w.want(intent, boxoffice.PaymentPending, "")
		w.mine()
		w.round()
		w.want(intent, boxoffice.Paid, "")
		w.audit()
	}
}

// A reorganisation deeper than the confirmations removes settled payments. They are
// settled again, and their orders stay paid.
func TestReorgAfterConfirmation(t *testing.T) {
	for name, test := range map[string]struct {
		settle  func(w *world, p payment.Permit) // the first time
		between func(w *world, p payment.Permit) // after the reorganisation
		lost    bool                             // the money cannot be had again
	}{
		"forgotten":     {(*world).settleHere, func(w *world, _ payment.Permit) { w.dev.DropPending() }, false},
		"mined again":   {(*world).settleHere, func(w *world, _ payment.Permit) { w.mine() }, false},
		"in the pool":   {(*world).settleHere, func(*world, payment.Permit) {}, false},
		"by a stranger": {(*world).settleElsewhere, func(w *world, _ payment.Permit) { w.dev.DropPending() }, false},
		"then by one": {(*world).settleHere, func(w *world, p payment.Permit) {
			w.dev.DropPending()
			w.settleAs(devchain.PayerKey(), p)
		}, false},
		"nonce spent": {(*world).settleHere, func(w *world, _ payment.Permit) {
			w.dev.DropPending()
			w.invalidate(1, 1<<1)
		}, true},
		"permit expired": {(*world).settleHere, func(w *world, _ payment.Permit) {
			w.dev.DropPending()
			w.advance(time.Hour)
			w.mine()
		}, true},
		"no allowance for a while": {(*world).settleHere, func(w *world, _ payment.Permit) {
			w.dev.DropPending()
			w.approve(1, 0)
			w.advance(16 * time.Second)
			for range 4 {
				_ = w.settler.Round(w.Context())
				w.mine()
			}
			w.approve(1, wealth)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			intent, neighbour := w.pay(1, 1), w.pay(2, 1)
			test.settle(w, intent.Permit)
			w.round()
			w.want(intent, boxoffice.Paid, "")
			w.finish()
			paidAt := *w.read(intent.OrderID).PaidAt
			w.mine()
			w.reorg(w.dev.Head().Number.Uint64() - 1)
			test.between(w, intent.Permit)
			w.restart()
			w.advance(16 * time.Second)
			w.finish()
			w.finish()
			if record := w.read(intent.OrderID); record.Status != boxoffice.Paid || *record.PaidAt != paidAt {
				t.Errorf("the order is %s", record.Status)
			}
			if test.lost {
				if lost := w.read(intent.OrderID).Payment; lost.State != payment.Failed || !lost.Undone() {
					t.Errorf("the lost payment is %s", lost.State)
				}
				if !strings.Contains(w.log.String(), "cannot be settled again") {
					t.Errorf("the log does not say it\n%s", w.log)
				}
				return
			}
			w.want(neighbour, boxoffice.Paid, "")
			w.audit()
		})
	}
}

// A transaction that carried two payments is included twice, before and after a
// reorganisation, and settles the first of them only then. The money counts for that
// payment, not for the other one, which looks the same and lost its nonce meanwhile.
func TestReorgWithOtherOutcomes(t *testing.T) {
	w := newWorld(t)
	first, second := w.pay(1, 1), w.pay(1, 2)
	w.round()
	tx := w.slots()[0].Txs[0]
	w.dev.DropPending()
	w.invalidate(1, 1<<1)
	w.must(w.wallet.Broadcast(t.Context(), tx))
	w.mine()
	w.round()
	w.want(first, boxoffice.PaymentFailed, x402.ReasonNonceSpent)
	w.want(second, boxoffice.Paid, "")
	w.reorg(w.dev.Head().Number.Uint64() - 1)
	w.dev.DropPending()
	w.invalidate(1, 1<<2)
	w.advance(16 * time.Second)
	w.round()
	w.mine()
	w.finish()
	w.advance(16 * time.Second)
	w.finish()
	w.want(first, boxoffice.Paid, "")
	if lost := w.reconcile(); lost != 1 {
		t.Errorf("%d paid orders lost their money, not that of the second payment alone", lost)
	}
}

// A reorganisation deeper than the confirmations removes the transfer of a submission.
// It is settled again, and meanwhile its evidence still answers its server.
func TestReorgOfSubmission(t *testing.T) {
	for name, settle := range map[string]func(*world, payment.Permit){
		"settled here": (*world).settleHere, "settled by a stranger": (*world).settleElsewhere,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			intent := w.intent(w.order(), w.permit(1, 1))
			intent.OrderID, intent.SubmissionID, intent.QuoteSignature = "", boxoffice.NewUUID(), boxoffice.Signature{}
			_, err := w.store.Submit(t.Context(), intent)
			w.must(err)
			before, err := w.dev.TokenBalance(t.Context(), devchain.PayTo())
			w.must(err)
			settle(w, intent.Permit)
			w.finish()
			read := func() payment.Intent {
				got, err := w.store.Submitted(t.Context(), w.config.ChainID, intent.Permit)
				w.must(err)
				return got
			}
			if first := read(); first.State != payment.Settled {
				t.Fatalf("it is %s", first.State)
			}
			w.mine()
			w.reorg(w.dev.Head().Number.Uint64() - 1)
			w.dev.DropPending()
			w.advance(16 * time.Second)
			w.round()
			if removed := read(); !removed.Undone() {
				t.Errorf("after the reorganisation it is %s", removed.State)
			}
			w.finish()
			if again := read(); again.State != payment.Settled {
				t.Errorf("at last it is %s for %q", again.State, again.Reason)
			}
			received, err := w.dev.TokenBalance(t.Context(), devchain.PayTo())
			w.must(err)
			if received.Sub(received, before).Cmp(big.NewInt(price)) != 0 {
				t.Errorf("the recipient got %s", received)
			}
		})
	}
}

func (w *world) settleHere(payment.Permit) {
	w.round()
	w.mine()
}

func (w *world) settleElsewhere(p payment.Permit) { w.settleAs(devchain.PayerKey(), p) }

// A failure becomes final only when the block that killed the permit is buried.
// Before that a reorganisation can bring the permit back, and a second payment of
// the order, which a final failure allows, could settle beside it.
func TestFinalWhenBuried(t *testing.T) {
	for name, kill := range map[string]func(w *world){
		"nonce spent": func(w *world) { w.invalidate(1, 1<<1) },
		"permit expired": func(w *world) {
			w.advance(time.Hour)
			w.mine()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			intent := w.pay(1, 1)
			kill(w)
			w.round()
			for range w.config.ReorgDepth {
				if got := w.read(intent.OrderID).Payment; got.State != payment.Failed || got.Final {
					t.Fatalf("the payment is %s, final: %t", got.State, got.Final)
				}
				w.mine()
				w.advance(16 * time.Second)
				w.round()
			}
			if !w.read(intent.OrderID).Payment.Final {
				t.Error("the failure is not final")
			}
		})
	}
}

var seeds = flag.Uint64("chaos", 12, "how many seeds TestChaos runs")

// Random payments, faults, blocks, reorganisations, hostile payers, settles by
// others, restarts and time, all at once. In the end every transfer pays for one
// order, and every paid order has its transfer.
func TestChaos(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(s *setup) {
				s.settler.Confirmations = 1 + seed%3
				s.settler.MaxBatch = 4
				s.settler.ReviewEvery = 3 * time.Second
				s.settler.BumpAfter = 6 * time.Second
			})
			chaos(w, rand.New(rand.NewPCG(seed, 2)), 120)
			w.finish()
			for range w.config.ReorgDepth { // until the failed ones are dead
				w.mine()
			}
			w.finish()
			if lost := w.reconcile(); lost > 0 {
				t.Logf("%d payments were lost to deep reorganisations", lost)
			}
			if w.paid() == 0 {
				t.Errorf("of %d orders none is paid", len(w.orders))
			}
		})
	}
}

func chaos(w *world, random *rand.Rand, steps int) {
	turn := make(chan *rand.Rand, 1)
	faulty := random.IntN(4) // how often of ten
	turn <- rand.New(rand.NewPCG(random.Uint64(), 3))
	w.node.Freeze(1)
	w.node.Set(func(string) faultrpc.Fault {
		r := <-turn
		defer func() { turn <- r }()
		if r.IntN(20) >= faulty {
			return faultrpc.None
		}
		return faultrpc.Faults()[r.IntN(len(faultrpc.Faults()))]
	})
	nonces := map[int]uint64{}
	var made []payment.Intent
	for range steps {
		payer := random.IntN(5)
		switch random.IntN(14) {
		case 0, 1, 2:
			nonces[payer]++
			made = append(made, w.pay(payer, nonces[payer]))
		case 3, 4, 5, 6, 7:
			_ = w.settler.Round(w.Context())
		case 8, 9:
			w.mine()
			head := w.dev.Head().Number.Uint64()
			w.node.Freeze(head - min(head, random.Uint64N(3)))
		case 10:
			w.advance(time.Duration(random.IntN(8)) * time.Second)
			w.jump(time.Duration(random.IntN(3)-1) * time.Second)
		case 11:
			w.restart()
		case 12:
			if random.IntN(2) == 0 {
				w.dev.DropPending()
			} else if depth := random.Uint64N(w.config.Confirmations + 2); depth > 0 && depth < w.dev.Head().Number.Uint64() {
				w.reorg(depth)
			}
		case 13:
			switch trick := random.IntN(4); {
			case trick == 0 && nonces[payer] < 60:
				_, _ = w.tryCall(key(w, payer), contracts.Permit2Address, contracts.Permit2(),
					"invalidateUnorderedNonces", new(big.Int), big.NewInt(1<<nonces[payer]))
			case trick == 1:
				_, _ = w.tryCall(key(w, payer), w.dev.Token(), contracts.TestToken(), "approve",
					contracts.Permit2Address, big.NewInt(int64(random.IntN(2))*wealth))
			case len(made) > 0: // may revert: it may be settled
				_, _ = w.trySettle(devchain.PayerKey(), made[random.IntN(len(made))].Permit)
			}
		}
	}
	w.node.Set(nil)
	w.mine()
	for payer := range 5 {
		w.approve(payer, wealth)
	}
}
