// Command demo runs Boxoffice on one machine: an Ethereum chain of its own, the service
// with a new database, and a first purchase with the Go client, which it prints step by
// step. It stays up, so that curl and the boxoffice command can be tried.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"boxoffice/internal/server"
	"boxoffice/internal/test/devchain"
	"boxoffice/x402"
)

type options struct {
	listen, rpcListen, data  string
	blockTime                time.Duration
	once, noPurchase, asJSON bool
}

func main() {
	var o options
	flag.StringVar(&o.listen, "listen", "127.0.0.1:8402", "address of the service")
	flag.StringVar(&o.rpcListen, "rpc-listen", "127.0.0.1:8545", "address of the chain's JSON-RPC")
	flag.StringVar(&o.data, "data", "", "folder of the chain and the database (default: a temporary one)")
	flag.DurationVar(&o.blockTime, "block-time", time.Second, "time from one block to the next")
	flag.BoolVar(&o.once, "once", false,
		"end when the purchase is delivered; exit 0 only if it was admitted and completed")
	flag.BoolVar(&o.noPurchase, "no-purchase", false, "buy nothing")
	flag.BoolVar(&o.asJSON, "json", false,
		"when ready, print one line of JSON on standard output; everything else goes to standard error")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// ready is the line of JSON that --json prints.
type ready struct {
	BaseURL    string  `json:"baseUrl"`
	RPCURL     string  `json:"rpcUrl"`
	ChainID    uint64  `json:"chainId"`
	Asset      string  `json:"asset"`
	PayTo      string  `json:"payTo"`
	Payer      account `json:"payer"`
	ConfigFile string  `json:"configFile"`
}

type account struct {
	Address    string `json:"address"`
	PrivateKey string `json:"privateKey"`
}

func run(ctx context.Context, o options, stdout, stderr io.Writer) (err error) {
	if o.once && o.noPurchase {
		return errors.New("--once ends after the purchase, so it cannot be used with --no-purchase")
	}
	if o.blockTime <= 0 {
		return errors.New("--block-time must be above 0")
	}
	if o.data == "" {
		if o.data, err = os.MkdirTemp("", "boxoffice-demo-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.data)) }()
	} else if o.data, err = filepath.Abs(o.data); err != nil {
		return err
	}

	progress := stdout
	if o.asJSON { // standard output is for the line of JSON alone
		progress = stderr
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))

	chain, err := devchain.Start(ctx, devchain.Config{
		DataDir: filepath.Join(o.data, "chain"), RPCListen: o.rpcListen, BlockTime: o.blockTime,
		Funded: devchain.DevAccounts(), Logger: log,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, chain.Close()) }()
	fmt.Fprintf(progress, "chain    %s  chain id %d, a block every %s\n", chain.URL(), chain.ChainID(), o.blockTime)

	agent, err := buildAgent(ctx, o.data)
	if errors.Is(err, errNoTools) {
		fmt.Fprintf(progress, "LEFT OUT %v; bought work is admitted and waits\n", err)
	} else if err != nil {
		return err
	}
	listener, config, file, err := configure(o, chain, agent)
	if err != nil {
		return err
	}
	service, err := server.New(ctx, server.Options{Config: config, Key: devchain.SettlementKey(), Log: log,
		Listener: listener})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.Close()) }()
	fmt.Fprintf(progress, "service  %s  configuration in %s\n", config.BaseURL, file)

	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- service.Run(serving) }()
	defer func() {
		stopServing()
		err = errors.Join(err, <-served)
	}()

	select {
	case <-service.Ready():
	case err := <-served:
		served <- nil
		return errors.Join(errors.New("the service ended"), err)
	case <-ctx.Done():
		return ctx.Err()
	}
	if !o.noPurchase {
		if err := buy(ctx, progress, config, chain); err != nil {
			return err
		}
	}
	if o.asJSON {
		payer := devchain.DevAccounts()[1].Address
		line := ready{
			BaseURL: config.BaseURL, RPCURL: chain.URL(), ChainID: config.Chain.ID,
			Asset: lower(config.Payment.Asset), PayTo: lower(config.Payment.PayTo),
			Payer:      account{Address: lower(payer), PrivateKey: "0x" + devchain.PayerKeyHex},
			ConfigFile: file,
		}
		if err := json.NewEncoder(stdout).Encode(line); err != nil {
			return err
		}
	}
	if o.once {
		return nil
	}
	fmt.Fprintf(progress, "\nThe service stays up at %s; Ctrl-C ends it. Try:\n\n  curl -s %s/requests/capabilities\n",
		config.BaseURL, config.BaseURL)
	select {
	case <-ctx.Done():
		return nil
	case err := <-served:
		served <- nil
		return errors.Join(errors.New("the service ended"), err)
	}
}

func lower(address interface{ MarshalText() ([]byte, error) }) string {
	text, _ := address.MarshalText() // of an address: never fails
	return string(text)
}

// price is what the demo asks for one unit of an action: a quarter of a token.
var price = x402.NewUint256(250_000_000_000_000_000)
