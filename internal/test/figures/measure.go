package main

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"slices"
	"time"

	"boxoffice"
	"boxoffice/client"
	"boxoffice/internal/server"
	"boxoffice/internal/test/devchain"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// What is promised.
const (
	batch         = 50
	mostSpread    = 0.66 // of a single settle, for each payment of as many payers
	mostInARow    = 0.30 // of a single settle, for each payment of one payer
	crowd         = 500
	longest       = 12 * time.Second
	crowdsBlock   = time.Second
	settleTimeout = 3 * time.Minute
)

// gas measures what a payment costs alone, among payments of other payers, and
// among payments of the same payer with nonces in a row.
func gas(ctx context.Context, dir string) (_ []figure, err error) {
	w, err := open(ctx, dir, 0, batch+4, func(c *server.Config) {
		c.Settlement.MaxInFlight = 1 // so that payments wait for the one before them
		c.Settlement.Poll = server.Duration(20 * time.Millisecond)
		c.SubmitWait = server.Duration(100 * time.Millisecond)
		c.Limits.PerToken = c.Limits.PerAddress
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()

	// The first payment that a recipient ever gets costs more than all later ones.
	if _, err := w.behind(ctx, w.payers[0], nil); err != nil {
		return nil, err
	}
	spread, err := w.behind(ctx, w.payers[1], w.payers[4:])
	if err != nil {
		return nil, err
	}
	inARow, err := w.behind(ctx, w.payers[2], slices.Repeat(w.payers[3:4], batch))
	if err != nil {
		return nil, err
	}
	row := func(what string, c cost, most float64) figure {
		share := c.each / spread.alone
		return figure{
			what, fmt.Sprintf("at most %.2f of a single settle", most),
			fmt.Sprintf("%.0f gas, %.3f of a single settle (transactions: %d)", c.each, share, c.transactions),
			share <= most,
		}
	}
	return []figure{
		{"Gas of a single settle", "", fmt.Sprintf("%.0f gas", spread.alone), true},
		row(fmt.Sprintf("Gas a payment, with %d of different payers waiting", batch), spread, mostSpread),
		row(fmt.Sprintf("Gas a payment, with %d of one payer's next nonces waiting", batch), inARow, mostInARow),
	}, nil
}

// cost is gas.
type cost struct {
	alone        float64 // of the payment that went alone
	each         float64 // of those that waited, for each
	transactions int     // that carried those that waited
}

// behind has payments wait behind one of the leader's, and settles them all.
func (w *world) behind(ctx context.Context, leader *ecdsa.PrivateKey, payers []*ecdsa.PrivateKey) (cost, error) {
	first, err := w.signAll(ctx, []*ecdsa.PrivateKey{leader})
	if err != nil {
		return cost{}, err
	}
	rest, err := w.signAll(ctx, payers)
	if err != nil {
		return cost{}, err
	}
	if _, err := submit(ctx, first); err != nil {
		return cost{}, err
	}
	if err := w.awaitBroadcast(ctx); err != nil {
		return cost{}, err
	}
	if _, err := submit(ctx, rest); err != nil {
		return cost{}, err
	}
	stop := make(chan error, 1)
	mining, done := context.WithTimeout(ctx, settleTimeout)
	go func() { stop <- w.mine(mining) }()
	statuses, err := together(slices.Concat(first, rest), func(o signed) (boxoffice.Status, error) { return o.buyer.Wait(mining, o.order) })
	done()
	if err = errors.Join(err, <-stop); err != nil {
		return cost{}, err
	}
	alone, _, err := w.spent(ctx, statuses[:1])
	if err != nil {
		return cost{}, err
	}
	all, transactions, err := w.spent(ctx, statuses[1:])
	return cost{alone, all / float64(len(payers)), transactions}, err
}

// signAll signs a payment of each payer, in order; a payer that comes again is
// the same client.
func (w *world) signAll(ctx context.Context, payers []*ecdsa.PrivateKey) ([]signed, error) {
	clients := map[*ecdsa.PrivateKey]*client.Client{}
	list := make([]signed, len(payers))
	for i, payer := range payers {
		var err error
		if clients[payer] == nil {
			if clients[payer], err = w.buyer(payer); err != nil {
				return nil, err
			}
		}
		if list[i], err = w.sign(ctx, clients[payer]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// awaitBroadcast waits until a transaction of the settlement wallet is under way.
func (w *world) awaitBroadcast(ctx context.Context) error {
	wallet := crypto.PubkeyToAddress(devchain.SettlementKey().PublicKey)
	for {
		mined, err := w.chain.Client().NonceAt(ctx, wallet, nil)
		if err != nil {
			return err
		}
		sent, err := w.chain.Client().PendingNonceAt(ctx, wallet)
		if err != nil || sent > mined {
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// mine makes blocks until ctx ends.
func (w *world) mine(ctx context.Context) error {
	for pause(ctx) == nil {
		if _, err := w.chain.Mine(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context) error {
	select {
	case <-time.After(20 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// spent returns the gas of the transactions that settled the orders, and how
// many they are.
func (w *world) spent(ctx context.Context, statuses []boxoffice.Status) (gas float64, transactions int, err error) {
	seen := map[common.Hash]bool{}
	for _, status := range statuses {
		if status.Status != boxoffice.Admitted {
			return 0, 0, fmt.Errorf("order %s is %s", status.Order.ID, status.Status)
		}
		hash := *status.Payment.TransactionHash
		if seen[hash] {
			continue
		}
		seen[hash] = true
		receipt, err := w.chain.Client().TransactionReceipt(ctx, hash)
		if err != nil {
			return 0, 0, err
		}
		gas += float64(receipt.GasUsed)
	}
	return gas, len(seen), nil
}

// burst measures how long it takes until payments that are submitted at once
// are all admitted, as their buyers see it.
func burst(ctx context.Context, dir string) (_ []figure, err error) {
	w, err := open(ctx, dir, crowdsBlock, crowd, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	orders, err := w.signAll(ctx, w.payers)
	if err != nil {
		return nil, err
	}
	started := time.Now()
	statuses, err := together(orders, func(o signed) (boxoffice.Status, error) {
		status, err := o.buyer.Submit(ctx, o.order, o.payment)
		if err != nil || !status.Status.Pending() {
			return status, err
		}
		return o.buyer.Wait(ctx, o.order)
	})
	took := time.Since(started)
	if err != nil {
		return nil, err
	}
	_, transactions, err := w.spent(ctx, statuses)
	if err != nil {
		return nil, err
	}
	return []figure{{
		what:     fmt.Sprintf("%d payments submitted at once, one settlement key, a block every %s: all admitted", crowd, crowdsBlock),
		target:   fmt.Sprintf("within %s", longest),
		measured: fmt.Sprintf("%.1f s, in %d transactions", took.Seconds(), transactions),
		met:      took <= longest,
	}}, nil
}
