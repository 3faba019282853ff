package main

import (
	"context"
	"fmt"
	"math/big"
	"time"

	"boxoffice/contracts/settlement"
	"boxoffice/internal/payment/evm"
	"boxoffice/internal/server"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/params"
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
	if deployment == nil {
		return s.deployed(std, config.Chain.ID, nil)
	}
	fmt.Fprintf(std.err, "The settlement contract goes to %s on chain %d. It costs at most %s native coin, and %s has %s.\n",
		lowerHex(settlement.Address), config.Chain.ID, coin(deployment.Cost), lowerHex(wallet.Address()),
		coin(deployment.Balance))
	if !cmd.Yes {
		if err := ask(ctx, std, "Deploy it?"); err != nil {
			return err
		}
	}
	if err := wallet.Broadcast(ctx, deployment.Tx); err != nil {
		return err
	}
	if err := waitDeployed(ctx, wallet, deployment.Hash, cmd.Timeout); err != nil {
		return err
	}
	return s.deployed(std, config.Chain.ID, &deployment.Hash)
}

// waitDeployed waits until the transaction is mined.
func waitDeployed(ctx context.Context, wallet *evm.Wallet, tx common.Hash, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	poll := time.NewTicker(time.Second)
	defer poll.Stop()
	for {
		if done, err := wallet.Deployed(ctx, tx); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("transaction %s is not mined yet; run boxoffice deploy again later", tx)
		case <-poll.C:
		}
	}
}

func (s *Settings) deployed(std *streams, chainID uint64, tx *common.Hash) error {
	if s.JSON {
		return writeJSON(std.out, map[string]any{
			"chainId": chainID, "settlementContract": settlement.Address, "transactionHash": tx,
		})
	}
	p := newPage(std.out)
	p.line("Settlement contract", "%s on chain %d", lowerHex(settlement.Address), chainID)
	if tx != nil {
		p.line("Transaction", "%s", tx)
	} else {
		p.line("Transaction", "none: the chain has the contract")
	}
	return p.flush()
}

// coin formats an amount of native coin, which has 18 decimals.
func coin(wei *big.Int) string {
	return new(big.Rat).SetFrac(wei, big.NewInt(params.Ether)).FloatString(9)
}
