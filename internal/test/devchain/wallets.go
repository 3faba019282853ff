package devchain

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"fmt"
	"math/big"

	"boxoffice/contracts"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/math"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/holiman/uint256"
)

// deployGas is enough for the deployment of each of our contracts.
const deployGas = 3_000_000

// Deploy deploys a contract with the arguments of its constructor, and mines. The key pays the gas.
func (c *Chain) Deploy(
	ctx context.Context, key *ecdsa.PrivateKey, contract *contracts.Contract, args ...any,
) (common.Address, error) {
	arguments, err := contract.ABI.Pack("", args...)
	if err != nil {
		return common.Address{}, fmt.Errorf("deploy %s: %w", contract.Name, err)
	}
	c.accounts.Lock()
	defer c.accounts.Unlock()
	receipt, err := c.mined(ctx, key, func(nonce uint64, tip, fee *big.Int) types.TxData {
		return &types.DynamicFeeTx{
			ChainID: c.ChainID(), Nonce: nonce, GasTipCap: tip, GasFeeCap: fee, Gas: deployGas,
			Data: append(append([]byte(nil), contract.Creation...), arguments...),
		}
	})
	if err != nil {
		return common.Address{}, fmt.Errorf("deploy %s: %w", contract.Name, err)
	}
	return receipt.ContractAddress, nil
}

// Delegate makes the key's account run the code at an address (EIP-7702), and mines. The zero address ends this.
func (c *Chain) Delegate(ctx context.Context, key *ecdsa.PrivateKey, code common.Address) error {
	id := *uint256.MustFromBig(c.ChainID())
	c.accounts.Lock()
	defer c.accounts.Unlock()
	var signErr error
	_, err := c.mined(ctx, key, func(nonce uint64, tip, fee *big.Int) types.TxData {
		var authorization types.SetCodeAuthorization
		authorization, signErr = types.SignSetCode(key, types.SetCodeAuthorization{
			ChainID: id, Address: code, Nonce: nonce + 1,
		})
		return &types.SetCodeTx{
			ChainID: &id, Nonce: nonce, Gas: 100_000,
			GasTipCap: uint256.MustFromBig(tip), GasFeeCap: uint256.MustFromBig(fee),
			To: address(faucetKey), AuthList: []types.SetCodeAuthorization{authorization},
		}
	})
	if signErr != nil || err != nil {
		return fmt.Errorf("delegate %s: %w", address(key), cmp.Or(signErr, err))
	}
	return nil
}

// FundContract gives a contract wallet newly minted tokens and an unlimited Permit2 allowance, for which the key calls
// the wallet's execute. Each transaction is mined.
func (c *Chain) FundContract(ctx context.Context, key *ecdsa.PrivateKey, wallet common.Address, tokens *big.Int) error {
	if err := c.Fund(ctx, wallet, nil, tokens); err != nil {
		return err
	}
	approve, err := contracts.TestToken().ABI.Pack("approve", contracts.Permit2Address, math.MaxBig256)
	if err != nil {
		return fmt.Errorf("approve permit2: %w", err)
	}
	call, err := contracts.Wallet().ABI.Pack("execute", TokenAddress, new(big.Int), approve)
	if err != nil {
		return fmt.Errorf("approve permit2: %w", err)
	}
	if _, err := c.Transact(ctx, key, wallet, nil, call); err != nil {
		return fmt.Errorf("approve permit2 of %s: %w", wallet, err)
	}
	return nil
}
