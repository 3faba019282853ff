package evm_test

import (
	"encoding/json"
	"math/big"
	"slices"
	"strings"
	"testing"

	"boxoffice/contracts"
	"boxoffice/internal/payment"
	"boxoffice/internal/payment/evm"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/google/go-cmp/cmp"
)

func TestCheck(t *testing.T) {
	w := newWorld(t, nil)
	got, err := w.chain.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	head := w.dev.Head()
	want := evm.Facts{
		Head:       payment.Head{Number: head.Number.Uint64(), Time: head.Time},
		Token:      evm.Token{Decimals: 18, Name: "Boxoffice Test Token", Version: "1", Symbol: "TICKET"},
		Settlement: true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCheckNamesWhatIsWrong(t *testing.T) {
	dev := startChain(t)
	nobody := common.HexToAddress("0x00000000000000000000000000000000000c0de2")
	// A node on whose chain some addresses have no code, and where PERMIT2() of the
	// proxy returns something else; nil: what the development chain returns.
	node := func(permit2 any, noCode ...common.Address) *tap {
		tap := newTap(t, dev)
		tap.answer = func(method string, params []json.RawMessage) any {
			switch {
			case method == "eth_getCode" && slices.ContainsFunc(noCode, func(at common.Address) bool {
				return strings.EqualFold(string(params[0]), `"`+at.Hex()+`"`)
			}):
				return "0x"
			case method == "eth_call" && strings.Contains(string(params[0]),
				hexutil.Encode(contracts.ExactProxy().ABI.Methods["PERMIT2"].ID)):
				return permit2
			}
			return nil
		}
		return tap
	}
	for name, test := range map[string]struct {
		tap    *tap
		change func(*evm.Config)
		want   []string
	}{
		"another chain": {node(nil), func(c *evm.Config) { c.ChainID = 1 }, []string{"serves chain 31337, not 1"}},
		"no token": {node(nil), func(c *evm.Config) { c.Asset = nobody },
			[]string{"the token has no code at 0x00000000000000000000000000000000000c0de2"}},
		"no Permit2": {node(nil, x402.Permit2), nil, []string{"Permit2 has no code at"}},
		"another Permit2": {node(common.BytesToHash(nobody.Bytes())), nil,
			[]string{"the proxy 0x402085c248eea27d92e8b30b2c58ed07f9e20001 uses Permit2 " +
				"0x00000000000000000000000000000000000c0de2"}},
		"no proxy":    {node(nil, x402.ExactProxy), nil, []string{"the x402 exact proxy has no code"}},
		"not a proxy": {node("0x"), nil, []string{"no x402 exact proxy at 0x4020"}},
		"not a token": {node(nil), func(c *evm.Config) { c.Asset = x402.ExactProxy },
			[]string{"does not return its decimals"}},
		"nothing": {node(nil, x402.ExactProxy), func(c *evm.Config) { c.Asset = nobody },
			[]string{"the token has no code", "proxy has no code"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := dial(t, dev, func(c *evm.Config) {
				test.tap.through(c)
				if test.change != nil {
					test.change(c)
				}
			}).Check(t.Context())
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not say %q", err, want)
				}
			}
		})
	}
	t.Run("standing without token", func(t *testing.T) {
		p := permit(t, payer(t, 1), 1, func(p *payment.Permit) { p.Permitted.Token = nobody })
		standings, err := dial(t, dev, nil).Standing(t.Context(), []payment.Permit{p})
		if err != nil || standings[0].Failure == nil {
			t.Errorf("%+v, %v: nothing can be paid in a token without code", standings, err)
		}
	})
}

