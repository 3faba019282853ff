package contracts_test

import (
	"math/big"
	"testing"

	"boxoffice/contracts"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/math"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/google/go-cmp/cmp"
)

// The outcomes of payments.
const (
	notTried byte = iota
	settled
	tooEarly
	expired
	spent
	code
	reverted
	notExact
)

// bound is the gas that these tests give a payment.
const bound = 200_000

// report is what the contract says of a payment in a simulation.
type report struct {
	Outcome   uint8
	Code      bool
	Spent     bool
	Balance   *big.Int
	Allowance *big.Int
	Data      []byte
}

// settle calls Settlement with a batch.
func (w *world) settle(gas uint64, batch []byte) result {
	w.Helper()
	return w.transact(contracts.SettlementAddress, pack(w, contracts.Settlement(), "settle", batch), gas)
}

// simulate calls Settlement with a batch and forgets what changed.
func (w *world) simulate(gas uint64, batch []byte) result {
	w.Helper()
	return w.call(contracts.SettlementAddress, pack(w, contracts.Settlement(), "settle", batch), gas)
}

// outcomes returns what the one Batch event says.
func (w *world) outcomes(r result) []byte {
	w.Helper()
	if r.err != nil {
		w.Fatalf("the batch: %v %x", r.err, r.returned)
	}
	event := contracts.Settlement().ABI.Events["Batch"]
	var found [][]byte
	for _, log := range r.logs {
		if log.Address == contracts.SettlementAddress {
			if len(log.Topics) != 1 || log.Topics[0] != event.ID {
				w.Fatalf("topics %v", log.Topics)
			}
			values, err := event.Inputs.Unpack(log.Data)
			if err != nil {
				w.Fatal(err)
			}
			found = append(found, values[0].([]byte))
		}
	}
	if len(found) != 1 {
		w.Fatalf("%d events", len(found))
	}
	return found[0]
}

// reports returns what settle returned.
func (w *world) reports(r result) []report {
	w.Helper()
	var reports []report
	if err := contracts.Settlement().ABI.UnpackIntoInterface(&reports, "settle", r.returned); err != nil {
		w.Fatal(err)
	}
	return reports
}

// payer gives a test key tokens and, if it approves, Permit2 an unlimited allowance.
func (w *world) fund(account common.Address, approve bool) {
	w.Helper()
	w.must(relayer, tokenAddress, pack(w, contracts.TestToken(), "mint", account, big.NewInt(1_000_000_000)))
	if approve {
		w.must(account, tokenAddress, pack(w, contracts.TestToken(), "approve", contracts.Permit2Address, math.MaxBig256))
	}
}

func TestSettlementAddress(t *testing.T) {
	creation := contracts.Settlement().Creation
	if got := crypto.CreateAddress2(contracts.Create2Address, common.Hash{}, crypto.Keccak256(creation)); got !=
		contracts.SettlementAddress {
		t.Fatalf("the factory places Settlement at %s, SettlementAddress is %s", got, contracts.SettlementAddress)
	}
	w := newWorld(t)
	w.state.SetCode(contracts.SettlementAddress, nil, 0)
	w.state.SetNonce(contracts.SettlementAddress, 0, 0)
	got := w.must(relayer, contracts.Create2Address, append(make([]byte, 32), creation...))
	if common.BytesToAddress(got.returned) != contracts.SettlementAddress {
		t.Errorf("the factory returned %x", got.returned)
	}
	if diff := cmp.Diff([]byte(contracts.Settlement().Runtime), w.state.GetCode(contracts.SettlementAddress)); diff != "" {
		t.Errorf("code (-artifact +deployed):\n%s", diff)
	}
	t.Logf("deployment: %d gas", got.gas)
}

// One batch has every outcome that needs no hostile contract.
func TestSettlementOutcomes(t *testing.T) {
	w := newWorld(t)
	for n := range 4 {
		w.fund(addressOf(testKey(n)), n != 3)
	}
	w.delegate(addressOf(testKey(2)), common.Address{1})
	stranger := newPayment(testKey(0), 77)
	stranger.owner = addressOf(testKey(1))
	payments := []*payment{
		newPayment(testKey(0), 0),
		newPayment(testKey(0), 0),
		newPayment(testKey(0), 1, func(p *payment) { p.after = now + 1 }),
		newPayment(testKey(0), 2, func(p *payment) { p.deadline = now - 1 }),
		newPayment(testKey(2), 3),
		newPayment(testKey(3), 4),
		stranger,
		newPayment(testKey(1), 1<<40),
		newPayment(testKey(1), 6, func(p *payment) { p.to = p.owner }),
		newPayment(testKey(1), 7, func(p *payment) { p.after, p.deadline = now, now }),
	}
	want := []byte{settled, spent, tooEarly, expired, code, reverted, reverted, settled, settled, settled}
	batch := packBatch(1, bound, payments)
	simulated := w.simulate(20_000_000, batch)
	if diff := cmp.Diff(want, w.outcomes(simulated)); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	batch[0] = 0
	got := w.settle(5_000_000, batch)
	if diff := cmp.Diff(want, w.outcomes(got)); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	if reports := w.reports(got); len(reports) != 0 {
		t.Errorf("a batch that wants no reports has %d", len(reports))
	}
	if got := w.balance(tokenAddress, recipient); got.Int64() != 3_000_000 {
		t.Errorf("the recipient has %s", got)
	}
	var wantReports []report
	for i, outcome := range want {
		r := report{Outcome: outcome, Balance: big.NewInt(1_000_000_000), Allowance: math.MaxBig256, Data: []byte{}}
		switch i {
		case 1:
			r.Spent = true
			fallthrough
		case 2, 3:
			r.Balance = big.NewInt(999_000_000)
		case 4:
			r.Code = true
		case 5:
			r.Allowance = new(big.Int)
			r.Data = pack2("Error(string)", "TRANSFER_FROM_FAILED")
		case 6:
			r.Data = contracts.Permit2().ABI.Errors["InvalidSigner"].ID.Bytes()[:4]
		case 8, 9:
			r.Balance = big.NewInt(999_000_000)
		}
		wantReports = append(wantReports, r)
	}
	equal := cmp.Comparer(func(a, b *big.Int) bool { return a.Cmp(b) == 0 })
	if diff := cmp.Diff(wantReports, w.reports(simulated), equal); diff != "" {
		t.Errorf("reports (-want +got):\n%s", diff)
	}
}

// pack2 returns the revert data of a reason.
func pack2(_, reason string) []byte {
	data := append([]byte{0x08, 0xc3, 0x79, 0xa0}, number(32)...)
	data = append(data, number(uint64(len(reason)))...)
	return append(data, common.RightPadBytes([]byte(reason), 32)...)
}
