package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"boxoffice/internal/server"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// sale is one payment to the official resource server, which settles through
// boxoffice facilitator.
type sale struct {
	resource string
	path     string // of the facilitator's call that breaks, "" for none
	cut      cut
	again    int  // how often the customer sends the same payment again
	atOnce   bool // and not one after the other
	served   int  // how often the resource is to be served
	first    int  // the status that the first call is answered, 0 for any
	result   string
}

const (
	afterAll = "402, then 200 with PAYMENT-RESPONSE, exactly one transfer"
	onceOnly = "200 with PAYMENT-RESPONSE, then 402, exactly one transfer"
)

var sales = []sale{
	{"/work", "", whole, 1, false, 1, 200, onceOnly},
	{"/upfront", "", whole, 1, false, 1, 200, onceOnly},
	{"/work", "", whole, 4, true, 1, 0, "200 once and 402 else, exactly one transfer"},
	{"/upfront", "", whole, 4, true, 1, 0, "200 once and 402 else, exactly one transfer"},
	{"/work", x402.PathVerify, onDelivery, 1, false, 1, 402, afterAll},
	{"/work", x402.PathSettle, onBroadcast, 1, false, 1, 402, afterAll},
	{"/upfront", x402.PathSettle, onBroadcast, 1, false, 1, 402, afterAll},
	{"/work", x402.PathSettle, inAnswer, 1, false, 0, 402, "402 and 402, exactly one transfer: the facilitator had answered, and serves nobody twice"},
}

// throughOurs sells with the official resource server, which settles through
// boxoffice facilitator, and sees that a payment is exactly one transfer and
// serves the resource exactly once.
func throughOurs(ctx context.Context, d *demo) (rows []row, err error) {
	key, wallet, err := newWallet(ctx, d)
	if err != nil {
		return nil, err
	}
	facilitator, err := d.serveBeside(ctx, "facilitator", "facilitator", []string{"BOXOFFICE_SETTLEMENT_KEY=" + key}, func(config *server.Config) {
		config.Facilitator.Assets = []common.Address{common.HexToAddress(d.Asset)}
		config.Facilitator.TellOnce = true // the official servers keep no record of what they served
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, facilitator.end()) }()
	line, err := newBreaker(ctx, "http://"+facilitator.config.Facilitator.Listen, d.sent(ctx, wallet))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, line.close()) }()
	recipient, err := crypto.GenerateKey()
	if err != nil {
		return nil, err
	}
	world := *d
	world.PayTo = crypto.PubkeyToAddress(recipient.PublicKey).Hex()
	shop, address, err := startNode(ctx, official, "shop.mjs", d.env("PAY_TO="+world.PayTo, "FACILITATOR_URL="+line.url))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, shop.end()) }()

	seller, err := named(official, "@x402/hono", "@x402/evm")
	if err != nil {
		return nil, err
	}
	customer, err := named(official, "@x402/fetch", "viem")
	if err != nil {
		return nil, err
	}
	for _, s := range sales {
		if err := s.run(ctx, &world, address, line); err != nil {
			return nil, fmt.Errorf("%+v: %w\n%s", s, err, &shop.stderr)
		}
		rows = append(rows, row{seller + ", " + s.resource, "boxoffice facilitator, tell_once", customer, s.breaks(), s.result})
	}
	return rows, nil
}

func (s sale) breaks() string {
	what := "nothing"
	if s.path != "" {
		what = s.path + " is " + string(s.cut)
	}
	switch {
	case s.atOnce:
		what += fmt.Sprintf("; the same payment %d times at once", s.again+1)
	case s.again > 0:
		what += "; then the same payment again"
	}
	return what
}

// told is what a customer was answered.
type told struct {
	Status  int              `json:"status"`
	Body    string           `json:"body"`
	Payment *x402.Settlement `json:"payment"`
	Error   string           `json:"error"`
}

func (s sale) run(ctx context.Context, d *demo, shop string, line *breaker) error {
	var answers []told
	transfer, err := line.oneTransfer(ctx, d, s.path, s.cut, func() (err error) {
		answers, err = s.pay(ctx, d, shop)
		return err
	})
	if err != nil {
		return fmt.Errorf("%w, answered %+v", err, answers)
	}
	served := slices.DeleteFunc(slices.Clone(answers), func(t told) bool { return t.Status != 200 })
	if len(served) != s.served || s.first != 0 && answers[0].Status != s.first {
		return fmt.Errorf("served %d times, answered %+v", len(served), answers)
	}
	for _, t := range served {
		if t.Payment == nil || !t.Payment.Success || common.HexToHash(t.Payment.Transaction) != transfer.TxHash || t.Body != `{"work":"done"}` {
			return fmt.Errorf("answered %+v", t)
		}
	}
	return nil
}

func (s sale) pay(ctx context.Context, d *demo, shop string) (answers []told, err error) {
	var stderr bytes.Buffer
	command := exec.CommandContext(ctx, "node", filepath.Join(official, "customer.mjs"))
	command.Env = d.env("RESOURCE="+shop+s.resource, "PRIVATE_KEY="+d.Payer.PrivateKey, fmt.Sprintf("AGAIN=%d", s.again))
	if s.atOnce {
		command.Env = append(command.Env, "AT_ONCE=1")
	}
	command.Stderr = &stderr
	out, err := command.Output()
	if err == nil {
		err = json.Unmarshal(out, &answers)
	}
	if err != nil {
		return nil, fmt.Errorf("the customer: %w\n%s", err, strings.TrimSpace(stderr.String()))
	}
	return answers, nil
}
