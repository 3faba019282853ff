package evm

import (
	"strings"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/crypto"
)

// methods are the functions that this package calls: of the ERC-20 token, of
// Permit2, of the x402 exact proxy and of contract wallets (EIP-1271).
var methods = mustParse(`[
{"type":"function","name":"balanceOf","stateMutability":"view",
 "inputs":[{"name":"account","type":"address"}],"outputs":[{"type":"uint256"}]},
{"type":"function","name":"allowance","stateMutability":"view",
 "inputs":[{"name":"owner","type":"address"},{"name":"spender","type":"address"}],"outputs":[{"type":"uint256"}]},
{"type":"function","name":"decimals","stateMutability":"view","inputs":[],"outputs":[{"type":"uint8"}]},
{"type":"function","name":"symbol","stateMutability":"view","inputs":[],"outputs":[{"type":"string"}]},
{"type":"function","name":"name","stateMutability":"view","inputs":[],"outputs":[{"type":"string"}]},
{"type":"function","name":"version","stateMutability":"view","inputs":[],"outputs":[{"type":"string"}]},
{"type":"function","name":"eip712Domain","stateMutability":"view","inputs":[],"outputs":[
 {"name":"fields","type":"bytes1"},{"name":"name","type":"string"},{"name":"version","type":"string"},
 {"name":"chainId","type":"uint256"},{"name":"verifyingContract","type":"address"},{"name":"salt","type":"bytes32"},
 {"name":"extensions","type":"uint256[]"}]},
{"type":"function","name":"nonceBitmap","stateMutability":"view",
 "inputs":[{"name":"owner","type":"address"},{"name":"wordPos","type":"uint256"}],"outputs":[{"type":"uint256"}]},
{"type":"function","name":"PERMIT2","stateMutability":"view","inputs":[],"outputs":[{"type":"address"}]},
{"type":"function","name":"isValidSignature","stateMutability":"view",
 "inputs":[{"name":"hash","type":"bytes32"},{"name":"signature","type":"bytes"}],"outputs":[{"type":"bytes4"}]}
]`)

// transferTopic is the first topic of Transfer(address,address,uint256).
var transferTopic = crypto.Keccak256Hash([]byte("Transfer(address,address,uint256)"))

func mustParse(fragments string) abi.ABI {
	parsed, err := abi.JSON(strings.NewReader(fragments))
	if err != nil {
		panic(err)
	}
	return parsed
}

// pack encodes a call. It panics if the arguments have other types than the
// function, which is an error in this package.
func pack(method string, args ...any) []byte {
	data, err := methods.Pack(method, args...)
	if err != nil {
		panic(err)
	}
	return data
}
