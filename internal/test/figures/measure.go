package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"boxoffice"
	"boxoffice/client"
	"boxoffice/contracts"
	"boxoffice/internal/server"
	"boxoffice/internal/test/devchain"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// The targets.
const (
	batchSize      = 50   // payments in one transaction
	gasAlone       = 1.10 // of one settle of the proxy that is sent directly, for a payment alone
	gasOtherPayers = 0.64 // of the same, for each payment of a batch in which every payer pays once
	gasOnePayer    = 0.26 // of the same, for each payment of a batch in which one payer pays them all
	calldata       = 150  // bytes, for each payment of a batch
	burstSize      = 500  // payments at the same time
	burstTime      = 12 * time.Second
	burstBlockTime = time.Second
	batchTimeout   = 3 * time.Minute
)

// gas measures what a payment costs alone, in a batch of payments of different payers, and in a batch of one payer
// whose Permit2 nonces follow each other.
func gas(ctx context.Context, dir string, _ options) (_ section, err error) {
	w, err := open(ctx, dir, 0, batchSize+4, func(c *server.Config) {
		c.Settlement.MaxInFlight = 1 // so that payments wait behind the one before them
		c.Settlement.Poll = server.Duration(20 * time.Millisecond)
		c.SubmitWait = server.Duration(100 * time.Millisecond)
	})
	if err != nil {
		return section{}, err
	}
	defer func() { err = errors.Join(err, w.close()) }()

	// The first payment to a recipient costs more gas than all later ones, so it does not count.
	if _, err := w.batch(ctx, w.payers[0], nil); err != nil {
		return section{}, err
	}
	direct, err := w.direct(ctx)
	if err != nil {
		return section{}, err
	}
	alone, err := w.batch(ctx, w.payers[1], nil)
	if err != nil {
		return section{}, err
	}
	different, err := w.batch(ctx, w.payers[1], w.payers[4:])
	if err != nil {
		return section{}, err
	}
	onePayer, err := w.batch(ctx, w.payers[2], slices.Repeat(w.payers[3:4], batchSize))
	if err != nil {
		return section{}, err
	}
	row := func(what string, c cost, target float64) figure {
		share := c.gas / direct
		return figure{
			what, fmt.Sprintf("at most %.2f of one settle", target),
			fmt.Sprintf("%.0f gas, %.3f of one settle (transactions: %d)", c.gas, share, c.transactions), share <= target,
		}
	}
	return section{figures: []figure{
		{"Gas of one `settle` of the x402 proxy that is sent directly", "", fmt.Sprintf("%.0f gas", direct), true},
		row("Gas of a payment alone", alone, gasAlone),
		row(fmt.Sprintf("Gas of each of %d payments of different payers", batchSize), different, gasOtherPayers),
		row(fmt.Sprintf("Gas of each of %d payments of one payer, with nonces in a row", batchSize),
			onePayer, gasOnePayer),
		{
			fmt.Sprintf("Calldata of each of %d payments of different payers", batchSize),
			fmt.Sprintf("at most %d bytes", calldata), fmt.Sprintf("%.1f bytes", different.bytes),
			different.bytes <= calldata,
		},
	}}, nil
}

// direct returns the gas of one settle of the proxy to the recipient of all payments. It pays for no order. Its sender
// is not the payer: reading the account of the sender again costs less.
func (w *world) direct(ctx context.Context) (gas float64, err error) {
	payer := w.payers[0]
	var nonce [32]byte
	rand.Read(nonce[23:31]) // a word of its own, as long as those of the client
	authorization := x402.Authorization{
		From:      crypto.PubkeyToAddress(payer.PublicKey),
		Permitted: x402.Permitted{Token: w.chain.Token(), Amount: price},
		Spender:   x402.ExactProxy, Nonce: x402.Uint256FromBytes32(nonce),
		Deadline: x402.NewUint256(uint64(time.Now().Add(time.Hour).Unix())), Witness: x402.Witness{To: devchain.PayTo()},
	}
	signature, err := x402.Sign(authorization.Digest(w.chain.ChainID().Uint64()), payer)
	if err != nil {
		return 0, err
	}
	call, err := contracts.SettleCall(authorization, signature)
	if err != nil {
		return 0, err
	}
	receipt, err := w.chain.Transact(ctx, w.payers[1], contracts.ExactProxyAddress, nil, call)
	if err != nil {
		return 0, err
	}
	return float64(receipt.GasUsed), nil
}