// Tokens return their names in several forms.
func TestCheckTokenNames(t *testing.T) {
	dev := startChain(t)
	text := func(s string) []byte {
		kind, err := abi.NewType("string", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		packed, err := abi.Arguments{{Type: kind}}.Pack(s)
		if err != nil {
			t.Fatal(err)
		}
		return packed
	}
	domainABI, err := abi.JSON(strings.NewReader(`[{"type":"function","name":"eip712Domain","inputs":[],"outputs":[
		{"type":"bytes1"},{"type":"string"},{"type":"string"},{"type":"uint256"},{"type":"address"},{"type":"bytes32"},{"type":"uint256[]"}]}]`))
	if err != nil {
		t.Fatal(err)
	}
	domain, err := domainABI.Methods["eip712Domain"].Outputs.Pack([1]byte{0x0f}, "Domain Coin", "7", big.NewInt(1),
		payTo, [32]byte{}, []*big.Int{})
	if err != nil {
		t.Fatal(err)
	}
	old := make([]byte, 32)
	copy(old, "MKR")
	for name, test := range map[string]struct {
		answers map[string][]byte
		want    evm.Token
	}{
		"strings": {map[string][]byte{"name()": text("Coin"), "symbol()": text("C"), "version()": text("2")},
			evm.Token{Name: "Coin", Symbol: "C", Version: "2"}},
		"bytes32": {map[string][]byte{"name()": old, "symbol()": old}, evm.Token{Name: "MKR", Symbol: "MKR"}},
		"EIP-5267": {map[string][]byte{"name()": text("Coin"), "version()": text("2"), "eip712Domain()": domain},
			evm.Token{Name: "Domain Coin", Version: "7"}},
		"nothing":  {nil, evm.Token{}},
		"not text": {map[string][]byte{"name()": text("\xff\xfe"), "symbol()": {1, 2, 3}}, evm.Token{}},
	} {
		t.Run(name, func(t *testing.T) {
			tap := newTap(t, dev)
			tap.answer = func(method string, params []json.RawMessage) any {
				if method != "eth_call" {
					return nil
				}
				var message struct{ Input hexutil.Bytes }
				if err := json.Unmarshal(params[0], &message); err != nil {
					return nil
				}
				for _, function := range []string{"name()", "symbol()", "version()", "eip712Domain()"} {
					if string(message.Input) != string(crypto.Keccak256([]byte(function))[:4]) {
						continue
					}
					if answer, known := test.answers[function]; known {
						return hexutil.Bytes(answer)
					}
					return &refusal{Code: 3, Message: "execution reverted", Data: "0x"}
				}
				return nil
			}
			facts, err := dial(t, dev, tap.through).Check(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			test.want.Decimals = 18
			if diff := cmp.Diff(test.want, facts.Token); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestHeadAndBlockTime(t *testing.T) {
	w := newWorld(t, nil)
	first := w.dev.Head()
	if _, err := w.dev.Mine(t.Context()); err != nil {
		t.Fatal(err)
	}
	head, err := w.chain.Head(t.Context())
	if err != nil || head.Number != first.Number.Uint64()+1 || head.Time != w.dev.Head().Time {
		t.Errorf("%+v, %v", head, err)
	}
	if at, err := w.chain.BlockTime(t.Context(), first.Number.Uint64()); err != nil || at != first.Time {
		t.Errorf("%d, %v; want %d", at, err, first.Time)
	}
	if _, err := w.chain.BlockTime(t.Context(), 99); err == nil {
		t.Error("a block that is not there has a time")
	}
}

func TestReceiptsOfUnknown(t *testing.T) {
	w := newWorld(t, nil, rich(t, 1))
	tx := w.sign([]payment.Permit{permit(t, payer(t, 1), 1)}, 0, nil)
	if err := w.wallet.Broadcast(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"pending", "dropped"} {
		receipts, err := w.chain.Receipts(t.Context(), []common.Hash{tx.Hash, {7}}, 0)
		if err != nil || receipts[0] != nil || receipts[1] != nil {
			t.Errorf("%s: %v, %v", what, receipts, err)
		}
		w.dev.DropPending()
	}
	if receipts, err := w.chain.Receipts(t.Context(), nil, 0); receipts != nil || err != nil {
		t.Errorf("of nothing: %v, %v", receipts, err)
	}
}

// A request about a block that the node does not have fails, because another node
// may have it.
func TestNodeBehind(t *testing.T) {
	w := newWorld(t, nil)
	head := w.dev.Head().Number.Uint64()
	for name, ask := range map[string]func(block uint64) error{
		"receipts": func(block uint64) error {
			_, err := w.chain.Receipts(t.Context(), []common.Hash{{1}}, block)
			return err
		},
		"transfers": func(block uint64) error {
			_, err := w.chain.Transfers(t.Context(), w.dev.Token(), payTo, payTo, 0, block)
			return err
		},
		"nonces": func(block uint64) error {
			_, err := w.chain.Spent(t.Context(), []payment.Permit{permit(t, payer(t, 1), 1)}, block)
			return err
		},
		"wallet nonce": func(block uint64) error {
			_, err := w.chain.Nonce(t.Context(), w.wallet.Address(), block)
			return err
		},
		"time": func(block uint64) error {
			_, err := w.chain.BlockTime(t.Context(), block)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := ask(head); err != nil {
				t.Errorf("about the newest block: %v", err)
			}
			if err := ask(head + 1); err == nil {
				t.Error("about the next block: an answer")
			}
		})
	}
}

func TestTransfers(t *testing.T) {
	w := newWorld(t, nil, rich(t, 1), rich(t, 2))
	var blocks []uint64
	for i := range uint64(4) {
		receipt := w.settle(permit(t, payer(t, 1), 2*i, amountOf(i+1)), permit(t, payer(t, 2), i),
			permit(t, payer(t, 1), 2*i+1, amountOf(10+i)))
		blocks = append(blocks, receipt.BlockNumber)
	}
	// The node refuses a range of more than this many blocks.
	for _, limit := range []uint64{1, 2, 3, 100} {
		tap := newTap(t, w.dev)
		tap.answer = func(method string, params []json.RawMessage) any {
			if method != "eth_getLogs" {
				return nil
			}
			var filter struct{ FromBlock, ToBlock hexutil.Uint64 }
			if err := json.Unmarshal(params[0],
				&filter); err != nil || uint64(filter.ToBlock-filter.FromBlock) >= limit {
				return &refusal{Code: -32005, Message: "query returned more than 10000 results"}
			}
			return nil
		}
		chain := dial(t, w.dev, tap.through)
		got, err := chain.Transfers(t.Context(), w.dev.Token(), addressOf(payer(t, 1)), payTo, 0, blocks[3])
		if err != nil {
			t.Fatal(err)
		}
		var amounts []string
		for _, transfer := range got {
			amounts = append(amounts, transfer.Amount.String())
		}
		if diff := cmp.Diff([]string{"1", "10", "2", "11", "3", "12", "4", "13"}, amounts); diff != "" {
			t.Errorf("with %d blocks a request (-want +got):\n%s", limit, diff)
		}
		some, err := chain.Transfers(t.Context(), w.dev.Token(), addressOf(payer(t, 2)), payTo, blocks[1], blocks[2])
		if err != nil || len(some) != 2 || some[0].BlockNumber != blocks[1] || some[1].BlockNumber != blocks[2] {
			t.Errorf("%+v, %v", some, err)
		}
	}
	tap := newTap(t, w.dev)
	tap.answer = func(method string, _ []json.RawMessage) any {
		if method == "eth_getLogs" {
			return &refusal{Code: -32000, Message: "logs are not kept"}
		}
		return nil
	}
	if _, err := dial(t, w.dev, tap.through).Transfers(t.Context(), w.dev.Token(), payTo, payTo, 0,
		1<<62); err == nil || tap.trips.Load() > 64 {
		t.Errorf("%v after %d requests", err, tap.trips.Load())
	}
	if none, err := w.chain.Transfers(t.Context(), w.dev.Token(), payTo, payTo, 5, 4); none != nil || err != nil {
		t.Errorf("of no block: %v, %v", none, err)
	}
}

// Logs that are similar to a Transfer are not read as one.
func TestForeignLogs(t *testing.T) {
	dev := startChain(t)
	word := func(n int64) string { return common.BigToHash(big.NewInt(n)).Hex() }
	transfer := "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
	log := func(change func(map[string]any)) map[string]any {
		l := map[string]any{
			"address": payTo, "topics": []string{transfer, word(1), word(2)}, "data": word(5),
			"transactionHash": word(9), "logIndex": "0x0", "blockNumber": "0x1", "removed": false,
		}
		change(l)
		return l
	}
	for name, test := range map[string]struct {
		log  map[string]any
		want int // -1: an error
	}{
		"transfer": {log(func(l map[string]any) {}), 1},
		"ERC-721": {log(func(l map[string]any) { l["topics"] = []string{transfer, word(1), word(2), word(3)} }),
			0},
		"not indexed":   {log(func(l map[string]any) { l["topics"] = []string{transfer} }), 0},
		"another event": {log(func(l map[string]any) { l["topics"] = []string{word(3), word(1), word(2)} }), 0},
		"long data":     {log(func(l map[string]any) { l["data"] = word(5) + "00" }), 0},
		"no address":    {log(func(l map[string]any) { l["topics"] = []string{transfer, transfer, word(2)} }), 0},
		"removed":       {log(func(l map[string]any) { l["removed"] = true }), 0},
		"no index":      {log(func(l map[string]any) { delete(l, "logIndex") }), -1},
	} {
		t.Run(name, func(t *testing.T) {
			tap := newTap(t, dev)
			tap.answer = func(method string, _ []json.RawMessage) any {
				if method != "eth_getTransactionReceipt" {
					return nil
				}
				return map[string]any{"transactionHash": word(9), "blockNumber": "0x1", "gasUsed": "0x5208",
					"logs": []any{test.log}}
			}
			receipts, err := dial(t, dev, tap.through).Receipts(t.Context(), []common.Hash{common.HexToHash(word(9))},
				0)
			switch {
			case test.want < 0 && err == nil, test.want >= 0 && err != nil:
				t.Errorf("%+v, %v", receipts, err)
			case test.want >= 0 && len(receipts[0].Transfers) != test.want:
				t.Errorf("%+v", receipts[0].Transfers)
			}
			if _, err := dial(t, dev, tap.through).Receipts(t.Context(), []common.Hash{{1}}, 0); err == nil {
				t.Error("the receipt of another transaction is accepted")
			}
		})
	}
}
