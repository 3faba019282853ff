package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"boxoffice"
	"boxoffice/client"
	"boxoffice/internal/server"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// What an action costs and what a payer holds, in atomic units of any token.
const (
	anvilPrice = 250_000
	holding    = 1_000_000_000
)

// service is "boxoffice serve" on Anvil.
type service struct {
	*anvil
	token                common.Address
	payTo                common.Address // nobody else is paid here
	baseURL, operatorURL string
	wallet               common.Address     // of the settlement key
	finished             []boxoffice.Status // purchases that were proved

	command *exec.Cmd
	log     string
	over    chan struct{} // closed when the process has ended
	ended   error         // how; nil if it ended well
}

// serve runs the service for a token while use does, and says what it logged if
// that fails.
func (a *anvil) serve(ctx context.Context, token common.Address, decimals int, change func(*server.Config), use func(*service) error) (err error) {
	a.services++
	s := &service{anvil: a, token: token, log: filepath.Join(a.folder, fmt.Sprintf("service-%02d.log", a.services))}
	s.payTo = common.BytesToAddress(crypto.Keccak256([]byte(s.log))[12:])
	key := a.keys[a.services]
	s.wallet = crypto.PubkeyToAddress(key.PublicKey)
	listen, err := freePorts(2)
	if err != nil {
		return err
	}
	s.baseURL, s.operatorURL = "http://"+listen[0], "http://"+listen[1]

	c := server.Default()
	c.BaseURL, c.Listen, c.OperatorListen = s.baseURL, listen[0], listen[1]
	c.Store.Path, c.Work.Dir = s.log+".db", s.log+".work"
	c.Chain.ID, c.Chain.RPCURL = 31337, a.url
	c.Payment.Asset, c.Payment.PayTo, c.Payment.Amount = token, s.payTo, x402.NewUint256(anvilPrice)
	c.Payment.Symbol, c.Payment.Name, c.Payment.Decimals = "TCK", "Ticket", decimals
	c.Settlement.Poll = server.Duration(50 * time.Millisecond)
	c.SubmitWait = server.Duration(100 * time.Millisecond)
	c.Limits.PerAddress = server.RateConfig{PerSecond: 1e6, Burst: 1e6} // all requesters have one address here
	c.Limits.PerToken = c.Limits.PerAddress
	if change != nil {
		change(&c)
	}
	document, err := c.Marshal()
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.log+".toml", document, 0o600); err != nil {
		return err
	}
	log, err := os.Create(s.log)
	if err != nil {
		return err
	}
	defer log.Close()
	s.command = exec.CommandContext(ctx, a.boxed, "serve", "--config", s.log+".toml")
	s.command.Env = append(os.Environ(), "BOXOFFICE_SETTLEMENT_KEY="+hex.EncodeToString(crypto.FromECDSA(key)))
	s.command.Stdout, s.command.Stderr = log, log
	s.command.Cancel = func() error { return s.command.Process.Signal(syscall.SIGTERM) }
	s.command.WaitDelay = 15 * time.Second
	if err := s.command.Start(); err != nil {
		return err
	}
	s.over = make(chan struct{})
	go func() {
		s.ended = s.command.Wait()
		close(s.over)
	}()
	if err = s.logged(ctx, "chain checked"); err == nil {
		err = use(s)
	}
	if ended := s.command.Process.Signal(syscall.SIGTERM); !errors.Is(ended, os.ErrProcessDone) {
		err = errors.Join(err, ended)
	}
	<-s.over
	if err = errors.Join(err, s.ended); err == nil {
		return nil
	}
	said, unread := os.ReadFile(s.log)
	return errors.Join(fmt.Errorf("%w\nthe service logged:\n%s", err, said), unread)
}

// freePorts returns addresses that nobody listens on.
func freePorts(n int) (addresses []string, err error) {
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses, nil
}

// logged waits until the service has said something.
func (s *service) logged(ctx context.Context, what string) error {
	return await(ctx, fmt.Sprintf("the service to log %q", what), func() (bool, error) {
		select {
		case <-s.over:
			return false, errors.New("the service ended")
		default:
		}
		said, err := os.ReadFile(s.log)
		return strings.Contains(string(said), what), err
	})
}

// await asks until the answer is yes.
func await(ctx context.Context, what string, ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		yes, err := ask()
		if err != nil || yes {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// buyer is one of the payers with the Go client.
func (s *service) buyer(payer int) (*client.Client, error) {
	return client.New(client.Config{
		BaseURL: s.baseURL, Token: boxoffice.NewToken(), Signer: client.KeySigner(s.keys[firstPayer+payer]), Chain: s.Client,
		HTTP: &http.Client{Timeout: time.Minute, Transport: transport},
		// A 503 that says when to come again is an answer here.
		Retry: client.Retry{First: 20 * time.Millisecond, Longest: 100 * time.Millisecond, MaxRetryAfter: 100 * time.Millisecond},
	})
}

var transport = &http.Transport{MaxIdleConnsPerHost: manyPayers}

func newPurchase() client.Purchase {
	return client.Purchase{
		Action: boxoffice.ActionJobOpen, Input: json.RawMessage(`{"objective":"interop"}`), RequestKey: boxoffice.NewUUID(), Max: x402.NewUint256(anvilPrice),
	}
}

// buy buys as a payer and returns when the order is admitted, or with an error.
func (s *service) buy(ctx context.Context, payer int) (boxoffice.Status, error) {
	p := s.start(ctx, payer)
	<-p.over
	return p.status, p.err
}

// prove compares orders with the chain: each is admitted, and the recipient got
// the price once for each, in the transaction and the block that its status
// names, and nothing else.
func (s *service) prove(ctx context.Context, orders ...boxoffice.Status) error {
	logs, err := s.received(ctx, s.token, s.payTo)
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
