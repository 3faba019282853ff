package evm

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"boxoffice/contracts/settlement"
	"boxoffice/internal/payment"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/rpc"
)

// Standing implements payment.Standings. It simulates the call of the settlement
// contract that settles all permits in the given order, and asks the owners about the
// approvals in the same round trip. If the node gives the simulation too little gas for
// all permits, or refuses it, it asks again for fewer of them: the permits after these
// are then simulated without the effects of those before.
func (c *Chain) Standing(ctx context.Context, permits []payment.Permit,
	approvals ...payment.Approval) ([]payment.Standing, error) {
	op := fmt.Sprintf("read the standing of %d permits", len(permits))
	var standings []payment.Standing
	for most := len(permits); len(standings) < len(permits); {
		done := len(standings)
		end := min(done+most, len(permits))
		own := approvals[min(done, len(approvals)):min(end, len(approvals))]
		simulated, err := c.simulate(ctx, op, permits[done:end], own)
		switch {
		case errors.Is(err, payment.ErrRefused) && most > 1:
			most /= 2
		case err != nil:
			return nil, err
		default:
			standings = append(standings, simulated...)
			most = len(simulated)
		}
	}
	return standings, nil
}

// simulate returns the standings of the first permits, as many as the node's gas was
// enough for: at least one.
func (c *Chain) simulate(ctx context.Context, op string, permits []payment.Permit,
	approvals []payment.Approval) ([]payment.Standing, error) {
	deployed, err := c.hasSettlement(ctx)
	if err != nil {
		return nil, err
	}
	calls := make([]payment.Call, len(permits))
	for i, p := range permits {
		calls[i] = payment.Call{Permit: p, Code: true} // whether it has code is asked here
	}
	data, err := packBatch(withReports, c.cfg.GasPerSettle, calls)
	if err != nil {
		return nil, c.fail(op, err)
	}
	var (
		head    hexutil.Uint64
		answer  hexutil.Bytes
		answers = make([]hexutil.Bytes, len(approvals))
		gas     = c.cfg.batchGas(len(calls), len(data)) + reportReserve + uint64(len(calls))*reportGas
	)
	requests := []rpc.BatchElem{
		{Method: "eth_blockNumber", Result: &head},
		settlementCall(deployed, data, gas, latest, &answer),
	}
	for i, approval := range approvals {
		requests = append(requests, callRequest(c.approvalCall(permits[i].From, approval), latest, &answers[i]))
	}
	if err := c.send(ctx, op, requests); err != nil {
		return nil, err
	}
	if err := c.firstError(op, requests[:2]); err != nil {
		return nil, err
	}
	reports, err := unpackReports(answer, len(permits))
	if err != nil {
		return nil, c.fail(op, err)
	}
	if n := slices.IndexFunc(reports, func(r report) bool { return r.outcome() == payment.NotTried }); n == 0 {
		return nil, c.fail(op, errors.New("the node gives an eth_call too little gas to simulate a payment"))
	} else if n > 0 {
		reports = reports[:n]
	}
	standings := make([]payment.Standing, len(reports))
	for i, r := range reports {
		if standings[i], err = c.standing(permits[i], r); err != nil {
			return nil, c.fail(op, err)
		}
		standings[i].Block = uint64(head)
		if r.Code && i < len(approvals) {
			standings[i].Approved, err = c.approves(op, requests[2+i].Error, answers[i])
			if err != nil {
				return nil, err
			}
		}
	}
	return standings, nil
}

// The gas that a simulation gets to report balance, allowance and nonce: what the
// contract keeps in reserve for the reads of one payment, and what they cost for each.
const reportReserve, reportGas = 400_000, 60_000

// standing returns what a report means.
func (c *Chain) standing(p payment.Permit, r report) (payment.Standing, error) {
	balance, errBalance := x402.Uint256FromBig(r.Balance)
	allowance, errAllowance := x402.Uint256FromBig(r.Allowance)
	return payment.Standing{
		Balance: balance, Allowance: allowance, Spent: r.Spent, Code: r.Code, Failure: c.rejection(p, r),
	}, errors.Join(errBalance, errAllowance)
}

// Spent returns for each permit whether its nonce was spent as of a block.
func (c *Chain) Spent(ctx context.Context, permits []payment.Permit, block uint64) ([]bool, error) {
	if len(permits) == 0 {
		return nil, nil
	}
	op := fmt.Sprintf("read %d nonces at block %d", len(permits), block)
	words, err := c.nonces(ctx, op, permits, block)
	if err != nil {
		return nil, err
	}
	spent := make([]bool, len(permits))
	for i, p := range permits {
		spent[i] = words[i].Bit(int(p.Nonce.Bytes32()[31])) == 1
	}
	return spent, nil
}

// nonces returns the word of Permit2's nonceBitmap that has the nonce of each permit.
// The settlement contract reads them all in one eth_call. Before it was deployed, and
// where it is not, each is an eth_call of Permit2.
func (c *Chain) nonces(ctx context.Context, op string, permits []payment.Permit, block uint64) ([]*big.Int, error) {
	var asked []byte
	for _, p := range permits {
		asked = append(asked, p.From[:]...)
		asked = append(asked, wordPosition(p)...)
	}
	at := hexutil.EncodeUint64(block)
	data, err := settlement.ABI().Pack("nonces", asked)
	if err != nil {
		return nil, c.fail(op, err)
	}
	var answer hexutil.Bytes
	if err := c.request(ctx, op, callRequest(call{to: settlement.Address, data: data}, at, &answer)); err != nil {
		return nil, err
	}
	if values, err := settlement.ABI().Unpack("nonces", answer); err == nil {
		if words := values[0].([]*big.Int); len(words) == len(permits) {
			return words, nil
		}
	}
	answers := make([]hexutil.Bytes, len(permits))
	requests := make([]rpc.BatchElem, len(permits))
	for i, p := range permits {
		data := pack("nonceBitmap", p.From, new(big.Int).SetBytes(wordPosition(p)))
		requests[i] = callRequest(call{to: x402.Permit2, data: data}, at, &answers[i])
	}
	if err := c.request(ctx, op, requests...); err != nil {
		return nil, err
	}
	words := make([]*big.Int, len(permits))
	for i, answer := range answers {
		if len(answer) != 32 {
			return nil, c.fail(op, fmt.Errorf("nonceBitmap of Permit2 %s answered %d bytes instead of 32",
				hexOf(x402.Permit2), len(answer)))
		}
		words[i] = new(big.Int).SetBytes(answer)
	}
	return words, nil
}

// wordPosition returns which word of the nonceBitmap has the nonce of a permit: 256
// nonces share a word.
func wordPosition(p payment.Permit) []byte {
	nonce := p.Nonce.Bytes32()
	return append(make([]byte, 1, 32), nonce[:31]...)
}

// checkProxy fails unless the answer to PERMIT2() shows that the x402 exact proxy is
// there and moves money through the canonical Permit2.
func checkProxy(answer []byte) error {
	if len(answer) != 32 {
		return fmt.Errorf("no x402 exact proxy at %s: PERMIT2() answered %d bytes instead of 32",
			hexOf(x402.ExactProxy), len(answer))
	}
	if found := common.BytesToAddress(answer); found != x402.Permit2 {
		return fmt.Errorf("the proxy %s uses Permit2 %s instead of %s", hexOf(x402.ExactProxy), hexOf(found),
			hexOf(x402.Permit2))
	}
	return nil
}
