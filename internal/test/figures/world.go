package main

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"boxoffice"
	"boxoffice/client"
	"boxoffice/internal/server"
	"boxoffice/internal/test/devchain"
	"boxoffice/internal/test/servertest"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/crypto"
)

// world is a chain and a service on it.
type world struct {
	chain   *devchain.Chain
	config  server.Config
	payers  []*ecdsa.PrivateKey
	http    *http.Client
	service *servertest.Service
}

var price = x402.NewUint256(1_000_000)

// open starts a chain with payers that can pay, and the service. With a block time of 0, only Mine makes blocks.
func open(
	ctx context.Context, dir string, blockTime time.Duration, payers int, change func(*server.Config),
) (w *world, err error) {
	w = &world{http: &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: payers}}}
	funded := []devchain.Funded{{
		Address: crypto.PubkeyToAddress(devchain.SettlementKey().PublicKey), Native: devchain.Ether(1000),
	}}
	for range payers {
		key, err := crypto.GenerateKey()
		if err != nil {
			return nil, err
		}
		w.payers = append(w.payers, key)
		funded = append(funded, devchain.Funded{
			Address: crypto.PubkeyToAddress(key.PublicKey), Native: devchain.Ether(1), Tokens: devchain.Ether(1),
			Permit2Allowed: true,
		})
	}
	genesis := devchain.Config{Funded: funded, BlockTime: blockTime}
	if blockTime == 0 { // many blocks in a second are ahead of the clock, and must not reach a permit's deadline
		yesterday := time.Now().Add(-24 * time.Hour)
		genesis.Now = func() time.Time { return yesterday }
	}
	if w.chain, err = devchain.Start(ctx, genesis); err != nil {
		return nil, err
	}
	if blockTime == 0 {
		_, err = w.chain.Mine(ctx) // with the genesis block alone, the node returns no error for unknown transactions
	}
	if err == nil {
		err = w.serve(ctx, dir, change)
	}
	if err != nil {
		return nil, errors.Join(err, w.chain.Close())
	}
	return w, nil
}

func (w *world) serve(ctx context.Context, dir string, change func(*server.Config)) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	w.config = servertest.Configure(w.chain, listener.Addr().String(), price)
	w.config.Store.Path = filepath.Join(dir, "boxoffice.db")
	if change != nil {
		change(&w.config)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	w.service, err = servertest.Run(ctx, server.Options{
		Config: w.config, Key: devchain.SettlementKey(), Log: log, Listener: listener,
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	select {
	case <-w.service.Ready():
		return nil
	case <-ctx.Done():
		return errors.Join(ctx.Err(), w.service.Stop())
	}
}

func (w *world) close() error {
	w.http.CloseIdleConnections()
	return errors.Join(w.service.Stop(), w.chain.Close())
}

// signed is an order with a signed payment that was not sent yet.
type signed struct {
	buyer   *client.Client
	payment client.SignedPayment
}

// buyer returns a client that pays with the key.
func (w *world) buyer(payer *ecdsa.PrivateKey) (*client.Client, error) {
	return client.New(client.Config{
		BaseURL: w.config.BaseURL, Token: boxoffice.NewToken(), HTTP: w.http,
		Signer: client.KeySigner(payer), Chain: w.chain.Client(),
	})
}

// sign gets a quote and signs a payment for it.
func (w *world) sign(ctx context.Context, buyer *client.Client) (signed, error) {
	quoted, err := buyer.Quote(ctx, boxoffice.JobOpen{Objective: "a figure"}, boxoffice.NewUUID())
	if err != nil {
		return signed{}, err
	}
	payment, err := buyer.Sign(ctx, quoted.Order.ID, client.Purchase{Max: price})
	return signed{buyer, payment}, err
}

// submit sends all payments at the same time.
func submit(ctx context.Context, orders []signed) ([]boxoffice.Status, error) {
	return together(orders, func(o signed) (boxoffice.Status, error) { return o.buyer.Submit(ctx, o.payment) })
}

// together calls do for all orders at the same time.
func together(orders []signed, do func(signed) (boxoffice.Status, error)) ([]boxoffice.Status, error) {
	statuses, failures := make([]boxoffice.Status, len(orders)), make([]error, len(orders))
	var all sync.WaitGroup
	for i, o := range orders {
		all.Go(func() { statuses[i], failures[i] = do(o) })
	}
	all.Wait()
	return statuses, errors.Join(failures...)
}
