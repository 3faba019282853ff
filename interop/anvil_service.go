package main

import (
	"context"
	"crypto/ecdsa"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"boxoffice"
	"boxoffice/client"
	"boxoffice/internal/server"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// The price of an action and the balance of a payer, in atomic units of every token.
const (
	anvilPrice = 250_000
	holding    = 1_000_000_000
)

// service is "boxoffice serve" on Anvil.
type service struct {
	*anvil
	serving              *process
	token                common.Address
	payTo                common.Address // no other service has this recipient
	baseURL, operatorURL string
	wallet               common.Address     // of the settlement key
	finished             []boxoffice.Status // purchases whose transfers were checked
}

// serve starts the service for a token, calls use and stops the service. An error contains the log of the service.
func (a *anvil) serve(
	ctx context.Context, token common.Address, decimals int, change func(*server.Config), use func(*service) error,
) (err error) {
	a.services++
	name, key := a.serviceName(), a.keys[a.services]
	s := &service{anvil: a, token: token, wallet: crypto.PubkeyToAddress(key.PublicKey)}
	s.payTo = common.BytesToAddress(crypto.Keccak256([]byte(name))[12:])
	listen, err := freeAddresses(2)
	if err != nil {
		return err
	}
	s.baseURL, s.operatorURL = "http://"+listen[0], "http://"+listen[1]

	c := server.Default()
	c.BaseURL, c.Listen, c.OperatorListen = s.baseURL, listen[0], listen[1]
	c.Chain.ID, c.Chain.RPCURL = anvilChain, a.url
	c.Payment.Asset, c.Payment.PayTo, c.Payment.Amount = token, s.payTo, x402.NewUint256(anvilPrice)
	c.Payment.Symbol, c.Payment.Name, c.Payment.Decimals = "TCK", "Ticket", decimals
	c.Settlement.Poll = server.Duration(50 * time.Millisecond)
	c.SubmitWait = server.Duration(100 * time.Millisecond)
	c.Limits.PerAddress = server.RateConfig{PerSecond: 1e6, Burst: 1e6} // all requesters have one address here
	c.Limits.PerToken = c.Limits.PerAddress
	if change != nil {
		change(&c)
	}
	s.serving, err = a.demo.serve(ctx, name, "serve", c, settlementKey(key))
	if err != nil {
		return err
	}
	if err = s.logged(ctx, "chain checked"); err == nil {
		err = use(s)
	}
	if err = errors.Join(err, s.serving.end()); err != nil {
		return fmt.Errorf("%w\nthe service logged:\n%s", err, &s.serving.stderr)
	}
	return nil
}

// serviceName returns the name of the newest service.
func (a *anvil) serviceName() string { return fmt.Sprintf("anvil-%02d", a.services) }

// settlementKey returns the environment variable of a settlement key.
func settlementKey(key *ecdsa.PrivateKey) string {
	return "BOXOFFICE_SETTLEMENT_KEY=" + hex.EncodeToString(crypto.FromECDSA(key))
}

// logged waits until the log of the service contains a text.
func (s *service) logged(ctx context.Context, what string) error {
	return s.serving.until(ctx, fmt.Sprintf("the service to log %q", what), func() (bool, error) {
		return strings.Contains(s.serving.stderr.String(), what), nil
	})
}

// buyer returns a Go client that pays as one of the payers.
func (s *service) buyer(payer int) (*client.Client, error) {
	return client.New(client.Config{
		BaseURL: s.baseURL, Token: boxoffice.NewToken(), Chain: s.Client,
		Signer: client.KeySigner(s.keys[firstPayer+payer]),
		HTTP:   &http.Client{Timeout: time.Minute, Transport: transport},
		// With this MaxRetryAfter, the client returns a 503 instead of waiting.
		Retry: client.Retry{
			First: 20 * time.Millisecond, Longest: 100 * time.Millisecond, MaxRetryAfter: 100 * time.Millisecond,
		},
	})
}

var transport = &http.Transport{MaxIdleConnsPerHost: manyPayers}

func newPurchase() client.Purchase {
	return client.Purchase{
		Input: boxoffice.JobOpen{Objective: "interop"}, RequestKey: boxoffice.NewUUID(),
		Max: x402.NewUint256(anvilPrice),
	}
}

// buy buys as a payer and waits until the order is admitted.
func (s *service) buy(ctx context.Context, payer int) (boxoffice.Status, error) {
	p := s.start(ctx, payer)
	<-p.over
	return p.status, p.err
}

// prove compares orders with the chain: each is admitted, the recipient got the price once for each, in the transaction
// and the block of the order's status, and nothing else.
func (s *service) prove(ctx context.Context, orders ...boxoffice.Status) error {
	logs, err := received(ctx, s.Client, s.token, s.payTo)
	if err != nil {
		return err
	}
	type place struct {
		tx    common.Hash
		block uint64
	}
	moved := map[place]int{}
	for _, log := range logs {
		if amount := common.BytesToHash(log.Data).Big(); !amount.IsUint64() || amount.Uint64() != anvilPrice {
			return fmt.Errorf("transaction %s moved %s, not the price", log.TxHash, amount)
		}
		moved[place{log.TxHash, log.BlockNumber}]++
	}
	for _, order := range orders {
		if order.Status != boxoffice.Admitted {
			return fmt.Errorf("order %s is %s", order.Order.ID, order.Status)
		}
		moved[place{*order.Payment.TransactionHash, *order.Payment.BlockNumber}]--
	}
	for at, left := range moved {
		if left != 0 {
			return fmt.Errorf("transaction %s in block %d has %d transfers more than orders", at.tx, at.block, left)
		}
	}
	return nil
}
