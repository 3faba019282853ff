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

// reporter prints one step of the purchase.
type reporter func(step, format string, args ...any)

// buy makes the first purchase with the Go client and prints each step.
func buy(ctx context.Context, progress io.Writer, config server.Config, chain *devchain.Chain) error {
	token := boxoffice.NewToken()
	buyer, err := client.New(client.Config{
		BaseURL: config.BaseURL, Token: token, Signer: client.KeySigner(devchain.PayerKey()), Chain: chain.Client(),
	})
	if err != nil {
		return err
	}
	report := func(step, format string, args ...any) {
		fmt.Fprintf(progress, "%-10s %s\n", step, fmt.Sprintf(format, args...))
	}
	fmt.Fprintln(progress)
	status, err := buyer.Buy(ctx, client.Purchase{
		Input: boxoffice.JobOpen{Objective: objective},
		Max:   config.Payment.Amount,
		Confirm: func(_ context.Context, challenge boxoffice.Challenge) error {
			quote := challenge.Quote
			report("quoted", "%s for %s %s, quote %s", quote.Action,
				boxoffice.FormatUnits(quote.Payment.Amount, quote.Payment.Decimals), config.Payment.Symbol, quote.ID)
			report("challenge", "402 Payment Required: %s on %s to %s",
				challenge.Accepts[0].Scheme, quote.Payment.Network, quote.Payment.PayTo)
			report("inspected", "prepared input %s", challenge.Input)
			report("signing", "the Permit2 payment and the approval of this quote, as %s",
				devchain.DevAccounts()[1].Address)
			return nil
		},
	})
	if err != nil {
		return err
	}
	report("settled", "transaction %s in block %d", status.Payment.TransactionHash, *status.Payment.BlockNumber)
	report("admitted", "%s %s", status.Admission.Result.Kind, status.Admission.Result.URL)
	report("order", "%s reads %q", status.Order.ID, status.Status)
	if err := reportBalance(ctx, report, chain, config); err != nil {
		return err
	}
	if len(config.Agents) == 0 {
		return nil
	}
	return follow(ctx, report, buyer, status.Admission.Result.ID, token)
}

// follow prints the states of the job until it is delivered, and how to clone the result.
func follow(
	ctx context.Context, report reporter, buyer *client.Client, id boxoffice.UUID, token boxoffice.Token,
) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var job boxoffice.Job
	for current, err := range buyer.WatchJob(ctx, id) {
		if err != nil {
			return fmt.Errorf("the job: %w", err)
		}
		if current.State != job.State {
			report("job", "is %s", current.State)
		}
		job = current
	}
	switch {
	case job.State != boxoffice.JobCompleted:
		return fmt.Errorf("the job is %s: %s", job.State, *job.BlockedReason)
	case job.Delivery.Failure != "":
		return fmt.Errorf("the delivery failed: %s", job.Delivery.Failure)
	}
	report("summary", "%s", job.Nodes[0].Summary)
	address, err := url.Parse(job.Delivery.RepoURL)
	if err != nil {
		return err
	}
	// printed because it is of this demo alone and buys nothing again
	address.User = url.UserPassword("token", token.Reveal())
	report("fetch", "git clone %s", address)
	report("delivered", "%s at %s", job.Delivery.RepoURL, job.Delivery.Commit)
	return nil
}

// reportBalance prints what the recipient holds.
func reportBalance(ctx context.Context, report reporter, chain *devchain.Chain, config server.Config) error {
	balance, err := chain.TokenBalance(ctx, config.Payment.PayTo)
	if err != nil {
		return err
	}
	received, err := x402.Uint256FromBig(balance)
	if err != nil {
		return err
	}
	report("received", "the recipient %s holds %s %s", short(config.Payment.PayTo),
		boxoffice.FormatUnits(received, config.Payment.Decimals), config.Payment.Symbol)
	return nil
}

func short(address common.Address) string { return address.Hex()[:10] + "…" }
