package client_test

import (
	"context"
	"crypto/ecdsa"
	"fmt"
	"log"
	"os"
	"testing"

	"boxoffice"
	"boxoffice/client"
	"boxoffice/internal/test/servertest"

	"github.com/ethereum/go-ethereum/ethclient"
)

func ExampleClient_Buy() {
	demo := startDemo()
	defer demo.stop()
	ctx := context.Background()

	buyer, err := client.New(client.Config{
		BaseURL: demo.url,
		Token:   boxoffice.NewToken(),
		Signer:  client.KeySigner(demo.key),
		Chain:   demo.chain, // an *ethclient.Client
	})
	if err != nil {
		log.Fatal(err)
	}
	most, err := boxoffice.ParseUnits("0.01", 18) // of a token with 18 decimals
	if err != nil {
		log.Fatal(err)
	}
	status, err := buyer.Buy(ctx, client.Purchase{
		Input: boxoffice.JobOpen{Objective: "Compare three vector databases"},
		Max:   most,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(status.Status, status.Admission.Result.Kind)
	// Output: admitted job
}

func ExampleOutcomeOf() {
	demo := startDemo()
	defer demo.stop()
	buyer := demo.client()

	tooLittle, err := boxoffice.ParseUnits("0.0000000000009", 18)
	if err != nil {
		log.Fatal(err)
	}
	_, err = buyer.Buy(context.Background(), client.Purchase{
		Input: boxoffice.OracleRequest{Question: "Will it rain?", PanelSize: 5, Options: []string{"yes", "no"}},
		Max:   tooLittle,
	})
	switch client.OutcomeOf(err) {
	case client.Succeeded:
		fmt.Println("admitted")
	case client.Unknown:
		fmt.Println("buy again with the same request key:", err)
	default:
		fmt.Println("nothing was paid:", client.OutcomeOf(err))
	}
	// Output: nothing was paid: not signed
}

// Sign and Submit are the two halves of Pay, for a wallet on another machine.
func ExampleClient_Sign() {
	demo := startDemo()
	defer demo.stop()
	ctx, buyer := context.Background(), demo.client()

	quoted, err := buyer.Quote(ctx, boxoffice.JobOpen{Objective: "Audit the vault", Template: "audit"},
		boxoffice.NewUUID())
	if err != nil {
		log.Fatal(err)
	}
	payment, err := buyer.Sign(ctx, quoted.Order.ID, client.Purchase{Max: quoted.Order.Quote.Payment.Amount})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := buyer.Submit(ctx, payment); err != nil {
		log.Fatal(err)
	}
	for status, err := range buyer.Watch(ctx, quoted.Order.ID) {
		if err != nil {
			log.Fatal(err)
		}
		if !status.Status.Pending() {
			fmt.Println(status.Status)
		}
	}
	// Output: admitted
}

func ExampleClient_AllJobs() {
	demo := startDemo()
	defer demo.stop()
	ctx, buyer := context.Background(), demo.client()
	for _, objective := range []string{"one", "two", "three"} {
		_, err := buyer.Buy(ctx, client.Purchase{Input: boxoffice.JobOpen{Objective: objective}, Max: servertest.Price})
		if err != nil {
			log.Fatal(err)
		}
	}

	for job, err := range buyer.AllJobs(ctx, client.JobQuery{State: boxoffice.JobQueued, Limit: 2}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(job.Objective)
	}
	// Output:
	// three
	// two
	// one
}

// demo is a service on a chain of its own, and a wallet with tokens.
type demo struct {
	url   string
	key   *ecdsa.PrivateKey
	chain *ethclient.Client
	world *servertest.World
	stop  func()
}

func startDemo() demo {
	t := &exampleTB{}
	world := servertest.Start(t)
	return demo{world.Options.BaseURL, world.NewPayer(), world.Chain.Client(), world, t.end}
}

func (d demo) client() *client.Client { return d.world.Client(d.key) }

// exampleTB lets an example start what tests start.
type exampleTB struct {
	testing.TB
	cleanups []func()
}

func (*exampleTB) Helper() {}

func (*exampleTB) Context() context.Context { return context.Background() }

func (*exampleTB) Error(args ...any) { panic(fmt.Sprint(args...)) }

func (*exampleTB) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

func (e *exampleTB) Cleanup(f func()) { e.cleanups = append(e.cleanups, f) }

func (e *exampleTB) TempDir() string {
	dir, err := os.MkdirTemp("", "boxoffice-example-")
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (e *exampleTB) end() {
	for i := len(e.cleanups) - 1; i >= 0; i-- {
		e.cleanups[i]()
	}
}
