package evm_test

import (
	"encoding/json"
	"errors"
	"math/big"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/contracts/settlement"
	"boxoffice/internal/payment"
	"boxoffice/internal/payment/evm"
	"boxoffice/internal/test/devchain"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func gwei(n uint64) boxoffice.Amount { return x402.NewUint256(n * 1e9) }

func TestSettleOne(t *testing.T) {
	now := time.UnixMilli(1_790_000_000_123)
	w := newWorld(t, func(cfg *evm.Config) { cfg.Now = func() time.Time { return now } }, rich(t, 1))
	p := permit(t, payer(t, 1), 5)
	tx := w.sign([]payment.Permit{p}, w.nonce(), nil)

	decoded := decodeTx(t, tx.Raw)
	if decoded.Hash() != tx.Hash || decoded.Gas() != tx.GasLimit || *decoded.To() != settlement.Address || decoded.Type() != types.DynamicFeeTxType {
		t.Errorf("the raw transaction differs from the fields: %+v", decoded)
	}
	if decoded.GasFeeCap().Cmp(tx.FeeCap.Big()) != 0 || decoded.GasTipCap().Cmp(tx.TipCap.Big()) != 0 {
		t.Errorf("the raw fees are %s, %s, the fields say %s, %s", decoded.GasFeeCap(), decoded.GasTipCap(),
			tx.FeeCap, tx.TipCap)
	}
	if tx.SignedAt != boxoffice.At(now) || tx.GasLimit < evm.GasBase+150_000 {
		t.Errorf("signed at %s with %d gas", tx.SignedAt, tx.GasLimit)
	}
	receipt := w.mine(tx)
	rpcReceipt, err := w.dev.Client().TransactionReceipt(t.Context(), tx.Hash)
	if err != nil {
		t.Fatal(err)
	}
	price, err := x402.Uint256FromBig(rpcReceipt.EffectiveGasPrice)
	if err != nil {
		t.Fatal(err)
	}
	want := &payment.Receipt{
		TxHash: tx.Hash, BlockNumber: receipt.BlockNumber, GasUsed: rpcReceipt.GasUsed, GasPrice: price,
		Calls: []payment.CallOutcome{payment.CallSettled},
		Transfers: []payment.Transfer{{
			Token: w.dev.Token(), From: p.From, To: payTo, Amount: x402.NewUint256(100), TxHash: tx.Hash, BlockNumber: receipt.BlockNumber,
		}},
	}
	if diff := cmp.Diff(want, receipt, cmp.Comparer(func(a, b x402.Uint256) bool { return a == b })); diff != "" {
		t.Errorf("receipt (-want +got):\n%s", diff)
	}
	if w.nonce() != 1 {
		t.Errorf("nonce %d", w.nonce())
	}
	if before, err := w.chain.Nonce(t.Context(), w.wallet.Address(), receipt.BlockNumber-1); before != 0 || err != nil {
		t.Errorf("nonce before: %d, %v", before, err)
	}
	if w.wallet.Address() != addressOf(devchain.SettlementKey()) {
		t.Error("another address")
	}
}

func TestSettleBatch(t *testing.T) {
	w := newWorld(t, nil, rich(t, 1), rich(t, 2))
	spent := permit(t, payer(t, 2), 0)
	w.settle(spent)
	permits := []payment.Permit{permit(t, payer(t, 1), 0), spent, permit(t, payer(t, 2), 1),
		permit(t, payer(t, 1), 1, amountOf(7))}
	tx := w.sign(permits, w.nonce(), nil)
	if to := decodeTx(t, tx.Raw).To(); *to != settlement.Address {
		t.Errorf("sent to %s", to)
	}
	receipt := w.mine(tx)
	type moved struct {
		from   common.Address
		amount string
		index  uint
	}
	var got []moved
	for _, transfer := range receipt.Transfers {
		got = append(got, moved{transfer.From, transfer.Amount.String(), transfer.LogIndex})
	}
	outcomes := []payment.CallOutcome{payment.CallSettled, payment.NonceSpent, payment.CallSettled, payment.CallSettled}
	if diff := cmp.Diff(outcomes, receipt.Calls); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	want := []moved{{addressOf(payer(t, 1)), "100", 0}, {addressOf(payer(t, 2)), "100", 2},
		{addressOf(payer(t, 1)), "7", 4}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(moved{})); diff != "" {
		t.Errorf("transfers (-want +got):\n%s", diff)
	}
}

// The largest batch is under the cap of EIP-7825, and every payment in it settles.
func TestLargestBatch(t *testing.T) {
	w := newWorld(t, nil, rich(t, 1), rich(t, 2), rich(t, 3))
	permits := make([]payment.Permit, w.wallet.MaxBatch())
	for i := range permits {
		// A word of the bitmap for each, so that every nonce costs the most.
		permits[i] = permit(t, payer(t, int64(i%3)+1), uint64(i)*256, amountOf(1))
	}
	if got := w.standing(permits...); len(got) != len(permits) || got[len(got)-1].Failure != nil {
		t.Fatalf("%v", got[len(got)-1].Failure)
	}
	tx := w.sign(permits, w.nonce(), nil)
	if tx.GasLimit > 16_777_216 || len(permits) != 94 {
		t.Errorf("%d payments with %d gas", len(permits), tx.GasLimit)
	}
	if receipt := w.mine(tx); len(receipt.Transfers) != len(permits) {
		t.Errorf("%d of %d payments settled", len(receipt.Transfers), len(permits))
	}
	_, err := w.wallet.Sign(t.Context(), calls(append(permits, permits[:5]...)...), 9, nil)
	if !errors.Is(err, evm.ErrBatch) {
		t.Errorf("five more: %v", err)
	}
	empty := w.sign(nil, w.nonce(), nil)
	if receipt := w.mine(empty); receipt.GasUsed != 21_000 || len(receipt.Transfers) != 0 {
		t.Errorf("a transaction for nothing used %d gas", receipt.GasUsed)
	}
}

// The gas limit of a batch is enough for the last payment even if the code of all other
// owners burns what it is given. Every owner, nonce word and recipient is another one.
func TestLastOfABatchOfBurners(t *testing.T) {
	for _, gas := range []uint64{100_000, 600_000} {
		w := newWorld(t, func(cfg *evm.Config) { cfg.GasPerSettle = gas }, rich(t, 1))
		batch := make([]payment.Call, w.wallet.MaxBatch())
		for i := range batch {
			recipient := func(p *payment.Permit) { p.Witness.To = common.Address{0xaa, byte(i)} }
			batch[i] = payment.Call{Permit: permit(t, payer(t, 1), uint64(i)*256, amountOf(1), recipient)}
			if i < len(batch)-1 {
				batch[i].From, batch[i].Code = deploy(t, w.dev, common.FromHex("5b600056")), true // an endless loop
			}
		}
		tx, err := w.wallet.Sign(t.Context(), batch, w.nonce(), nil)
		if err != nil {
			t.Fatal(err)
		}
		receipt := w.mine(tx)
		for i, outcome := range receipt.Calls {
			want := payment.CallReverted
			if i == len(batch)-1 {
				want = payment.CallSettled
			}
			if outcome != want {
				t.Errorf("with %d gas, payment %d of %d: %s", gas, i+1, len(batch), outcome)
			}
		}
	}
}

func TestReplacement(t *testing.T) {
	w := newWorld(t, nil, rich(t, 1))
	permits := []payment.Permit{permit(t, payer(t, 1), 1)}
	first := w.sign(permits, 0, nil)
	second := w.sign(permits, 0, &first)
	for _, fee := range []struct{ old, new boxoffice.Amount }{{first.FeeCap, second.FeeCap},
		{first.TipCap, second.TipCap}} {
		if 8*fee.new.Big().Uint64() < 9*fee.old.Big().Uint64() {
			t.Errorf("%s after %s is not 12.5 %% more", fee.new, fee.old)
		}
	}
	for _, tx := range []payment.Tx{first, first, second, second} { // sending again is no error
		if err := w.wallet.Broadcast(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.wallet.Broadcast(t.Context(), first); !errors.Is(err, evm.ErrUnderpriced) {
		t.Errorf("the replaced transaction: %v", err)
	}
	if _, err := w.dev.Mine(t.Context()); err != nil {
		t.Fatal(err)
	}
	receipts, err := w.chain.Receipts(t.Context(), []common.Hash{first.Hash, second.Hash}, 0)
	if err != nil || receipts[0] != nil || receipts[1] == nil || len(receipts[1].Transfers) != 1 {
		t.Errorf("receipts %v, %v", receipts, err)
	}
	if err := w.wallet.Broadcast(t.Context(), second); err != nil {
		t.Errorf("what is mined: %v", err)
	}
	if err := w.wallet.Broadcast(t.Context(), first); !errors.Is(err, evm.ErrNonceTooLow) {
		t.Errorf("what can never be mined: %v", err)
	}
}

func TestEmptyWallet(t *testing.T) {
	w := newWorld(t, nil, rich(t, 1))
	permits := []payment.Permit{permit(t, payer(t, 1), 1)}
	beggar := w.chain.Wallet(payer(t, 50))
	if _, err := beggar.Sign(t.Context(), calls(permits...), 0, nil); !errors.Is(err, evm.ErrWalletEmpty) {
		t.Errorf("sign: %v", err)
	}
	if err := beggar.Ready(t.Context()); !errors.Is(err, payment.ErrWalletEmpty) {
		t.Errorf("ready: %v", err)
	}
	if err := w.wallet.Ready(t.Context()); err != nil {
		t.Errorf("a wallet with coin is not ready: %v", err)
	}
	// The balance was spent after the transaction was signed.
	tap := newTap(t, w.dev)
	tap.answer = func(method string, _ []json.RawMessage) any {
		if method == "eth_getBalance" {
			return "0xffffffffffffffffffff"
		}
		return nil
	}
	beggar = dial(t, w.dev, tap.through).Wallet(payer(t, 50))
	tx, err := beggar.Sign(t.Context(), calls(permits...), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := beggar.Broadcast(t.Context(), tx); !errors.Is(err, evm.ErrWalletEmpty) {
		t.Errorf("broadcast: %v", err)
	}
}

// market makes the tap answer with the given fees in wei; a negative base fee
// is a chain before EIP-1559, a negative tip a node that suggests none.
func (p *tap) market(baseFee, price, tip int64) {
	p.answer = func(method string, _ []json.RawMessage) any {
		quantity := func(n int64) any { return "0x" + big.NewInt(n).Text(16) }
		switch method {
		case "eth_getBlockByNumber":
			block := map[string]any{"number": "0x10", "timestamp": "0x20", "gasLimit": "0x1c9c380"}
			if baseFee >= 0 {
				block["baseFeePerGas"] = quantity(baseFee)
			}
			return block
		case "eth_gasPrice":
			return quantity(price)
		case "eth_maxPriorityFeePerGas":
			if tip < 0 {
				return &refusal{Code: -32601, Message: "the method does not exist"}
			}
			return quantity(tip)
		case "eth_getBalance":
			return "0xffffffffffffffffffffffff"
		}
		return nil
	}
}

func TestFees(t *testing.T) {
	dev := startChain(t)
	const g = 1_000_000_000
	old := func(cap, tip uint64) *payment.Tx { return &payment.Tx{FeeCap: gwei(cap), TipCap: gwei(tip)} }
	for _, test := range []struct {
		name                string
		baseFee, price, tip int64
		replaces            *payment.Tx
		cap, tipCap         int64 // 0: refused
	}{
		{"the base fee may double", 10 * g, 0, 2 * g, nil, 22 * g, 2 * g},
		{"no tip suggested", 10 * g, 0, -1, nil, 20*g + g/1000, g / 1000},
		{"tip below the least", 10 * g, 0, 1, nil, 20*g + g/1000, g / 1000},
		{"tip above the most", 10 * g, 0, 77 * g, nil, 25 * g, 5 * g},
		{"the maximum cuts the reserve", 70 * g, 0, 2 * g, nil, 100 * g, 2 * g},
		{"the base fee is the maximum", 100 * g, 0, 2 * g, nil, 100 * g, 2 * g},
		{"the base fee is above the maximum", 100*g + 1, 0, 2 * g, nil, 0, 0},
		{"a replacement after a fall", 1 * g, 0, 1 * g, old(40, 2), 45 * g, 9 * g / 4},
		{"a replacement after a rise", 40 * g, 0, 3 * g, old(40, 2), 83 * g, 3 * g},
		{"a replacement above the maximum", 1 * g, 0, 1 * g, old(89, 2), 0, 0},
		{"a replacement of a low tip", 1 * g, 0, 1 * g, &payment.Tx{FeeCap: gwei(1)}, 3 * g, 1 * g},
		{"legacy", -1, 20 * g, 2 * g, nil, 20 * g, 20 * g},
		{"legacy above the maximum", -1, 101 * g, 2 * g, nil, 0, 0},
		{"legacy replacement", -1, 20 * g, 2 * g, old(24, 24), 27 * g, 27 * g},
	} {
		t.Run(test.name, func(t *testing.T) {
			tap := newTap(t, dev)
			tap.market(test.baseFee, test.price, test.tip)
			wallet := dial(t, dev, func(cfg *evm.Config) {
				tap.through(cfg)
				cfg.MaxFee = gwei(100)
			}).Wallet(devchain.SettlementKey())
			tx, err := wallet.Sign(t.Context(), calls(permit(t, payer(t, 1), 1)), 3, test.replaces)
			if test.cap == 0 {
				if !errors.Is(err, evm.ErrFeeCeiling) {
					t.Fatalf("%+v, %v", tx, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if tx.FeeCap.Big().Int64() != test.cap || tx.TipCap.Big().Int64() != test.tipCap {
				t.Errorf("cap %s, tip %s; want %d, %d", tx.FeeCap, tx.TipCap, test.cap, test.tipCap)
			}
			decoded := decodeTx(t, tx.Raw)
			if legacy := decoded.Type() == types.LegacyTxType; legacy != (test.baseFee < 0) {
				t.Errorf("transaction type %d", decoded.Type())
			}
			if sender, err := types.Sender(types.LatestSignerForChainID(dev.ChainID()),
				decoded); err != nil || sender != wallet.Address() || decoded.Nonce() != 3 {
				t.Errorf("sender %s, nonce %d, %v", sender, decoded.Nonce(), err)
			}
		})
	}
}

// At any fees of the chain nodes accept a replacement, and no offer is above the
// maximum.
func TestReplacementFeesProperty(t *testing.T) {
	dev := startChain(t)
	tap := newTap(t, dev)
	wallet := dial(t, dev, func(cfg *evm.Config) {
		tap.through(cfg)
		cfg.MaxFee = gwei(1000)
	}).Wallet(devchain.SettlementKey())
	permits := []payment.Permit{permit(t, payer(t, 1), 1)}
	rapid.Check(t, func(t *rapid.T) {
		var previous *payment.Tx
		for range 4 {
			baseFee := rapid.Int64Range(-1, 1e12).Draw(t, "base fee")
			tap.market(baseFee, rapid.Int64Range(1, 1e12).Draw(t, "price"), rapid.Int64Range(-1, 1e11).Draw(t, "tip"))
			tx, err := wallet.Sign(t.Context(), calls(permits...), 0, previous)
			if errors.Is(err, evm.ErrFeeCeiling) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if tx.FeeCap.Cmp(gwei(1000)) > 0 || tx.TipCap.Cmp(tx.FeeCap) > 0 || baseFee > tx.FeeCap.Big().Int64() {
				t.Fatalf("cap %s, tip %s at base fee %d", tx.FeeCap, tx.TipCap, baseFee)
			}
			if previous != nil {
				for _, fee := range []struct{ old, new boxoffice.Amount }{{previous.FeeCap, tx.FeeCap},
					{previous.TipCap, tx.TipCap}} {
					if fee.new.Cmp(fee.old) <= 0 || 8*fee.new.Big().Int64() < 9*fee.old.Big().Int64() {
						t.Fatalf("%s replaces %s", fee.new, fee.old)
					}
				}
			}
			previous = &tx
		}
	})
}

// A transaction before EIP-1559 settles too.
func TestLegacySettles(t *testing.T) {
	w := newWorld(t, nil, rich(t, 1))
	tap := newTap(t, w.dev)
	tap.market(-1, 3e9, -1)
	w.wallet = dial(t, w.dev, tap.through).Wallet(devchain.SettlementKey())
	tx := w.sign([]payment.Permit{permit(t, payer(t, 1), 1)}, 0, nil)
	if receipt := w.mine(tx); len(receipt.Transfers) != 1 {
		t.Error("nothing moved")
	}
}

func TestBroadcastRefusals(t *testing.T) {
	dev := startChain(t)
	tap := newTap(t, dev)
	wallet := dial(t, dev, tap.through).Wallet(devchain.SettlementKey())
	for text, want := range map[string]error{
		"already known":                                             nil,
		"AlreadyKnown":                                              nil,
		"Known transaction":                                         nil,
		"transaction already imported":                              nil,
		"nonce too low: next nonce 1, tx nonce 0":                   evm.ErrNonceTooLow,
		"OldNonce, Current nonce: 4":                                evm.ErrNonceTooLow,
		"replacement transaction underpriced":                       evm.ErrUnderpriced,
		"ReplacementNotAllowed":                                     evm.ErrUnderpriced,
		"max fee per gas less than block base fee":                  evm.ErrUnderpriced,
		"insufficient funds for gas * price + value: have 0 want 1": evm.ErrWalletEmpty,
		"Upfront cost exceeds account balance":                      evm.ErrWalletEmpty,
		"txpool is full":                                            errOther,
	} {
		tap.answer = func(method string, _ []json.RawMessage) any {
			if method == "eth_sendRawTransaction" {
				return &refusal{Code: -32000, Message: text}
			}
			return nil
		}
		err := wallet.Broadcast(t.Context(), payment.Tx{Hash: crypto.Keccak256Hash([]byte(text)), Raw: []byte{1}})
		switch {
		case want == nil && err != nil, want != nil && err == nil:
			t.Errorf("%q: %v", text, err)
		case want != nil && want != errOther && !errors.Is(err, want):
			t.Errorf("%q: %v", text, err)
		}
	}
}

var errOther = errors.New("some error")
