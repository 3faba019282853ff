package payment_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/order"
	"boxoffice/internal/payment"
	"boxoffice/internal/test/devchain"
	"boxoffice/internal/test/faultrpc"
	"boxoffice/x402"
)

// A node that is behind answers one request of a round: the standings, the transfers
// or the receipts. It does not have the blocks that matter, so a decision by its
// answer would be false.
func TestOneAnswerFromANodeBehind(t *testing.T) {
	for method, prepare := range map[string]func(w *world) payment.Intent{
		"eth_blockNumber": func(w *world) payment.Intent { // goes along with the standing
			w.approve(1, 0)
			w.node.Freeze(w.dev.Head().Number.Uint64())
			w.approve(1, wealth)
			return w.pay(1, 1)
		},
		"eth_getLogs": func(w *world) payment.Intent {
			intent := w.pay(1, 1)
			w.node.Freeze(w.dev.Head().Number.Uint64())
			w.settleAs(devchain.PayerKey(), intent.Permit)
			return intent
		},
		"eth_getTransactionReceipt": func(w *world) payment.Intent {
			intent := w.pay(1, 1)
			w.round()
			w.node.Freeze(w.dev.Head().Number.Uint64())
			w.mine()
			return intent
		},
	} {
		t.Run(method, func(t *testing.T) {
			w := newWorld(t)
			intent := prepare(w)
			w.node.Set(func(asked string) faultrpc.Fault {
				if asked == method {
					return faultrpc.Old
				}
				return faultrpc.None
			})
			for range 3 {
				if err := w.settler.Round(t.Context()); err == nil {
					t.Error("the node that is behind was believed")
				}
				w.want(intent, boxoffice.PaymentPending, "")
				w.restart()
			}
			w.node.Set(nil)
			w.finish()
			w.want(intent, boxoffice.Paid, "")
			if strings.Contains(w.log.String(), "ERROR") {
				t.Errorf("a false alarm\n%s", w.log)
			}
			w.audit()
		})
	}
}

// An RPC node named a block that does not exist when a payment was verified. That payment
// is not sent. It is credited if somebody settled it, and fails when its permit can settle
// no more. Payments of others are settled meanwhile.
func TestFromBlockThatDoesNotExist(t *testing.T) {
	w := newWorld(t)
	poisoned := func(payer int) payment.Intent {
		record := w.order()
		intent := w.intent(record, w.permit(payer, 1))
		intent.FromBlock = 1 << 60
		w.must(w.store.BeginPayment(t.Context(), intent, order.Begin(&record, &intent)))
		return intent
	}
	expires, settled, other := poisoned(1), poisoned(2), w.pay(3, 1)
	for range 30 {
		w.mine()
	}
	w.round()
	w.mine()
	w.round()
	w.want(other, boxoffice.Paid, "")
	w.settleAs(devchain.PayerKey(), settled.Permit)
	w.round()
	w.want(expires, boxoffice.PaymentPending, "")
	w.advance(time.Hour)
	for range 20 {
		w.mine()
	}
	w.finish()
	w.want(expires, boxoffice.PaymentFailed, x402.ReasonDeadlineExpired)
	w.want(settled, boxoffice.Paid, "")
	w.audit()
}

// boastful is a node that once names a newest block that does not exist.
type boastful struct {
	payment.Chain
	boasts int
}

func (c *boastful) Head(ctx context.Context) (payment.Head, error) {
	head, err := c.Chain.Head(ctx)
	if c.boasts > 0 {
		c.boasts--
		head.Number += 1 << 40
	}
	return head, err
}

// A newest block that does not exist fails one round, and the next one works.
func TestNewestBlockThatNeverWas(t *testing.T) {
	w := newWorld(t)
	w.config.Chain = &boastful{w.chain, 1}
	w.restart()
	intent := w.pay(1, 1)
	if err := w.settler.Round(t.Context()); err == nil {
		t.Error("a block that does not exist was believed")
	}
	w.round()
	w.mine()
	w.round()
	w.want(intent, boxoffice.Paid, "")
	w.audit()
}

// A node named a newest block, and then none but nodes that are behind it answer. For a
// minute nothing is decided; then their blocks count.
func TestNewestBlockThatIsGone(t *testing.T) {
	w := newWorld(t)
	w.node.Freeze(w.dev.Head().Number.Uint64())
	for range 5 {
		w.mine()
	}
	w.round()
	intent := w.pay(1, 1)
	w.node.Set(func(string) faultrpc.Fault { return faultrpc.Old })
	if err := w.settler.Round(t.Context()); err == nil {
		t.Error("the node that is behind was believed")
	}
	w.want(intent, boxoffice.PaymentPending, "")
	w.advance(61 * time.Second)
	w.round()
	w.node.Set(nil)
	w.finish()
	w.want(intent, boxoffice.Paid, "")
	w.audit()
}

// After a reorganisation whose transactions the node dropped, the slot is open again
// and settles with its wallet nonce.
func TestReorganisedSlot(t *testing.T) {
	w := newWorld(t)
	intent := w.pay(1, 1)
	w.settleHere(payment.Permit{})
	w.finish()
	w.want(intent, boxoffice.Paid, "")
	w.mine()
	w.reorg(2)
	w.dev.DropPending()
	w.restart()
	w.round()
	if slots := w.slots(); len(slots) != 1 || slots[0].WalletNonce != 0 || slots[0].Intents[0].ID != intent.ID {
		t.Fatalf("%d slots are open again", len(slots))
	}
	w.finish()
	w.want(intent, boxoffice.Paid, "")
	if n := w.transactions(); n != 1 {
		t.Errorf("%d transactions", n)
	}
	w.audit()
}
