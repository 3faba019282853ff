package evm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"

	"boxoffice/contracts/settlement"
	"boxoffice/internal/payment"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/rpc"
)

// This file encodes and decodes what the settlement contract, contracts/Settlement.sol,
// takes and returns.

// The bits of the first byte of a batch, and of the first byte of each payment in it.
const (
	withReports byte = 1 << 0
	pairFollows byte = 1 << 5 // token and recipient follow; else they are those of the payment before
	plainForm   byte = 1 << 6 // the owner may have code, and the signature has any length
)

// maxSeconds is the largest time that a batch can hold.
const maxSeconds = 1<<40 - 1

// packBatch encodes a call of the settlement contract, which gives each payment at
// most bound gas.
func packBatch(flags byte, bound uint64, calls []payment.Call) ([]byte, error) {
	batch := binary.BigEndian.AppendUint32([]byte{flags}, uint32(bound))
	batch = binary.BigEndian.AppendUint16(batch, uint16(len(calls)))
	var before account
	for _, call := range calls {
		pair := account{call.Permitted.Token, call.Witness.To}
		var err error
		if batch, err = appendPayment(batch, call, pair != before); err != nil {
			return nil, err
		}
		before = pair
	}
	return settlement.ABI().Pack("settle", batch)
}

// account is the balance of an owner in a token.
type account struct{ token, owner common.Address }

func appendPayment(batch []byte, call payment.Call, newPair bool) ([]byte, error) {
	validAfter, fits := call.Witness.ValidAfter.Uint64()
	deadline, fit := call.Deadline.Uint64()
	if !fits || !fit || validAfter > maxSeconds || deadline > maxSeconds {
		return nil, errors.New("a time in the permit is too far in the future")
	}
	amount := call.Permitted.Amount.Big().Bytes()
	if len(amount) == 0 {
		amount = []byte{0}
	}
	nonce := call.Nonce.Big().Bytes()
	short, _ := compact(call.Signature)
	plain := call.Code || short == nil

	form := byte(len(amount) - 1)
	if newPair {
		form |= pairFollows
	}
	if plain {
		form |= plainForm
	}
	batch = append(batch, form, byte(len(nonce)))
	if newPair {
		batch = append(batch, call.Permitted.Token[:]...)
		batch = append(batch, call.Witness.To[:]...)
	}
	batch = append(batch, amount...)
	for _, seconds := range []uint64{validAfter, deadline} {
		batch = append(batch, binary.BigEndian.AppendUint64(nil, seconds)[3:]...)
	}
	batch = append(batch, call.From[:]...)
	batch = append(batch, nonce...)
	if !plain {
		return append(batch, short...), nil
	}
	batch = binary.BigEndian.AppendUint16(batch, uint16(len(call.Signature)))
	return append(batch, call.Signature...), nil
}

// compact returns a signature of 65 bytes (r, s, v) in the 64 bytes of EIP-2098, which
// puts v into the highest bit of s; nil for another length. canonical is false if that
// changes its meaning: v is neither 27 nor 28, or s uses that bit.
func compact(signature []byte) (short []byte, canonical bool) {
	if len(signature) != 65 {
		return nil, false
	}
	short, v := bytes.Clone(signature[:64]), signature[64]
	canonical = (v == 27 || v == 28) && short[32]&0x80 == 0
	short[32] |= (v - 27) << 7
	return short, canonical
}

// report is what the settlement contract returns about one payment in a simulation.
type report struct {
	Outcome   uint8
	Code      bool     // the owner has code
	Spent     bool     // the nonce is spent
	Balance   *big.Int // of the owner, after the payments before this one
	Allowance *big.Int // of the owner for Permit2, after the payments before this one
	Data      []byte   // of the revert, cut off
}

func (r report) outcome() payment.CallOutcome { return payment.CallOutcome(r.Outcome) }

func unpackReports(answer []byte, n int) ([]report, error) {
	values, err := settlement.ABI().Unpack("settle", answer)
	if err != nil {
		return nil, errors.New("the answer of the settlement contract cannot be decoded")
	}
	reports := *abi.ConvertType(values[0], new([]report)).(*[]report)
	if len(reports) != n {
		return nil, fmt.Errorf("the settlement contract reports %d payments instead of %d", len(reports), n)
	}
	return reports, nil
}

// hasSettlement reports whether the chain has the settlement contract. It asks the
// node until it has.
func (c *Chain) hasSettlement(ctx context.Context) (bool, error) {
	if c.settlement.Load() {
		return true, nil
	}
	var code hexutil.Bytes
	if err := c.request(ctx, "look for the settlement contract",
		codeRequest(settlement.Address, &code)); err != nil {
		return false, err
	}
	return c.checkSettlement(code), nil
}

// checkSettlement reports whether the code is that of the settlement contract.
func (c *Chain) checkSettlement(code []byte) bool {
	found := bytes.Equal(code, settlement.Runtime())
	c.settlement.Store(found)
	return found
}

// settlementCall returns an eth_call of the settlement contract. If the chain does not
// have the contract, the eth_call deploys it first.
func settlementCall(deployed bool, data []byte, gas uint64, block string, into *hexutil.Bytes) rpc.BatchElem {
	if deployed {
		return callRequest(call{to: settlement.Address, data: data, gas: gas}, block, into)
	}
	message := map[string]any{"input": hexutil.Bytes(deployAndCall(settlement.Creation(), data))}
	return rpc.BatchElem{Method: "eth_call", Args: []any{message, block}, Result: into}
}

// deployAndCall returns init code that deploys a contract, calls it and returns what
// the call returned. Init code runs in an eth_call that names no contract.
func deployAndCall(creation, data []byte) []byte {
	const prefix = 39                                                          // bytes before creation
	push2 := func(n int) []byte { return []byte{0x61, byte(n >> 8), byte(n)} } // PUSH2
	return bytes.Join([][]byte{
		push2(len(creation)), push2(prefix), {0x5f, 0x39}, // PUSH0 CODECOPY: the contract's init code
		push2(len(creation)), {0x5f, 0x5f, 0xf0}, // PUSH0 PUSH0 CREATE
		push2(len(data)), push2(prefix + len(creation)), {0x5f, 0x39}, // PUSH0 CODECOPY: the call
		{0x5f, 0x5f}, push2(len(data)), {0x5f, 0x5f}, // the result is copied later; data; value
		{0x85, 0x5a, 0xf1},       // DUP6 GAS CALL
		{0x3d, 0x5f, 0x5f, 0x3e}, // RETURNDATASIZE PUSH0 PUSH0 RETURNDATACOPY
		{0x3d, 0x5f, 0xf3},       // RETURNDATASIZE PUSH0 RETURN
		creation, data,
	}, nil)
}
