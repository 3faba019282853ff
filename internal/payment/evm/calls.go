package evm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"boxoffice"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/rpc"
)

// call is a message call that an eth_call simulates.
type call struct {
	to   common.Address
	data []byte
	gas  uint64 // of a call that settles, without GasBase; 0 for a read
	// separate calls get an eth_call of their own, because they run code of a payer,
	// which could burn the gas of other calls.
	separate bool
}

// callResult is how a call ended: with data, or reverted with data.
type callResult struct {
	ok   bool
	data []byte
	// err is why the node did not answer. It is set only for separate calls, whose
	// result may not be needed. If the node does not answer another call, simulate
	// fails.
	err error
}

// readGas is the gas that a simulated transaction gets for a read. It is no more
// than a read needs, so that the settles get as much gas as in a real transaction. If
// it is too little, the settles fail, and each is simulated again in a call of its
// own.
const readGas = 5_000

// simulate makes calls at a block, in one round trip.
//
//   - If the chain has Multicall3, all calls except the separate ones are in one
//     eth_call. Each call sees the effects of the calls before it: inOrder is true.
//   - If it has none, or the node refuses so large a call, each call is an eth_call of
//     its own, and none sees the effects of another: inOrder is false.
//
// The requests in extra are sent in the same round trip. All of them must succeed.
func (c *Chain) simulate(ctx context.Context, op, block string, calls []call,
	extra ...rpc.BatchElem) (results []callResult, inOrder bool, err error) {
	multicall, err := c.hasMulticall(ctx)
	if err != nil {
		return nil, false, err
	}
	if multicall && len(calls) > 1 {
		results, accepted, err := c.simulateTogether(ctx, op, block, calls, extra)
		if accepted || err != nil {
			return results, true, err
		}
	}
	results, err = c.simulateEach(ctx, op, block, calls, extra)
	return results, false, err
}

// simulateTogether puts all calls except the separate ones into one eth_call of
// Multicall3. accepted is false if the node refuses that eth_call.
func (c *Chain) simulateTogether(ctx context.Context, op, block string, calls []call,
	extra []rpc.BatchElem) (results []callResult, accepted bool, err error) {
	var together []call
	answers := make([]hexutil.Bytes, len(calls)) // of the separate calls
	requests := slices.Clone(extra)
	for i, call := range calls {
		if call.separate {
			requests = append(requests, ownRequest(call, block, &answers[i]))
		} else {
			together = append(together, call)
		}
	}
	var gas uint64 // no limit if all calls only read
	if slices.ContainsFunc(together, func(call call) bool { return call.gas > 0 }) {
		gas = GasBase
		for _, call := range together {
			gas += max(call.gas, readGas)
		}
	}
	var answer hexutil.Bytes
	requests = append(requests, callRequest(call{to: c.cfg.Multicall3, data: packAggregate(together), gas: gas},
		block, &answer))
	if err := c.send(ctx, op, requests); err != nil {
		return nil, false, err
	}
	if err := c.firstError(op, requests[:len(extra)]); err != nil {
		return nil, false, err
	}
	if err := requests[len(requests)-1].Error; err != nil {
		if refused(err) {
			return nil, false, nil
		}
		return nil, false, c.fail(op, err)
	}
	shared, err := unpackAggregate(answer)
	if err != nil || len(shared) != len(together) {
		return nil, false, c.fail(op, errors.New("the answer of Multicall3 cannot be decoded"))
	}
	results = make([]callResult, len(calls))
	own := requests[len(extra):]
	for i, call := range calls {
		if !call.separate {
			results[i] = callResult{ok: shared[0].Success, data: shared[0].ReturnData}
			shared = shared[1:]
			continue
		}
		results[i] = c.readResult(op, own[0].Error, answers[i])
		own = own[1:]
	}
	return results, true, nil
}

// simulateEach makes each call an eth_call of its own.
func (c *Chain) simulateEach(ctx context.Context, op, block string, calls []call,
	extra []rpc.BatchElem) ([]callResult, error) {
	answers := make([]hexutil.Bytes, len(calls))
	requests := slices.Clone(extra)
	for i, call := range calls {
		requests = append(requests, ownRequest(call, block, &answers[i]))
	}
	if err := c.send(ctx, op, requests); err != nil {
		return nil, err
	}
	if err := c.firstError(op, requests[:len(extra)]); err != nil {
		return nil, err
	}
	results := make([]callResult, len(calls))
	for i, request := range requests[len(extra):] {
		results[i] = c.readResult(op, request.Error, answers[i])
		if err := results[i].err; err != nil && !calls[i].separate {
			return nil, err
		}
	}
	return results, nil
}

