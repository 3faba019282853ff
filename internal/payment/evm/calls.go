package evm

import (
	"errors"
	"slices"
	"strings"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/rpc"
)

// call is a message call that an eth_call simulates.
type call struct {
	to   common.Address
	data []byte
	gas  uint64 // 0 is the node's limit
}

// callRequest returns an eth_call from the zero address, which needs no coin because
// no gas price is given. If the call names no gas it gets the node's limit.
func callRequest(call call, block string, into *hexutil.Bytes) rpc.BatchElem {
	message := map[string]any{"to": call.to, "input": hexutil.Bytes(call.data)}
	if call.gas > 0 {
		message["gas"] = hexutil.Uint64(call.gas)
	}
	return rpc.BatchElem{Method: "eth_call", Args: []any{message, block}, Result: into}
}

// reverted reports whether an error of a node means that the execution of an eth_call
// failed. Any other error says nothing about the call.
func reverted(err error) bool {
	answer, ok := errors.AsType[rpc.Error](err)
	if !ok {
		return false
	}
	text := strings.ToLower(answer.Error())
	switch answer.ErrorCode() {
	case 3, // geth, and nodes that follow it
		-32015: // OpenEthereum, Nethermind: VM execution error
		return true
	}
	return slices.ContainsFunc(halts, func(words string) bool { return strings.Contains(text, words) })
}

// halts are texts by which nodes without an error code for it say that an
// execution failed.
var halts = []string{
	"revert", "out of gas", "outofgas", "gas uint64 overflow",
	"invalid opcode", "opcodenotfound", "invalidfeopcode", "invalid jump", "invalidjump",
	"stack underflow", "stackunderflow", "stack limit reached", "stackoverflow",
	"write protection", "return data out of bounds", "outofoffset", "max call depth",
}
