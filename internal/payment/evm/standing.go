package evm

import (
	"context"
	"fmt"
	"math/big"

	"boxoffice"
	"boxoffice/internal/payment"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/common/math"
	"github.com/ethereum/go-ethereum/rpc"
)

// standingPlan has everything that Standing asks in its first round trip, and the
// position of each result.
type standingPlan struct {
	calls     []call
	extra     []rpc.BatchElem // beside the calls: the newest block, and the code of each owner
	proxy     int
	reads     []permitReads // one for each permit
	settles   []settleCalls // one for each permit
	approvals int           // position of the first approval's result; the i-th is for the i-th permit

	block hexutil.Uint64 // the newest block of the node that answers
	codes map[common.Address]*hexutil.Bytes
}

type permitReads struct{ balance, allowance, bitmap int }

func (c *Chain) planStanding(permits []payment.Permit, approvals []payment.Approval) *standingPlan {
	plan := &standingPlan{reads: make([]permitReads, len(permits)), codes: make(map[common.Address]*hexutil.Bytes)}
	var once reads // balances and nonces that several permits need are read once
	plan.proxy = once.add(x402.ExactProxy, pack("PERMIT2"))
	for i, p := range permits {
		plan.reads[i] = permitReads{
			balance:   once.add(p.Permitted.Token, pack("balanceOf", p.From)),
			allowance: once.add(p.Permitted.Token, pack("allowance", p.From, x402.Permit2)),
			bitmap:    once.add(x402.Permit2, packNonceBitmap(p)),
		}
	}
	plan.calls, plan.settles = c.addSettles(once.calls, permits)
	plan.approvals = len(plan.calls)
	for i, approval := range approvals {
		plan.calls = append(plan.calls, c.approvalCall(permits[i].From, approval))
	}
	plan.extra = []rpc.BatchElem{{Method: "eth_blockNumber", Result: &plan.block}}
	for _, p := range permits {
		if plan.codes[p.From] == nil {
			plan.codes[p.From] = new(hexutil.Bytes)
			plan.extra = append(plan.extra, codeRequest(p.From, plan.codes[p.From]))
		}
	}
	return plan
}

// Standing implements payment.Standings. In one round trip it reads nonce, balance,
// allowance and code, asks the owners about the approvals, and simulates that all
// permits settle in the given order. It fails a permit
//
//  1. if its settle works but does not bring the recipient exactly the amount. Only a
//     simulation by Multicall3 can check this;
//  2. if its settle reverts and its nonce is spent, or its owner's balance or allowance
//     is too low after what the permits before it take;
//  3. if its settle reverts for another reason. After a simulation by Multicall3 this
//     may be wrong, because an owner with code can burn the gas of the permits after
//     it. So a second round trip simulates each of these settles in a call of its own,
//     and only that result counts.
//
// Without Multicall3 each settle is simulated at the same state, so an obstacle
// fails a permit also if its settle works.
func (c *Chain) Standing(ctx context.Context, permits []payment.Permit,
	approvals ...payment.Approval) ([]payment.Standing, error) {
	if len(permits) == 0 {
		return nil, nil
	}
	op := fmt.Sprintf("read the standing of %d permits", len(permits))
	plan := c.planStanding(permits, approvals)
	results, inOrder, err := c.simulate(ctx, op, latest, plan.calls, plan.extra...)
	if err != nil {
		return nil, err
	}
	// A call of an address without code succeeds, so that the settles work does not prove
	// that the proxy is there.
	if err := checkProxy(results[plan.proxy]); err != nil {
		return nil, c.fail(op, err)
	}
	standings := make([]payment.Standing, len(permits))
	earlier := newEarlierPermits()
	var again []int // permits whose settle is simulated again
	for i, p := range permits {
		s := &standings[i]
		if err := plan.read(i, p, results, s); err != nil {
			return nil, c.fail(op, err)
		}
		if s.Code && i < len(approvals) {
			if s.Approved, err = approves(results[plan.approvals+i]); err != nil {
				return nil, err
			}
		}
		obstacle := earlier.obstacle(p, *s)
		settle := results[plan.settles[i].settle]
		switch {
		case settle.ok && inOrder:
			known, failure := checkExact(p, results[plan.settles[i].before], results[plan.settles[i].after])
			if !known {
				again = append(again, i)
			}
			s.Failure = failure
			earlier.add(p)
		case settle.ok && obstacle == nil:
			earlier.add(p)
		case obstacle != nil:
			s.Failure = obstacle
		case inOrder:
			again = append(again, i)
		default:
			s.Failure = c.rejection(settle.data, p, s.Code)
		}
	}
	if len(again) == 0 {
		return standings, nil
	}
	settles := make([]call, len(again))
	for k, i := range again {
		settles[k] = plan.calls[plan.settles[i].settle]
	}
	own, err := c.simulateEach(ctx, op, latest, settles, nil)
	if err != nil {
		return nil, err
	}
	for k, i := range again {
		if !own[k].ok {
			standings[i].Failure = c.rejection(own[k].data, permits[i], standings[i].Code)
		}
	}
	return standings, nil
}

