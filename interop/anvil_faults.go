package main

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"time"

	"boxoffice"
	"boxoffice/client"
	"boxoffice/contracts"
	"boxoffice/internal/server"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/params"
)

// fault is something that happens on Anvil while a payment is settled. Blocks are made only when the test says so.
type fault struct {
	what, result string
	change       func(*server.Config)
	cause        func(ctx context.Context, s *service) error
}

const milliseconds = server.Duration(time.Millisecond)

func confirmations(blocks uint64) func(*server.Config) {
	return func(c *server.Config) { c.Chain.Confirmations = blocks }
}

// faults buys during each fault and checks that the payment is settled once.
func (a *anvil) faults(ctx context.Context) (rows []row, err error) {
	token, err := a.token(ctx, "PlainToken", 2)
	if err != nil {
		return nil, err
	}
	for _, f := range []fault{
		{
			"the pool drops the transaction, then all transactions",
			"sent again, " + admitted, confirmations(2), dropped,
		},
		{
			"a reorganisation before the confirmations removes the transaction",
			"sent again, " + admitted, confirmations(3), reorganised,
		},
		{
			"a reorganisation before the confirmations moves the transaction to a later block",
			"found there, " + admitted, confirmations(3), moved,
		},
		{
			"the chain is rolled back to the block before the transaction",
			"sent again, " + admitted, confirmations(3), rolledBack,
		},
		{
			"a reorganisation deeper than the confirmations removes the transaction",
			"the order stays admitted and is settled again, exactly one transfer", func(c *server.Config) {
				c.Chain.Confirmations, c.Settlement.Recheck = 1, 100*milliseconds
			}, removedLate,
		},
		{
			"somebody else settles the payment with Multicall3 before us",
			"found there, " + admitted, confirmations(2), overtaken,
		},
		{
			"the base fee rises to 20 times the transaction's maximum",
			"replaced by one with a higher fee, " + admitted, func(c *server.Config) {
				c.Settlement.BumpAfter = 200 * milliseconds
			}, outbid,
		},
		{
			"the base fee rises above `max_fee_per_gas`",
			"no payment is accepted (503) until it falls, then " + admitted + " each", func(c *server.Config) {
				c.Settlement.BumpAfter, c.Settlement.Recheck = 200*milliseconds, 100*milliseconds
				c.Settlement.MaxFeePerGas = 50 * params.GWei
			}, unaffordable,
		},
	} {
		err := a.byHand(ctx, func() error {
			return a.serve(ctx, token, 18, f.change, func(s *service) error { return f.cause(ctx, s) })
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.what, err)
		}
		rows = append(rows, row{a.version, a.plain, f.what, f.result})
	}
	return rows, nil
}

// byHand runs do while Anvil makes blocks only in mine. Then Anvil mines every transaction immediately again.
func (a *anvil) byHand(ctx context.Context, do func() error) error {
	if err := a.call(ctx, nil, "evm_setAutomine", false); err != nil {
		return err
	}
	return errors.Join(a.setBaseFee(ctx, params.GWei), a.mine(ctx, 1), do(), a.everySecond(ctx, false))
}

func (a *anvil) setBaseFee(ctx context.Context, wei int64) error {
	return a.call(ctx, nil, "anvil_setNextBlockBaseFeePerGas", (*hexutil.Big)(big.NewInt(wei)))
}

// sold is a purchase that runs in a goroutine.
type sold struct {
	buyer  *client.Client
	call   []byte        // of the proxy that settles the payment; only from startSigned
	over   chan struct{} // closed when status and err are set
	status boxoffice.Status
	err    error
}

// start makes a payer buy in a goroutine.
func (s *service) start(ctx context.Context, payer int) *sold {
	buyer, err := s.buyer(payer)
	if err != nil {
		p := &sold{over: make(chan struct{}), err: err}
		close(p.over)
		return p
	}
	return buy(ctx, buyer)
}

func buy(ctx context.Context, buyer *client.Client) *sold {
	p := &sold{buyer: buyer, over: make(chan struct{})}
	go func() {
		p.status, p.err = buyer.Buy(ctx, newPurchase())
		close(p.over)
	}()
	return p
}

