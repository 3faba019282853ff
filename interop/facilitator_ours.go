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

// sale is one payment to the official resource server, which settles through boxoffice facilitator.
type sale struct {
	resource string
	path     string // of the call to the facilitator that fails; "" is no call
	cut      cut
	again    int  // how often the customer repeats the same payment
	atOnce   bool // all at the same time instead of one after the other
	served   int  // how often the resource has to be served
	first    int  // the status of the first response, 0 for any
	result   string
}

const (
	afterAll = "402, then 200 with PAYMENT-RESPONSE, exactly one transfer"
	onceOnly = "200 with PAYMENT-RESPONSE, then 402, exactly one transfer"
)

var sales = []sale{
	{"/work", "", whole, 1, false, 1, 200, onceOnly},
	{"/upfront", "", whole, 1, false, 1, 200, onceOnly},
	{"/work", "", whole, 4, true, 1, 0, "200 once, otherwise 402, exactly one transfer"},
	{"/upfront", "", whole, 4, true, 1, 0, "200 once, otherwise 402, exactly one transfer"},
	{"/work", x402.PathVerify, onDelivery, 1, false, 1, 402, afterAll},
	{"/work", x402.PathSettle, onBroadcast, 1, false, 1, 402, afterAll},
	{"/upfront", x402.PathSettle, onBroadcast, 1, false, 1, 402, afterAll},
	{
		"/work", x402.PathSettle, inAnswer, 1, false, 0, 402,
		"402 and 402, exactly one transfer: the facilitator has answered once and does not repeat it",
	},
}

// throughOurs pays the official resource server, which settles through boxoffice facilitator. It checks that a payment
// is exactly one transfer and that the resource is served as often as it should.
func throughOurs(ctx context.Context, d *demo) (rows []row, err error) {
	key, wallet, err := newWallet(ctx, d)
	if err != nil {
		return nil, err
	}
	secret := []string{"BOXOFFICE_SETTLEMENT_KEY=" + key}
	facilitator, err := d.serveBeside(ctx, "facilitator", "facilitator", secret, func(config *server.Config) {
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
	shop, address, err := startNode(ctx, official, "shop.mjs",
		d.env("PAY_TO="+world.PayTo, "FACILITATOR_URL="+line.url))
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
		rows = append(rows, row{
			seller + ", " + s.resource, "boxoffice facilitator, tell_once", customer, s.fails(), s.result,
		})
	}
	return rows, nil
}

func (s sale) fails() string {
	what := "nothing"
	if s.path != "" {
		what = s.path + " is " + string(s.cut)
	}
	switch {
	case s.atOnce:
		what += fmt.Sprintf("; the same payment %d times at the same time", s.again+1)
	case s.again > 0:
		what += "; then the same payment again"
	}
	return what
}

// response is what a customer got.
type response struct {
	Status  int              `json:"status"`
	Body    string           `json:"body"`
	Payment *x402.Settlement `json:"payment"`
	Error   string           `json:"error"`
}

func (s sale) run(ctx context.Context, d *demo, shop string, line *breaker) error {
	var responses []response
	transfer, err := line.oneTransfer(ctx, d, s.path, s.cut, func() (err error) {
		responses, err = s.pay(ctx, d, shop)
		return err
	})
	if err != nil {
		return fmt.Errorf("%w; the responses are %+v", err, responses)
	}
	served := slices.DeleteFunc(slices.Clone(responses), func(r response) bool { return r.Status != 200 })
	if len(served) != s.served || s.first != 0 && responses[0].Status != s.first {
		return fmt.Errorf("served %d times; the responses are %+v", len(served), responses)
	}
	for _, r := range served {
		if r.Payment == nil || !r.Payment.Success || common.HexToHash(r.Payment.Transaction) != transfer.TxHash ||
			r.Body != `{"work":"done"}` {
			return fmt.Errorf("the response is %+v", r)
		}
	}
	return nil
}

func (s sale) pay(ctx context.Context, d *demo, shop string) (responses []response, err error) {
	var stderr bytes.Buffer
	command := exec.CommandContext(ctx, "node", filepath.Join(official, "customer.mjs"))
	command.Env = d.env(
		"RESOURCE="+shop+s.resource, "PRIVATE_KEY="+d.Payer.PrivateKey, fmt.Sprintf("AGAIN=%d", s.again))
	if s.atOnce {
		command.Env = append(command.Env, "AT_ONCE=1")
	}
	command.Stderr = &stderr
	out, err := command.Output()
	if err == nil {
		err = json.Unmarshal(out, &responses)
	}
	if err != nil {
		return nil, fmt.Errorf("the customer: %w\n%s", err, strings.TrimSpace(stderr.String()))
	}
	return responses, nil
}
