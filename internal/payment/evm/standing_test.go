package evm_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"boxoffice/contracts/settlement"
	"boxoffice/internal/payment"
	"boxoffice/internal/payment/evm"
	"boxoffice/internal/test/devchain"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/common/math"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/google/go-cmp/cmp"
	"github.com/holiman/uint256"
)

// reasons returns why each permit would fail, "" if it would settle.
func reasons(standings []payment.Standing) []x402.Reason {
	list := make([]x402.Reason, len(standings))
	for i, s := range standings {
		if s.Failure != nil {
			list[i] = s.Failure.Reason
		}
	}
	return list
}

// stubbornToken returns any balance and allowance and reverts in every transfer.
var stubbornToken = common.FromHex("60003560e01c6323b872dd14601a5760001960005260206000f35b60006000fd")

func TestStandingReasons(t *testing.T) {
	for _, deployed := range []bool{true, false} {
		t.Run(fmt.Sprintf("deployed=%t", deployed), func(t *testing.T) {
			poor := rich(t, 2)
			poor.Tokens = big.NewInt(99)
			stranger := rich(t, 3)
			stranger.Permit2Allowed = false
			w := newWorld(t, nil, rich(t, 1), poor, stranger, rich(t, 4))
			token := deploy(t, w.dev, stubbornToken)
			approve(t, w.dev, payer(t, 4), 150)

			good := func(nonce uint64, changes ...func(*payment.Permit)) payment.Permit {
				return permit(t, payer(t, 1), nonce, changes...)
			}
			spent := good(700)
			w.settle(spent)
			if !deployed {
				w.chain = dial(t, w.dev, newTap(t, w.dev).undeployed().through)
			}
			forged := good(8)
			forged.Signature[40] ^= 1
			foreign := good(9)
			foreign.Signature = permit(t, payer(t, 3), 9).Signature
			short := good(10)
			short.Signature = short.Signature[:63]
			null := good(11)
			null.Signature = make([]byte, 65)

			for _, test := range []struct {
				name    string
				permits []payment.Permit
				want    []x402.Reason
				detail  string // part of the last detail
			}{
				{"good", []payment.Permit{good(1)}, []x402.Reason{""}, ""},
				{"spent nonce", []payment.Permit{spent}, []x402.Reason{x402.ReasonNonceSpent}, "nonce 700"},
				{"expired", []payment.Permit{good(2, func(p *payment.Permit) { p.Deadline = x402.NewUint256(1) })},
					[]x402.Reason{x402.ReasonDeadlineExpired}, "deadline 1;"},
				{"too early", []payment.Permit{good(3,
					func(p *payment.Permit) { p.Witness.ValidAfter = x402.NewUint256(1 << 39) })},
					[]x402.Reason{x402.ReasonNotYetValid}, "validAfter 549755813888"},
				{"another's signature", []payment.Permit{foreign}, []x402.Reason{x402.ReasonSignature}, "chain 31337"},
				{"short signature", []payment.Permit{short}, []x402.Reason{x402.ReasonSignature}, "signature"},
				{"null signature", []payment.Permit{null}, []x402.Reason{x402.ReasonSignature}, "signature"},
				{"forged signature", []payment.Permit{forged}, []x402.Reason{x402.ReasonSignature}, "signature"},
				{"low balance", []payment.Permit{permit(t, payer(t, 2), 1)},
					[]x402.Reason{x402.ReasonInsufficientBalance}, "holds 99 of token 0xb0c0ff1c"},
				{"no allowance", []payment.Permit{permit(t, payer(t, 3), 1)},
					[]x402.Reason{x402.ReasonAllowanceRequired},
					"approve Permit2 (0x000000000022d473030f116ddee9f6b43ac78ba3)"},
				{"no amount", []payment.Permit{good(4, amountOf(0))}, []x402.Reason{x402.ReasonAmount}, "amount 0"},
				{"to nobody", []payment.Permit{good(5, func(p *payment.Permit) { p.Witness.To = common.Address{} })},
					[]x402.Reason{x402.ReasonRecipient}, "zero address"},
				{"stubborn token", []payment.Permit{good(6, func(p *payment.Permit) { p.Permitted.Token = token })},
					[]x402.Reason{x402.ReasonSimulation}, "balance and allowance suffice"},
				{"balance for one of two", []payment.Permit{good(20, amountOf(600)), good(21, amountOf(600)),
					good(22, amountOf(300))},
					[]x402.Reason{"", x402.ReasonInsufficientBalance, ""}, ""},
				{"allowance for one of two", []payment.Permit{permit(t, payer(t, 4), 1), permit(t, payer(t, 4), 2)},
					[]x402.Reason{"", x402.ReasonAllowanceRequired}, "lets Permit2 move 50 of token 0xb0c0ff1ce0000000000000000000000000000001 and needs 100"},
				{"one nonce twice", []payment.Permit{good(30), good(30, amountOf(50))},
					[]x402.Reason{"", x402.ReasonNonceSpent}, ""},
				{"one bad among good", []payment.Permit{good(40), foreign, permit(t, payer(t, 4), 3)},
					[]x402.Reason{"", x402.ReasonSignature, ""}, ""},
				{"spent before all else", []payment.Permit{good(700, amountOf(1e6))},
					[]x402.Reason{x402.ReasonNonceSpent}, ""},
			} {
				t.Run(test.name, func(t *testing.T) {
					w := &world{T: t, dev: w.dev, chain: w.chain, wallet: w.wallet}
					standings := w.standing(test.permits...)
					if diff := cmp.Diff(test.want, reasons(standings)); diff != "" {
						t.Errorf("reasons (-want +got):\n%s", diff)
					}
					last := standings[len(standings)-1].Failure
					if test.detail != "" && (last == nil || !strings.Contains(last.Detail, test.detail)) {
						t.Errorf("detail %v does not contain %q", last, test.detail)
					}
				})
			}
		})
	}
}

