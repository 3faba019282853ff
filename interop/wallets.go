package main

import (
	"context"
	"fmt"
	"path/filepath"
)

var smartWallets = filepath.Join("interop", "wallets")

// wallets buys with wallets of viem that have code. The buying program is the example, which does not treat them
// differently.
func wallets(ctx context.Context, d *demo) (rows []row, err error) {
	client, err := named(typescript, "@x402/core", "@x402/evm", "viem")
	if err != nil {
		return nil, err
	}
	for _, w := range []struct{ kind, title, refusal string }{
		{"contract", "a contract wallet (EIP-1271), viem's smart account", ""},
		{"delegated", "an account with a delegate (EIP-7702)", ""},
		{
			"undeployed", "a smart account that is not deployed (ERC-6492)",
			"65 bytes, from a contract wallet too, which has to be deployed",
		},
	} {
		p := purchase{
			program: []string{"node", filepath.Join(smartWallets, "buy.mjs"), w.kind},
			env:     []string{"ARTIFACT=" + filepath.Join("contracts", "artifacts", "TestWallet.json")},
			refusal: w.refusal,
		}
		if err := p.run(ctx, d); err != nil {
			return nil, fmt.Errorf("%s: %w", w.title, err)
		}
		result := admitted
		if w.refusal != "" {
			result = "refused, with a hint what to do, no transfer"
		}
		rows = append(rows, row{client + ": " + w.title, result})
	}
	return rows, nil
}
