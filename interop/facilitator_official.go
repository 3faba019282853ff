package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"boxoffice"
	"boxoffice/internal/httpapi"
	"boxoffice/internal/server"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

var official = filepath.Join("interop", "facilitator")

// setting is how our service and the facilitator that it settles through are configured.
type setting struct {
	node        bool // our service has an RPC node; without one, the facilitator's answer decides
	pendingSoon bool // the facilitator answers settlement_pending before the transaction is mined
}

// throughOfficialCase is one purchase from our service, which settles through the official facilitator. A call to the
// facilitator fails.
type throughOfficialCase struct {
	client string
	path   string // of the call that fails; "" is no call
	cut    cut
	result string
}

const (
	ourClient = "boxoffice buy"
	theirs    = "examples/typescript"
	// later is the result if the facilitator's answer is lost and there is no RPC node.
	later = "pending, exactly one transfer; admitted as soon as a node is configured"
)

var settings = []struct {
	setting
	cases []throughOfficialCase
}{
	{setting{node: true}, []throughOfficialCase{
		{ourClient, "", whole, admitted},
		{theirs, "", whole, admitted},
		{ourClient, x402.PathSettle, onDelivery, admitted},
		{theirs, x402.PathSettle, onBroadcast, admitted},
		{ourClient, x402.PathSettle, inAnswer, admitted},
	}},
	{setting{pendingSoon: true}, []throughOfficialCase{
		{ourClient, "", whole, admitted},
	}},
	{setting{}, []throughOfficialCase{
		{theirs, "", whole, admitted},
		{ourClient, x402.PathVerify, onDelivery, admitted},
		{ourClient, x402.PathVerify, inAnswer, admitted},
		{ourClient, x402.PathSettle, onBroadcast, later},
	}},
}

// throughOfficial buys from boxoffice serve, which settles through the official facilitator. It checks that each order
// is admitted after exactly one transfer and that the operator's list has one payment for it.
func throughOfficial(ctx context.Context, d *demo) (rows []row, err error) {
	for _, s := range settings {
		more, err := s.run(ctx, d, s.cases)
		if err != nil {
			return nil, fmt.Errorf("%+v: %w", s.setting, err)
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

func (s setting) run(ctx context.Context, d *demo, cases []throughOfficialCase) (rows []row, err error) {
	key, wallet, err := newWallet(ctx, d)
	if err != nil {
		return nil, err
	}
	timeout := "30000"
	if s.pendingSoon {
		timeout = "100"
	}
	env := d.env("PRIVATE_KEY=0x"+key, "CONFIRMATION_MS="+timeout)
	facilitator, address, err := startNode(ctx, official, "facilitator.mjs", env)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, facilitator.end()) }()
	if s.node {
		if err := officialReasons(ctx, d, address); err != nil {
			return nil, err
		}
	}
	line, err := newBreaker(ctx, address, d.sent(ctx, wallet))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, line.close()) }()
	shop, err := d.serveThrough(ctx, line, s.node)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, shop.service.end()) }()
	for _, c := range cases {
		client, err := c.run(ctx, shop, line)
		if err != nil {
			return nil, fmt.Errorf("%+v: %w", c, err)
		}
		settler, err := named(official, "@x402/core", "@x402/evm")
		if err != nil {
			return nil, err
		}
		rows = append(rows, row{s.server(), settler, client, s.fails(c), c.result})
	}
	if s.pendingSoon != strings.Contains(facilitator.stderr.String(), string(x402.ReasonPending)) {
		return nil, errors.New("the facilitator did not answer settlement_pending when it should, or did when it should not")
	}
	return rows, nil
}

func (s setting) server() string {
	if s.node {
		return "boxoffice serve"
	}
	return "boxoffice serve without an RPC node"
}

func (s setting) fails(c throughOfficialCase) string {
	switch {
	case s.pendingSoon:
		return "/settle first answers settlement_pending"
	case c.path == "":
		return "nothing"
	}
	return c.path + " is " + string(c.cut)
}

// viaFacilitator is a boxoffice serve that settles through a facilitator.
type viaFacilitator struct {
	service *instance
	world   demo // the demo with the address and the recipient of this service
	node    bool // the service has an RPC node
}

