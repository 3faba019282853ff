// Package settlement has the address and the code of the settlement contract,
// contracts/Settlement.sol.
package settlement

import (
	_ "embed"
	"fmt"
	"sync"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/go-json-experiment/json"
)

// Factory is the usual CREATE2 factory, which deploys a contract at the same address
// on every chain: https://github.com/Arachnid/deterministic-deployment-proxy.
var Factory = common.HexToAddress("0x4e59b44847b379578588920cA78FbF26c0B4956C")

// Address is where Factory puts the contract on every chain, with a salt of zeros.
var Address = common.HexToAddress("0x4347B9d77B3B8e4b002631A4A4a00907C7c51A6e")

// ABI returns the interface of the contract.
func ABI() abi.ABI { return artifact().ABI }

// Creation returns the init code that Factory deploys.
func Creation() []byte { return artifact().Creation }

// Runtime returns the code of the deployed contract. It has no immutables.
func Runtime() []byte { return artifact().Runtime }

// Artifact returns what the compiler made of the contract, as JSON.
func Artifact() []byte { return text }

//go:embed Settlement.json
var text []byte

var artifact = sync.OnceValue(func() (a struct {
	ABI      abi.ABI       `json:"abi"`
	Creation hexutil.Bytes `json:"bytecode"`
	Runtime  hexutil.Bytes `json:"deployedBytecode"`
}) {
	if err := json.Unmarshal(text, &a); err != nil {
		panic(fmt.Errorf("artifact of the settlement contract: %w", err)) // the program was built wrongly
	}
	return a
})
