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

// call is a message call that is only tried.
type call struct {
	to   common.Address
	data []byte
	gas  uint64 // what a settle is given, beside GasBase; 0 for a read
	// alone keeps a call from sharing the gas of the others: it runs a
	// stranger's code for its own sake.
	alone bool
}

// outcome is how a call ended: with an answer, or reverted with data.
type outcome struct {
	ok   bool
	data []byte
	// trouble is why the node did not answer. A call that is alone has it here,
	// since whoever asked may do without the answer.
	trouble error
}

// readGas is what a call that also settles holds for a read. It is no more than
// a read takes, so that the settles have what their transaction would give them
// and not more; where it is too little they fail, and are tried alone.
const readGas = 5_000

// try makes calls in one round trip at a block. With Multicall3 they are one
// eth_call: made in order at the same state, each seeing what those before it
// did (inOrder), but for those that are to be alone. Where the chain has none,
// or the node will not make so large a call, each is an eth_call of its own.
// Further requests go along, before the calls; all of them must be answered.
func (c *Chain) try(ctx context.Context, op, block string, calls []call, along ...rpc.BatchElem) (outcomes []outcome, inOrder bool, err error) {
	batches, err := c.hasMulticall(ctx)
	if err != nil {
		return nil, false, err
	}
	if batches && len(calls) > 1 {
		outcomes, answered, err := c.tryTogether(ctx, op, block, calls, along)
		if answered || err != nil {
			return outcomes, true, err
		}
	}
	outcomes, err = c.tryApart(ctx, op, block, calls, along)
	return outcomes, false, err
}

func (c *Chain) tryTogether(ctx context.Context, op, block string, calls []call, along []rpc.BatchElem) (outcomes []outcome, answered bool, err error) {
	var together []call
	answers := make([]hexutil.Bytes, len(calls)) // of those that are alone
	requests := slices.Clone(along)
	for i, call := range calls {
		if call.alone {
			requests = append(requests, aloneRequest(call, block, &answers[i]))
		} else {
			together = append(together, call)
		}
	}
	var gas uint64 // without a limit for calls that only read
	if slices.ContainsFunc(together, func(call call) bool { return call.gas > 0 }) {
		gas = GasBase
		for _, call := range together {
			gas += max(call.gas, readGas)
		}
	}
	var answer hexutil.Bytes
	requests = append(requests, callRequest(call{to: c.cfg.Multicall3, data: packAggregate(together), gas: gas}, block, &answer))
	if err := c.round(ctx, op, requests); err != nil {
		return nil, false, err
	}
	if err := c.answered(op, requests[:len(along)]); err != nil {
		return nil, false, err
	}
	if err := requests[len(requests)-1].Error; err != nil {
		if refused(err) {
			return nil, false, nil
		}
		return nil, false, c.fail(op, err)
	}
	results, err := unpackAggregate(answer)
	if err != nil || len(results) != len(together) {
		return nil, false, c.fail(op, errors.New("the answer of Multicall3 cannot be decoded"))
	}
	outcomes = make([]outcome, len(calls))
	apart := requests[len(along):]
	for i, call := range calls {
		if !call.alone {
			outcomes[i] = outcome{ok: results[0].Success, data: results[0].ReturnData}
			results = results[1:]
			continue
		}
		outcomes[i] = c.outcome(op, apart[0].Error, answers[i])
		apart = apart[1:]
	}
	return outcomes, true, nil
}

func (c *Chain) tryApart(ctx context.Context, op, block string, calls []call, along []rpc.BatchElem) ([]outcome, error) {
	answers := make([]hexutil.Bytes, len(calls))
	requests := slices.Clone(along)
	for i, call := range calls {
		requests = append(requests, aloneRequest(call, block, &answers[i]))
	}
	if err := c.round(ctx, op, requests); err != nil {
		return nil, err
	}
	if err := c.answered(op, requests[:len(along)]); err != nil {
		return nil, err
	}
	outcomes := make([]outcome, len(calls))
	for i, request := range requests[len(along):] {
		outcomes[i] = c.outcome(op, request.Error, answers[i])
		if err := outcomes[i].trouble; err != nil && !calls[i].alone {
			return nil, err
		}
	}
	return outcomes, nil
}

// aloneRequest is callRequest for a call that has a transaction's base gas to
// itself.
func aloneRequest(call call, block string, into *hexutil.Bytes) rpc.BatchElem {
	if call.gas > 0 {
		call.gas += GasBase
	}
	return callRequest(call, block, into)
}

// outcome reads the answer to an eth_call of its own.
func (c *Chain) outcome(op string, refusal error, answer []byte) outcome {
	if refusal == nil {
		return outcome{ok: true, data: answer}
	}
	data, reverted := revertData(refusal)
	if !reverted {
		return outcome{trouble: c.fail(op, refusal)}
	}
	return outcome{data: data}
}

// callRequest makes an eth_call from the zero address, which needs no money
// where no gas price is named. The gas limit is the node's if the call has none.
func callRequest(call call, block string, into *hexutil.Bytes) rpc.BatchElem {
	message := map[string]any{"to": call.to, "input": hexutil.Bytes(call.data)}
	if call.gas > 0 {
		message["gas"] = hexutil.Uint64(call.gas)
	}
	return rpc.BatchElem{Method: "eth_call", Args: []any{message, block}, Result: into}
}

// revertData reports whether a node's refusal of an eth_call says that the
// execution failed, and with what data. Anything else is trouble of the node.
func revertData(err error) (data []byte, reverted bool) {
	answer, ok := errors.AsType[rpc.Error](err)
	if !ok {
		return nil, false
	}
	text := strings.ToLower(answer.Error())
	switch code := answer.ErrorCode(); {
	case code == 3: // geth and those who follow it
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

// halts are the words of nodes for an execution that failed by itself, where
// they have no code for it.
var halts = []string{
	"revert", "out of gas", "outofgas", "gas uint64 overflow",
	"invalid opcode", "opcodenotfound", "invalidfeopcode", "invalid jump", "invalidjump",
	"stack underflow", "stackunderflow", "stack limit reached", "stackoverflow",
	"write protection", "return data out of bounds", "outofoffset", "max call depth",
}

// findHex takes the revert data out of the error data of a node: hex, hex
// after a word, or an object that holds one of them.
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

// reads collects calls that only read, each once.
type reads struct {
	calls []call
	index map[string]int
}

// add returns the place of the read's outcome.
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

// word returns the one ABI word that a read answered. A contract that is not
// there answers nothing.
func (o outcome) word() (word [32]byte, err error) {
	switch {
	case !o.ok:
		return word, errors.New("reverted")
	case len(o.data) != len(word):
		return word, fmt.Errorf("answered %d bytes instead of %d", len(o.data), len(word))
	}
	return [32]byte(o.data), nil
}

// bitmap is a word of Permit2's nonceBitmap.
type bitmap [32]byte

// wordPosition returns the bitmap word in which a nonce has its bit.
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
