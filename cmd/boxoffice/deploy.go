package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"boxoffice"
	"boxoffice/contracts/settlement"
	"boxoffice/internal/payment/evm"
	"boxoffice/internal/server"

	"github.com/ethereum/go-ethereum/common"
)

type deployCmd struct {
	configFile
	Yes     bool          `short:"y" help:"Do not ask."`
	Timeout time.Duration `default:"5m" help:"How long to wait until the transaction is mined."`
}

// Run deploys the settlement contract, unless the chain has it.
func (cmd *deployCmd) Run(ctx context.Context, s *Settings, std *streams) (err error) {
	config, err := server.LoadDeployment(cmd.Config)
	if err != nil {
		return err
	}
	key, err := config.SettlementKey()
	if err != nil {
		return err
	}
	chain, err := server.DialChain(ctx, config)
	if err != nil {
		return err
	}
	defer chain.Close()
	wallet := chain.Wallet(key)
	deployment, err := wallet.SignDeployment(ctx)
	if err != nil {
		return err
	}
	result := deployed{ChainID: config.Chain.ID, Contract: settlement.Address}
	if deployment == nil {
		return s.showDeployed(std, result)
	}
	fmt.Fprintf(std.err, "The settlement contract will be at %s on chain %d.\n"+
		"The gas of its deployment costs at most %s of the chain's coin; %s has %s.\n", lowerHex(settlement.Address),
		config.Chain.ID, coins(deployment.Cost), lowerHex(wallet.Address()), coins(deployment.Balance))
	if !cmd.Yes {
		if err := ask(ctx, std, "Deploy it?"); err != nil {
			return err
		}
	}
	if err := wallet.Broadcast(ctx, deployment.Tx); err != nil {
		return err
	}
	cost, err := waitDeployed(ctx, wallet, deployment.Hash, cmd.Timeout)
	if err != nil {
		return fmt.Errorf("transaction %s was sent; run boxoffice deploy again to see whether the contract is "+
			"there: %w", deployment.Hash, err)
	}
	result.Transaction, result.Cost = &deployment.Hash, &cost
	return s.showDeployed(std, result)
}

// waitDeployed waits until the transaction is mined, and returns what its gas cost.
func waitDeployed(
	ctx context.Context, wallet *evm.Wallet, tx common.Hash, timeout time.Duration,
) (boxoffice.Amount, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	poll := time.NewTicker(time.Second)
	defer poll.Stop()
	for {
		cost, err := wallet.Deployed(ctx, tx)
		if ctx.Err() == nil && !errors.Is(err, evm.ErrNotMined) {
			return cost, err
		}
		select {
		case <-ctx.Done():
			return cost, evm.ErrNotMined
		case <-poll.C:
		}
	}
}

// deployed is what boxoffice deploy found or did.
type deployed struct {
	ChainID     uint64            `json:"chainId"`
	Contract    common.Address    `json:"settlementContract"`
	Transaction *common.Hash      `json:"transactionHash"` // nil if the chain had the contract
	Cost        *boxoffice.Amount `json:"gasCost"`         // in wei; nil without a transaction
}

func (s *Settings) showDeployed(std *streams, d deployed) error {
	if s.JSON {
		return writeJSON(std.out, d)
	}
	p := newPage(std.out)
	p.line("Settlement contract", "%s on chain %d", lowerHex(d.Contract), d.ChainID)
	if d.Transaction == nil {
		p.line("Transaction", "none: the chain has the contract")
		return p.flush()
	}
	p.line("Transaction", "%s", d.Transaction)
	p.line("Gas", "%s of the chain's coin", coins(*d.Cost))
	return p.flush()
}

// coins writes an amount of native coin.
func coins(wei boxoffice.Amount) string { return boxoffice.FormatUnits(wei, 18) }
