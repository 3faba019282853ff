package payment_test

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/contracts"
	"boxoffice/internal/order"
	"boxoffice/internal/payment"
	"boxoffice/internal/test/devchain"
	"boxoffice/internal/test/faultrpc"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// wallet1271 deploys a contract wallet with tokens, whose owner is a payer's key.
func (w *world) wallet1271(owner int) common.Address {
	w.Helper()
	at, err := w.dev.Deploy(w.Context(), key(w, owner), contracts.Wallet(), addressOf(key(w, owner)))
	w.must(err)
	w.must(w.dev.FundContract(w.Context(), key(w, owner), at, big.NewInt(wealth)))
	return at
}

// hostile deploys a wallet that accepts every signature until setAnswer changes that.
func (w *world) hostile() common.Address {
	w.Helper()
	at, err := w.dev.Deploy(w.Context(), devchain.PayerKey(), contracts.HostileWallet())
	w.must(err)
	w.must(w.dev.FundContract(w.Context(), devchain.PayerKey(), at, big.NewInt(wealth)))
	return at
}

func (w *world) setAnswer(hostile common.Address, answer uint8) {
	w.Helper()
	w.call(devchain.PayerKey(), hostile, contracts.HostileWallet(), "answer", answer, contracts.Accept)
}

func from(owner common.Address) func(*payment.Permit) {
	return func(p *payment.Permit) { p.From = owner }
}

// Payments of a contract wallet and of an account with a delegate settle in a batch
// with others.
func TestWalletsWithCodeSettle(t *testing.T) {
	w := newWorld(t)
	wallet := w.wallet1271(1)
	w.must(w.dev.Delegate(t.Context(), key(t, 2), wallet))
	contract, delegated := w.pay(1, 1, from(wallet)), w.pay(2, 1)
	plain := []payment.Intent{w.pay(3, 1), w.pay(4, 1)}
	w.round()
	if slots := w.slots(); len(slots) != 1 || len(slots[0].Intents) != 4 {
		t.Errorf("%d slots", len(slots))
	}
	w.mine()
	w.round()
	for _, intent := range append(plain, contract, delegated) {
		w.want(intent, boxoffice.Paid, "")
	}
	w.audit()
}

// A wallet that refuses a signature it accepted before fails its own payment. The
// failure is not final: the wallet accepts again, somebody else settles, and the
// order is paid.
func TestWalletRefusesForAWhile(t *testing.T) {
	w := newWorld(t)
	wallet := w.hostile()
	refused, neighbour := w.pay(1, 1, from(wallet)), w.pay(2, 1)
	w.setAnswer(wallet, contracts.Refuse)
	w.round()
	w.mine()
	w.round()
	w.want(neighbour, boxoffice.Paid, "")
	if failed := w.want(refused, boxoffice.PaymentFailed, x402.ReasonSignature); failed.Final {
		t.Error("it is final, although the wallet may accept again")
	}
	w.setAnswer(wallet, contracts.Accept)
	w.settleAs(devchain.PayerKey(), refused.Permit)
	w.advance(w.config.ReviewEvery)
	w.round()
	w.want(refused, boxoffice.Paid, "")
	w.audit()
}

// After such a failure the same order accepts another payment with the same nonce,
// and is paid once.
func TestWalletPaysAgain(t *testing.T) {
	w := newWorld(t)
	wallet := w.hostile()
	failed := w.pay(1, 1, from(wallet))
	w.setAnswer(wallet, contracts.Refuse)
	w.round()
	w.want(failed, boxoffice.PaymentFailed, x402.ReasonSignature)
	w.setAnswer(wallet, contracts.Accept)
	record := w.read(failed.OrderID)
	again := w.intent(record, w.permit(1, 1, from(wallet),
		func(p *payment.Permit) { p.Deadline, _ = p.Deadline.Add(x402.NewUint256(1)) }))
	w.must(w.store.BeginPayment(t.Context(), again, order.Begin(&record, &again)))
	w.round()
	w.mine()
	w.round()
	w.want(again, boxoffice.Paid, "")
	if _, err := w.trySettle(devchain.PayerKey(), failed.Permit); err == nil {
		t.Error("the first payment was settled too")
	}
	w.audit()
}

