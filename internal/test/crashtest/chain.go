package crashtest

import (
	"context"
	"crypto/ecdsa"
	"encoding/binary"
	"errors"
	"math/big"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"boxoffice/internal/test/devchain"

	"github.com/ethereum/go-ethereum/crypto"
)

// chain is a development chain that keeps running while servers are killed. It makes a block every blockTime and
// misbehaves as its behaviour says.
type chain struct {
	*devchain.Chain
	behaviour atomic.Int32
}

// The behaviours.
const (
	regular      int32 = iota // a block every blockTime
	stalled                   // no blocks
	dropping                  // one time in four, it drops the pending transactions before it makes the block
	reorganising              // one time in four, it removes the newest block instead
	forgetting                // one time in four, it removes confirmed blocks and drops their transactions
	ignoring                  // it drops the pending transactions before each block
)

const (
	blockTime     = 40 * time.Millisecond
	confirmations = 2
)

// initialTokens is what every wallet has in the genesis block.
var initialTokens = devchain.Ether(1_000_000)

// startChain starts a chain on which every wallet has tokens and a Permit2 allowance. Block times grow by at least a
// second per block, so with a block every 40 ms they run ahead of the clock. They start 30 days ago and thus stay
// before the deadline of every permit.
func startChain(ctx context.Context, wallets []*ecdsa.PrivateKey) (*chain, error) {
	genesis := time.Now().Add(-30 * 24 * time.Hour)
	funded := []devchain.Funded{{
		Address: crypto.PubkeyToAddress(devchain.SettlementKey().PublicKey), Native: devchain.Ether(1000),
	}}
	for _, key := range wallets {
		funded = append(funded, devchain.Funded{
			Address: crypto.PubkeyToAddress(key.PublicKey), Tokens: initialTokens, Permit2Allowed: true,
		})
	}
	dev, err := devchain.Start(ctx, devchain.Config{Funded: funded, Now: func() time.Time { return genesis }})
	if err != nil {
		return nil, err
	}
	for range confirmations + 1 { // blocks that a reorganisation can remove
		if _, err := dev.Mine(ctx); err != nil {
			return nil, errors.Join(err, dev.Close())
		}
	}
	return &chain{Chain: dev}, nil
}

// run makes blocks until ctx ends.
func (c *chain) run(ctx context.Context, random *rand.Rand) error {
	tick := time.NewTicker(blockTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := c.next(ctx, random); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// next makes a block, or does what the behaviour says instead.
func (c *chain) next(ctx context.Context, random *rand.Rand) error {
	misbehaves := random.IntN(4) == 0
	switch behaviour := c.behaviour.Load(); {
	case behaviour == stalled:
		return nil
	case behaviour == ignoring, behaviour == dropping && misbehaves:
		c.DropPending()
	case behaviour == reorganising && misbehaves:
		_, err := c.Reorg(ctx, 1)
		return err
	case behaviour == forgetting && misbehaves:
		_, err := c.Reorg(ctx, confirmations+1)
		c.DropPending()
		return err
	}
	_, err := c.Mine(ctx)
	return err
}

// newKeys returns n keys that depend only on the seed.
func newKeys(seed uint64, n int) ([]*ecdsa.PrivateKey, error) {
	keys := make([]*ecdsa.PrivateKey, n)
	for i := range keys {
		var secret [16]byte
		binary.BigEndian.PutUint64(secret[:], seed)
		binary.BigEndian.PutUint64(secret[8:], uint64(i))
		key, err := crypto.ToECDSA(crypto.Keccak256(secret[:]))
		if err != nil {
			return nil, err
		}
		keys[i] = key
	}
	return keys, nil
}

// spentBy returns how many of its initial tokens the wallet has spent.
func (c *chain) spentBy(ctx context.Context, key *ecdsa.PrivateKey) (*big.Int, error) {
	left, err := c.TokenBalance(ctx, crypto.PubkeyToAddress(key.PublicKey))
	if err != nil {
		return nil, err
	}
	return left.Sub(initialTokens, left), nil
}