// serveThrough starts boxoffice serve with a new database and a new recipient.
func (d *demo) serveThrough(ctx context.Context, line *breaker, node bool) (*viaFacilitator, error) {
	recipient, err := crypto.GenerateKey()
	if err != nil {
		return nil, err
	}
	c := &viaFacilitator{world: *d, node: node}
	payTo := crypto.PubkeyToAddress(recipient.PublicKey)
	c.world.PayTo = payTo.Hex()
	return c, c.serve(ctx, line, payTo)
}

func (c *viaFacilitator) serve(ctx context.Context, line *breaker, payTo common.Address) (err error) {
	c.service, err = c.world.serveBeside(ctx, "via-facilitator-"+payTo.Hex(), "serve", nil,
		func(config *server.Config) {
			config.Payment.PayTo = payTo
			config.Settlement.Via = server.ViaFacilitator
			config.Settlement.Facilitator.URL = line.url
			config.Settlement.Facilitator.Retry = server.Duration(200 * time.Millisecond)
			if !c.node {
				config.Chain.RPCURL = ""
			}
		})
	if err == nil {
		c.world.BaseURL = c.service.config.BaseURL
	}
	return err
}

// run buys once and returns the name of the client.
func (p throughOfficialCase) run(ctx context.Context, c *viaFacilitator, line *breaker) (client string, err error) {
	_, err = line.oneTransfer(ctx, &c.world, p.path, p.cut, func() (err error) {
		client, err = p.buy(ctx, c, line)
		return err
	})
	if err != nil {
		return "", err
	}
	return client, c.onePaymentEach(ctx)
}

// buy runs the client until the order is admitted, and returns its name.
func (p throughOfficialCase) buy(ctx context.Context, c *viaFacilitator, line *breaker) (name string, err error) {
	if p.client != ourClient {
		if name, err = named(typescript, "@x402/core", "@x402/evm", "viem"); err == nil {
			_, err = c.world.buy(ctx, example("buy").program)
		}
		return name, err
	}
	binary, err := c.world.build(ctx, "boxoffice")
	if err != nil {
		return "", err
	}
	program := []string{
		binary, "buy", "job.open", "--objective", "Name three uses of a lighthouse",
		"--yes", "--max-amount", "0.25", "--json", "--request-key", string(boxoffice.NewUUID()),
	}
	env := []string{
		"BOXOFFICE_TOKEN=" + boxoffice.NewToken().Reveal(), "BOXOFFICE_VAULT=" + filepath.Join(c.world.folder, "vault"),
	}
	if p.result == later {
		_, err := c.world.buy(ctx, append(program, "--timeout", "5s"), env...)
		const stillPending = 5 // the exit code
		if pending, is := errors.AsType[*exec.ExitError](err); !is || pending.ExitCode() != stillPending {
			return "", fmt.Errorf("without an RPC node, want a pending payment, got: %w", err)
		}
		if err := c.service.end(); err != nil {
			return "", err
		}
		c.node = true
		if err := c.serve(ctx, line, common.HexToAddress(c.world.PayTo)); err != nil {
			return "", err
		}
	}
	_, err = c.world.buy(ctx, program, env...)
	return ourClient, err
}

// onePaymentEach checks with boxoffice payments that each order has one payment, which is settled.
func (c *viaFacilitator) onePaymentEach(ctx context.Context) error {
	binary, err := c.world.build(ctx, "boxoffice")
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, binary, "payments", "--json",
		"--operator", "http://"+c.service.config.OperatorListen)
	out, err := command.Output()
	if err != nil {
		return err
	}
	var listed httpapi.PaymentList
	if err := json.Unmarshal(out, &listed); err != nil {
		return err
	}
	paid := map[boxoffice.UUID]bool{}
	for _, entry := range listed.Payments {
		if entry.SettledBy == nil || paid[entry.OrderID] {
			return fmt.Errorf("payment %s of order %s is %s, or another one", entry.ID, entry.OrderID, entry.State)
		}
		paid[entry.OrderID] = true
	}
	return nil
}
