package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"boxoffice/contracts"
	"boxoffice/contracts/settlement"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"
)

var anvilFolder = filepath.Join("interop", "anvil")

// anvil is a running Anvil with our x402 proxy and the code that Permit2 and Multicall3 have on live chains. It has the
// CREATE2 factory by itself. It mines every transaction immediately unless a test changes that.
type anvil struct {
	*ethclient.Client
	demo     *demo // for its folder and the programs that it has built
	node     *process
	version  string
	plain    string // the name and version of the plain token
	url      string
	keys     []*ecdsa.PrivateKey // of accounts with native coin, for which the node signs too
	creation map[string]hexutil.Bytes
	services int // that were started
}

// onAnvil runs everything about Anvil on one node.
func onAnvil(ctx context.Context, d *demo) (rows []row, err error) {
	a, err := startAnvil(ctx, d)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.end()) }()
	for _, prove := range []func(context.Context) ([]row, error){a.deployment, a.tokens, a.gas, a.faults} {
		more, err := prove(ctx)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// The chain and its accounts: one deploys the contracts, each service has its own settlement key, the others pay.
const (
	anvilChain  = 31337
	deployer    = 0
	settlers    = 30
	firstPayer  = 1 + settlers
	manyPayers  = 60
	allAccounts = firstPayer + manyPayers
)

// startAnvil starts Anvil on a free port and compiles the tokens.
func startAnvil(ctx context.Context, d *demo) (_ *anvil, err error) {
	a := &anvil{demo: d}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.end())
		}
	}()
	openZeppelin, err := pinned(anvilFolder, "@openzeppelin/contracts")
	if err != nil {
		return nil, err
	}
	a.plain = "OpenZeppelin " + openZeppelin + " ERC-20"
	compile := exec.CommandContext(ctx, "node", filepath.Join(anvilFolder, "build.mjs"))
	compile.Stderr = os.Stderr
	compiled, err := compile.Output()
	if err != nil {
		return nil, fmt.Errorf("compiling the tokens: %w", err)
	}
	if err := json.Unmarshal(compiled, &a.creation); err != nil {
		return nil, err
	}
	if err := a.startNode(ctx); err != nil {
		return nil, err
	}
	return a, a.placeContracts(ctx)
}

func (a *anvil) startNode(ctx context.Context) error {
	programs, err := filepath.Glob(
		filepath.Join(anvilFolder, "node_modules", "@foundry-rs", "anvil-*", "bin", "anvil*"))
	if err != nil || len(programs) != 1 {
		return fmt.Errorf("want one Anvil for this machine, found %q (%v)", programs, err)
	}
	accounts := filepath.Join(a.demo.folder, "anvil.json")
	a.node, err = start(exec.CommandContext(ctx, programs[0], "--host", "127.0.0.1", "--port", "0",
		"--chain-id", fmt.Sprint(anvilChain), "--accounts", fmt.Sprint(allAccounts), "--config-out", accounts))
	if err != nil {
		return err
	}
	const listening = "Listening on "
	line, err := a.node.line(ctx, listening)
	if err != nil {
		return err
	}
	a.url = "http://" + line[len(listening):]
	if a.Client, err = ethclient.DialContext(ctx, a.url); err != nil {
		return err
	}
	if err := a.call(ctx, &a.version, "web3_clientVersion"); err != nil {
		return err
	}
	a.version = strings.ReplaceAll(a.version, "/v", " ")

	document, err := os.ReadFile(accounts)
	if err != nil {
		return err
	}
	var config struct {
		Keys []hexutil.Bytes `json:"private_keys"`
	}
	if err := json.Unmarshal(document, &config); err != nil {
		return err
	}
	for _, secret := range config.Keys {
		key, err := crypto.ToECDSA(secret)
		if err != nil {
			return err
		}
		a.keys = append(a.keys, key)
	}
	return nil
}

func (a *anvil) end() error {
	if a.Client != nil {
		a.Client.Close()
	}
	if a.node == nil {
		return nil
	}
	return a.node.end()
}

// call calls a method of the node. answer may be nil.
func (a *anvil) call(ctx context.Context, answer any, method string, params ...any) error {
	if err := a.Client.Client().CallContext(ctx, answer, method, params...); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}