// finish makes blocks until the purchases are complete, and checks their transfers and those of earlier purchases.
func (s *service) finish(ctx context.Context, purchases ...*sold) error {
	for _, p := range purchases {
		err := until(ctx, "a purchase", func() (bool, error) {
			select {
			case <-p.over:
				return true, p.err
			default:
				return false, s.mine(ctx, 1)
			}
		})
		if err != nil {
			return err
		}
		s.finished = append(s.finished, p.status)
	}
	return s.prove(ctx, s.finished...)
}

// sentTx is a transaction of the settlement wallet.
type sentTx struct {
	Hash   common.Hash    `json:"hash"`
	Block  *hexutil.Big   `json:"blockNumber"` // nil in the pool
	FeeCap hexutil.Uint64 `json:"maxFeePerGas"`
}

// pooled waits until the wallet's next transaction is in the pool and has another hash than other.
func (s *service) pooled(ctx context.Context, other common.Hash) (found sentTx, err error) {
	next, err := s.NonceAt(ctx, s.wallet, nil)
	if err != nil {
		return found, err
	}
	err = until(ctx, "the settlement to be in the pool", func() (bool, error) {
		found = sentTx{}
		err := s.call(ctx, &found, "eth_getTransactionBySenderAndNonce", s.wallet, hexutil.Uint64(next))
		return found.Hash != common.Hash{} && found.Hash != other && found.Block == nil, err
	})
	return found, err
}

// mined waits until the settlement is in the pool and makes a block with it.
func (s *service) mined(ctx context.Context) (sentTx, error) {
	sent, err := s.pooled(ctx, common.Hash{})
	if err != nil {
		return sent, err
	}
	if err := s.mine(ctx, 1); err != nil {
		return sent, err
	}
	receipt, err := s.TransactionReceipt(ctx, sent.Hash)
	if err != nil {
		return sent, err
	}
	head, err := s.BlockNumber(ctx)
	if err == nil && receipt.BlockNumber.Uint64() != head {
		err = fmt.Errorf("the settlement is in block %d, the newest is %d", receipt.BlockNumber, head)
	}
	return sent, err
}

// overtaken settles the payment in a transaction of somebody else, in the block of ours and before it.
func overtaken(ctx context.Context, s *service) error {
	purchase, err := s.startSigned(ctx, nil, 0)
	if err != nil {
		return err
	}
	sent, err := s.pooled(ctx, common.Hash{})
	if err != nil {
		return err
	}
	call, err := contracts.AggregateCall(purchase.call)
	if err != nil {
		return err
	}
	theirs, err := s.overtake(ctx, contracts.Multicall3Address, call)
	if err != nil {
		return err
	}
	if err := s.finish(ctx, purchase); err != nil {
		return err
	}
	if got := *purchase.status.Payment.TransactionHash; got != theirs {
		return fmt.Errorf("the order names transaction %s, not %s", got, theirs)
	}
	receipt, err := s.TransactionReceipt(ctx, sent.Hash)
	if err == nil && receipt.BlockNumber.Uint64() != *purchase.status.Payment.BlockNumber {
		err = errors.New("our transaction is in another block")
	}
	return err
}

func dropped(ctx context.Context, s *service) error {
	purchase := s.start(ctx, 0)
	sent, err := s.pooled(ctx, common.Hash{})
	if err != nil {
		return err
	}
	var gone *common.Hash
	if err := s.call(ctx, &gone, "anvil_dropTransaction", sent.Hash); err != nil {
		return err
	}
	if gone == nil || *gone != sent.Hash {
		return fmt.Errorf("anvil dropped %v", gone)
	}
	if _, err := s.pooled(ctx, common.Hash{}); err != nil {
		return err
	}
	if err := s.call(ctx, nil, "anvil_dropAllTransactions"); err != nil {
		return err
	}
	again, err := s.pooled(ctx, common.Hash{})
	if err != nil || again.Hash != sent.Hash {
		return fmt.Errorf("sent %s, then %s (%v)", sent.Hash, again.Hash, err)
	}
	return s.finish(ctx, purchase)
}

func reorganised(ctx context.Context, s *service) error {
	purchase := s.start(ctx, 0)
	sent, err := s.mined(ctx)
	if err != nil {
		return err
	}
	if err := s.call(ctx, nil, "anvil_reorg", 1, []any{}); err != nil {
		return err
	}
	if err := s.gone(ctx, sent.Hash); err != nil {
		return err
	}
	return s.finish(ctx, purchase)
}

