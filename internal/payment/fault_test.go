package payment_test

import (
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/payment"
	"boxoffice/internal/test/devchain"
	"boxoffice/internal/test/faultrpc"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
)

// Every request of the settler fails in every way, for three calls: from the first
// call on, and from the third on, with a restart in between. In the end every
// payment has its right outcome.
func TestFaultyNode(t *testing.T) {
	for _, method := range []string{
		"eth_getBlockByNumber", "eth_blockNumber", "eth_call", "eth_getTransactionCount", "eth_getBalance",
		"eth_sendRawTransaction", "eth_getTransactionReceipt", "eth_getLogs",
	} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			for n, fault := range faultrpc.Faults()[1:] {
				nonce := uint64(n + 1)
				first, second, foreign := w.pay(1, nonce), w.pay(2, nonce), w.pay(3, nonce)
				spent := w.pay(4, nonce)
				w.settleAs(devchain.PayerKey(), foreign.Permit)
				w.invalidate(4, 1<<nonce)
				w.node.Freeze(w.dev.Head().Number.Uint64() - 2)
				for _, sound := range []int64{0, 2} { // calls before the fault begins
					var calls atomic.Int64
					w.node.Set(func(called string) faultrpc.Fault {
						if called != method {
							return faultrpc.None
						}
						if n := calls.Add(1) - 1; n >= sound && n < sound+3 {
							return fault
						}
						return faultrpc.None
					})
					for range 4 {
						_ = w.settler.Round(t.Context())
						w.mine()
					}
					w.restart()
				}
				w.node.Set(nil)
				w.finish()
				for _, paid := range []payment.Intent{first, second, foreign} {
					w.want(paid, boxoffice.Paid, "")
				}
				w.want(spent, boxoffice.PaymentFailed, x402.ReasonNonceSpent)
				if t.Failed() {
					t.Fatalf("with the fault %q", fault)
				}
			}
			w.audit()
		})
	}
}

// A transaction whose broadcast got no answer is not sent with another nonce.
func TestBroadcastWithoutAnswer(t *testing.T) {
	w := newWorld(t)
	intent := w.pay(1, 1)
	w.node.Set(func(method string) faultrpc.Fault {
		if method == "eth_sendRawTransaction" {
			return faultrpc.DropAnswer
		}
		return faultrpc.None
	})
	if err := w.settler.Round(t.Context()); err == nil {
		t.Error("the lost answer is no error")
	}
	w.node.Set(nil)
	w.restart()
	w.mine()
	w.round()
	w.want(intent, boxoffice.Paid, "")
	if n := w.transactions(); n != 1 {
		t.Errorf("%d transactions", n)
	}
	w.audit()
}

// An answer after the timeout changes nothing.
func TestDelayedBroadcast(t *testing.T) {
	w := newWorld(t, func(s *setup) { s.evm.RequestTimeout = 200 * time.Millisecond })
	intent := w.pay(1, 1)
	w.node.Set(func(method string) faultrpc.Fault {
		if method == "eth_sendRawTransaction" {
			return faultrpc.Hold
		}
		return faultrpc.None
	})
	if err := w.settler.Round(t.Context()); err == nil {
		t.Error("no answer is no error")
	}
	w.node.Set(nil)
	w.round()
	w.mine()
	w.node.Release()
	w.finish()
	w.want(intent, boxoffice.Paid, "")
	w.audit()
}

// A transaction that the node dropped is broadcast again unchanged.
func TestEvicted(t *testing.T) {
	w := newWorld(t)
	intent := w.pay(1, 1)
	w.round()
	hash := w.slots()[0].Txs[0].Hash
	w.dev.DropPending()
	w.mine()
	w.round()
	w.mine()
	w.round()
	if settled := w.want(intent, boxoffice.Paid, ""); settled.Evidence.TxHash != hash {
		t.Errorf("settled by %s, want %s", settled.Evidence.TxHash, hash)
	}
	w.audit()
}

