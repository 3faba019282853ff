package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"boxoffice"
	"boxoffice/client"
	"boxoffice/x402"
)

// request has the flags of the commands that quote.
type request struct {
	Action     string `arg:"" help:"One of job.open, job.continue, launch.open, oracle.request, workflow.open, schedule.create, schedule.topup."`
	Input      string `placeholder:"JSON" help:"The action's input as JSON."`
	InputFile  string `placeholder:"FILE" help:"The action's input as JSON in a file; - is stdin."`
	Objective  string `help:"job.open: what the job has to do."`
	Template   string `help:"job.open: the template; by default research."`
	RepoURL    string `name:"repo-url" help:"job.open: the repository to deliver to."`
	RequestKey string `placeholder:"UUID" help:"The name of the purchase. The same key continues an interrupted purchase and never pays twice."`
}

// input returns the input that the flags give.
func (r *request) input(std *streams) (boxoffice.Input, error) {
	job := boxoffice.JobOpen{Objective: r.Objective, Template: r.Template, RepoURL: r.RepoURL}
	hasJob := r.Objective != "" || r.Template != "" || r.RepoURL != ""
	given := 0
	for _, is := range []bool{r.Input != "", r.InputFile != "", hasJob} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return nil, usage("give the input once: " +
			"--input, --input-file, or for job.open --objective, --template and --repo-url")
	case hasJob && r.Action != boxoffice.ActionJobOpen:
		return nil, usage("--objective, --template and --repo-url are only for job.open: give --input for %s", r.Action)
	case hasJob:
		return job, nil
	}
	document, err := []byte(r.Input), error(nil)
	switch {
	case r.InputFile == "-":
		document, err = io.ReadAll(io.LimitReader(std.in, boxoffice.MaxBodyBytes+1))
	case r.InputFile != "":
		document, err = os.ReadFile(r.InputFile)
	}
	if err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	if _, err := boxoffice.Canonical(document); err != nil {
		return nil, usage("input: %w", err)
	}
	return boxoffice.RawInput{Action: r.Action, JSON: document}, nil
}

// key returns the request key, a fresh one if none was given.
func (r *request) key(std *streams) (boxoffice.UUID, error) {
	if r.RequestKey != "" {
		key, err := boxoffice.ParseUUID(r.RequestKey)
		if err != nil {
			return "", usage("--request-key %w", err)
		}
		return key, nil
	}
	key := boxoffice.NewUUID()
	fmt.Fprintf(std.err, "Request key %s (if this is interrupted, continue with --request-key)\n", key)
	return key, nil
}

type quoteCmd struct{ request }

// Run quotes and shows the order.
func (cmd *quoteCmd) Run(ctx context.Context, s *Settings, std *streams) error {
	input, err := cmd.input(std)
	if err != nil {
		return err
	}
	key, err := cmd.key(std)
	if err != nil {
		return err
	}
	c, err := s.connect(ctx, std, needsToken|makesToken)
	if err != nil {
		return err
	}
	capabilities, err := c.Capabilities(ctx)
	if err != nil {
		return err
	}
	quoted, err := c.Quote(ctx, input, key)
	if err != nil {
		return err
	}
	err = s.result(std, func(p *page) {
		p.line("Order", "%s", quoted.Order.ID)
		p.line("Status", "%s", quoted.Order.Status)
		p.quote(&quoted.Order, &capabilities)
	})
	if err == nil && quoted.Order.Status == boxoffice.Quoted {
		fmt.Fprintf(std.err, "Pay with boxoffice pay %s\n", quoted.Order.ID)
	}
	return err
}

// terms are the flags of the commands that pay.
type terms struct {
	MaxAmount string        `placeholder:"AMOUNT" help:"The most to pay, in whole tokens such as 2.5; required with --yes. The service says how many decimals the token has; --rpc-url checks it."`
	Yes       bool          `short:"y" help:"Do not ask. Pay if the price is at most --max-amount and the prepared input is the one that you gave."`
	AnyInput  bool          `help:"With --yes: pay also if the service changed the input."`
	Timeout   time.Duration `default:"10m" help:"How long to take in all, including your answer."`
}