func moved(ctx context.Context, s *service) error {
	purchase := s.start(ctx, 0)
	sent, err := s.mined(ctx)
	if err != nil {
		return err
	}
	var raw hexutil.Bytes
	if err := s.call(ctx, &raw, "eth_getRawTransactionByHash", sent.Hash); err != nil {
		return err
	}
	before, err := s.TransactionReceipt(ctx, sent.Hash)
	if err != nil {
		return err
	}
	later := []any{raw, 1} // into the second of the new blocks
	if err := errors.Join(s.mine(ctx, 1), s.call(ctx, nil, "anvil_reorg", 2, []any{later})); err != nil {
		return err
	}
	after, err := s.TransactionReceipt(ctx, sent.Hash)
	if err != nil {
		return err
	}
	if after.BlockNumber.Cmp(before.BlockNumber) <= 0 {
		return fmt.Errorf("the settlement went from block %d to %d", before.BlockNumber, after.BlockNumber)
	}
	return s.finish(ctx, purchase)
}

func rolledBack(ctx context.Context, s *service) error {
	purchase := s.start(ctx, 0)
	sent, err := s.mined(ctx)
	if err != nil {
		return err
	}
	if err := s.call(ctx, nil, "anvil_rollback", 1); err != nil {
		return err
	}
	if err := s.gone(ctx, sent.Hash); err != nil {
		return err
	}
	return s.finish(ctx, purchase)
}

// gone checks that the chain has no transfer to the recipient.
func (s *service) gone(ctx context.Context, tx common.Hash) error {
	logs, err := received(ctx, s.Client, s.token, s.payTo)
	if err == nil && len(logs) > 0 {
		err = fmt.Errorf("the transfer of %s is still on the chain", tx)
	}
	return err
}

func removedLate(ctx context.Context, s *service) error {
	purchase := s.start(ctx, 0)
	sent, err := s.mined(ctx)
	if err != nil {
		return err
	}
	if <-purchase.over; purchase.err != nil {
		return purchase.err
	}
	if err := s.call(ctx, nil, "anvil_reorg", 1, []any{}); err != nil {
		return err
	}
	if err := s.gone(ctx, sent.Hash); err != nil {
		return err
	}
	return until(ctx, "the order to be settled again", func() (bool, error) {
		if err := s.mine(ctx, 1); err != nil {
			return false, err
		}
		if logs, err := received(ctx, s.Client, s.token, s.payTo); err != nil || len(logs) == 0 {
			return false, err
		}
		status, err := purchase.buyer.Status(ctx, purchase.status.Order.ID)
		if err != nil || status.Status != boxoffice.Admitted {
			return false, fmt.Errorf("the order is %q (%w)", status.Status, err)
		}
		return s.prove(ctx, status) == nil, nil
	})
}

func outbid(ctx context.Context, s *service) error {
	purchase := s.start(ctx, 0)
	sent, err := s.spike(ctx, 20)
	if err != nil {
		return err
	}
	if _, err := s.pooled(ctx, sent.Hash); err != nil {
		return err
	}
	return s.finish(ctx, purchase)
}

// spike waits for the settlement and makes a block with a base fee that is a multiple of the settlement's maximum.
func (s *service) spike(ctx context.Context, times int64) (sentTx, error) {
	sent, err := s.pooled(ctx, common.Hash{})
	if err != nil {
		return sent, err
	}
	return sent, errors.Join(s.setBaseFee(ctx, times*int64(sent.FeeCap)), s.mine(ctx, 1), s.gone(ctx, sent.Hash))
}

func unaffordable(ctx context.Context, s *service) error {
	first := s.start(ctx, 0)
	if _, err := s.spike(ctx, 100); err != nil {
		return err
	}
	if err := s.logged(ctx, "payments cannot be settled"); err != nil {
		return err
	}
	_, err := s.buy(ctx, 1)
	answer, is := errors.AsType[*client.ResponseError](err)
	if !is || answer.Problem == nil || answer.Problem.Code != boxoffice.TemporarilyUnavailable {
		return fmt.Errorf("want %s, got: %w", boxoffice.TemporarilyUnavailable, err)
	}
	if err := errors.Join(s.setBaseFee(ctx, params.GWei), s.mine(ctx, 1)); err != nil {
		return err
	}
	if err := s.logged(ctx, "payments can be settled"); err != nil {
		return err
	}
	return s.finish(ctx, first, s.start(ctx, 1))
}
