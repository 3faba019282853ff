package evm

import (
	"math/big"
	"strings"

	"boxoffice/internal/payment"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// methods are the functions that this package calls: of the ERC-20 token, of
// Permit2, of the x402 exact proxy, of contract wallets (EIP-1271) and of
// Multicall3.
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
{"type":"function","name":"settle","stateMutability":"nonpayable","inputs":[
 {"name":"permit","type":"tuple","components":[
  {"name":"permitted","type":"tuple","components":[{"name":"token","type":"address"},{"name":"amount","type":"uint256"}]},
  {"name":"nonce","type":"uint256"},{"name":"deadline","type":"uint256"}]},
 {"name":"owner","type":"address"},
 {"name":"witness","type":"tuple","components":[{"name":"to","type":"address"},{"name":"validAfter","type":"uint256"}]},
 {"name":"signature","type":"bytes"}],"outputs":[]},
{"type":"function","name":"isValidSignature","stateMutability":"view",
 "inputs":[{"name":"hash","type":"bytes32"},{"name":"signature","type":"bytes"}],"outputs":[{"type":"bytes4"}]},
{"type":"function","name":"aggregate3","stateMutability":"payable","inputs":[
 {"name":"calls","type":"tuple[]","components":[{"name":"target","type":"address"},{"name":"allowFailure","type":"bool"},
  {"name":"callData","type":"bytes"}]}],
 "outputs":[{"name":"returnData","type":"tuple[]","components":[{"name":"success","type":"bool"},{"name":"returnData","type":"bytes"}]}]}
]`)

// transferTopic is the first topic of Transfer(address,address,uint256).
var transferTopic = crypto.Keccak256Hash([]byte("Transfer(address,address,uint256)"))

// The tuples above, with the field names that the abi package requires.
type (
	tokenPermissions struct {
		Token  common.Address
		Amount *big.Int
	}
	permitTransferFrom struct {
		Permitted tokenPermissions
		Nonce     *big.Int
		Deadline  *big.Int
	}
	witness struct {
		To         common.Address
		ValidAfter *big.Int
	}
	call3 struct {
		Target       common.Address
		AllowFailure bool
		CallData     []byte
	}
	result3 struct {
		Success    bool
		ReturnData []byte
	}
)

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

func packSettle(p payment.Permit) []byte {
	return pack("settle",
		permitTransferFrom{
			Permitted: tokenPermissions{Token: p.Permitted.Token, Amount: p.Permitted.Amount.Big()},
			Nonce:     p.Nonce.Big(),
			Deadline:  p.Deadline.Big(),
		},
		p.From,
		witness{To: p.Witness.To, ValidAfter: p.Witness.ValidAfter.Big()},
		p.Signature,
	)
}

// packAggregate encodes an aggregate3 in which every call may fail.
func packAggregate(calls []call) []byte {
	batch := make([]call3, len(calls))
	for i, call := range calls {
		batch[i] = call3{Target: call.to, AllowFailure: true, CallData: call.data}
	}
	return pack("aggregate3", batch)
}

func unpackAggregate(answer []byte) ([]result3, error) {
	values, err := methods.Unpack("aggregate3", answer)
	if err != nil {
		return nil, err
	}
	return *abi.ConvertType(values[0], new([]result3)).(*[]result3), nil
}