// ownRequest is callRequest for a call that is not part of a Multicall3 call: it gets
// GasBase on top of its gas, as a transaction does.
func ownRequest(call call, block string, into *hexutil.Bytes) rpc.BatchElem {
	if call.gas > 0 {
		call.gas += GasBase
	}
	return callRequest(call, block, into)
}

// readResult reads the answer to an eth_call that held one call.
func (c *Chain) readResult(op string, refusal error, answer []byte) callResult {
	if refusal == nil {
		return callResult{ok: true, data: answer}
	}
	data, reverted := revertData(refusal)
	if !reverted {
		return callResult{err: c.fail(op, refusal)}
	}
	return callResult{data: data}
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

// revertData reports whether an error of a node means that the execution of an
// eth_call failed, and returns the revert data. Any other error says nothing about
// the call.
func revertData(err error) (data []byte, reverted bool) {
	answer, ok := errors.AsType[rpc.Error](err)
	if !ok {
		return nil, false
	}
	text := strings.ToLower(answer.Error())
	switch code := answer.ErrorCode(); {
	case code == 3: // geth, and nodes that follow it
	case code == -32015: // OpenEthereum, Nethermind: VM execution error
	case slices.ContainsFunc(halts, func(words string) bool { return strings.Contains(text, words) }):
	default:
		return nil, false
	}
	if withData, ok := errors.AsType[rpc.DataError](err); ok {
		data = findHex(withData.ErrorData())
	}
	return data, true
}

// halts are texts by which nodes without an error code for it say that an
// execution failed.
var halts = []string{
	"revert", "out of gas", "outofgas", "gas uint64 overflow",
	"invalid opcode", "opcodenotfound", "invalidfeopcode", "invalid jump", "invalidjump",
	"stack underflow", "stackunderflow", "stack limit reached", "stackoverflow",
	"write protection", "return data out of bounds", "outofoffset", "max call depth",
}

// findHex returns the revert data in the error data of a node, which is hex, hex
// after other text, or an object with one of these.
func findHex(v any) []byte {
	switch v := v.(type) {
	case string:
		if i := strings.Index(v, "0x"); i >= 0 {
			data, err := hexutil.Decode(v[i:])
			if err == nil {
				return data
			}
		}
	case map[string]any:
		for _, name := range []string{"data", "result"} {
			if data := findHex(v[name]); data != nil {
				return data
			}
		}
	}
	return nil
}

// reads collects calls that only read, each of them once.
type reads struct {
	calls []call
	index map[string]int
}

// add returns the index that the result of the read will have.
func (r *reads) add(to common.Address, data []byte) int {
	key := string(to[:]) + string(data)
	if i, ok := r.index[key]; ok {
		return i
	}
	if r.index == nil {
		r.index = make(map[string]int)
	}
	r.index[key] = len(r.calls)
	r.calls = append(r.calls, call{to: to, data: data})
	return r.index[key]
}

// word returns the one ABI word of 32 bytes that a read returned. An address
// without code returns no bytes.
func (r callResult) word() (word [32]byte, err error) {
	switch {
	case !r.ok:
		return word, errors.New("reverted")
	case len(r.data) != len(word):
		return word, fmt.Errorf("answered %d bytes instead of %d", len(r.data), len(word))
	}
	return [32]byte(r.data), nil
}

// bitmap is a word of the nonceBitmap of Permit2: 256 nonces, one bit each.
type bitmap [32]byte

// wordPosition returns which word of the nonceBitmap has the bit of a nonce.
func wordPosition(nonce boxoffice.Amount) [32]byte {
	n := nonce.Bytes32()
	var position [32]byte
	copy(position[1:], n[:31])
	return position
}

// spent reports whether the bit of nonce is set in its word.
func (b bitmap) spent(nonce boxoffice.Amount) bool {
	n := nonce.Bytes32()
	bit := n[31]
	return b[31-bit/8]&(1<<(bit%8)) != 0
}
