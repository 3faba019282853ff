package main

import (
	"context"
	"crypto/ecdsa"
	"encoding/hex"
	"math/big"
	"strings"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"
)

// received returns a token's Transfer logs to a recipient.
func received(ctx context.Context, chain *ethclient.Client, token, payTo common.Address) ([]types.Log, error) {
	transfer := crypto.Keccak256Hash([]byte("Transfer(address,address,uint256)"))
	return chain.FilterLogs(ctx, ethereum.FilterQuery{
		Addresses: []common.Address{token},
		Topics:    [][]common.Hash{{transfer}, nil, {common.BytesToHash(payTo[:])}},
	})
}

// transfers returns the transfers of the asset to the demo's recipient while do ran. The demo's chain has no
// reorganisations.
func (d *demo) transfers(ctx context.Context, do func() error) ([]types.Log, error) {
	chain, err := ethclient.DialContext(ctx, d.RPCURL)
	if err != nil {
		return nil, err
	}
	defer chain.Close()
	token, payTo := common.HexToAddress(d.Asset), common.HexToAddress(d.PayTo)
	before, err := received(ctx, chain, token, payTo)
	if err != nil {
		return nil, err
	}
	if err := do(); err != nil {
		return nil, err
	}
	after, err := received(ctx, chain, token, payTo)
	if err != nil {
		return nil, err
	}
	return after[len(before):], nil
}

// newWallet returns the key and the address of a new account that has coins for gas.
func newWallet(ctx context.Context, d *demo) (key string, address common.Address, err error) {
	secret, err := crypto.GenerateKey()
	if err != nil {
		return "", address, err
	}
	address = crypto.PubkeyToAddress(secret.PublicKey)
	payer, err := crypto.HexToECDSA(strings.TrimPrefix(d.Payer.PrivateKey, "0x"))
	if err != nil {
		return "", address, err
	}
	return hex.EncodeToString(crypto.FromECDSA(secret)), address, send(ctx, d, payer, address, big.NewInt(1e18))
}

// sent returns a function that counts the transactions that an account has broadcast.
func (d *demo) sent(ctx context.Context, account common.Address) func() (uint64, error) {
	return func() (uint64, error) {
		chain, err := ethclient.DialContext(ctx, d.RPCURL)
		if err != nil {
			return 0, err
		}
		defer chain.Close()
		return chain.PendingNonceAt(ctx, account)
	}
}

// send sends coins and waits until the recipient has them.
func send(ctx context.Context, d *demo, from *ecdsa.PrivateKey, to common.Address, value *big.Int) error {
	chain, err := ethclient.DialContext(ctx, d.RPCURL)
	if err != nil {
		return err
	}
	defer chain.Close()
	id, err := chain.ChainID(ctx)
	if err != nil {
		return err
	}
	nonce, err := chain.PendingNonceAt(ctx, crypto.PubkeyToAddress(from.PublicKey))
	if err != nil {
		return err
	}
	price, err := chain.SuggestGasPrice(ctx)
	if err != nil {
		return err
	}
	tx, err := types.SignNewTx(from, types.LatestSignerForChainID(id), &types.LegacyTx{
		Nonce: nonce, GasPrice: price.Mul(price, big.NewInt(2)), Gas: 21_000, To: &to, Value: value,
	})
	if err != nil {
		return err
	}
	if err := chain.SendTransaction(ctx, tx); err != nil {
		return err
	}
	return until(ctx, "the coins of "+to.Hex(), func() (bool, error) {
		balance, err := chain.BalanceAt(ctx, to, nil)
		return err == nil && balance.Sign() > 0, err
	})
}