// cost is what each payment of one measurement costs.
type cost struct {
	gas          float64
	bytes        float64 // of calldata
	transactions int     // that the payments were settled in
}

// batch submits a payment of the leader and, when it is broadcast, those of the payers, which wait for it and become a
// batch. Then it makes blocks until all are admitted. It measures the batch, or the payment of the leader if there are
// no payers.
func (w *world) batch(ctx context.Context, leader *ecdsa.PrivateKey, payers []*ecdsa.PrivateKey) (cost, error) {
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
	mining, done := context.WithTimeout(ctx, batchTimeout)
	go func() { stop <- w.mine(mining) }()
	statuses, err := together(slices.Concat(first, rest), func(o signed) (boxoffice.Status, error) {
		return o.buyer.Wait(mining, o.payment.OrderID)
	})
	done()
	if err = errors.Join(err, <-stop); err != nil {
		return cost{}, err
	}
	if len(payers) > 0 {
		statuses = statuses[1:]
	}
	return w.spent(ctx, statuses)
}

// signAll signs a payment of each payer, in order. A payer that is in the list several times uses one client, which
// takes one Permit2 nonce after the other.
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

// awaitBroadcast waits until a transaction of the settlement wallet is in the pool.
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

// spent returns what each of the orders cost in the transactions that settled them.
func (w *world) spent(ctx context.Context, statuses []boxoffice.Status) (each cost, err error) {
	seen := map[common.Hash]bool{}
	for _, status := range statuses {
		if status.Status != boxoffice.Admitted {
			return cost{}, fmt.Errorf("order %s is %s", status.Order.ID, status.Status)
		}
		hash := *status.Payment.TransactionHash
		if seen[hash] {
			continue
		}
		seen[hash] = true
		receipt, err := w.chain.Client().TransactionReceipt(ctx, hash)
		if err != nil {
			return cost{}, err
		}
		tx, _, err := w.chain.Client().TransactionByHash(ctx, hash)
		if err != nil {
			return cost{}, err
		}
		each.gas += float64(receipt.GasUsed) / float64(len(statuses))
		each.bytes += float64(len(tx.Data())) / float64(len(statuses))
	}
	each.transactions = len(seen)
	return each, nil
}

// burst measures how long it takes until payments that are submitted at the same time are all admitted, as their buyers
// see it.
func burst(ctx context.Context, dir string, _ options) (_ section, err error) {
	w, err := open(ctx, dir, burstBlockTime, burstSize, nil)
	if err != nil {
		return section{}, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	orders, err := w.signAll(ctx, w.payers)
	if err != nil {
		return section{}, err
	}
	started := time.Now()
	statuses, err := together(orders, func(o signed) (boxoffice.Status, error) {
		status, err := o.buyer.Submit(ctx, o.payment)
		if err != nil || !status.Status.Pending() {
			return status, err
		}
		return o.buyer.Wait(ctx, o.payment.OrderID)
	})
	took := time.Since(started)
	if err != nil {
		return section{}, err
	}
	settled, err := w.spent(ctx, statuses)
	if err != nil {
		return section{}, err
	}
	return section{figures: []figure{{
		what: fmt.Sprintf("%d payments submitted at the same time, one settlement key, a block every %s: all admitted",
			burstSize, burstBlockTime),
		target:   fmt.Sprintf("within %s", burstTime),
		measured: fmt.Sprintf("%.1f s, in %d transactions", took.Seconds(), settled.transactions),
		met:      took <= burstTime,
	}}}, nil
}
