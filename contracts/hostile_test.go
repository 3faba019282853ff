package contracts_test

import (
	"bytes"
	"fmt"
	"math/big"
	"testing"

	"boxoffice/contracts"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/math"
	"github.com/ethereum/go-ethereum/core"
	"github.com/google/go-cmp/cmp"
	"github.com/holiman/uint256"
	"pgregory.net/rapid"
)

// The modes of HostileToken.
const (
	honest uint8 = iota
	silent
	falseToken
	lazy
	fee
	bonus
	revertToken
	flood
	burnTransfer
	burnBalance
	burnPermit
	shortBalance
	floodBalance
	revertBalance
	hook
	modes
)

// outcomeOf is the outcome of a payment in a token of each mode. Not there: what is left of the gas decides.
var outcomeOf = map[uint8]byte{
	honest: settled, silent: settled, falseToken: reverted, lazy: notExact, fee: notExact, bonus: notExact,
	revertToken: reverted, flood: reverted, burnTransfer: reverted, burnBalance: reverted, burnPermit: settled,
	shortBalance: notExact, revertBalance: reverted, hook: settled,
}

// walletOutcomes is the outcome of a payment whose owner has the code of HostileWallet, in the plain form.
var walletOutcomes = map[uint8]byte{
	contracts.Accept: settled, contracts.Refuse: reverted, contracts.Revert: reverted, contracts.BurnGas: reverted,
	contracts.InvalidOpcode: reverted, contracts.Nothing: reverted, contracts.Short: reverted,
	contracts.AcceptUnpaid: reverted,
}

const payers = 16

var payCall = contracts.Settlement().ABI.Methods["pay"].ID

func tokenOf(mode uint8) common.Address  { return common.Address{0xba, 0xd0, mode} }
func walletOf(mode uint8) common.Address { return common.Address{0xba, 0x11, mode} }

// hostileWorld has a token of each mode and payers who have every token and gave Permit2 an allowance of it.
func hostileWorld(tb testing.TB) *world {
	w := newWorld(tb)
	token, wallet := contracts.HostileToken(), contracts.HostileWallet()
	w.fund(recipient, false)
	for n := range payers {
		w.fund(addressOf(testKey(n)), true)
	}
	for mode := range modes {
		at := tokenOf(mode)
		w.place(at, token.Runtime)
		for n := range payers {
			owner := addressOf(testKey(n))
			w.must(relayer, at, pack(w, token, "mint", owner, big.NewInt(1_000_000_000)))
			w.must(owner, at, pack(w, token, "approve", contracts.Permit2Address, math.MaxBig256))
		}
		w.must(relayer, at, pack(w, token, "behave", mode, common.Address{}, []byte{}))
	}
	for mode := range walletOutcomes {
		w.place(walletOf(mode), wallet.Runtime)
	}
	return w
}

// delegateTo makes a payer a wallet that answers as the mode says (EIP-7702).
func (w *world) delegateTo(account common.Address, mode uint8) {
	w.delegate(account, walletOf(mode))
	w.must(relayer, account, pack(w, contracts.HostileWallet(), "answer", mode, mode))
}

func in(token common.Address) func(*payment) { return func(p *payment) { p.token = token } }

// Each payment in a hostile token is between two honest ones, which settle.
func TestSettlementHostileTokens(t *testing.T) {
	base := hostileWorld(t)
	for mode, want := range outcomeOf {
		w := &world{TB: t, state: base.state.Copy(), config: base.config, sent: base.sent}
		got := w.settle(10_000_000, packBatch(0, bound, []*payment{
			newPayment(testKey(0), 1), newPayment(testKey(1), 1, in(tokenOf(mode))), newPayment(testKey(2), 1),
		}))
		if diff := cmp.Diff([]byte{settled, want, settled}, w.outcomes(got)); diff != "" {
			t.Errorf("mode %d (-want +got):\n%s", mode, diff)
		}
		if got.gas > 21_000+2*80_000+bound+overhead {
			t.Errorf("mode %d: %d gas", mode, got.gas)
		}
	}
}