// A transaction that is not mined is replaced at a higher fee under the same
// wallet nonce. Whichever of the two is mined settles.
func TestStuck(t *testing.T) {
	for mined := range 2 {
		w := newWorld(t)
		intent := w.pay(1, 1)
		w.round()
		w.without(2)
		w.advance(31 * time.Second)
		w.round()
		slot := w.slots()[0]
		if len(slot.Txs) != 2 || slot.Txs[1].FeeCap.Cmp(slot.Txs[0].FeeCap) <= 0 || slot.Txs[1].TipCap.Cmp(slot.Txs[0].TipCap) <= 0 {
			t.Fatalf("%d transactions", len(slot.Txs))
		}
		w.dev.DropPending()
		w.must(w.wallet.Broadcast(t.Context(), slot.Txs[mined]))
		w.mine()
		w.restart()
		w.round()
		if settled := w.want(intent, boxoffice.Paid, ""); settled.Evidence.TxHash != slot.Txs[mined].Hash {
			t.Errorf("settled by %s, want %s", settled.Evidence.TxHash, slot.Txs[mined].Hash)
		}
		w.audit()
	}
}

// without makes blocks that do not hold our transaction, after a round that sees it.
func (w *world) without(blocks int) {
	w.Helper()
	w.round()
	for range blocks {
		w.dev.DropPending()
		w.mine()
	}
}

// While the chain makes no block, the fee is not raised: no fee would help.
func TestNoBlocks(t *testing.T) {
	w := newWorld(t)
	intent := w.pay(1, 1)
	w.round()
	for range 6 {
		w.advance(45 * time.Second)
		w.round()
	}
	if slot := w.slots()[0]; len(slot.Txs) != 1 {
		t.Errorf("%d transactions", len(slot.Txs))
	}
	w.mine()
	w.round()
	w.want(intent, boxoffice.Paid, "")
	w.audit()
}

// When the permits of a slot have expired, an empty transaction takes the place of the
// one that carries them: settling them would cost gas for nothing.
func TestDeadSlot(t *testing.T) {
	w := newWorld(t)
	intents := []payment.Intent{w.pay(1, 1), w.pay(2, 1)}
	w.round()
	w.dev.DropPending()
	w.advance(2 * time.Hour)
	w.mine()
	w.round()
	slot := w.slots()[0]
	if n := len(slot.Txs); n != 2 || slot.Txs[1].GasLimit != payment.EmptyGas {
		t.Fatalf("%d transactions, the last with %d gas", n, slot.Txs[n-1].GasLimit)
	}
	w.mine()
	w.finish()
	for _, intent := range intents {
		if failed := w.want(intent, boxoffice.PaymentFailed, x402.ReasonDeadlineExpired); failed.Reverts != 0 {
			t.Errorf("%d reverts", failed.Reverts)
		}
	}
	w.audit()
}

// If the fee has reached its maximum, the empty transaction cannot take the place of the
// one whose permits have expired. Then that one is broadcast again: something has to use
// up its wallet nonce.
func TestDeadSlotAtTheFeeCeiling(t *testing.T) {
	maximum := x402.NewUint256(1.2e9)
	w := newWorld(t, func(s *setup) { s.evm.MaxFee = maximum })
	dead := w.pay(1, 1)
	w.round()
	if tx := w.slots()[0].Txs[0]; tx.FeeCap != maximum {
		t.Fatalf("its fee cap is %s", tx.FeeCap)
	}
	w.dev.DropPending()
	w.advance(2 * time.Hour)
	w.mine()
	later := w.pay(2, 1)
	for range 3 {
		_ = w.settler.Round(t.Context())
		w.mine()
	}
	w.finish()
	w.want(dead, boxoffice.PaymentFailed, x402.ReasonDeadlineExpired)
	w.want(later, boxoffice.Paid, "")
	w.audit()
}

