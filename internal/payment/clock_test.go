package payment_test

import (
	"fmt"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/test/devchain"
	"boxoffice/x402"
)

// The service's clock jumps forwards or backwards between any two steps, while that
// of the chain does not.
func TestClockJumps(t *testing.T) {
	for _, jump := range []time.Duration{-3 * time.Hour, 3 * time.Hour} {
		for step := range 4 {
			t.Run(fmt.Sprint(jump, step), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, func(s *setup) { s.settler.Rounds.LeaseFor = time.Second })
				at := func(n int) {
					if n == step {
						w.jump(jump)
					}
				}
				at(0)
				ours, foreign, failing := w.pay(1, 1), w.pay(2, 1), w.pay(3, 1)
				w.approve(3, 0)
				at(1)
				w.settleAs(devchain.PayerKey(), foreign.Permit)
				w.round()
				at(2)
				w.dev.DropPending()
				w.round()
				at(3)
				w.mine()
				w.round()
				w.want(ours, boxoffice.Paid, "")
				w.want(foreign, boxoffice.Paid, "")
				// By the clock of the chain the failed permit can still settle.
				if failed := w.want(failing, boxoffice.PaymentFailed, x402.ReasonAllowanceRequired); failed.Final {
					t.Error("the failure is final, although the permit can settle")
				}
				w.approve(3, wealth)
				w.settleAs(devchain.PayerKey(), failing.Permit)
				w.advance(16 * time.Second)
				w.finish()
				w.want(failing, boxoffice.Paid, "")
				w.audit()
			})
		}
	}
}

// A transaction that is not mined is replaced, even if the clock was set back.
func TestStuckWhenTheClockGoesBack(t *testing.T) {
	w := newWorld(t)
	w.pay(1, 1)
	w.round()
	w.without(2)
	w.jump(-time.Hour)
	w.round()
	if txs := w.slots()[0].Txs; len(txs) != 2 {
		t.Errorf("%d transactions", len(txs))
	}
	w.finish()
	w.audit()
}
