package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"
)

var typescript = filepath.Join("examples", "typescript")

// purchase is one program that buys, and what is to come of it.
type purchase struct {
	packages  []string // that do the client's part
	program   string   // in build/ of the folder
	folder    string   // "" is examples/typescript
	token     string   // the request token; "" is a fresh one
	maxAmount string   // the client's spend control, atomic units
	result    outcome
}

type outcome string

const (
	admitted outcome = "admitted, exactly one transfer"
	unsigned outcome = "with a spend control below the price the client signs nothing, no transfer"
)

// What the demo asks for an action, 0.25 of a token with 18 decimals, and less.
const (
	price      = "250000000000000000"
	belowPrice = "249999999999999999"
)

// purchases runs the examples.
func purchases(ctx context.Context, d *demo) (rows []row, err error) {
	for _, p := range []purchase{
		{[]string{"@x402/core", "@x402/evm", "viem"}, "buy.js", "", "", price, admitted},
		{[]string{"@x402/core", "@x402/evm", "ethers"}, "ethers.js", "", "", price, admitted},
		{[]string{"@x402/fetch", "@x402/evm", "viem"}, "fetch.js", "", "", price, admitted},
		{[]string{"@x402/core", "@x402/evm", "viem"}, "buy.js", "", "", belowPrice, unsigned},
		{[]string{"@x402/fetch", "@x402/evm", "viem"}, "fetch.js", "", "", belowPrice, unsigned},
	} {
		client, err := p.client()
		if err != nil {
			return nil, err
		}
		if err := p.check(ctx, d); err != nil {
			return nil, fmt.Errorf("%s, %s: %w", client, p.result, err)
		}
		rows = append(rows, row{client, "permit2", "the demo's", string(p.result)})
	}
	return rows, nil
}

// client names the packages with the versions that the example pins.
func (p purchase) client() (string, error) {
	names := make([]string, len(p.packages))
	for i, name := range p.packages {
		version, err := pinned(typescript, name)
		if err != nil {
			return "", err
		}
		names[i] = name + " " + version
	}
	return strings.Join(names, ", "), nil
}

// check runs the program and compares what it printed with what the chain
// says: the transfers to the recipient that were not there before.
func (p purchase) check(ctx context.Context, d *demo) error {
	before, err := transfers(ctx, d)
	if err != nil {
		return err
	}
	var stdout, stderr bytes.Buffer
	program := exec.CommandContext(ctx, "node", filepath.Join(cmp.Or(p.folder, typescript), "build", p.program))
	program.Env = append(os.Environ(),
		"BOXOFFICE_URL="+d.BaseURL, "BOXOFFICE_PRIVATE_KEY="+d.Payer.PrivateKey, "ASSET="+d.Asset, "MAX_AMOUNT="+p.maxAmount)
	if p.token != "" {
		program.Env = append(program.Env, "BOXOFFICE_TOKEN="+p.token)
	}
	program.Stdout, program.Stderr = &stdout, &stderr
	failed := program.Run()
	after, err := transfers(ctx, d)
	if err != nil {
		return err
	}
	maps.DeleteFunc(after, func(id string, _ types.Log) bool { _, old := before[id]; return old })

	if p.result == unsigned {
		const says = "rejected by spendControls"
		if failed == nil || !strings.Contains(stderr.String(), says) || len(after) > 0 {
			return fmt.Errorf("wanted a refusal that says %q and no transfer, got %d transfers and (%v)\n%s", says, len(after), failed, &stderr)
		}
		return nil
	}
	if failed != nil {
		return fmt.Errorf("%w\n%s", failed, &stderr)
	}
	var status struct {
		Status string `json:"status"`
		Order  struct {
			Quote struct {
				Payment struct {
					Amount string `json:"amount"`
				} `json:"payment"`
			} `json:"quote"`
		} `json:"order"`
		Payment struct {
			TransactionHash common.Hash `json:"transactionHash"`
		} `json:"payment"`
	}
	if err := json.Unmarshal(stdout.Bytes(), &status); err != nil {
		return fmt.Errorf("the status it printed: %w", err)
	}
	if status.Status != "admitted" || len(after) != 1 {
		return fmt.Errorf("the order is %q after %d transfers, want it admitted after one", status.Status, len(after))
	}
	for _, transfer := range after {
		amount := common.BytesToHash(transfer.Data).Big().String()
		if transfer.TxHash != status.Payment.TransactionHash || amount != status.Order.Quote.Payment.Amount {
			return errors.New("the transfer is not that of the order")
		}
	}
	return nil
}

// transfers returns the asset's Transfer logs from anybody to the recipient, by
// transaction and index.
func transfers(ctx context.Context, d *demo) (map[string]types.Log, error) {
	chain, err := ethclient.DialContext(ctx, d.RPCURL)
	if err != nil {
		return nil, err
	}
	defer chain.Close()
	topic := func(address string) []common.Hash {
		return []common.Hash{common.BytesToHash(common.HexToAddress(address).Bytes())}
	}
	logs, err := chain.FilterLogs(ctx, ethereum.FilterQuery{
		Addresses: []common.Address{common.HexToAddress(d.Asset)},
		Topics: [][]common.Hash{
			{crypto.Keccak256Hash([]byte("Transfer(address,address,uint256)"))}, nil, topic(d.PayTo),
		},
	})
	if err != nil {
		return nil, err
	}
	found := make(map[string]types.Log, len(logs))
	for _, log := range logs {
		found[fmt.Sprintf("%s/%d", log.TxHash, log.Index)] = log
	}
	return found, nil
}
