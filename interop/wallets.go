package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
)

var smartWallets = filepath.Join("interop", "wallets")

// wallets has viem make wallets that have code and buy with them through the
// example, which knows nothing of that.
func wallets(ctx context.Context, d *demo) (rows []row, err error) {
	client, err := purchase{packages: []string{"@x402/core", "@x402/evm", "viem"}}.client()
	if err != nil {
		return nil, err
	}
	for _, w := range []struct {
		kind, title string
		refused     string // what the refusal says; empty: it is admitted
	}{
		{"contract", "a contract wallet (EIP-1271), viem's smart account", ""},
		{"delegated", "an account with a delegate (EIP-7702)", ""},
		{"undeployed", "a smart account that is not deployed (ERC-6492)", "65 bytes, from a contract wallet too, which has to be deployed"},
	} {
		if err := buyWith(ctx, d, w.kind, w.refused); err != nil {
			return nil, fmt.Errorf("%s: %w", w.title, err)
		}
		result := string(admitted)
		if w.refused != "" {
			result = "refused with what to do, no transfer"
		}
		rows = append(rows, row{client + ": " + w.title, "permit2", "the demo's", result})
	}
	return rows, nil
}

func buyWith(ctx context.Context, d *demo, kind, refused string) error {
	before, err := transfers(ctx, d)
	if err != nil {
		return err
	}
	var stdout, stderr bytes.Buffer
	program := exec.CommandContext(ctx, "node", filepath.Join(smartWallets, "buy.mjs"), kind)
	program.Env = append(os.Environ(), "BOXOFFICE_URL="+d.BaseURL, "RPC_URL="+d.RPCURL, "BOXOFFICE_PRIVATE_KEY="+d.Payer.PrivateKey,
		"ASSET="+d.Asset, "MAX_AMOUNT=250000000000000000", "ARTIFACT="+filepath.Join("contracts", "artifacts", "TestWallet.json"))
	program.Stdout, program.Stderr = &stdout, &stderr
	failed := program.Run()
	after, err := transfers(ctx, d)
	if err != nil {
		return err
	}
	maps.DeleteFunc(after, func(id string, _ types.Log) bool { _, old := before[id]; return old })
	if refused != "" {
		if failed == nil || !strings.Contains(stderr.String(), refused) || len(after) > 0 {
			return fmt.Errorf("wanted a refusal that says %q and no transfer, got %d transfers and (%v)\n%s", refused, len(after), failed, &stderr)
		}
		return nil
	}
	if failed != nil {
		return fmt.Errorf("%w\n%s", failed, &stderr)
	}
	var status struct {
		Status  string `json:"status"`
		Payment struct {
			TransactionHash common.Hash    `json:"transactionHash"`
			Payer           common.Address `json:"payer"`
		} `json:"payment"`
	}
	if err := json.Unmarshal(stdout.Bytes(), &status); err != nil {
		return fmt.Errorf("the status it printed: %w", err)
	}
	if status.Status != "admitted" || len(after) != 1 {
		return fmt.Errorf("the order is %q after %d transfers, want it admitted after one", status.Status, len(after))
	}
	for _, transfer := range after {
		if transfer.TxHash != status.Payment.TransactionHash || transfer.Topics[1] != common.BytesToHash(status.Payment.Payer[:]) {
			return errors.New("the transfer is not that of the order, or not from its payer")
		}
	}
	return nil
}