// Whatever the code of a wallet does when it is called, only its own payment fails,
// and it costs no gas.
func TestHostileWallets(t *testing.T) {
	w := newWorld(t)
	reasons := map[uint8]x402.Reason{
		contracts.Refuse: x402.ReasonSignature, contracts.Revert: x402.ReasonSimulation, contracts.BurnGas: x402.ReasonSimulation,
		contracts.InvalidOpcode: x402.ReasonSimulation, contracts.Nothing: x402.ReasonSimulation, contracts.Short: x402.ReasonSimulation,
		contracts.Dirty: x402.ReasonSimulation, contracts.Flood: x402.ReasonSimulation,
	}
	failing, plain := map[uint8]payment.Intent{}, []payment.Intent(nil)
	for answer := range reasons {
		wallet := w.hostile()
		failing[answer] = w.pay(1, 1, from(wallet))
		plain = append(plain, w.pay(10+int(answer), 1))
		w.setAnswer(wallet, answer)
	}
	w.round()
	w.mine()
	w.round()
	for _, intent := range plain {
		w.want(intent, boxoffice.Paid, "")
	}
	for answer, reason := range reasons {
		w.want(failing[answer], boxoffice.PaymentFailed, reason)
	}
	if n := w.transactions(); n != 1 {
		t.Errorf("%d transactions", n)
	}
	w.audit()
}

// A wallet that accepts in simulations and refuses in blocks costs the gas of the
// four payments that are open when that is seen, and no more, however many orders it
// pays for. Payments of others settle meanwhile.
func TestRevertingWallet(t *testing.T) {
	for _, tries := range []int{1, 3} {
		t.Run(fmt.Sprint(tries, " tries"), func(t *testing.T) { testReverting(t, tries) })
	}
}

func testReverting(t *testing.T, tries int) {
	w := newWorld(t, func(s *setup) { s.settler.MaxTries = tries })
	wallet := w.hostile()
	w.setAnswer(wallet, contracts.AcceptUnpaid)
	var intents []payment.Intent
	for nonce := range uint64(10) {
		intents = append(intents, w.pay(1, nonce, from(wallet)))
	}
	w.round()
	if slots := w.slots(); len(slots) != 1 || len(slots[0].Intents) != 4 {
		t.Fatalf("%d slots", len(slots))
	}
	plain := w.pay(2, 1)
	w.round()
	w.mine()
	w.round()
	w.want(plain, boxoffice.Paid, "")
	intents = append(intents, w.pay(1, 11, from(wallet)))
	w.finish()
	for _, intent := range intents {
		w.want(intent, boxoffice.PaymentFailed, x402.ReasonTransactionFailed)
	}
	if n := w.transactions(); n != 2 {
		t.Errorf("%d transactions", n)
	}
	w.audit()

	// After an hour its simulations are believed again.
	w.setAnswer(wallet, contracts.Accept)
	w.advance(61 * 60e9)
	w.mine()
	honest := w.pay(1, 20, from(wallet))
	w.finish()
	w.want(honest, boxoffice.Paid, "")
	w.audit()
}

// A node that is behind does not know that somebody else settled first, and its
// simulation of the reverted payment passes. This must not make the wallet a
// reverting one.
func TestWalletAndNodeBehind(t *testing.T) {
	w := newWorld(t)
	wallet := w.wallet1271(1)
	w.node.Freeze(w.dev.Head().Number.Uint64())
	first := w.pay(1, 1, from(wallet))
	w.round()
	tx := w.slots()[0].Txs[0]
	w.dev.DropPending()
	w.settleAs(devchain.PayerKey(), first.Permit)
	w.must(w.wallet.Broadcast(t.Context(), tx))
	w.mine()
	w.node.Set(func(method string) faultrpc.Fault {
		if method == "eth_blockNumber" { // as the question for a standing has, and no other
			return faultrpc.Old
		}
		return faultrpc.None
	})
	if err := w.settler.Round(t.Context()); err == nil {
		t.Error("the node that is behind is believed")
	}
	w.node.Set(nil)
	w.round()
	w.want(first, boxoffice.Paid, "")
	second := w.pay(1, 2, from(wallet))
	w.round()
	w.mine()
	w.round()
	w.want(second, boxoffice.Paid, "")
	w.audit()
}

// Payments do not wait for those of an owner with code before them, however many of
// these wait until its open slots are closed.
func TestManyPaymentsOfAWallet(t *testing.T) {
	w := newWorld(t, func(s *setup) { s.settler.MaxBatch = 5 })
	wallet := w.wallet1271(1)
	var own []payment.Intent
	for nonce := range uint64(12) {
		own = append(own, w.pay(1, nonce, from(wallet)))
	}
	w.advance(time.Second)
	plain := []payment.Intent{w.pay(2, 1), w.pay(3, 1)}
	w.round()
	w.round()
	w.mine()
	w.round()
	for _, intent := range plain {
		w.want(intent, boxoffice.Paid, "")
	}
	w.finish()
	for _, intent := range own {
		w.want(intent, boxoffice.Paid, "")
	}
	w.audit()
}

