package evm_test

import (
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"boxoffice/contracts"
	"boxoffice/contracts/settlement"
	"boxoffice/internal/payment"
	"boxoffice/internal/payment/evm"
	"boxoffice/internal/test/devchain"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/params"
)

// world is a development chain with a Chain and a Wallet on it.
type world struct {
	*testing.T
	dev    *devchain.Chain
	chain  *evm.Chain
	wallet *evm.Wallet
}

// payTo receives every payment. Nobody has its key.
var payTo = common.HexToAddress("0x00000000000000000000000000000000000bea70")

// payer returns a key that is the same in every run.
func payer(t testing.TB, n int64) *ecdsa.PrivateKey {
	t.Helper()
	key, err := crypto.ToECDSA(common.BigToHash(big.NewInt(1000 + n)).Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func addressOf(key *ecdsa.PrivateKey) common.Address { return crypto.PubkeyToAddress(key.PublicKey) }

// rich gives a payer 1000 units of the token and the allowance.
func rich(t testing.TB, n int64) devchain.Funded {
	return devchain.Funded{
		Address: addressOf(payer(t, n)), Native: devchain.Ether(10), Tokens: big.NewInt(1000), Permit2Allowed: true,
	}
}

func startChain(t testing.TB, funded ...devchain.Funded) *devchain.Chain {
	t.Helper()
	dev, err := devchain.Start(t.Context(), devchain.Config{Funded: append(devchain.DevAccounts(), funded...)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	// Until geth has indexed its first block, in the background, it fails instead of
	// saying that a transaction is unknown.
	if _, err := dev.Mine(t.Context()); err != nil {
		t.Fatal(err)
	}
	for {
		_, err := dev.Client().TransactionReceipt(t.Context(), common.Hash{1})
		if errors.Is(err, ethereum.NotFound) {
			return dev
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
}

func config(rpcURL string) evm.Config {
	return evm.Config{
		RPCURL: rpcURL, ChainID: devchain.DefaultChainID, Asset: devchain.TokenAddress,
		RequestTimeout: 20 * time.Second, MaxFee: gwei(500), GasPerSettle: 150_000, MaxTxGas: params.MaxTxGas, Now: time.Now,
	}
}

func dial(t testing.TB, dev *devchain.Chain, change func(*evm.Config)) *evm.Chain {
	t.Helper()
	cfg := config(dev.URL())
	if change != nil {
		change(&cfg)
	}
	chain, err := evm.Dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(chain.Close)
	return chain
}

func newWorld(t *testing.T, change func(*evm.Config), funded ...devchain.Funded) *world {
	t.Helper()
	dev := startChain(t, funded...)
	chain := dial(t, dev, change)
	return &world{T: t, dev: dev, chain: chain, wallet: chain.Wallet(devchain.SettlementKey())}
}

// permit returns a permit of 100 units by a key, valid for an hour. Changes are
// made before it is signed.
func permit(t testing.TB, key *ecdsa.PrivateKey, nonce uint64, changes ...func(*payment.Permit)) payment.Permit {
	t.Helper()
	p := payment.Permit{Authorization: x402.Authorization{
		From:      addressOf(key),
		Permitted: x402.Permitted{Token: devchain.TokenAddress, Amount: x402.NewUint256(100)},
		Spender:   x402.ExactProxy,
		Nonce:     x402.NewUint256(nonce),
		Deadline:  x402.NewUint256(uint64(time.Now().Add(time.Hour).Unix())),
		Witness:   x402.Witness{To: payTo},
	}}
	for _, change := range changes {
		change(&p)
	}
	signature, err := x402.Sign(p.Digest(devchain.DefaultChainID), key)
	if err != nil {
		t.Fatal(err)
	}
	p.Signature = signature
	return p
}

func amountOf(n uint64) func(*payment.Permit) {
	return func(p *payment.Permit) { p.Permitted.Amount = x402.NewUint256(n) }
}

// calls returns the calls of permits whose owners have no code.
func calls(permits ...payment.Permit) (list []payment.Call) {
	for _, p := range permits {
		list = append(list, payment.Call{Permit: p})
	}
	return list
}

// settle signs, sends and mines the permits and returns the receipt.
func (w *world) settle(permits ...payment.Permit) *payment.Receipt {
	w.Helper()
	tx := w.sign(permits, w.nonce(), nil)
	return w.mine(tx)
}

func (w *world) nonce() uint64 {
	w.Helper()
	nonce, err := w.chain.Nonce(w.Context(), w.wallet.Address(), w.dev.Head().Number.Uint64())
	if err != nil {
		w.Fatal(err)
	}
	return nonce
}

func (w *world) sign(permits []payment.Permit, nonce uint64, replaces *payment.Tx) payment.Tx {
	w.Helper()
	tx, err := w.wallet.Sign(w.Context(), calls(permits...), nonce, replaces)
	if err != nil {
		w.Fatal(err)
	}
	return tx
}

func (w *world) mine(tx payment.Tx) *payment.Receipt {
	w.Helper()
	if err := w.wallet.Broadcast(w.Context(), tx); err != nil {
		w.Fatal(err)
	}
	if _, err := w.dev.Mine(w.Context()); err != nil {
		w.Fatal(err)
	}
	receipts, err := w.chain.Receipts(w.Context(), []common.Hash{tx.Hash}, 0)
	if err != nil {
		w.Fatal(err)
	}
	if receipts[0] == nil {
		w.Fatal("the transaction was not mined")
	}
	return receipts[0]
}

func (w *world) standing(permits ...payment.Permit) []payment.Standing {
	w.Helper()
	standings, err := w.chain.Standing(w.Context(), permits)
	if err != nil {
		w.Fatal(err)
	}
	return standings
}

func decodeTx(t testing.TB, raw []byte) *types.Transaction {
	t.Helper()
	tx := new(types.Transaction)
	if err := tx.UnmarshalBinary(raw); err != nil {
		t.Fatal(err)
	}
	return tx
}

// deploy puts runtime code on the chain.
func deploy(t testing.TB, dev *devchain.Chain, runtime []byte) common.Address {
	t.Helper()
	// PUSH1 len DUP1 PUSH1 9 0 CODECOPY 0 RETURN: returns what follows these nine bytes.
	creation := append([]byte{0x60, byte(len(runtime)), 0x80, 0x60, 0x09, 0x3d, 0x39, 0x3d, 0xf3}, runtime...)
	key := devchain.PayerKey()
	nonce, err := dev.Client().PendingNonceAt(t.Context(), addressOf(key))
	if err != nil {
		t.Fatal(err)
	}
	send(t, dev, key, &types.LegacyTx{Nonce: nonce, GasPrice: big.NewInt(5e9), Gas: 1_000_000, Data: creation})
	return crypto.CreateAddress(addressOf(key), nonce)
}

func send(t testing.TB, dev *devchain.Chain, key *ecdsa.PrivateKey, unsigned types.TxData) {
	t.Helper()
	tx, err := types.SignNewTx(key, types.LatestSignerForChainID(dev.ChainID()), unsigned)
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.Client().SendTransaction(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	if _, err := dev.Mine(t.Context()); err != nil {
		t.Fatal(err)
	}
	receipt, err := dev.Client().TransactionReceipt(t.Context(), tx.Hash())
	if err != nil || receipt.Status != types.ReceiptStatusSuccessful {
		t.Fatalf("transaction failed: %v", err)
	}
}

// approve lets Permit2 move n units of the test token.
func approve(t testing.TB, dev *devchain.Chain, key *ecdsa.PrivateKey, n int64) {
	t.Helper()
	data, err := contracts.TestToken().ABI.Pack("approve", x402.Permit2, big.NewInt(n))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dev.Transact(t.Context(), key, dev.Token(), nil, data); err != nil {
		t.Fatal(err)
	}
}

// tap is an RPC node in front of the development chain. It counts round trips and
// may answer instead of the chain.
type tap struct {
	*httptest.Server
	trips atomic.Int64
	// answer returns the answer to a request: a *refusal, any other result, or nil for
	// the answer of the chain.
	answer func(method string, params []json.RawMessage) any
}

type refusal struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

type rpcRequest struct {
	Version string            `json:"jsonrpc"`
	ID      json.RawMessage   `json:"id"`
	Method  string            `json:"method"`
	Params  []json.RawMessage `json:"params"`
}

type rpcAnswer struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result,omitempty"`
	Error   any             `json:"error,omitempty"`
}

func newTap(t testing.TB, dev *devchain.Chain) *tap {
	t.Helper()
	p := &tap{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.trips.Add(1)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		var batch []rpcRequest
		if json.Unmarshal(body, &batch) == nil {
			answers := make([]rpcAnswer, len(batch))
			for i, request := range batch {
				answers[i] = p.handle(r.Context(), dev, request)
			}
			json.NewEncoder(w).Encode(answers)
			return
		}
		var request rpcRequest
		if json.Unmarshal(body, &request) == nil {
			json.NewEncoder(w).Encode(p.handle(r.Context(), dev, request))
		}
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *tap) handle(ctx context.Context, dev *devchain.Chain, request rpcRequest) rpcAnswer {
	answer := rpcAnswer{Version: "2.0", ID: request.ID}
	if p.answer != nil {
		switch said := p.answer(request.Method, request.Params).(type) {
		case nil:
		case *refusal:
			answer.Error = said
			return answer
		default:
			answer.Result = said
			return answer
		}
	}
	args := make([]any, len(request.Params))
	for i, param := range request.Params {
		args[i] = param
	}
	var result json.RawMessage
	if err := dev.Client().Client().CallContext(ctx, &result, request.Method, args...); err != nil {
		said := &refusal{Code: -32000, Message: err.Error()}
		if coded, ok := err.(interface{ ErrorCode() int }); ok {
			said.Code = coded.ErrorCode()
		}
		if data, ok := err.(interface{ ErrorData() any }); ok {
			said.Data = data.ErrorData()
		}
		answer.Error = said
		return answer
	}
	answer.Result = result
	return answer
}

// undeployed makes the tap a node on whose chain nobody has deployed the settlement
// contract.
func (p *tap) undeployed() *tap {
	p.answer = func(method string, params []json.RawMessage) any {
		if method == "eth_getCode" && strings.EqualFold(string(params[0]), `"`+settlement.Address.Hex()+`"`) ||
			method == "eth_call" && asks(params, settlement.Address) {
			return "0x"
		}
		return nil
	}
	return p
}

// asks reports whether a request is a call of a contract.
func asks(params []json.RawMessage, contract common.Address) bool {
	return len(params) > 0 && strings.Contains(string(params[0]), `"to":"`+strings.ToLower(contract.Hex()))
}

// through makes a Chain use the tap.
func (p *tap) through(cfg *evm.Config) { cfg.RPCURL = p.URL }