func TestSettlementHostileWallets(t *testing.T) {
	base := hostileWorld(t)
	for mode, want := range walletOutcomes {
		w := &world{TB: t, state: base.state.Copy(), config: base.config, sent: base.sent}
		w.delegateTo(addressOf(testKey(1)), mode)
		quiet := newPayment(testKey(1), 1)
		plain := newPayment(testKey(1), 2)
		plain.plain, plain.signature = true, bytes.Repeat([]byte{7}, 333)
		got := w.settle(10_000_000, packBatch(0, bound, []*payment{
			newPayment(testKey(0), 1), quiet, plain, newPayment(testKey(2), 1),
		}))
		if diff := cmp.Diff([]byte{settled, code, want, settled}, w.outcomes(got)); diff != "" {
			t.Errorf("mode %d (-want +got):\n%s", mode, diff)
		}
	}
}

// A token that calls Settlement from its transferFrom.
func TestSettlementCannotBeReentered(t *testing.T) {
	base := hostileWorld(t)
	errorOf := func(name string) []byte { id := contracts.Settlement().ABI.Errors[name].ID; return id[:4] }
	inner := newPayment(testKey(3), 9)
	locked := contracts.ExactProxy().ABI.Errors["ReentrancyGuardReentrantCall"].ID
	for name, tc := range map[string]struct {
		call   []byte
		target common.Address
		want   []byte
	}{
		"settle": {
			pack(t, contracts.Settlement(), "settle", packBatch(0, bound, []*payment{inner})), contracts.SettlementAddress,
			errorOf("Reentered"),
		},
		"pay":   {payCall, contracts.SettlementAddress, errorOf("OnlySelf")},
		"proxy": {inner.settleCall(base), contracts.ExactProxyAddress, locked[:4]},
	} {
		w := &world{TB: t, state: base.state.Copy(), config: base.config, sent: base.sent}
		at := tokenOf(hook)
		w.must(relayer, at, pack(w, contracts.HostileToken(), "behave", hook, tc.target, tc.call))
		got := w.settle(10_000_000, packBatch(0, 500_000, []*payment{
			newPayment(testKey(1), 1, in(at)), newPayment(testKey(2), 1),
		}))
		if diff := cmp.Diff([]byte{settled, settled}, w.outcomes(got)); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
		returned := w.call(at, pack(w, contracts.HostileToken(), "hookReturned"), 1_000_000).returned
		values, err := contracts.HostileToken().ABI.Unpack("hookReturned", returned)
		if err != nil || !bytes.Equal(values[0].([]byte), tc.want) {
			t.Errorf("%s: the inner call returned %x (%v), want %x", name, returned, err, tc.want)
		}
		if w.balance(tokenAddress, inner.owner).Int64() != 1_000_000_000 {
			t.Errorf("%s: the payment of the inner call settled", name)
		}
	}
}

func TestSettlementPayIsClosed(t *testing.T) {
	w := newWorld(t)
	id := contracts.Settlement().ABI.Errors["OnlySelf"].ID
	for _, data := range [][]byte{payCall, append(bytes.Clone(payCall), make([]byte, 500)...)} {
		if got := w.call(contracts.SettlementAddress, data, 1_000_000); !bytes.Equal(got.returned, id[:4]) {
			t.Errorf("pay returned %x, %v", got.returned, got.err)
		}
	}
	// Settlement as its own token: the calls of its own permit and balanceOf find no function.
	w.fund(addressOf(testKey(0)), true)
	p := newPayment(testKey(0), 1, in(contracts.SettlementAddress))
	p.approval = approve(testKey(0), p, p.amount, 0)
	got := w.settle(1_000_000, packBatch(0, bound, []*payment{p}))
	if diff := cmp.Diff([]byte{reverted}, w.outcomes(got)); diff != "" {
		t.Error(diff)
	}
	value := core.Message{
		From: relayer, To: &contracts.SettlementAddress, GasLimit: 1_000_000, Value: uint256.NewInt(1),
		Data: pack(t, contracts.Settlement(), "settle", packBatch(0, bound, nil)),
	}
	if got := w.run(value); got.err == nil {
		t.Error("settle took native coin")
	}
}