// A node that answers no eth_call keeps no slot open: the fee of its transaction is
// raised all the same, and a gap between wallet nonces is filled.
func TestStuckWithoutSimulation(t *testing.T) {
	refuse := func(method string) faultrpc.Fault {
		if method == "eth_call" {
			return faultrpc.TooMany
		}
		return faultrpc.None
	}
	t.Run("replaced", func(t *testing.T) {
		w := newWorld(t)
		intent := w.pay(1, 1)
		w.round()
		w.without(2)
		w.node.Set(refuse)
		w.advance(31 * time.Second)
		w.round()
		if slot := w.slots()[0]; len(slot.Txs) != 2 {
			t.Errorf("%d transactions", len(slot.Txs))
		}
		w.mine()
		w.round()
		w.want(intent, boxoffice.Paid, "")
		w.audit()
	})
	t.Run("gap", func(t *testing.T) {
		w := newWorld(t, func(s *setup) { s.settler.Confirmations = 2 })
		w.foreign(0)
		intent := w.pay(1, 1)
		w.round()
		w.mine()
		w.reorg(2)
		w.dev.DropPending()
		waiting := w.pay(2, 1)
		w.node.Set(refuse)
		for range 2 {
			if err := w.settler.Round(t.Context()); err == nil {
				t.Error("a round without the simulation of a waiting payment is no error")
			}
			w.mine()
		}
		if n := w.transactions(); n != 2 {
			t.Errorf("%d transactions are mined", n)
		}
		w.node.Set(nil)
		w.finish()
		w.want(intent, boxoffice.Paid, "")
		w.want(waiting, boxoffice.Paid, "")
		w.audit()
	})
}

// While the chain requires more than the configured maximum fee, nothing is signed
// and no new payment is accepted.
func TestFeeCeiling(t *testing.T) {
	w := newWorld(t, func(s *setup) { s.evm.MaxFee = x402.NewUint256(1) })
	intent := w.pay(1, 1)
	if err := w.settler.Round(t.Context()); err == nil {
		t.Error("a transaction for 1 wei a gas was signed")
	}
	if err := w.settler.Ready(); err == nil {
		t.Error("payments are accepted that cannot be settled")
	}
	w.want(intent, boxoffice.PaymentPending, "")
	w.audit()
}

// A wallet with little coin settles as much as it can pay for. One without coin
// loses no payment, and settles again when it is funded.
func TestWalletWithoutCoin(t *testing.T) {
	const little = 2_500_000_000_000_000 // wei: for some payments at twice the going fee
	w := newWorld(t, func(s *setup) { s.settler.MaxInFlight, s.funded[0].Native = 1, big.NewInt(little) })
	for n := range 8 {
		w.pay(n, 1)
	}
	w.round()
	if slots := w.slots(); len(slots) != 1 || len(slots[0].Intents) != 4 {
		t.Fatalf("the wallet can pay for some of 8 payments: %d slots", len(slots))
	}
	w.mine()
	balance, err := w.dev.Client().BalanceAt(t.Context(), w.wallet.Address(), nil)
	w.must(err)
	_, err = w.dev.Transact(t.Context(), devchain.SettlementKey(), common.Address{0xdd},
		balance.Sub(balance, big.NewInt(1e14)), nil)
	w.must(err)
	for range 5 {
		if err := w.settler.Round(t.Context()); !errors.Is(err, payment.ErrWalletEmpty) {
			t.Errorf("a round of the empty wallet: %v", err)
		}
		w.mine()
		w.restart()
	}
	w.restart()
	_ = w.settler.Round(t.Context())
	for what, err := range map[string]error{"ready": w.settler.Ready(), "healthy": w.settler.Health()} {
		if !errors.Is(err, payment.ErrWalletEmpty) {
			t.Errorf("the empty wallet is %s: %v", what, err)
		}
	}
	if paid := w.paid(); paid != 4 {
		t.Errorf("%d payments settled", paid)
	}
	w.audit()
	w.must(w.dev.Fund(t.Context(), w.wallet.Address(), devchain.Ether(1), nil))
	w.round()
	if err := w.settler.Health(); err != nil {
		t.Errorf("the funded wallet: %v", err)
	}
	w.finish()
	if paid := w.paid(); paid != 8 {
		t.Errorf("%d payments settled", paid)
	}
	w.audit()
}

func (w *world) paid() (n int) {
	w.Helper()
	for _, made := range w.orders {
		if w.read(made.ID).Status == boxoffice.Paid {
			n++
		}
	}
	return n
}

