// Package contracts holds compiled Solidity: Settlement, which settles batches of payments on every chain, and the
// contracts of the dev chain: a test token, contracts compatible with Permit2, the x402 exact proxy and Multicall3, and
// wallets and tokens that tests deploy. README.md says how to build them again.
package contracts

import (
	"embed"
	"fmt"
	"sync"

	"boxoffice/contracts/settlement"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/go-json-experiment/json"
)

// The addresses of the original contracts on every chain. Ours have the same addresses on the dev chain.
var (
	Create2Address    = settlement.Factory
	SettlementAddress = settlement.Address
	Permit2Address    = common.HexToAddress("0x000000000022D473030F116dDEE9F6B43aC78BA3")
	ExactProxyAddress = common.HexToAddress("0x402085c248EeA27D92E8b30b2C58ed07f9E20001")
	Multicall3Address = common.HexToAddress("0xcA11bde05977b3631167028862bE2a173976CA11")
)

// Create2Runtime is the code of the factory at Create2Address, Arachnid's deterministic deployment proxy.
var Create2Runtime = hexutil.MustDecode("0x7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff" +
	"e03601600081602082378035828234f58015156039578182fd5b8082525050506014600cf3")

// A Contract is one compiled contract. All callers share it, so do not change it.
type Contract struct {
	Name         string        `json:"contractName"`
	Compiler     string        `json:"solc"`         // the exact solc version
	SourceSHA256 string        `json:"sourceSha256"` // of the .sol file, lowercase hex
	ABI          abi.ABI       `json:"abi"`
	Creation     hexutil.Bytes `json:"bytecode"`
	// Runtime is the code without constructor. It has no immutables, except a wallet's owner, so a genesis allocation
	// can place it at any address.
	Runtime hexutil.Bytes `json:"deployedBytecode"`
}

var (
	testToken  = artifact("TestToken")
	permit2    = artifact("Permit2")
	exactProxy = artifact("X402ExactPermit2Proxy")
	multicall3 = artifact("Multicall3")
	settler    = sync.OnceValue(func() *Contract { return parse("Settlement", settlement.Artifact()) })
	wallet     = artifact("TestWallet")
	hostile    = artifact("HostileWallet")
	badToken   = artifact("HostileToken")
)

// TestToken is the ERC-20 with EIP-2612 permit that anybody may mint.
func TestToken() *Contract { return testToken() }

// Permit2 has the one-time signature transfers of Uniswap's Permit2, without batches and stored allowances.
func Permit2() *Contract { return permit2() }

// ExactProxy settles x402 "exact" payments through the Permit2 at [Permit2Address].
func ExactProxy() *Contract { return exactProxy() }

// Multicall3 makes many calls in one.
func Multicall3() *Contract { return multicall3() }

// Settlement settles batches of payments through the proxy at [ExactProxyAddress].
func Settlement() *Contract { return settler() }

// Wallet is a contract wallet (EIP-1271) with one owner, also for an account to delegate its code to (EIP-7702).
func Wallet() *Contract { return wallet() }

// HostileWallet is a contract wallet whose isValidSignature misbehaves as a test tells it to.
func HostileWallet() *Contract { return hostile() }

// HostileToken is a token that misbehaves as a test tells it to.
func HostileToken() *Contract { return badToken() }

// How a HostileWallet answers isValidSignature: the arguments of its method "answer". Its source explains each.
const (
	Accept uint8 = iota
	Refuse
	Revert
	BurnGas
	InvalidOpcode
	Nothing
	Short
	Long
	Dirty
	Flood
	AcceptUnpaid
)

//go:embed artifacts/*.json
var artifacts embed.FS

// artifact reads a compiled contract on first use. It panics if the file is missing or malformed: then the program
// was built wrongly.
func artifact(name string) func() *Contract {
	return sync.OnceValue(func() *Contract {
		text, err := artifacts.ReadFile("artifacts/" + name + ".json")
		if err != nil {
			panic(fmt.Errorf("contract %s: %w", name, err))
		}
		return parse(name, text)
	})
}

func parse(name string, text []byte) *Contract {
	var c Contract
	if err := json.Unmarshal(text, &c); err != nil {
		panic(fmt.Errorf("contract %s: %w", name, err))
	}
	return &c
}