// read fills in what was read of the i-th permit, without its simulation.
func (plan *standingPlan) read(i int, p payment.Permit, results []callResult, into *payment.Standing) error {
	var words [3][32]byte
	for k, at := range []int{plan.reads[i].balance, plan.reads[i].allowance, plan.reads[i].bitmap} {
		var err error
		if words[k], err = results[at].word(); err != nil {
			return fmt.Errorf("token %s, Permit2 %s: balanceOf, allowance or nonceBitmap %w",
				hexOf(p.Permitted.Token), hexOf(x402.Permit2), err)
		}
	}
	into.Balance, into.Allowance = amountOf(words[0]), amountOf(words[1])
	into.Spent = bitmap(words[2]).spent(p.Nonce)
	into.Code = len(*plan.codes[p.From]) > 0
	into.Block = uint64(plan.block)
	return nil
}

// Spent returns for each permit whether its nonce was spent as of a block.
func (c *Chain) Spent(ctx context.Context, permits []payment.Permit, block uint64) ([]bool, error) {
	if len(permits) == 0 {
		return nil, nil
	}
	op := fmt.Sprintf("read %d nonces at block %d", len(permits), block)
	var once reads
	places := make([]int, len(permits))
	for i, p := range permits {
		places[i] = once.add(x402.Permit2, packNonceBitmap(p))
	}
	results, _, err := c.simulate(ctx, op, hexutil.EncodeUint64(block), once.calls)
	if err != nil {
		return nil, err
	}
	spent := make([]bool, len(permits))
	for i, p := range permits {
		word, err := results[places[i]].word()
		if err != nil {
			return nil, c.fail(op, fmt.Errorf("nonceBitmap of Permit2 %s %w", hexOf(x402.Permit2), err))
		}
		spent[i] = bitmap(word).spent(p.Nonce)
	}
	return spent, nil
}

func packNonceBitmap(p payment.Permit) []byte {
	position := wordPosition(p.Nonce)
	return pack("nonceBitmap", p.From, new(big.Int).SetBytes(position[:]))
}

// checkProxy fails unless the result of PERMIT2() shows that the x402 exact proxy is
// there and moves money through the canonical Permit2.
func checkProxy(result callResult) error {
	word, err := result.word()
	if err != nil {
		return fmt.Errorf("no x402 exact proxy at %s: PERMIT2() %w", hexOf(x402.ExactProxy), err)
	}
	if found := common.BytesToAddress(word[:]); found != x402.Permit2 {
		return fmt.Errorf("the proxy %s uses Permit2 %s instead of %s", hexOf(x402.ExactProxy), hexOf(found),
			hexOf(x402.Permit2))
	}
	return nil
}

// earlierPermits sums up what the permits before the next one take from their owners:
// amounts and nonces.
type earlierPermits struct {
	taken map[account]*big.Int
	spent map[nonce]bool
}

type (
	account struct{ token, owner common.Address }
	nonce   struct {
		owner common.Address
		value boxoffice.Amount
	}
)

func newEarlierPermits() earlierPermits {
	return earlierPermits{taken: make(map[account]*big.Int), spent: make(map[nonce]bool)}
}

func (e earlierPermits) add(p payment.Permit) {
	key := account{p.Permitted.Token, p.From}
	sum := p.Permitted.Amount.Big()
	if before := e.taken[key]; before != nil {
		sum.Add(sum, before)
	}
	e.taken[key] = sum
	e.spent[nonce{p.From, p.Nonce}] = true
}

// obstacle returns why a permit cannot settle after the earlier ones, by nonce,
// balance and allowance; nil if these allow it.
func (e earlierPermits) obstacle(p payment.Permit, s payment.Standing) *payment.Rejection {
	token, need := hexOf(p.Permitted.Token), p.Permitted.Amount.Big()
	earlier := ""
	if taken := e.taken[account{p.Permitted.Token, p.From}]; taken != nil {
		need.Add(need, taken)
		earlier = fmt.Sprintf(" (%s of it for earlier payments)", taken)
	}
	switch {
	case s.Spent || e.spent[nonce{p.From, p.Nonce}]:
		return &payment.Rejection{Reason: x402.ReasonNonceSpent, Detail: fmt.Sprintf(
			"Permit2 nonce %s of %s is used already; sign again with a free nonce", p.Nonce, hexOf(p.From))}
	case s.Balance.Big().Cmp(need) < 0:
		return &payment.Rejection{Reason: x402.ReasonInsufficientBalance, Detail: fmt.Sprintf(
			"%s holds %s of token %s and needs %s%s, in atomic units", hexOf(p.From), s.Balance, token, need, earlier)}
	// Tokens do not lower an allowance of 2²⁵⁶ - 1, so earlier permits take nothing of it.
	case s.Allowance.Big().Cmp(need) < 0 && s.Allowance.Big().Cmp(math.MaxBig256) != 0:
		return &payment.Rejection{Reason: x402.ReasonAllowanceRequired, Detail: fmt.Sprintf(
			"%s lets Permit2 move %s of token %s and needs %s%s, in atomic units; approve Permit2 (%s) as a "+
				"spender of the token first",
			hexOf(p.From), s.Allowance, token, need, earlier, hexOf(x402.Permit2))}
	}
	return nil
}

func amountOf(word [32]byte) boxoffice.Amount {
	n, err := amount(new(big.Int).SetBytes(word[:]))
	if err != nil { // 32 bytes always fit
		panic(err)
	}
	return n
}
