package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"boxoffice"

	"github.com/ethereum/go-ethereum/common"
)

var typescript = filepath.Join("examples", "typescript")

// purchase is a program that buys from the demo, and its expected result.
type purchase struct {
	program []string // and its arguments
	env     []string // in addition to the demo's
	refusal string   // part of its error if it should not buy; "" if it should
}

const (
	admitted = "admitted, exactly one transfer"
	unsigned = "its spend control is below the price: it signs nothing, no transfer"
)

// example returns one of the programs in examples/typescript.
func example(name string, env ...string) purchase {
	return purchase{program: []string{"node", filepath.Join(typescript, "build", name+".js")}, env: env}
}

// purchases runs the examples.
func purchases(ctx context.Context, d *demo) (rows []row, err error) {
	for _, p := range []struct {
		packages []string // that the client consists of
		purchase
		result string
	}{
		{[]string{"@x402/core", "@x402/evm", "viem"}, example("buy"), admitted},
		{[]string{"@x402/core", "@x402/evm", "ethers"}, example("ethers"), admitted},
		{[]string{"@x402/fetch", "@x402/evm", "viem"}, example("fetch"), admitted},
		{[]string{"@x402/core", "@x402/evm", "viem"}, example("buy").unaffordable(), unsigned},
		{[]string{"@x402/fetch", "@x402/evm", "viem"}, example("fetch").unaffordable(), unsigned},
	} {
		client, err := named(typescript, p.packages...)
		if err != nil {
			return nil, err
		}
		if err := p.run(ctx, d); err != nil {
			return nil, fmt.Errorf("%s, %s: %w", client, p.result, err)
		}
		rows = append(rows, row{client, p.result})
	}
	return rows, nil
}

// unaffordable limits the example to less than the price.
func (p purchase) unaffordable() purchase {
	p.env, p.refusal = []string{"MAX_AMOUNT=" + belowPrice}, "rejected by spendControls"
	return p
}

// run runs the program and compares the status that it prints with the chain. Either the order is admitted, and the
// recipient got the price once, in the transaction and from the payer of the status. Or the program printed the
// expected refusal, and there is no transfer.
func (p purchase) run(ctx context.Context, d *demo) error {
	var status boxoffice.Status
	var failed error
	moved, err := d.transfers(ctx, func() error {
		status, failed = d.buy(ctx, p.program, p.env...)
		return nil
	})
	switch {
	case err != nil:
		return err
	case p.refusal != "" && (failed == nil || len(moved) > 0 || !strings.Contains(failed.Error(), p.refusal)):
		return fmt.Errorf("want a refusal that contains %q and no transfer, got %d transfers and: %w",
			p.refusal, len(moved), failed)
	case p.refusal != "":
		return nil
	case failed != nil:
		return failed
	case len(moved) != 1:
		return fmt.Errorf("the order is admitted and has %d transfers, want one", len(moved))
	}
	transfer, paid := moved[0], status.Payment
	if transfer.TxHash != *paid.TransactionHash || transfer.Topics[1] != common.BytesToHash(paid.Payer[:]) ||
		common.BytesToHash(transfer.Data).Big().String() != status.Order.Quote.Payment.Amount.String() {
		return fmt.Errorf("the transfer %+v is not that of the order", transfer)
	}
	return nil
}
