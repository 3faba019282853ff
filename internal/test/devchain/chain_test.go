package devchain_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"math/big"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"boxoffice/contracts"
	"boxoffice/internal/test/devchain"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/params"
	"github.com/ethereum/go-ethereum/rpc"
	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
)

func devKeys(tb testing.TB, n int) []*ecdsa.PrivateKey {
	tb.Helper()
	keys := make([]*ecdsa.PrivateKey, n)
	for i := range keys {
		var err error
		if keys[i], err = crypto.ToECDSA(crypto.Keccak256([]byte{byte(i), byte(i >> 8), 1})); err != nil {
			tb.Fatal(err)
		}
	}
	return keys
}

func TestDevKeysAreThoseOfHardhatAndAnvil(t *testing.T) {
	got := []common.Address{
		crypto.PubkeyToAddress(devchain.SettlementKey().PublicKey),
		crypto.PubkeyToAddress(devchain.PayerKey().PublicKey),
		devchain.PayTo(),
	}
	want := []common.Address{
		common.HexToAddress("0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"),
		common.HexToAddress("0x70997970C51812dc3A010C7d01b50e0d17dc79C8"),
		common.HexToAddress("0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestFundedAccounts(t *testing.T) {
	account := common.Address{9}
	c := start(t, devchain.Config{Funded: []devchain.Funded{
		{Address: account, Native: devchain.Ether(2), Tokens: devchain.Ether(3)},
		{Address: account, Native: devchain.Ether(1), Tokens: devchain.Ether(4), Permit2Allowed: true},
	}})
	wantTokens(t, c, account, devchain.Ether(7))
	native, err := c.Client().BalanceAt(t.Context(), account, nil)
	if err != nil || native.Cmp(devchain.Ether(3)) != 0 {
		t.Errorf("native balance %v, %v", native, err)
	}
	if err := c.Fund(t.Context(), account, devchain.Ether(5), devchain.Ether(6)); err != nil {
		t.Fatal(err)
	}
	wantTokens(t, c, account, devchain.Ether(13))
	native, err = c.Client().BalanceAt(t.Context(), account, nil)
	if err != nil || native.Cmp(devchain.Ether(8)) != 0 {
		t.Errorf("native balance %v, %v", native, err)
	}
}

func TestBlockTimestamps(t *testing.T) {
	var clock atomic.Int64
	clock.Store(2_000_000_000)
	c := start(t, devchain.Config{Now: func() time.Time { return time.Unix(clock.Load(), 0) }})
	steps := []struct{ now, want int64 }{
		{2_000_000_000, 2_000_000_001}, // the genesis block has the time of the start
		{2_000_000_000, 2_000_000_002},
		{2_000_000_100, 2_000_000_100},
		{2_000_000_050, 2_000_000_101},
	}
	if got := c.Head().Time; got != 2_000_000_000 {
		t.Errorf("genesis at %d", got)
	}
	for _, step := range steps {
		clock.Store(step.now)
		if got := int64(mine(t, c).Time); got != step.want {
			t.Errorf("at %d mined %d, want %d", step.now, got, step.want)
		}
	}
}

func TestBlockTimeStaysNearTheClock(t *testing.T) {
	heads := make(chan *types.Header, 16)
	c := start(t, devchain.Config{BlockTime: 20 * time.Millisecond, Funded: devchain.DevAccounts()})
	subscription, err := c.Client().SubscribeNewHead(t.Context(), heads)
	if err != nil {
		t.Fatal(err)
	}
	defer subscription.Unsubscribe()
	tx := transfer(t, c, devchain.SettlementKey(), 0)
	if err := c.Client().SendTransaction(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	deadline := time.After(20 * time.Second)
	for n := 0; n < 4; {
		select {
		case head := <-heads:
			n++
			if lead := int64(head.Time) - time.Now().Unix(); lead > 2 || lead < -2 {
				t.Errorf("block %d is %d s ahead of the clock", head.Number, lead)
			}
		case err := <-subscription.Err():
			t.Fatal(err)
		case <-deadline:
			t.Fatal("no blocks")
		}
	}
	receipt, err := c.Client().TransactionReceipt(t.Context(), tx.Hash())
	if err != nil || receipt.Status != types.ReceiptStatusSuccessful {
		t.Errorf("receipt %v, %v", receipt, err)
	}
}

func transfer(tb testing.TB, c *devchain.Chain, key *ecdsa.PrivateKey, nonce uint64) *types.Transaction {
	tb.Helper()
	to := common.Address{7}
	return types.MustSignNewTx(key, types.LatestSignerForChainID(c.ChainID()), &types.DynamicFeeTx{
		ChainID: c.ChainID(), Nonce: nonce, GasTipCap: big.NewInt(params.GWei), GasFeeCap: big.NewInt(3 * params.GWei),
		Gas: 21_000, To: &to, Value: big.NewInt(1),
	})
}

// A transaction that was sent before Mine is in the block, even if the pool had little time.
func TestMineIncludesWhatWasSent(t *testing.T) {
	c := start(t, devchain.Config{Funded: devchain.DevAccounts()})
	remote, err := ethclient.DialContext(t.Context(), c.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer remote.Close()
	for nonce := range uint64(20) {
		tx := transfer(t, c, devchain.SettlementKey(), nonce)
		if err := remote.SendTransaction(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		header := mine(t, c)
		receipt, err := remote.TransactionReceipt(t.Context(), tx.Hash())
		if err != nil {
			t.Fatalf("transaction %d: %v", nonce, err)
		}
		if receipt.BlockHash != header.Hash() {
			t.Errorf("transaction %d is in block %s, mined %s", nonce, receipt.BlockHash, header.Hash())
		}
	}
}

func TestReorg(t *testing.T) {
	c := start(t, devchain.Config{Funded: devchain.DevAccounts()})
	key := devchain.PayerKey()
	p := newPayment(key, 0).signed(t, key)
	first := transact(t, c, contracts.ExactProxyAddress, p.settle(t))
	mine(t, c)
	wantTokens(t, c, devchain.PayTo(), devchain.Ether(1))

	head, err := c.Reorg(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if got := head.Number.Uint64(); got != 3 {
		t.Errorf("two blocks were replaced by %d", got)
	}
	if _, err := c.Client().TransactionReceipt(t.Context(), first.TxHash); err == nil {
		t.Error("the receipt of a removed block is still served")
	}
	wantTokens(t, c, devchain.PayTo(), new(big.Int))

	mine(t, c)
	again, err := c.Client().TransactionReceipt(t.Context(), first.TxHash)
	if err != nil {
		t.Fatal(err)
	}
	if again.BlockNumber.Uint64() != 4 {
		t.Errorf("included again in block %d", again.BlockNumber)
	}
	wantTokens(t, c, devchain.PayTo(), devchain.Ether(1))

	if _, err := c.Reorg(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	c.DropPending()
	mine(t, c)
	wantTokens(t, c, devchain.PayTo(), new(big.Int))

	for _, depth := range []uint64{0, 1000} {
		if _, err := c.Reorg(t.Context(), depth); err == nil {
			t.Errorf("reorg of depth %d", depth)
		}
	}
}

func TestBatchOverHTTP(t *testing.T) {
	c := start(t, devchain.Config{Funded: devchain.DevAccounts()})
	remote, err := rpc.DialContext(t.Context(), c.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer remote.Close()
	var chainID, bitmap hexutil.Big
	var version, client string
	var code hexutil.Bytes
	batch := []rpc.BatchElem{
		{Method: "eth_chainId", Result: &chainID},
		{Method: "net_version", Result: &version},
		{Method: "web3_clientVersion", Result: &client},
		{Method: "eth_getCode", Args: []any{contracts.Permit2Address, "latest"}, Result: &code},
		{Method: "eth_call", Args: []any{map[string]any{
			"to":   contracts.Permit2Address,
			"data": hexutil.Bytes(pack(t, contracts.Permit2(), "nonceBitmap", devchain.PayTo(), new(big.Int))),
		}, "latest"}, Result: new(hexutil.Bytes)},
		{Method: "txpool_status", Result: new(map[string]string)},
		{Method: "debug_getRawHeader", Args: []any{"latest"}, Result: new(hexutil.Bytes)},
	}
	if err := remote.BatchCallContext(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	for _, call := range batch {
		if call.Error != nil {
			t.Errorf("%s: %v", call.Method, call.Error)
		}
	}
	if chainID.ToInt().Cmp(c.ChainID()) != 0 || version != "31337" || bitmap.ToInt().Sign() != 0 {
		t.Errorf("chain id %s, network %s, bitmap %s", &chainID, version, &bitmap)
	}
	if !bytes.Equal(code, contracts.Permit2().Runtime) {
		t.Error("the code at Permit2's address is not Permit2")
	}

	raw := `[{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber"},{"jsonrpc":"2.0","id":2,"method":"no_such"}]`
	answer, err := http.Post(c.URL(), "application/json", bytes.NewBufferString(raw))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var items []struct {
		ID    int            `json:"id"`
		Error map[string]any `json:"error"`
	}
	if err := json.UnmarshalRead(answer.Body, &items); err != nil {
		t.Fatal(err)
	}
	if len(items) != 2 || items[0].Error != nil || items[1].Error == nil {
		t.Errorf("answers %v", items)
	}
}

func TestStartFails(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := devchain.Start(canceled, devchain.Config{}); err == nil {
		t.Error("started with a context that had ended")
	}
	for _, listen := range []string{"nonsense", "127.0.0.1:http", "127.0.0.1:70000"} {
		if _, err := devchain.Start(t.Context(), devchain.Config{RPCListen: listen}); err == nil {
			t.Errorf("started with the listen address %q", listen)
		}
	}
}
