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

// Standing says how each permit stands at the newest block and whether settling
// all of them in this order would work for it, in one round trip.
//
// The facts come first in choosing the reason of a failure: a spent nonce, a
// balance or an allowance that is too low, each after what the earlier permits
// take. Any other failure is believed only when the permit fails alone as well,
// with the gas of a transaction of its own, in a second round trip: an owner
// with code can burn the gas of those behind it, and they must not be blamed.
//
// Owners are asked about their approvals in the same round trip. A settle that
// works has to bring the recipient exactly the amount. That is seen only where
// Multicall3 makes the calls in order.
func (c *Chain) Standing(ctx context.Context, permits []payment.Permit, approvals ...payment.Approval) ([]payment.Standing, error) {
	if len(permits) == 0 {
		return nil, nil
	}
	op := fmt.Sprintf("read the standing of %d permits", len(permits))
	type places struct{ balance, allowance, word int }
	var plan reads
	rows := make([]places, len(permits))
	proxy := plan.add(c.cfg.Proxy, pack("PERMIT2"))
	for i, p := range permits {
		rows[i] = places{
			balance:   plan.add(p.Permitted.Token, pack("balanceOf", p.From)),
			allowance: plan.add(p.Permitted.Token, pack("allowance", p.From, c.cfg.Permit2)),
			word:      plan.add(c.cfg.Permit2, packNonceBitmap(p)),
		}
	}
	questions, trials := c.trials(plan.calls, permits)
	asked := len(questions)
	for i, approval := range approvals {
		questions = append(questions, c.approvalCall(permits[i].From, approval))
	}
	codes := make(map[common.Address]*hexutil.Bytes)
	// Asked in the same round trip, it says how far the node is that answers.
	var block hexutil.Uint64
	along := []rpc.BatchElem{{Method: "eth_blockNumber", Result: &block}}
	for _, p := range permits {
		if codes[p.From] == nil {
			codes[p.From] = new(hexutil.Bytes)
			along = append(along, codeRequest(p.From, codes[p.From]))
		}
	}
	outcomes, inOrder, err := c.try(ctx, op, latest, questions, along...)
	if err != nil {
		return nil, err
	}

	// A call of an address without code succeeds: the proxy proves that it is there.
	if err := c.checkProxy(outcomes[proxy]); err != nil {
		return nil, c.fail(op, err)
	}
	standings := make([]payment.Standing, len(permits))
	left := newLedger()
	var doubtful []int
	for i, p := range permits {
		words, err := words(outcomes, rows[i].balance, rows[i].allowance, rows[i].word)
		if err != nil {
			return nil, c.fail(op, fmt.Errorf("token %s, Permit2 %s: balanceOf, allowance or nonceBitmap %w", hexOf(p.Permitted.Token), hexOf(c.cfg.Permit2), err))
		}
		s := &standings[i]
		s.Balance, s.Allowance = amountOf(words[0]), amountOf(words[1])
		s.Spent = bitmap(words[2]).spent(p.Nonce)
		s.Code = len(*codes[p.From]) > 0
		if s.Code && i < len(approvals) {
			if s.Approved, err = approves(outcomes[asked+i]); err != nil {
				return nil, err
			}
		}
		s.Block = uint64(block)
		obstacle := left.obstacle(p, *s, c.cfg.Permit2)
		settled := outcomes[trials[i].settle]
		switch {
		case settled.ok && inOrder:
			known, failure := arrival(p, outcomes[trials[i].before], outcomes[trials[i].after])
			if !known {
				doubtful = append(doubtful, i)
			}
			s.Failure = failure
			left.take(p)
		case settled.ok && obstacle == nil:
			left.take(p)
		case obstacle != nil:
			s.Failure = obstacle
		case inOrder:
			doubtful = append(doubtful, i)
		default:
			s.Failure = c.rejection(settled.data, p, s.Code)
		}
	}
	if len(doubtful) == 0 {
		return standings, nil
	}
	alone := make([]call, len(doubtful))
	for k, i := range doubtful {
		alone[k] = questions[trials[i].settle]
	}
	confirmed, err := c.tryApart(ctx, op, latest, alone, nil)
	if err != nil {
		return nil, err
	}
	for k, i := range doubtful {
		if !confirmed[k].ok {
			standings[i].Failure = c.rejection(confirmed[k].data, permits[i], standings[i].Code)
		}
	}
	return standings, nil
}

