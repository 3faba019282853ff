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

// purchase is one program that buys from the demo, and what is to come of it.
type purchase struct {
	program []string // and its arguments
	env     []string // beside the demo's
	refusal string   // what it says if nothing is to be bought
}

const (
	admitted = "admitted, exactly one transfer"
	unsigned = "with a spend control below the price the client signs nothing, no transfer"
)

// example is one of the programs in examples/typescript.
func example(name string, env ...string) purchase {
	return purchase{program: []string{"node", filepath.Join(typescript, "build", name+".js")}, env: env}
}

// purchases runs the examples.
func purchases(ctx context.Context, d *demo) (rows []row, err error) {
	for _, p := range []struct {
		packages []string // that do the client's part
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
		rows = append(rows, row{client, "permit2", "the demo's", p.result})
	}
	return rows, nil
}

// unaffordable has the example spend less than the price at the most.
func (p purchase) unaffordable() purchase {
	p.env, p.refusal = []string{"MAX_AMOUNT=" + belowPrice}, "rejected by spendControls"
	return p
}

// run runs the program and holds what it printed against the chain: the order is
// admitted and the recipient got what it asks, once, in the transaction and from
// the payer that it names; or the program said why not and nobody got anything.
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
	case p.refusal != "" && (failed == nil || !strings.Contains(failed.Error(), p.refusal) || len(moved) > 0):
		return fmt.Errorf("wanted a refusal that says %q and no transfer, got %d transfers and: %w", p.refusal, len(moved), failed)
	case p.refusal != "":
		return nil
	case failed != nil:
		return failed
	case len(moved) != 1:
		return fmt.Errorf("the order is admitted after %d transfers, want one", len(moved))
	}
	transfer, paid := moved[0], status.Payment
	if transfer.TxHash != *paid.TransactionHash || transfer.Topics[1] != common.BytesToHash(paid.Payer[:]) ||
		common.BytesToHash(transfer.Data).Big().String() != status.Order.Quote.Payment.Amount.String() {
		return fmt.Errorf("the transfer %+v is not that of the order", transfer)
	}
	return nil
}