// A wallet that reverts with PaymentTooEarly although validAfter has passed fails; it
// does not wait.
func TestWalletIsNotEarly(t *testing.T) {
	w := newWorld(t)
	tooEarly := crypto.Keccak256([]byte("PaymentTooEarly()"))[:4]
	// PUSH4 selector, MSTORE at 0, REVERT with its 4 bytes; and what deploys these 13 bytes.
	runtime := slices.Concat([]byte{0x63}, tooEarly, common.FromHex("6000526004601cfd"))
	early := &contracts.Contract{Name: "early", Creation: slices.Concat([]byte{0x6c}, runtime,
		common.FromHex("600052600d6013f3"))}
	code, err := w.dev.Deploy(t.Context(), devchain.PayerKey(), early)
	w.must(err)
	intent := w.pay(1, 1)
	w.must(w.dev.Delegate(t.Context(), key(t, 1), code))
	w.round()
	w.want(intent, boxoffice.PaymentFailed, x402.ReasonSimulation)
	standings, err := w.chain.Standing(t.Context(), []payment.Permit{w.permit(1, 2)})
	w.must(err)
	if failure := standings[0].Failure; failure == nil || failure.Reason != x402.ReasonSimulation {
		t.Errorf("its standing has %+v", failure)
	}
	w.audit()
}

// A signature that only the form for wallets with code can carry is not sent for an
// owner that has none now: the owner could get code that burns gas before the block.
func TestHighSOfOwnerWithoutCode(t *testing.T) {
	w := newWorld(t)
	permit := w.permit(1, 1)
	s := new(big.Int).SetBytes(permit.Signature[32:64])
	s.Sub(crypto.S256().Params().N, s).FillBytes(permit.Signature[32:64])
	permit.Signature[64] ^= 27 ^ 28
	record := w.order()
	intent := w.intent(record, permit) // when it was verified the owner had code that accepts it
	w.must(w.store.BeginPayment(t.Context(), intent, order.Begin(&record, &intent)))
	neighbour := w.pay(2, 1)
	w.round()
	w.want(intent, boxoffice.PaymentFailed, x402.ReasonSignature)
	w.mine()
	w.round()
	w.want(neighbour, boxoffice.Paid, "")
	w.audit()
}

// An owner without code takes its money away before the block and brings it back after
// it. All its payments revert once; then few of them, and of its later ones, are sent at
// a time. Payments of others go on.
func TestMoneyTakenAway(t *testing.T) {
	w := newWorld(t)
	var own []payment.Intent
	for nonce := range uint64(12) {
		own = append(own, w.pay(1, nonce))
	}
	w.round()
	tx := w.slots()[0].Txs[0]
	w.dev.DropPending()
	w.spend(1, wealth)
	w.must(w.wallet.Broadcast(t.Context(), tx))
	w.mine()
	w.must(w.dev.Fund(t.Context(), addressOf(key(t, 1)), nil, big.NewInt(wealth)))
	own, other := append(own, w.pay(1, 20)), w.pay(2, 1)
	w.round()
	if slots := w.slots(); len(slots) != 1 || len(slots[0].Intents) != 4+1 {
		t.Errorf("%d slots, the first with %d payments", len(slots), len(slots[0].Intents))
	}
	for range 3 {
		w.round()
	}
	if n := strings.Count(w.log.String(), "pass the simulation and revert"); n != 1 {
		t.Errorf("the log says it %d times", n)
	}
	w.finish()
	for _, intent := range append(own, other) {
		w.want(intent, boxoffice.Paid, "")
	}
	w.audit()
}

// An owner gets code before the block and is without it again after it, each time. Its
// payments are skipped, which costs us some gas for each; after the first time few of
// them are sent at once.
func TestFlippingOwner(t *testing.T) {
	w := newWorld(t)
	code := w.wallet1271(1)
	var own []payment.Intent
	for nonce := range uint64(12) {
		own = append(own, w.pay(2, nonce))
	}
	w.round()
	tx := w.slots()[0].Txs[0]
	w.dev.DropPending()
	w.must(w.dev.Delegate(t.Context(), key(t, 2), code))
	w.must(w.wallet.Broadcast(t.Context(), tx))
	w.mine()
	w.must(w.dev.Delegate(t.Context(), key(t, 2), common.Address{}))
	w.round()
	if slots := w.slots(); len(slots) != 1 || len(slots[0].Intents) != 4 {
		t.Errorf("%d slots, the first with %d payments", len(slots), len(slots[0].Intents))
	}
	w.finish()
	for _, intent := range own {
		if settled := w.want(intent, boxoffice.Paid, ""); settled.Reverts != 0 {
			t.Error("the skipped payment counts as reverted")
		}
	}
	w.audit()
}
