// Package servertest runs the whole service on a development chain, for tests that use it over HTTP.
package servertest

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/api/apitest"
	"boxoffice/client"
	"boxoffice/contracts"
	"boxoffice/internal/server"
	"boxoffice/internal/test/devchain"
	"boxoffice/internal/test/testdb"
	"boxoffice/internal/test/testlog"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// World is a chain and a service on it.
type World struct {
	Chain     *devchain.Chain
	Options   server.Options
	Validator *apitest.Validator // checks every response that HTTP gets
	HTTP      *http.Client
	Log       *testlog.Log

	t       testing.TB
	service *Service // nil while it is stopped
	offset  struct { // of the clock
		sync.Mutex
		time.Duration
	}
}

// Price is the price of one unit of every action.
var Price = x402.NewUint256(1_000_000)

// Start starts a chain that mines every transaction immediately, and a service with a new database on it. Both end with
// the test.
func Start(t testing.TB, change ...func(*server.Options)) *World {
	t.Helper()
	w := &World{t: t, Log: new(testlog.Log)}
	var err error
	w.Chain, err = devchain.Start(t.Context(), devchain.Config{Funded: devchain.DevAccounts(), Now: w.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Chain.Close(); err != nil {
			t.Error(err)
		}
	})
	w.mineAtOnce()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	config := Configure(w.Chain, listener.Addr().String(), Price)
	config.OperatorListen = "127.0.0.1:0"
	config.SubmitWait = server.Duration(20 * time.Second)
	config.Store.Path = testdb.Path(t)
	config.Work.Dir = filepath.Join(filepath.Dir(config.Store.Path), "work")
	config.Work.Concurrency = 0 // no work is done, unless a test changes this
	config.Work.Poll = server.Duration(10 * time.Millisecond)
	config.Work.Scheduling = server.Duration(50 * time.Millisecond)
	config.Chain.Confirmations = 1
	config.Settlement.Poll = server.Duration(10 * time.Millisecond)
	config.Settlement.Gather = server.Duration(time.Millisecond)
	config.Launches = &server.LaunchesConfig{DefaultChainID: 31337, Chains: []server.LaunchChainConfig{{
		ChainID: 31337, Name: "Development chain", Testnet: true, Kinds: []string{"custom_token", "evm_contracts"},
	}}}
	w.Options = server.Options{
		Config: config, Key: devchain.SettlementKey(), Now: w.Now,
		Log: slog.New(slog.NewTextHandler(w.Log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, c := range change {
		c(&w.Options)
	}
	w.serve(listener)
	t.Cleanup(w.Stop)
	w.loadDocument()
	return w
}

// mineAtOnce makes a block for each transaction that comes into the pool, until the test ends.
func (w *World) mineAtOnce() {
	pending := make(chan common.Hash, 1024)
	subscription, err := w.Chain.Client().Client().EthSubscribe(context.Background(), pending, "newPendingTransactions")
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var mining sync.WaitGroup
	mining.Go(func() {
		for {
			select {
			case <-pending:
				if _, err := w.Chain.Mine(ctx); err != nil && ctx.Err() == nil {
					w.t.Error(err)
				}
			case <-ctx.Done():
				return
			}
		}
	})
	w.t.Cleanup(func() {
		subscription.Unsubscribe()
		cancel()
		mining.Wait()
	})
}

// Now is the clock of the service and of the chain.
func (w *World) Now() time.Time {
	w.offset.Lock()
	defer w.offset.Unlock()
	return time.Now().Add(w.offset.Duration)
}

// Advance moves the clock.
func (w *World) Advance(d time.Duration) {
	w.offset.Lock()
	defer w.offset.Unlock()
	w.offset.Duration += d
}

func (w *World) serve(listener net.Listener) {
	w.t.Helper()
	options := w.Options
	options.Listener = listener
	service, err := Run(context.Background(), options)
	if err != nil {
		w.t.Fatal(err)
	}
	w.service = service
}

// OperatorAddr returns the address of the operator's routes.
func (w *World) OperatorAddr() string { return w.service.OperatorAddr() }

// Stop ends the service, if it runs, and waits for its end.
func (w *World) Stop() {
	w.t.Helper()
	if w.service == nil {
		return
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	if err := w.service.Stop(); err != nil {
		w.t.Errorf("the service ended with %v", err)
	}
	w.service = nil
}

// Restart ends the service, if it runs, and starts it again with the same database and address.
func (w *World) Restart() {
	w.t.Helper()
	w.Stop()
	listener, err := net.Listen("tcp", w.Options.Listen)
	if err != nil {
		w.t.Fatal(err)
	}
	w.serve(listener)
}

// loadDocument makes HTTP check every response against the OpenAPI document of the service. Loading a document is
// slow, and apitest keeps those that it has seen. So the address, which is another one in each test, is replaced.
func (w *World) loadDocument() {
	w.t.Helper()
	response, err := http.Get(w.Options.BaseURL + "/openapi.json")
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	document, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	document = bytes.ReplaceAll(document, []byte(w.Options.BaseURL), []byte("http://service.test"))
	w.Validator = apitest.New(w.t, document)
	w.HTTP = &http.Client{Transport: w.Validator.Transport(nil)}
}

// NewPayer returns a wallet with tokens and a Permit2 allowance.
func (w *World) NewPayer() *ecdsa.PrivateKey {
	w.t.Helper()
	key := w.NewKey()
	address := crypto.PubkeyToAddress(key.PublicKey)
	if err := w.Chain.Fund(w.t.Context(), address, devchain.Ether(1), big.NewInt(1e12)); err != nil {
		w.t.Fatal(err)
	}
	if err := w.Chain.Approve(w.t.Context(), key); err != nil {
		w.t.Fatal(err)
	}
	return key
}

// NewContract deploys a contract wallet with tokens and a Permit2 allowance. Its owner is key, if its constructor takes
// an owner.
func (w *World) NewContract(contract *contracts.Contract, key *ecdsa.PrivateKey) common.Address {
	w.t.Helper()
	owner := crypto.PubkeyToAddress(key.PublicKey)
	if err := w.Chain.Fund(w.t.Context(), owner, devchain.Ether(1), nil); err != nil {
		w.t.Fatal(err)
	}
	var args []any
	if len(contract.ABI.Constructor.Inputs) > 0 {
		args = append(args, owner)
	}
	wallet, err := w.Chain.Deploy(w.t.Context(), key, contract, args...)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.Chain.FundContract(w.t.Context(), key, wallet, big.NewInt(1e12)); err != nil {
		w.t.Fatal(err)
	}
	return wallet
}

// NewKey returns a wallet without coins and tokens.
func (w *World) NewKey() *ecdsa.PrivateKey {
	w.t.Helper()
	key, err := crypto.GenerateKey()
	if err != nil {
		w.t.Fatal(err)
	}
	return key
}

// Client returns a client with a fresh token that pays with key.
func (w *World) Client(key *ecdsa.PrivateKey, change ...func(*client.Config)) *client.Client {
	w.t.Helper()
	config := client.Config{
		BaseURL: w.Options.BaseURL, Token: boxoffice.NewToken(), HTTP: w.HTTP,
		Signer: client.KeySigner(key), Chain: w.Chain.Client(), Now: w.Now,
	}
	for _, c := range change {
		c(&config)
	}
	buyer, err := client.New(config)
	if err != nil {
		w.t.Fatal(err)
	}
	return buyer
}

// Received returns the recipient's token balance.
func (w *World) Received() *big.Int {
	w.t.Helper()
	balance, err := w.Chain.TokenBalance(context.Background(), devchain.PayTo())
	if err != nil {
		w.t.Fatal(err)
	}
	return balance
}