// Spent says of each permit whether its nonce was spent as of a block.
func (c *Chain) Spent(ctx context.Context, permits []payment.Permit, block uint64) ([]bool, error) {
	if len(permits) == 0 {
		return nil, nil
	}
	op := fmt.Sprintf("read %d nonces at block %d", len(permits), block)
	var plan reads
	places := make([]int, len(permits))
	for i, p := range permits {
		places[i] = plan.add(c.cfg.Permit2, packNonceBitmap(p))
	}
	outcomes, _, err := c.try(ctx, op, hexutil.EncodeUint64(block), plan.calls)
	if err != nil {
		return nil, err
	}
	spent := make([]bool, len(permits))
	for i, p := range permits {
		word, err := outcomes[places[i]].word()
		if err != nil {
			return nil, c.fail(op, fmt.Errorf("nonceBitmap of Permit2 %s %w", hexOf(c.cfg.Permit2), err))
		}
		spent[i] = bitmap(word).spent(p.Nonce)
	}
	return spent, nil
}

func packNonceBitmap(p payment.Permit) []byte {
	position := wordPosition(p.Nonce)
	return pack("nonceBitmap", p.From, new(big.Int).SetBytes(position[:]))
}

// checkProxy makes sure, by the answer to PERMIT2(), that there is a proxy and
// that it moves money through our Permit2.
func (c *Chain) checkProxy(answer outcome) error {
	word, err := answer.word()
	if err != nil {
		return fmt.Errorf("no x402 exact proxy at %s: PERMIT2() %w", hexOf(c.cfg.Proxy), err)
	}
	if found := common.BytesToAddress(word[:]); found != c.cfg.Permit2 {
		return fmt.Errorf("the proxy %s uses Permit2 %s instead of %s", hexOf(c.cfg.Proxy), hexOf(found), hexOf(c.cfg.Permit2))
	}
	return nil
}

func words(outcomes []outcome, places ...int) ([][32]byte, error) {
	found := make([][32]byte, len(places))
	for k, i := range places {
		word, err := outcomes[i].word()
		if err != nil {
			return nil, err
		}
		found[k] = word
	}
	return found, nil
}

// ledger is what the permits that were looked at so far take from their owners.
type ledger struct {
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

func newLedger() ledger {
	return ledger{taken: make(map[account]*big.Int), spent: make(map[nonce]bool)}
}

func (l ledger) take(p payment.Permit) {
	key := account{p.Permitted.Token, p.From}
	sum := p.Permitted.Amount.Big()
	if before := l.taken[key]; before != nil {
		sum.Add(sum, before)
	}
	l.taken[key] = sum
	l.spent[nonce{p.From, p.Nonce}] = true
}

// obstacle names the fact for which a permit cannot settle behind those that
// were taken, or returns nil.
func (l ledger) obstacle(p payment.Permit, s payment.Standing, permit2 common.Address) *payment.Rejection {
	token, need := hexOf(p.Permitted.Token), p.Permitted.Amount.Big()
	earlier := ""
	if taken := l.taken[account{p.Permitted.Token, p.From}]; taken != nil {
		need.Add(need, taken)
		earlier = fmt.Sprintf(" (%s of it for earlier payments)", taken)
	}
	switch {
	case s.Spent || l.spent[nonce{p.From, p.Nonce}]:
		return &payment.Rejection{Reason: x402.ReasonNonceSpent, Detail: fmt.Sprintf(
			"Permit2 nonce %s of %s is used already; sign again with a free nonce", p.Nonce, hexOf(p.From))}
	case s.Balance.Big().Cmp(need) < 0:
		return &payment.Rejection{Reason: x402.ReasonInsufficientBalance, Detail: fmt.Sprintf(
			"%s holds %s of token %s and needs %s%s, in atomic units", hexOf(p.From), s.Balance, token, need, earlier)}
	// Tokens do not lower an allowance without limit.
	case s.Allowance.Big().Cmp(need) < 0 && s.Allowance.Big().Cmp(math.MaxBig256) != 0:
		return &payment.Rejection{Reason: x402.ReasonAllowanceRequired, Detail: fmt.Sprintf(
			"%s lets Permit2 move %s of token %s and needs %s%s, in atomic units; approve Permit2 (%s) as a spender of the token first",
			hexOf(p.From), s.Allowance, token, need, earlier, hexOf(permit2))}
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