// taxedToken gives every account a million and allows everything. It moves one unit
// less than it is asked to.
var taxedToken = common.FromHex("5f3560e01c" + "806323b872dd14603057" + "6370a0823114602057" + "5f195f5260205ff3" +
	"5b6004355462" + "0f4240" + "015f5260205ff3" +
	"5b60443560043554036004" + "3555" + "600160443503602435540160243555" + "60015f5260205ff3")

// The amount that arrives is checked, because a token may take a fee.
func TestStandingOfWhatArrives(t *testing.T) {
	w := newWorld(t, nil, rich(t, 1), rich(t, 2))
	token := deploy(t, w.dev, taxedToken)
	good := func(n, nonce uint64, changes ...func(*payment.Permit)) payment.Permit {
		return permit(t, payer(t, int64(n)), nonce, changes...)
	}
	taxed := func(p *payment.Permit) { p.Permitted.Token = token }
	to := func(n int64) func(*payment.Permit) {
		return func(p *payment.Permit) { p.Witness.To = addressOf(payer(t, n)) }
	}
	for _, test := range []struct {
		name    string
		permits []payment.Permit
		want    []x402.Reason
	}{
		{"a fee", []payment.Permit{good(1, 1, taxed)}, []x402.Reason{x402.ReasonTransferNotExact}},
		{"a fee on what the payer gets itself", []payment.Permit{good(1, 1, taxed, to(1))},
			[]x402.Reason{x402.ReasonTransferNotExact}},
		{"to the payer itself", []payment.Permit{good(1, 1, to(1))}, []x402.Reason{""}},
		{"a fee among others", []payment.Permit{good(1, 1), good(1, 2, taxed), good(2, 1), good(2, 2, taxed),
			good(1, 3)},
			[]x402.Reason{"", x402.ReasonTransferNotExact, "", x402.ReasonTransferNotExact, ""}},
		{"recipients that pay each other", []payment.Permit{good(1, 1, to(2)), good(2, 1, to(1)), good(1, 2, to(2)),
			good(1, 3, to(2))},
			[]x402.Reason{"", "", "", ""}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := &world{T: t, dev: w.dev, chain: w.chain, wallet: w.wallet}
			standings := w.standing(test.permits...)
			if diff := cmp.Diff(test.want, reasons(standings)); diff != "" {
				t.Errorf("reasons (-want +got):\n%s", diff)
			}
			for _, s := range standings {
				if s.Failure != nil && !strings.Contains(s.Failure.Detail, "exactly 100") {
					t.Error(s.Failure)
				}
			}
		})
	}
}

func TestStandingFacts(t *testing.T) {
	w := newWorld(t, nil, rich(t, 1))
	w.settle(permit(t, payer(t, 1), 513))
	got := w.standing(permit(t, payer(t, 1), 513), permit(t, payer(t, 1), 512), permit(t, payer(t, 9), 513))
	unlimited, err := x402.Uint256FromBig(math.MaxBig256)
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if got[i].Block != w.dev.Head().Number.Uint64() {
			t.Errorf("read at block %d, the newest is %d", got[i].Block, w.dev.Head().Number)
		}
		got[i].Failure, got[i].Block = nil, 0
	}
	want := []payment.Standing{
		{Balance: x402.NewUint256(900), Allowance: unlimited, Spent: true},
		{Balance: x402.NewUint256(900), Allowance: unlimited},
		{},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b x402.Uint256) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if standings, err := w.chain.Standing(t.Context(), nil); standings != nil || err != nil {
		t.Errorf("of nothing: %v, %v", standings, err)
	}
}

