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

// ledger is the chain, which lives on while servers die. It makes a block every
// blockTime, and has moods.
type ledger struct {
	*devchain.Chain
	mood atomic.Int32
}

// What the chain does besides making blocks.
const (
	calm      int32 = iota
	stalled         // it makes none
	forgetful       // it forgets transactions that wait
	fickle          // it takes its newest block back
)

const blockTime = 40 * time.Millisecond

// tokensEach is what every wallet has at first.
var tokensEach = devchain.Ether(1_000_000)

// startLedger starts a chain on which the wallets are ready to pay. Its clock
// lies far behind, so that a block of a second every blockTime stays behind the
// deadline of every permit.
func startLedger(ctx context.Context, wallets []*ecdsa.PrivateKey) (*ledger, error) {
	genesis := time.Now().Add(-30 * 24 * time.Hour)
	funded := []devchain.Funded{{Address: crypto.PubkeyToAddress(devchain.SettlementKey().PublicKey), Native: devchain.Ether(1000)}}
	for _, key := range wallets {
		funded = append(funded, devchain.Funded{
			Address: crypto.PubkeyToAddress(key.PublicKey), Tokens: tokensEach, Permit2Allowed: true,
		})
	}
	chain, err := devchain.Start(ctx, devchain.Config{Funded: funded, Now: func() time.Time { return genesis }})
	if err != nil {
		return nil, err
	}
	if _, err := chain.Mine(ctx); err != nil { // which a fickle chain can take back
		return nil, errors.Join(err, chain.Close())
	}
	return &ledger{Chain: chain}, nil
}

// run makes blocks until ctx ends.
func (l *ledger) run(ctx context.Context, random *rand.Rand) error {
	tick := time.NewTicker(blockTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := l.next(ctx, random); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

func (l *ledger) next(ctx context.Context, random *rand.Rand) error {
	odd := random.IntN(4) == 0
	switch mood := l.mood.Load(); {
	case mood == stalled:
		return nil
	case mood == forgetful && odd:
		l.DropPending()
	case mood == fickle && odd:
		_, err := l.Reorg(ctx, 1)
		return err
	}
	_, err := l.Mine(ctx)
	return err
}

// newWallets returns n keys that the seed decides.
func newWallets(seed uint64, n int) ([]*ecdsa.PrivateKey, error) {
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

// spentBy returns what the wallet has of its first tokens no more.
func (l *ledger) spentBy(ctx context.Context, key *ecdsa.PrivateKey) (*big.Int, error) {
	left, err := l.TokenBalance(ctx, crypto.PubkeyToAddress(key.PublicKey))
	if err != nil {
		return nil, err
	}
	return left.Sub(tokensEach, left), nil
}
