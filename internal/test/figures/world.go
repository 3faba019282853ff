package main

import (
	"context"
	"crypto/ecdsa"
	"encoding/json"
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
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/crypto"
)

// world is a chain, and a service on it as an operator would configure it.
type world struct {
	chain  *devchain.Chain
	config server.Config
	payers []*ecdsa.PrivateKey
	http   *http.Client

	service *server.Server
	stop    context.CancelFunc
	ended   chan error
}

var price = x402.NewUint256(1_000_000)

// open starts a chain with payers that can pay, and the service. A block time
// of 0 makes no block but when told to.
func open(ctx context.Context, dir string, blockTime time.Duration, payers int, change func(*server.Config)) (w *world, err error) {
	w = &world{http: &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: payers}}}
	funded := []devchain.Funded{{Address: crypto.PubkeyToAddress(devchain.SettlementKey().PublicKey), Native: devchain.Ether(1000)}}
	for range payers {
		key, err := crypto.GenerateKey()
		if err != nil {
			return nil, err
		}
		w.payers = append(w.payers, key)
		funded = append(funded, devchain.Funded{Address: crypto.PubkeyToAddress(key.PublicKey), Tokens: devchain.Ether(1), Permit2Allowed: true})
	}
	genesis := devchain.Config{Funded: funded, BlockTime: blockTime}
	if blockTime == 0 { // blocks made in a hurry run ahead of the clock, and must not reach a deadline
		long := time.Now().Add(-24 * time.Hour)
		genesis.Now = func() time.Time { return long }
	}
	if w.chain, err = devchain.Start(ctx, genesis); err != nil {
		return nil, err
	}
	if blockTime == 0 {
		_, err = w.chain.Mine(ctx) // a node without a block after the genesis does not say what it does not know
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
	c := server.Default()
	c.BaseURL, c.Listen, c.OperatorListen = "http://"+listener.Addr().String(), listener.Addr().String(), ""
	c.Store.Path = filepath.Join(dir, "boxoffice.db")
	c.Chain.ID, c.Chain.RPCURL = w.chain.ChainID().Uint64(), w.chain.URL()
	c.Payment.Asset, c.Payment.PayTo, c.Payment.Amount = w.chain.Token(), devchain.PayTo(), price
	c.Payment.Symbol, c.Payment.Name = devchain.TokenSymbol, "Boxoffice Test Token"
	// All requesters have one address here.
	c.Limits.PerAddress = server.RateConfig{PerSecond: 1e6, Burst: 1e6}
	if change != nil {
		change(&c)
	}
	w.config = c
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if w.service, err = server.New(ctx, server.Options{Config: c, Key: devchain.SettlementKey(), Log: log, Listener: listener}); err != nil {
		return errors.Join(err, listener.Close())
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.stop, w.ended = stop, make(chan error, 1)
	go func() { w.ended <- errors.Join(w.service.Run(serving), w.service.Close()) }()
	select {
	case <-w.service.Ready():
		return nil
	case <-ctx.Done():
		return errors.Join(ctx.Err(), w.end())
	}
}

func (w *world) end() error {
	w.http.CloseIdleConnections()
	w.stop()
	return <-w.ended
}

func (w *world) close() error { return errors.Join(w.end(), w.chain.Close()) }

// signed is an order with the payment that its buyer has not sent yet.
type signed struct {
	buyer   *client.Client
	order   boxoffice.UUID
	payment client.SignedPayment
}

// buyer returns a client of a payer. It gives the payer's Permit2 nonces away in a row.
func (w *world) buyer(payer *ecdsa.PrivateKey) (*client.Client, error) {
	return client.New(client.Config{
		BaseURL: w.config.BaseURL, Token: boxoffice.NewToken(), HTTP: w.http, Signer: client.KeySigner(payer), Chain: w.chain.Client(),
	})
}

// sign quotes an order and signs the payment of it.
func (w *world) sign(ctx context.Context, buyer *client.Client) (signed, error) {
	capabilities, err := buyer.Capabilities(ctx)
	if err != nil {
		return signed{}, err
	}
	purchase := client.Purchase{
		Action: boxoffice.ActionJobOpen, Input: json.RawMessage(`{"objective":"a figure"}`), RequestKey: boxoffice.NewUUID(), Max: price,
	}
	quoted, err := buyer.Quote(ctx, purchase.Action, purchase.Input, purchase.RequestKey)
	if err != nil {
		return signed{}, err
	}
	offer, _, err := buyer.Challenge(ctx, quoted.Order.ID)
	if err != nil {
		return signed{}, err
	}
	payment, err := buyer.Sign(ctx, offer, client.Intent{Purchase: purchase, Capabilities: capabilities, Order: quoted.Order, Created: quoted.Created})
	return signed{buyer, quoted.Order.ID, payment}, err
}

// submit sends all payments at once.
func submit(ctx context.Context, orders []signed) ([]boxoffice.Status, error) {
	return together(orders, func(o signed) (boxoffice.Status, error) { return o.buyer.Submit(ctx, o.order, o.payment) })
}

func together(orders []signed, do func(signed) (boxoffice.Status, error)) ([]boxoffice.Status, error) {
	statuses, failures := make([]boxoffice.Status, len(orders)), make([]error, len(orders))
	var all sync.WaitGroup
	for i, o := range orders {
		all.Go(func() { statuses[i], failures[i] = do(o) })
	}
	all.Wait()
	return statuses, errors.Join(failures...)
}