// A token without code: Permit2 takes its call for a success.
func TestSettlementTokenWithoutCode(t *testing.T) {
	w := newWorld(t)
	p := newPayment(testKey(0), 1, in(common.Address{0xee}))
	got := w.settle(1_000_000, packBatch(0, bound, []*payment{p}))
	if diff := cmp.Diff([]byte{notExact}, w.outcomes(got)); diff != "" {
		t.Error(diff)
	}
}

func TestSettlementApprovals(t *testing.T) {
	w := newWorld(t)
	for n := range 4 {
		w.fund(addressOf(testKey(n)), false)
	}
	var payments []*payment
	add := func(n int, nonce int64, approval func(*payment) *approval) {
		p := newPayment(testKey(n), nonce)
		p.approval = approval(p)
		payments = append(payments, p)
	}
	good := func(n int, nonce int64) func(*payment) *approval {
		return func(p *payment) *approval { return approve(testKey(n), p, p.amount, nonce) }
	}
	add(0, 1, good(0, 0))
	add(0, 2, good(0, 0)) // used up
	add(0, 3, good(0, 1))
	add(1, 1, good(2, 0)) // signed by another
	add(2, 1, func(p *payment) *approval { return approve(testKey(2), p, math.MaxBig256, 0) })
	payments = append(payments, newPayment(testKey(2), 2))
	// Somebody else submitted this one before.
	add(3, 1, good(3, 0))
	a := payments[len(payments)-1].approval
	s := append([]byte(nil), a.signature...)
	v := 27 + s[32]>>7
	s[32] &= 0x7f
	w.must(relayer, tokenAddress, pack(w, contracts.TestToken(), "permit", addressOf(testKey(3)), contracts.Permit2Address,
		a.value, a.deadline, v, [32]byte(s[:32]), [32]byte(s[32:])))
	got := w.settle(3_000_000, packBatch(0, bound, payments))
	want := []byte{settled, reverted, settled, reverted, settled, settled, settled}
	if diff := cmp.Diff(want, w.outcomes(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := w.read(tokenAddress, contracts.TestToken(), "nonces", addressOf(testKey(1))); got.Sign() != 0 {
		t.Error("the permit of a failed payment stayed")
	}
}

// At every gas limit, what was tried had the gas of its bound, and what was settled stays.
func TestSettlementStopsBeforeItsGas(t *testing.T) {
	base := hostileWorld(t)
	var payments []*payment
	for n := range 5 {
		payments = append(payments, newPayment(testKey(n), 1))
	}
	payments[2].plain = true
	// The smallest bound with which all settle. With any less gas than the bound, one would be reverted.
	low, high := uint32(30_000), uint32(bound)
	for low+1 < high {
		middle := (low + high) / 2
		w := &world{TB: t, state: base.state.Copy(), config: base.config}
		if bytes.Equal(w.outcomes(w.settle(2_000_000, packBatch(0, middle, payments))), bytes.Repeat([]byte{settled}, 5)) {
			high = middle
		} else {
			low = middle
		}
	}
	for _, flags := range []byte{0, 1} {
		batch := packBatch(flags, high, payments)
		seen := map[int]bool{}
		for gas := uint64(45_000); gas < 1_400_000; gas += 3_331 {
			w := &world{TB: t, state: base.state.Copy(), config: base.config}
			before := w.balance(tokenAddress, recipient)
			data := pack(w, contracts.Settlement(), "settle", batch)
			got := w.transact(contracts.SettlementAddress, data, gas)
			if got.err != nil {
				if seen[0] {
					t.Fatalf("gas %d: the batch reverts, with less gas it did not", gas)
				}
				continue
			}
			outcomes := w.outcomes(got)
			done := bytes.Count(outcomes, []byte{settled})
			seen[done] = true
			want := append(bytes.Repeat([]byte{settled}, done), make([]byte, 5-done)...)
			if !bytes.Equal(outcomes, want) {
				t.Fatalf("gas %d, flags %d: outcomes %v", gas, flags, outcomes)
			}
			if rise := new(big.Int).Sub(w.balance(tokenAddress, recipient), before); rise.Int64() != int64(done)*1_000_000 {
				t.Fatalf("gas %d: the recipient got %s", gas, rise)
			}
			if flags == 1 {
				for i, r := range w.reports(got) {
					if r.Outcome != outcomes[i] {
						t.Fatalf("report %d says %d", i, r.Outcome)
					}
				}
			}
		}
		if len(seen) != 6 {
			t.Errorf("flags %d: numbers of settled payments: %v", flags, seen)
		}
	}
}

// Amounts of 1 to 32 bytes and nonces of 0 to 32.
func TestSettlementLengths(t *testing.T) {
	w := newWorld(t)
	owner := addressOf(testKey(0))
	most := new(big.Int).Sub(math.MaxBig256, big.NewInt(9))
	w.must(relayer, tokenAddress, pack(w, contracts.TestToken(), "mint", owner, most))
	w.must(owner, tokenAddress, pack(w, contracts.TestToken(), "approve", contracts.Permit2Address, math.MaxBig256))
	var payments []*payment
	sum := new(big.Int)
	for n := range 33 {
		p := newPayment(testKey(0), 0, func(p *payment) {
			p.nonce = new(big.Int).SetBytes(bytes.Repeat([]byte{byte(n + 1)}, n))
			p.amount = new(big.Int).SetBytes(bytes.Repeat([]byte{byte(n%7 + 1)}, max(n, 1)))
			p.wideNonce, p.wideAmount = n%3 == 1, n%4 == 1
		})
		sum.Add(sum, p.amount)
		payments = append(payments, p)
	}
	got := w.settle(10_000_000, packBatch(0, bound, payments))
	if diff := cmp.Diff(bytes.Repeat([]byte{settled}, 33), w.outcomes(got)); diff != "" {
		t.Error(diff)
	}
	if w.balance(tokenAddress, recipient).Cmp(sum) != 0 {
		t.Error("the recipient has another sum")
	}
}

func TestSettlementMalformed(t *testing.T) {
	w := newWorld(t)
	for n := range 3 {
		w.fund(addressOf(testKey(n)), true)
	}
	payments := []*payment{newPayment(testKey(0), 1), newPayment(testKey(1), 1), newPayment(testKey(2), 1)}
	payments[1].plain = true
	payments[2].approval = approve(testKey(2), payments[2], big.NewInt(1), 0)
	good := packBatch(0, bound, payments)
	change := func(i int, to byte) []byte {
		batch := bytes.Clone(good)
		batch[i] = to
		return batch
	}
	cases := map[string][]byte{
		"an unknown flag":        change(0, 2),
		"no pair at first":       change(7, good[7]&^(1<<5)),
		"a nonce of 33 bytes":    change(8, 33),
		"one payment more":       change(6, 4),
		"one payment less":       change(6, 2),
		"no value of the permit": change(bytes.LastIndex(good, []byte{1, 1, 4}), 0),
		"a byte more":            append(bytes.Clone(good), 0),
	}
	for n := range good {
		cases[fmt.Sprintf("cut to %d bytes", n)] = good[:n]
	}
	id := contracts.Settlement().ABI.Errors["Malformed"].ID
	for name, batch := range cases {
		if got := w.simulate(3_000_000, batch); !bytes.Equal(got.returned, id[:4]) {
			t.Errorf("%s: %v %x", name, got.err, got.returned)
		}
	}
	if got := w.simulate(3_000_000, good); got.err != nil {
		t.Error(got.err)
	}
	if got := w.outcomes(w.settle(100_000, packBatch(0, bound, nil))); len(got) != 0 {
		t.Errorf("outcomes of an empty batch: %x", got)
	}
}

// overhead is the gas that a payment which burns its bound costs besides.
const overhead = 25_000

// Random batches of good and bad payments.
func TestSettlementProperties(t *testing.T) {
	base := hostileWorld(t)
	rapid.Check(t, func(t *rapid.T) {
		w := &world{TB: base.TB, state: base.state.Copy(), config: base.config, sent: base.sent}
		var payments []*payment
		var want [][]byte
		var good, bad uint64
		for n := range rapid.IntRange(1, payers).Draw(t, "payments") {
			key := testKey(n)
			p := newPayment(key, 1)
			var outcome []byte
			resign := func(changes ...func(*payment)) { p = newPayment(key, 1, changes...) }
			switch rapid.IntRange(0, 12).Draw(t, "kind") {
			case 0, 1:
				outcome = []byte{settled}
			case 2:
				resign(func(p *payment) { p.deadline = now - 1 })
				outcome = []byte{expired}
			case 3:
				resign(func(p *payment) { p.after = now + 1 })
				outcome = []byte{tooEarly}
			case 4: // spent before
				w.must(p.owner, contracts.Permit2Address,
					pack(w, contracts.Permit2(), "invalidateUnorderedNonces", new(big.Int), big.NewInt(2)))
				outcome = []byte{spent}
			case 5: // another amount than was signed
				p.amount = big.NewInt(999_999)
				outcome = []byte{reverted}
			case 6:
				resign(func(p *payment) { p.amount = big.NewInt(2_000_000_000) })
				outcome = []byte{reverted}
			case 7:
				resign(func(p *payment) { p.to = p.owner })
				outcome = []byte{settled}
			case 8:
				w.delegateTo(p.owner, contracts.BurnGas)
				outcome = []byte{code}
			case 9:
				mode := rapid.SampledFrom([]uint8{
					contracts.Accept, contracts.Refuse, contracts.Revert, contracts.BurnGas,
					contracts.InvalidOpcode, contracts.Nothing, contracts.Short, contracts.AcceptUnpaid,
				}).Draw(t, "wallet")
				w.delegateTo(p.owner, mode)
				p.plain = true
				p.signature = rapid.SliceOfN(rapid.Byte(), 0, 400).Draw(t, "signature")
				outcome = []byte{walletOutcomes[mode]}
			case 10:
				p.approval = approve(key, p, p.amount, rapid.Int64Range(0, 1).Draw(t, "permit"))
				outcome = []byte{settled}
			default:
				mode := rapid.Uint8Range(0, modes-1).Draw(t, "token")
				resign(in(tokenOf(mode)))
				if mode == hook {
					calls := []struct {
						at   common.Address
						data []byte
					}{
						{contracts.SettlementAddress, pack(w, contracts.Settlement(), "settle",
							packBatch(0, 100_000, []*payment{newPayment(testKey(0), 77)}))},
						{contracts.SettlementAddress, payCall},
						{contracts.ExactProxyAddress, newPayment(testKey(0), 78).settleCall(w)},
						{tokenAddress, pack(w, contracts.TestToken(), "mint", contracts.ExactProxyAddress, big.NewInt(5))},
					}
					call := rapid.SampledFrom([]int{0, 1, 2, 3}).Draw(t, "hook")
					w.must(relayer, p.token, pack(w, contracts.HostileToken(), "behave", hook, calls[call].at, calls[call].data))
				}
				if known, ok := outcomeOf[mode]; ok {
					outcome = []byte{known}
				} else {
					outcome = []byte{settled, reverted, notExact}
				}
				if mode == hook {
					outcome = []byte{settled, reverted} // the call may need more than the bound
				}
				if rapid.Bool().Draw(t, "approval") {
					p.approval = approve(key, p, math.MaxBig256, 0)
					if mode == burnPermit {
						outcome = []byte{reverted}
					}
				}
			}
			p.repeatPair = rapid.Bool().Draw(t, "pair")
			payments, want = append(payments, p), append(want, outcome)
			if rapid.IntRange(0, 9).Draw(t, "twice") == 0 {
				payments = append(payments, p)
				again := append([]byte(nil), outcome...)
				if bytes.Contains(outcome, []byte{settled}) {
					again = append(again[:0], spent, reverted, notExact)
				}
				want = append(want, again)
			}
		}
		batch := packBatch(1, bound, payments)
		simulation := w.simulate(200_000_000, batch)
		simulated, reports := w.outcomes(simulation), w.reports(simulation)
		batch[0] = 0
		before := w.balance(tokenAddress, recipient)
		got := w.settle(100_000_000, batch)
		outcomes := w.outcomes(got)
		sum := new(big.Int)
		for i, p := range payments {
			if !bytes.Contains(want[i], outcomes[i:i+1]) {
				t.Fatalf("payment %d has outcome %d, want one of %v", i, outcomes[i], want[i])
			}
			if simulated[i] != outcomes[i] || reports[i].Outcome != outcomes[i] {
				t.Fatalf("payment %d: outcome %d, simulated %d, reported %d", i, outcomes[i], simulated[i], reports[i].Outcome)
			}
			if outcomes[i] == settled {
				good++
				if p.token == tokenAddress && p.to == recipient {
					sum.Add(sum, p.amount)
				}
			} else {
				bad++
			}
			bit := w.read(contracts.Permit2Address, contracts.Permit2(), "nonceBitmap", p.owner, new(big.Int)).Bit(1)
			if isSpent := bit == 1; isSpent != bytes.ContainsAny([]byte{outcomes[i]}, string([]byte{settled, spent})) &&
				bytes.IndexByte(want[i], spent) < 0 && !twice(payments, p) {
				t.Fatalf("payment %d has outcome %d, and its nonce is spent: %v", i, outcomes[i], isSpent)
			}
		}
		if rise := new(big.Int).Sub(w.balance(tokenAddress, recipient), before); rise.Cmp(sum) != 0 {
			t.Fatalf("the recipient got %s, want %s", rise, sum)
		}
		if w.balance(tokenAddress, contracts.SettlementAddress).Sign() != 0 ||
			w.state.GetBalance(contracts.SettlementAddress).Sign() != 0 {
			t.Fatal("the contract has something")
		}
		if limit := 25_000 + uint64(len(batch))*16 + good*(bound+overhead) + bad*(bound+overhead); got.gas > limit {
			t.Fatalf("%d gas, %d good and %d bad payments", got.gas, good, bad)
		}
		bits := w.read(contracts.Permit2Address, contracts.Permit2(), "nonceBitmap", addressOf(testKey(0)), new(big.Int))
		if bits.Bit(77)+bits.Bit(78) != 0 {
			t.Fatal("a hook settled a payment that is not in the batch")
		}
	})
}

func twice(payments []*payment, p *payment) bool {
	n := 0
	for _, q := range payments {
		if p == q {
			n++
		}
	}
	return n > 1
}

// Any bytes: only signed payments move anything.
func FuzzSettlement(f *testing.F) {
	base := hostileWorld(f)
	var payments []*payment
	for n := range 4 {
		payments = append(payments, newPayment(testKey(n), int64(n)))
	}
	payments[1].plain = true
	payments[2].approval = approve(testKey(2), payments[2], big.NewInt(5_000_000), 0)
	f.Add(packBatch(0, bound, payments))
	f.Add(packBatch(1, bound, payments[:1]))
	f.Add(packBatch(0, bound, nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, batch []byte) {
		if len(batch) > 5_000 {
			t.Skip()
		}
		w := &world{TB: t, state: base.state.Copy(), config: base.config, sent: base.sent}
		before := w.balance(tokenAddress, recipient)
		got := w.settle(20_000_000, batch)
		if got.err == nil {
			w.outcomes(got)
		}
		moved := new(big.Int)
		for n, p := range payments {
			isSpent := w.read(contracts.Permit2Address, contracts.Permit2(), "nonceBitmap", p.owner, new(big.Int)).Bit(n) == 1
			paid := new(big.Int).Sub(big.NewInt(1_000_000_000), w.balance(tokenAddress, p.owner))
			if isSpent && paid.Cmp(p.amount) != 0 || !isSpent && paid.Sign() != 0 {
				t.Fatalf("payer %d paid %s, spent %v", n, paid, isSpent)
			}
			moved.Add(moved, paid)
		}
		if rise := new(big.Int).Sub(w.balance(tokenAddress, recipient), before); rise.Cmp(moved) != 0 {
			t.Fatalf("the payers paid %s, the recipient got %s", moved, rise)
		}
		if got.err != nil && moved.Sign() != 0 {
			t.Fatal("a batch that reverted moved something")
		}
		if w.balance(tokenAddress, contracts.SettlementAddress).Sign() != 0 {
			t.Fatal("the contract has tokens")
		}
	})
}