// purchase returns what the flags allow. Before it signs, it shows the price and
// the prepared input; without --yes it asks whether to do verb. Then it prints next.
func (t *terms) purchase(
	std *streams, capabilities *boxoffice.Capabilities, verb, next string,
) (client.Purchase, error) {
	purchase := client.Purchase{Max: x402.MaxUint256()}
	if t.MaxAmount != "" {
		var err error
		if purchase.Max, err = boxoffice.ParseUnits(t.MaxAmount, capabilities.Payment.Asset.Decimals); err != nil {
			return purchase, usage("--max-amount: %w", err)
		}
	}
	if !t.Yes || t.AnyInput {
		purchase.AcceptInput = func(_, _ json.RawMessage) error { return nil }
	}
	purchase.Confirm = func(ctx context.Context, challenge boxoffice.Challenge) error {
		p := newPage(std.err)
		p.quote(&boxoffice.Order{Quote: challenge.Quote, InputJSON: string(challenge.Input)}, capabilities)
		if err := p.flush(); err != nil {
			return err
		}
		if !t.Yes {
			if err := ask(ctx, std, verb+" "+price(challenge.Quote.Payment, capabilities)+"?"); err != nil {
				return err
			}
		}
		fmt.Fprintln(std.err, next)
		return nil
	}
	return purchase, nil
}

type buyCmd struct {
	request
	terms
}

// Validate is called by the parser.
func (t *terms) Validate() error {
	if t.Yes && t.MaxAmount == "" {
		return errors.New("--yes pays without asking: give the most to pay with --max-amount")
	}
	return nil
}

// Run buys.
func (cmd *buyCmd) Run(ctx context.Context, s *Settings, std *streams) error {
	input, err := cmd.input(std)
	if err != nil {
		return err
	}
	key, err := cmd.key(std)
	if err != nil {
		return err
	}
	buy := func(ctx context.Context, c *client.Client, purchase client.Purchase) (boxoffice.Status, error) {
		purchase.Input, purchase.RequestKey = input, key
		return c.Buy(ctx, purchase)
	}
	return cmd.pay(ctx, s, std, needsToken|makesToken, buy)
}

type payCmd struct {
	ID string `arg:"" help:"The order."`
	terms
}

// Run pays for an order.
func (cmd *payCmd) Run(ctx context.Context, s *Settings, std *streams) error {
	id, err := parseID(cmd.ID)
	if err != nil {
		return err
	}
	pay := func(ctx context.Context, c *client.Client, purchase client.Purchase) (boxoffice.Status, error) {
		return c.Pay(ctx, id, purchase)
	}
	return cmd.pay(ctx, s, std, needsToken, pay)
}

type payer func(context.Context, *client.Client, client.Purchase) (boxoffice.Status, error)

func (t *terms) pay(ctx context.Context, s *Settings, std *streams, needs int, pay payer) error {
	c, err := s.connect(ctx, std, needs|needsWallet)
	if err != nil {
		return err
	}
	capabilities, err := c.Capabilities(ctx)
	if err != nil {
		return err
	}
	purchase, err := t.purchase(std, &capabilities, "Pay", "Signing, paying and waiting until the order is admitted…")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	status, err := pay(ctx, c, purchase)
	known := status.Payment != nil || status.Status.Pending() // then the order says more than the error
	if err != nil && !known {
		return err
	}
	err = errors.Join(err, s.result(std, func(p *page) { p.status(&status, &capabilities) }))
	if err == nil && status.Admission != nil {
		opened := status.Admission.Result
		fmt.Fprintf(std.err, "See it with boxoffice %s %s\n", printable(opened.Kind), opened.ID)
	}
	return err
}
