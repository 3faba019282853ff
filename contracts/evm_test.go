package contracts_test

import (
	"crypto/ecdsa"
	"math/big"
	"testing"

	"boxoffice/contracts"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/state"
	"github.com/ethereum/go-ethereum/core/tracing"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/core/vm"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/params"
	"github.com/holiman/uint256"
)

// tokenAddress is where a world has the plain test token.
var tokenAddress = common.Address{0xb0, 0x0f}

// now is the time of every block in these tests.
const now = 1_800_000_000

var chainID = big.NewInt(31337)

// relayer sends the transactions. It has nothing to do with the payments.
var relayer = common.Address{0x4e, 0x1a}

// A world is a state with the payment contracts, in which transactions run without a chain around them. It charges the
// gas that a block would charge, that of calldata included.
type world struct {
	testing.TB
	state  *state.StateDB
	sent   int // transactions
	hooks  *tracing.Hooks
	config *params.ChainConfig
}

func newWorld(tb testing.TB) *world {
	tb.Helper()
	db, err := state.New(types.EmptyRootHash, state.NewDatabaseForTesting())
	if err != nil {
		tb.Fatal(err)
	}
	config := *params.AllDevChainProtocolChanges
	config.ChainID, config.BogotaTime = chainID, nil
	w := &world{TB: tb, state: db, config: &config}
	for at, contract := range map[common.Address]*contracts.Contract{
		contracts.Permit2Address:    contracts.Permit2(),
		contracts.ExactProxyAddress: contracts.ExactProxy(),
		contracts.Multicall3Address: contracts.Multicall3(),
		contracts.SettlementAddress: contracts.Settlement(),
		tokenAddress:                contracts.TestToken(),
	} {
		w.place(at, contract.Runtime)
	}
	w.place(contracts.Create2Address, contracts.Create2Runtime)
	w.state.AddBalance(relayer, uint256.NewInt(params.Ether), 0)
	return w
}

// place gives an account code.
func (w *world) place(at common.Address, code []byte) {
	w.state.SetNonce(at, 1, 0)
	w.state.SetCode(at, code, 0)
}

// delegate makes an account run the code at an address, as EIP-7702 does.
func (w *world) delegate(account, code common.Address) {
	w.state.SetCode(account, types.AddressToDelegation(code), 0)
}

// A result is what a transaction did.
type result struct {
	gas      uint64
	err      error
	returned []byte
	logs     []*types.Log
}

// transact runs a transaction of the relayer in a block of its own.
func (w *world) transact(to common.Address, data []byte, gas uint64) result {
	w.Helper()
	return w.run(core.Message{From: relayer, To: &to, Data: data, GasLimit: gas})
}

func (w *world) run(message core.Message) result {
	w.Helper()
	random := common.Hash{1}
	block := vm.BlockContext{
		CanTransfer: core.CanTransfer, Transfer: core.Transfer,
		GetHash:     func(uint64) common.Hash { return common.Hash{} },
		BlockNumber: big.NewInt(1), Time: now, GasLimit: 1 << 40, Difficulty: new(big.Int), Random: &random,
		BaseFee: new(big.Int), BlobBaseFee: new(big.Int),
	}
	if message.GasPrice == nil {
		message.GasPrice = uint256.NewInt(1)
	}
	message.GasFeeCap, message.GasTipCap = message.GasPrice, message.GasPrice
	if message.Value == nil {
		message.Value = new(uint256.Int)
	}
	message.Nonce = w.state.GetNonce(message.From)
	message.SkipGasLimitCapCheck()
	w.sent++
	hash := common.BigToHash(big.NewInt(int64(w.sent)))
	w.state.SetTxContext(hash, w.sent, 0)
	evm := vm.NewEVM(block, w.state, w.config, vm.Config{Tracer: w.hooks})
	got, err := core.ApplyMessage(evm, &message, core.NewGasPool(1<<40))
	if err != nil {
		w.Fatal(err)
	}
	w.state.Finalise(evm.GetRules())
	return result{got.UsedGas, got.Err, got.ReturnData, w.state.GetLogs(hash, 1, common.Hash{}, now)}
}

// call runs a transaction and forgets what it changed.
func (w *world) call(to common.Address, data []byte, gas uint64) result {
	w.Helper()
	kept := w.state
	w.state = kept.Copy()
	defer func() { w.state = kept }()
	return w.transact(to, data, gas)
}

func pack(tb testing.TB, contract *contracts.Contract, method string, args ...any) []byte {
	tb.Helper()
	data, err := contract.ABI.Pack(method, args...)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// must runs a transaction that has to succeed.
func (w *world) must(from, to common.Address, data []byte) result {
	w.Helper()
	got := w.run(core.Message{From: from, To: &to, Data: data, GasLimit: 10_000_000, GasPrice: new(uint256.Int)})
	if got.err != nil {
		w.Fatalf("transaction to %s: %v %x", to, got.err, got.returned)
	}
	return got
}

// read calls a view function that returns one number.
func (w *world) read(to common.Address, contract *contracts.Contract, method string, args ...any) *big.Int {
	w.Helper()
	got := w.call(to, pack(w, contract, method, args...), 1_000_000)
	if got.err != nil || len(got.returned) != 32 {
		w.Fatalf("%s of %s: %v %x", method, to, got.err, got.returned)
	}
	return new(big.Int).SetBytes(got.returned)
}

func (w *world) balance(token, account common.Address) *big.Int {
	w.Helper()
	return w.read(token, contracts.TestToken(), "balanceOf", account)
}

// testKey returns one of many keys.
func testKey(n int) *ecdsa.PrivateKey {
	key, err := crypto.ToECDSA(crypto.Keccak256([]byte{byte(n), byte(n >> 8), 7}))
	if err != nil {
		panic(err)
	}
	return key
}

func addressOf(key *ecdsa.PrivateKey) common.Address { return crypto.PubkeyToAddress(key.PublicKey) }