func TestStandingIsOneRoundTrip(t *testing.T) {
	dev := startChain(t, rich(t, 1), rich(t, 2))
	for _, test := range []struct {
		tap   *tap
		spent int64 // round trips of Spent
	}{{newTap(t, dev), 1}, {newTap(t, dev).undeployed(), 2}} {
		chain := dial(t, dev, test.tap.through)
		if _, err := chain.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		if trips := test.tap.trips.Load(); trips != 1 {
			t.Errorf("Check took %d round trips", trips)
		}
		permits := []payment.Permit{permit(t, payer(t, 1), 1), permit(t, payer(t, 1), 2), permit(t, payer(t, 2), 1)}
		if _, err := chain.Standing(t.Context(), permits); err != nil { // it may look for the contract again
			t.Fatal(err)
		}
		test.tap.trips.Store(0)
		standings, err := chain.Standing(t.Context(), permits)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]x402.Reason{"", "", ""}, reasons(standings)); diff != "" {
			t.Error(diff)
		}
		if _, err := chain.Spent(t.Context(), permits, 0); err != nil {
			t.Fatal(err)
		}
		if trips := test.tap.trips.Load(); trips != 2*test.spent {
			t.Errorf("Standing and Spent took %d round trips", trips)
		}
	}
}

// Permit2 asks an owner with code (EIP-7702) whether a signature is its own, and the
// code may burn all gas that it gets. The permits behind it in the batch must not
// fail for that.
func TestStandingBesideGasBurner(t *testing.T) {
	w := newWorld(t, nil, rich(t, 1), rich(t, 2), rich(t, 3))
	burner := deploy(t, w.dev, common.FromHex("5b600056")) // an endless loop
	key := payer(t, 2)
	delegation, err := types.SignSetCode(key, types.SetCodeAuthorization{
		ChainID: *uint256.MustFromBig(w.dev.ChainID()), Address: burner, Nonce: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	send(t, w.dev, key, &types.SetCodeTx{
		ChainID: uint256.MustFromBig(w.dev.ChainID()), To: addressOf(devchain.SettlementKey()), Gas: 100_000,
		GasFeeCap: uint256.NewInt(5e9), GasTipCap: uint256.NewInt(1e9), AuthList: []types.SetCodeAuthorization{delegation},
	})
	// More permits behind it mean more gas to burn, and more gas that is left.
	for behind := range 30 {
		permits := []payment.Permit{permit(t, payer(t, 1), 0, amountOf(1)), permit(t, key, 1)}
		want := []x402.Reason{"", x402.ReasonSimulation}
		for i := range behind {
			permits = append(permits, permit(t, payer(t, 3), uint64(i)*256, amountOf(1)))
			want = append(want, "")
		}
		got := w.standing(permits...)
		if diff := cmp.Diff(want, reasons(got)); diff != "" {
			t.Errorf("%d behind it (-want +got):\n%s", behind, diff)
		}
		for i, s := range got {
			if s.Code != (i == 1) {
				t.Errorf("permit %d: code %t", i, s.Code)
			}
		}
	}
}

// A payment that needs more gas than its transaction has fails.
func TestStandingOfTheExpensive(t *testing.T) {
	dev := startChain(t, rich(t, 1))
	for _, test := range []struct {
		gas  uint64
		want x402.Reason
	}{{10_000, x402.ReasonSimulation}, {100_000, ""}} {
		chain := dial(t, dev, func(cfg *evm.Config) { cfg.GasPerSettle = test.gas })
		for n := range 3 {
			var permits []payment.Permit
			var want []x402.Reason
			for i := range n + 1 {
				permits, want = append(permits, permit(t, payer(t, 1), uint64(i)*256)), append(want, test.want)
			}
			standings, err := chain.Standing(t.Context(), permits)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, reasons(standings)); diff != "" {
				t.Errorf("%d permits with %d gas each (-want +got):\n%s", n+1, test.gas, diff)
			}
		}
	}
}

// A node that gives an eth_call too little gas for all payments, or refuses so many,
// is asked about fewer.
func TestStandingInParts(t *testing.T) {
	dev := startChain(t, rich(t, 1), rich(t, 2))
	var permits []payment.Permit
	for i := range 7 {
		permits = append(permits, permit(t, payer(t, 1), uint64(i), amountOf(1)))
	}
	permits[5].Signature[40] ^= 1
	want := []x402.Reason{"", "", "", "", "", x402.ReasonSignature, ""}
	for name, bound := range map[string]func(message map[string]any, gas uint64) any{
		"less gas": func(message map[string]any, gas uint64) any {
			message["gas"] = hexutil.Uint64(min(gas, 1_500_000))
			return nil
		},
		"refuses": func(_ map[string]any, gas uint64) any {
			if gas > 1_500_000 {
				return &refusal{Code: -32000, Message: "gas limit is too high"}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			tap := newTap(t, dev)
			tap.answer = func(method string, params []json.RawMessage) any {
				if method != "eth_call" || !asks(params, settlement.Address) {
					return nil
				}
				message := map[string]any{}
				if err := json.Unmarshal(params[0], &message); err != nil {
					return &refusal{Code: -32000, Message: err.Error()}
				}
				if said := bound(message, hexutil.MustDecodeUint64(message["gas"].(string))); said != nil {
					return said
				}
				var answer hexutil.Bytes
				if err := dev.Client().Client().CallContext(t.Context(), &answer, method, message, params[1]); err != nil {
					return &refusal{Code: -32000, Message: err.Error()}
				}
				return answer
			}
			standings, err := dial(t, dev, tap.through).Standing(t.Context(), permits)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, reasons(standings)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSpent(t *testing.T) {
	for _, deployed := range []bool{true, false} {
		t.Run(fmt.Sprintf("deployed=%t", deployed), func(t *testing.T) {
			w := newWorld(t, nil, rich(t, 1))
			key := payer(t, 1)
			large, err := x402.ParseUint256("115792089237316195423570985008687907853269984665640564039457584007913129639935")
			if err != nil {
				t.Fatal(err)
			}
			last := permit(t, key, 0, func(p *payment.Permit) { p.Nonce = large })
			permits := []payment.Permit{permit(t, key, 0), permit(t, key, 1), permit(t, key, 255),
				permit(t, key, 256), last, permit(t, payer(t, 2), 0)}
			before := w.settle(permits[0]).BlockNumber
			w.settle(permits[2])
			after := w.settle(last).BlockNumber
			if !deployed {
				w.chain = dial(t, w.dev, newTap(t, w.dev).undeployed().through)
			}
			for block, want := range map[uint64][]bool{
				before - 1: {false, false, false, false, false, false},
				before:     {true, false, false, false, false, false},
				after:      {true, false, true, false, true, false},
			} {
				got, err := w.chain.Spent(t.Context(), permits, block)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("at block %d (-want +got):\n%s", block, diff)
				}
			}
			if _, err := w.chain.Spent(t.Context(), permits, after+100); err == nil {
				t.Error("a block that is not there has nonces")
			}
		})
	}
}

func TestDeadlineAtTheNewestBlock(t *testing.T) {
	now := time.Now()
	dev, err := devchain.Start(t.Context(), devchain.Config{
		Funded: []devchain.Funded{rich(t, 1)},
		Now:    func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	w := &world{T: t, dev: dev, chain: dial(t, dev, nil)}
	p := permit(t, payer(t, 1), 1, func(p *payment.Permit) { p.Deadline = x402.NewUint256(uint64(now.Unix())) })
	if got := w.standing(p); got[0].Failure != nil {
		t.Fatal(got[0].Failure)
	}
	now = now.Add(time.Second)
	if _, err := dev.Mine(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]x402.Reason{x402.ReasonDeadlineExpired}, reasons(w.standing(p))); diff != "" {
		t.Error(diff)
	}
}

// The payer gets a reason whatever a contract reverts with.
func FuzzRevertData(f *testing.F) {
	for _, seed := range []string{
		"", "00", "756688fe", "cd21db4f", "08c379a0",
		"08c379a000000000000000000000000000000000000000000000000000000000000000200000000000000000000000000000000000000000000000000000000000000014" +
			"5452414e534645525f46524f4d5f4641494c4544000000000000000000000000",
		"08c379a0ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff0000000000000000000000000000000000000000000000000000000000000014",
		"4e487b710000000000000000000000000000000000000000000000000000000000000011",
		"4e487b71ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
	} {
		f.Add(common.FromHex(seed))
	}
	dev := startChain(f, rich(f, 1))
	tap := newTap(f, dev)
	chain := dial(f, dev, tap.through)
	p := permit(f, payer(f, 1), 1)
	f.Fuzz(func(t *testing.T, revert []byte) {
		tap.answer = func(method string, params []json.RawMessage) any {
			if method != "eth_call" || !asks(params, settlement.Address) {
				return nil
			}
			packed, err := settlement.ABI().Methods["settle"].Outputs.Pack([]struct {
				Outcome            uint8
				Code, Spent        bool
				Balance, Allowance *big.Int
				Data               []byte
			}{{uint8(payment.CallReverted), true, false, math.MaxBig256, math.MaxBig256, revert}})
			if err != nil {
				return &refusal{Code: -32000, Message: err.Error()}
			}
			return hexutil.Bytes(packed)
		}
		standings, err := chain.Standing(t.Context(), []payment.Permit{p})
		if err != nil {
			t.Fatal(err)
		}
		failure := standings[0].Failure
		if failure == nil || failure.Reason == "" || failure.Detail == "" || !utf8.ValidString(failure.Detail) || len(failure.Detail) > 2000 {
			t.Errorf("%x: %v", revert, failure)
		}
	})
}
