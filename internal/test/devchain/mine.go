package devchain

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/miner"
)

const (
	// maxLead is how many seconds block timestamps may be ahead of the clock on a chain with a BlockTime.
	maxLead = 2
	// How many blocks the tags "safe" and "finalized" are behind the newest block, as on the main net.
	safeDepth      = 32
	finalizedDepth = 64
)

// headKey is the key of a database entry: the hash of the block that becomes the newest one.
var headKey = []byte("boxoffice-devchain-head")

// Mine makes the next block. It contains every transaction that was sent before the call and can be included. Its
// timestamp is Now, or one second after its parent's if that is later.
func (c *Chain) Mine(ctx context.Context) (*types.Header, error) {
	c.sealing.Lock()
	defer c.sealing.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	parent := c.Head()
	return c.mineOn(parent, max(parent.Time+1, c.seconds()))
}

// Reorg replaces the newest depth blocks by depth+1 empty ones in one step, as a node does when it receives a longer
// chain. The transactions of the removed blocks are pending again: the next block includes them unless
// [Chain.DropPending] is called before.
func (c *Chain) Reorg(ctx context.Context, depth uint64) (*types.Header, error) {
	c.sealing.Lock()
	defer c.sealing.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	head := c.Head()
	if depth == 0 || depth > head.Number.Uint64() {
		return nil, fmt.Errorf("reorg: depth %d of a chain of %d blocks", depth, head.Number)
	}
	at := c.eth.BlockChain().GetHeaderByNumber(head.Number.Uint64() - depth)
	var block *types.Block
	for range depth + 1 {
		timestamp := at.Time + 1
		if at.Number.Cmp(head.Number) == 0 {
			timestamp = max(timestamp, c.seconds())
		}
		var err error
		if block, err = c.seal(at, timestamp, withoutTransactions); err != nil {
			return nil, fmt.Errorf("reorg: %w", err)
		}
		at = block.Header()
	}
	if err := c.setHead(block); err != nil {
		return nil, fmt.Errorf("reorg: %w", err)
	}
	return at, nil
}

// DropPending removes every pending transaction from the pool, as nodes do with old ones.
func (c *Chain) DropPending() {
	c.sealing.Lock()
	defer c.sealing.Unlock()
	c.eth.TxPool().Clear()
}

func (c *Chain) seconds() uint64 { return uint64(c.cfg.Now().Unix()) }

func (c *Chain) mineOnTime(ctx context.Context) {
	ticker := time.NewTicker(c.cfg.BlockTime)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if err := c.mineIfDue(); err != nil {
				c.cfg.Logger.Error("development chain: no block was made", "error", err)
			}
		}
	}
}

func (c *Chain) mineIfDue() error {
	c.sealing.Lock()
	defer c.sealing.Unlock()
	parent, now := c.Head(), c.seconds()
	if parent.Time+1 > now+maxLead {
		return nil
	}
	_, err := c.mineOn(parent, max(parent.Time+1, now))
	return err
}

func (c *Chain) mineOn(parent *types.Header, at uint64) (*types.Header, error) {
	// The pool moves new transactions to its executable part in the background. Without Sync, the block could lack some.
	if err := c.eth.TxPool().Sync(); err != nil {
		return nil, fmt.Errorf("mine: %w", err)
	}
	block, err := c.seal(parent, at, withPoolTransactions)
	if err != nil {
		return nil, fmt.Errorf("mine: %w", err)
	}
	if err := c.setHead(block); err != nil {
		return nil, fmt.Errorf("mine: %w", err)
	}
	c.cfg.Logger.Debug("development chain: new block",
		"number", block.NumberU64(), "transactions", len(block.Transactions()))
	return block.Header(), nil
}

type content bool

const (
	withPoolTransactions content = false
	withoutTransactions  content = true
)

// seal makes a block and writes it and its state to the database. It is not the newest block before setHead.
func (c *Chain) seal(parent *types.Header, at uint64, with content) (*types.Block, error) {
	// The random value makes two empty blocks with the same parent and timestamp different blocks.
	var random common.Hash
	if _, err := rand.Read(random[:]); err != nil {
		return nil, err
	}
	block, _, err := c.eth.Miner().BuildTestingPayload(&miner.BuildPayloadArgs{
		Parent:      parent.Hash(),
		Timestamp:   at,
		Random:      random,
		Withdrawals: types.Withdrawals{},
		BeaconRoot:  &common.Hash{},
	}, nil, bool(with), nil)
	if err != nil {
		return nil, fmt.Errorf("build block %d: %w", parent.Number.Uint64()+1, err)
	}
	if _, err := c.eth.BlockChain().InsertBlockWithoutSetHead(context.Background(), block, false); err != nil {
		return nil, fmt.Errorf("insert block %d: %w", block.NumberU64(), err)
	}
	return block, nil
}

// setHead makes a sealed block the newest one. The block and headKey are on disk before clients can see the block, so
// if the process is killed in between, resume completes the step.
func (c *Chain) setHead(block *types.Block) error {
	db := c.eth.ChainDb()
	if err := db.Put(headKey, block.Hash().Bytes()); err != nil {
		return fmt.Errorf("write head: %w", err)
	}
	if err := db.SyncKeyValue(); err != nil {
		return fmt.Errorf("write head: %w", err)
	}
	chain := c.eth.BlockChain()
	if _, err := chain.SetCanonical(block); err != nil {
		return fmt.Errorf("set head: %w", err)
	}
	chain.SetSafe(c.ancestor(block, safeDepth))
	chain.SetFinalized(c.ancestor(block, finalizedDepth))
	return c.eth.TxPool().Sync()
}

// resume completes a setHead that a killed process had begun.
func (c *Chain) resume() error {
	db, chain := c.eth.ChainDb(), c.eth.BlockChain()
	if known, err := db.Has(headKey); err != nil || !known {
		return err
	}
	hash, err := db.Get(headKey)
	if err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	head := chain.GetBlockByHash(common.BytesToHash(hash))
	if head == nil {
		return fmt.Errorf("resume: block %x is missing", hash)
	}
	if head.Hash() != c.Head().Hash() {
		if _, err := chain.SetCanonical(head); err != nil {
			return fmt.Errorf("resume: %w", err)
		}
	}
	chain.SetSafe(c.ancestor(head, safeDepth))
	chain.SetFinalized(c.ancestor(head, finalizedDepth))
	return nil
}

func (c *Chain) ancestor(block *types.Block, depth uint64) *types.Header {
	return c.eth.BlockChain().GetHeaderByNumber(block.NumberU64() - min(depth, block.NumberU64()))
}