// Somebody else uses the settlement key. If a transaction of theirs has a wallet
// nonce of ours, mined or not, our payments are sent again.
func TestForeignUseOfTheKey(t *testing.T) {
	t.Run("mined first", func(t *testing.T) {
		w := newWorld(t)
		intent := w.pay(1, 1)
		w.round()
		w.dev.DropPending()
		w.foreign(0)
		w.round()
		w.finish()
		if settled := w.want(intent, boxoffice.Paid, ""); settled.Reverts != 0 {
			t.Error("it counts as a revert of the payment")
		}
		w.audit()
	})
	t.Run("pending, with a higher fee", func(t *testing.T) {
		w := newWorld(t)
		intent := w.pay(1, 1)
		foreign := w.foreignTx(0, big.NewInt(100e9), big.NewInt(100e9))
		w.must(w.dev.Client().SendTransaction(t.Context(), foreign))
		if err := w.settler.Round(t.Context()); err == nil {
			t.Error("the node took both")
		}
		w.finish()
		w.want(intent, boxoffice.Paid, "")
		w.audit()
	})
	t.Run("pending, and replaced", func(t *testing.T) {
		w := newWorld(t)
		intent := w.pay(1, 1)
		ours, err := w.wallet.Sign(t.Context(), []payment.Call{{Permit: intent.Permit}}, 0, nil)
		w.must(err)
		tip, fee := ours.TipCap.Big(), ours.FeeCap.Big()
		w.must(w.dev.Client().SendTransaction(t.Context(), w.foreignTx(0, tip, fee.Add(fee, big.NewInt(1e8)))))
		if err := w.settler.Round(t.Context()); err == nil {
			t.Error("the node took both")
		}
		for range 20 { // nothing is mined: the replacement has to win
			w.advance(31 * time.Second)
			if w.settler.Round(t.Context()) == nil {
				break
			}
		}
		w.mine()
		w.finish()
		w.want(intent, boxoffice.Paid, "")
		if n := w.transactions(); n != 1 {
			t.Errorf("%d transactions", n)
		}
		w.audit()
	})
	t.Run("gap", func(t *testing.T) {
		// A foreign transaction, then ours; a reorganisation removes both, and the node
		// drops the foreign one.
		w := newWorld(t, func(s *setup) { s.settler.Confirmations = 2 })
		w.foreign(0)
		intent := w.pay(1, 1)
		w.round()
		if nonce := w.slots()[0].WalletNonce; nonce != 1 {
			t.Fatalf("nonce %d", nonce)
		}
		w.mine()
		w.reorg(2)
		w.dev.DropPending()
		w.finish()
		w.want(intent, boxoffice.Paid, "")
		w.audit()
	})
}

// Of many nodes behind one address, others are behind at each request. Nothing
// false is decided, whatever they know.
func TestLaggingNodes(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(s *setup) { s.settler.ReviewEvery = time.Second })
			random := rand.New(rand.NewPCG(seed, 1))
			lag := make(chan bool, 1)
			lag <- false
			w.node.Set(func(string) faultrpc.Fault {
				<-lag
				behind := random.IntN(3) == 0
				lag <- behind
				if behind {
					return faultrpc.Old
				}
				return faultrpc.None
			})
			var paid []payment.Intent
			for n := range 6 {
				w.node.Freeze(w.dev.Head().Number.Uint64())
				w.approve(n, 0) // a node behind does not know of the allowance
				w.approve(n, wealth)
				intent := w.pay(n, 1)
				if n%2 == 0 {
					w.settleAs(devchain.PayerKey(), intent.Permit)
				}
				paid = append(paid, intent)
				for range 4 {
					_ = w.settler.Round(t.Context())
				}
				w.mine()
			}
			for range 40 {
				w.node.Freeze(w.dev.Head().Number.Uint64() - random.Uint64N(4))
				_ = w.settler.Round(t.Context())
				w.mine()
				w.advance(2 * time.Second)
			}
			w.node.Set(nil)
			w.finish()
			for _, intent := range paid {
				w.want(intent, boxoffice.Paid, "")
			}
			w.audit()
		})
	}
}
