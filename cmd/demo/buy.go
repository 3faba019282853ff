package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"time"

	"boxoffice"
	"boxoffice/client"
	"boxoffice/internal/server"
	"boxoffice/internal/test/devchain"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
)

const objective = "Compare the three most used embedded databases for a payments service, and recommend one."

// buy makes the first purchase with the real client and tells each step.
func buy(ctx context.Context, story io.Writer, config server.Config, chain *devchain.Chain) error {
	token := boxoffice.NewToken()
	buyer, err := client.New(client.Config{
		BaseURL: config.BaseURL, Token: token, Signer: client.KeySigner(devchain.PayerKey()), Chain: chain.Client(),
	})
	if err != nil {
		return err
	}
	tell := func(step, format string, args ...any) {
		fmt.Fprintf(story, "%-10s %s\n", step, fmt.Sprintf(format, args...))
	}
	fmt.Fprintln(story)
	status, err := buyer.Buy(ctx, client.Purchase{
		Input: boxoffice.JobOpen{Objective: objective},
		Max:   config.Payment.Amount,
		Confirm: func(_ context.Context, challenge boxoffice.Challenge) error {
			quote := challenge.Quote
			tell("quoted", "%s for %s %s, quote %s", quote.Action, boxoffice.FormatUnits(quote.Payment.Amount, quote.Payment.Decimals), config.Payment.Symbol, quote.ID)
			tell("challenge", "402 Payment Required: %s on %s to %s", challenge.Accepts[0].Scheme, quote.Payment.Network, quote.Payment.PayTo)
			tell("inspected", "prepared input %s", challenge.Input)
			tell("signing", "the Permit2 payment and the approval of this quote, as %s", devchain.DevAccounts()[1].Address)
			return nil
		},
	})
	if err != nil {
		return err
	}
	tell("settled", "transaction %s in block %d", status.Payment.TransactionHash, *status.Payment.BlockNumber)
	tell("admitted", "%s %s", status.Admission.Result.Kind, status.Admission.Result.URL)
	tell("order", "%s reads %q", status.Order.ID, status.Status)
	if err := tellBalance(ctx, tell, chain, config); err != nil {
		return err
	}
	if len(config.Agents) == 0 {
		return nil
	}
	return follow(ctx, tell, buyer, status.Admission.Result.ID, token)
}

// follow tells how the job goes until it is delivered, and how to fetch it.
func follow(ctx context.Context, tell func(step, format string, args ...any), buyer *client.Client, id boxoffice.UUID, token boxoffice.Token) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var job boxoffice.Job
	for now, err := range buyer.WatchJob(ctx, id) {
		if err != nil {
			return fmt.Errorf("the job: %w", err)
		}
		if now.State != job.State {
			tell("job", "is %s", now.State)
		}
		job = now
	}
	switch {
	case job.State != boxoffice.JobCompleted:
		return fmt.Errorf("the job is %s: %s", job.State, *job.BlockedReason)
	case job.Delivery.Failure != "":
		return fmt.Errorf("the delivery failed: %s", job.Delivery.Failure)
	}
	tell("summary", "%s", job.Nodes[0].Summary)
	address, err := url.Parse(job.Delivery.RepoURL)
	if err != nil {
		return err
	}
	address.User = url.UserPassword("token", token.Reveal()) // the demo's own, which buys nothing again
	tell("fetch", "git clone %s", address)
	tell("delivered", "%s at %s", job.Delivery.RepoURL, job.Delivery.Commit)
	return nil
}

func tellBalance(ctx context.Context, tell func(step, format string, args ...any), chain *devchain.Chain, config server.Config) error {
	balance, err := chain.TokenBalance(ctx, config.Payment.PayTo)
	if err != nil {
		return err
	}
	received, err := x402.Uint256FromBig(balance)
	if err != nil {
		return err
	}
	tell("received", "the recipient %s holds %s %s", short(config.Payment.PayTo), boxoffice.FormatUnits(received, config.Payment.Decimals), config.Payment.Symbol)
	return nil
}

func short(address common.Address) string { return address.Hex()[:10] + "…" }
