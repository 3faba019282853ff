package devchain

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"math/big"

	"boxoffice/contracts"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/math"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/params"
)

// PUBLIC DEVELOPMENT KEYS, known to everybody: the accounts of Hardhat and Anvil, from the phrase
// "test test test test test test test test test test test junk". On a real chain, anybody can take what they own.
const (
	SettlementKeyHex = "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"
	PayerKeyHex      = "59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d"
	payToKeyHex      = "5de4111afa1a4b94908f83103eb1f1706367c2e68ca870fc3fb9a804cdab365a"
	faucetKeyHex     = "2a871d0798f97d79848a013d4936a73bf4cc922c825d33c1cf7073dff6d409c6"
)

var (
	faucetKey    = devKey(faucetKeyHex)
	faucetNative = Ether(1_000_000_000)
)

// SettlementKey returns the public development key that pays the gas of settlements.
func SettlementKey() *ecdsa.PrivateKey { return devKey(SettlementKeyHex) }

// PayerKey returns the public development key of a requester.
func PayerKey() *ecdsa.PrivateKey { return devKey(PayerKeyHex) }

// PayTo returns the recipient on development chains. Its key is public too.
func PayTo() common.Address { return address(devKey(payToKeyHex)) }

// DevAccounts returns what a first purchase needs: native coin for the settlement key; native coin, a million tokens
// and the Permit2 allowance for the payer.
func DevAccounts() []Funded {
	return []Funded{
		{Address: address(SettlementKey()), Native: Ether(1000)},
		{Address: address(PayerKey()), Native: Ether(1000), Tokens: Ether(1_000_000), Permit2Allowed: true},
	}
}

// Ether returns n whole coins, or n whole test tokens, in atomic units.
func Ether(n int64) *big.Int { return new(big.Int).Mul(big.NewInt(n), big.NewInt(params.Ether)) }

// Fund gives an account native coin from the faucet and newly minted tokens, and mines. Nil is no amount.
func (c *Chain) Fund(ctx context.Context, to common.Address, native, tokens *big.Int) error {
	if native != nil && native.Sign() > 0 {
		if _, err := c.Transact(ctx, faucetKey, to, native, nil); err != nil {
			return fmt.Errorf("fund %s with native coin: %w", to, err)
		}
	}
	if tokens != nil && tokens.Sign() > 0 {
		data, err := contracts.TestToken().ABI.Pack("mint", to, tokens)
		if err != nil {
			return fmt.Errorf("fund %s with tokens: %w", to, err)
		}
		if _, err := c.Transact(ctx, faucetKey, TokenAddress, nil, data); err != nil {
			return fmt.Errorf("fund %s with tokens: %w", to, err)
		}
	}
	return nil
}

// Approve gives Permit2 an unlimited allowance of the account's test tokens, and mines. The account needs native coin.
func (c *Chain) Approve(ctx context.Context, key *ecdsa.PrivateKey) error {
	data, err := contracts.TestToken().ABI.Pack("approve", contracts.Permit2Address, math.MaxBig256)
	if err != nil {
		return fmt.Errorf("approve permit2: %w", err)
	}
	if _, err := c.Transact(ctx, key, TokenAddress, nil, data); err != nil {
		return fmt.Errorf("approve permit2: %w", err)
	}
	return nil
}

// ErrReverted is the error of a transaction that was mined and reverted.
var ErrReverted = errors.New("transaction reverted")

// Transact signs, sends and mines a transaction. If the call would revert now, it is not sent, and Transact returns the
// node's error with the revert data. If it reverts when it is mined, Transact returns [ErrReverted] and the receipt.
func (c *Chain) Transact(
	ctx context.Context, key *ecdsa.PrivateKey, to common.Address, value *big.Int, data []byte,
) (*types.Receipt, error) {
	c.accounts.Lock()
	defer c.accounts.Unlock()
	from := address(key)
	gas, err := c.client.EstimateGas(ctx, ethereum.CallMsg{From: from, To: &to, Value: value, Data: data})
	if err != nil {
		return nil, fmt.Errorf("estimate gas: %w", err)
	}
	return c.mined(ctx, key, func(nonce uint64, tip, fee *big.Int) types.TxData {
		return &types.DynamicFeeTx{
			ChainID: c.ChainID(), Nonce: nonce, GasTipCap: tip, GasFeeCap: fee, Gas: gas + gas/4,
			To: &to, Value: value, Data: data,
		}
	})
}

// mined builds a transaction with the account's next nonce and the current fees, sends it and mines it.
func (c *Chain) mined(
	ctx context.Context, key *ecdsa.PrivateKey, build func(nonce uint64, tip, fee *big.Int) types.TxData,
) (*types.Receipt, error) {
	nonce, err := c.client.PendingNonceAt(ctx, address(key))
	if err != nil {
		return nil, fmt.Errorf("account nonce: %w", err)
	}
	tip := big.NewInt(params.GWei)
	fee := new(big.Int).Add(tip, new(big.Int).Mul(big.NewInt(2), c.Head().BaseFee))
	tx, err := types.SignNewTx(key, types.LatestSignerForChainID(c.ChainID()), build(nonce, tip, fee))
	if err != nil {
		return nil, fmt.Errorf("sign transaction: %w", err)
	}
	if err := c.client.SendTransaction(ctx, tx); err != nil {
		return nil, fmt.Errorf("send transaction: %w", err)
	}
	if _, err := c.Mine(ctx); err != nil {
		return nil, err
	}
	receipt, err := c.client.TransactionReceipt(ctx, tx.Hash())
	if err != nil {
		return nil, fmt.Errorf("receipt: %w", err)
	}
	if receipt.Status != types.ReceiptStatusSuccessful {
		return receipt, ErrReverted
	}
	return receipt, nil
}

func (c *Chain) read(
	ctx context.Context, at common.Address, contract *contracts.Contract, result any, method string, args ...any,
) error {
	data, err := contract.ABI.Pack(method, args...)
	if err != nil {
		return err
	}
	answer, err := c.client.CallContract(ctx, ethereum.CallMsg{To: &at, Data: data}, nil)
	if err != nil {
		return err
	}
	return contract.ABI.UnpackIntoInterface(result, method, answer)
}

func devKey(hex string) *ecdsa.PrivateKey {
	key, err := crypto.HexToECDSA(hex)
	if err != nil {
		panic(err)
	}
	return key
}

func address(key *ecdsa.PrivateKey) common.Address { return crypto.PubkeyToAddress(key.PublicKey) }