// mine makes blocks.
func (a *anvil) mine(ctx context.Context, blocks int) error {
	return a.call(ctx, nil, "anvil_mine", hexutil.Uint64(blocks))
}

// placeContracts puts the payment contracts at the addresses that they have on every chain. The package with the code
// of Permit2 inserts the chain id.
func (a *anvil) placeContracts(ctx context.Context) error {
	deployed, err := a.deploy(ctx, "Deployed", nil)
	if err != nil {
		return err
	}
	text, err := abi.NewType("bytes", "", nil)
	if err != nil {
		return err
	}
	code := map[common.Address]hexutil.Bytes{contracts.ExactProxyAddress: contracts.ExactProxy().Runtime}
	for method, at := range map[string]common.Address{
		"permit2()": contracts.Permit2Address, "multicall3()": contracts.Multicall3Address,
	} {
		answer, err := a.CallContract(ctx,
			ethereum.CallMsg{To: &deployed, Data: crypto.Keccak256([]byte(method))[:4]}, nil)
		if err != nil {
			return err
		}
		values, err := abi.Arguments{{Type: text}}.Unpack(answer)
		if err != nil {
			return err
		}
		code[at] = values[0].([]byte)
	}
	factory, err := a.CodeAt(ctx, settlement.Factory, nil)
	if err != nil {
		return err
	}
	if !bytes.Equal(factory, contracts.Create2Runtime) {
		return fmt.Errorf("%s has no CREATE2 factory at %s", a.version, settlement.Factory)
	}
	for at, runtime := range code {
		if err := a.call(ctx, nil, "anvil_setCode", at, runtime); err != nil {
			return err
		}
	}
	// On live chains these contracts are older than any reorganisation is deep.
	return a.mine(ctx, 40)
}

// deploy deploys a contract of Tokens.sol. Anvil has to mine transactions immediately.
func (a *anvil) deploy(ctx context.Context, contract string, arguments []byte) (common.Address, error) {
	receipt, err := a.send(ctx, deployer, map[string]any{"input": append(a.creation[contract], arguments...)})
	if err != nil {
		return common.Address{}, fmt.Errorf("deploying %s: %w", contract, err)
	}
	return receipt.ContractAddress, nil
}

// send sends a transaction, which the node signs, and waits until it is mined.
func (a *anvil) send(ctx context.Context, account int, message map[string]any) (*types.Receipt, error) {
	message["from"] = a.address(account)
	receipt := new(types.Receipt)
	err := a.call(ctx, receipt, "eth_sendTransactionSync", message)
	if err == nil && receipt.Status != types.ReceiptStatusSuccessful {
		err = fmt.Errorf("transaction %s reverted", receipt.TxHash)
	}
	return receipt, err
}

func (a *anvil) address(account int) common.Address {
	return crypto.PubkeyToAddress(a.keys[account].PublicKey)
}

// token deploys a token of Tokens.sol. The first payers get some of it and give Permit2 an unlimited allowance.
func (a *anvil) token(ctx context.Context, contract string, payers int) (common.Address, error) {
	addresses, err := abi.NewType("address[]", "", nil)
	if err != nil {
		return common.Address{}, err
	}
	number, err := abi.NewType("uint256", "", nil)
	if err != nil {
		return common.Address{}, err
	}
	var holders []common.Address
	for n := range payers {
		holders = append(holders, a.address(firstPayer+n))
	}
	arguments, err := abi.Arguments{{Type: addresses}, {Type: number}}.Pack(holders, big.NewInt(holding))
	if err != nil {
		return common.Address{}, err
	}
	token, err := a.deploy(ctx, contract, arguments)
	if err != nil {
		return common.Address{}, err
	}
	approve := crypto.Keccak256([]byte("approve(address,uint256)"))[:4]
	approve = append(approve, common.LeftPadBytes(contracts.Permit2Address[:], 32)...)
	approve = append(approve, common.MaxHash[:]...)
	for n := range payers {
		if _, err := a.send(ctx, firstPayer+n,
			map[string]any{"to": token, "input": hexutil.Bytes(approve)}); err != nil {
			return common.Address{}, fmt.Errorf("%s: approve: %w", contract, err)
		}
	}
	return token, nil
}
