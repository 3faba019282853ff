package client

import (
	"context"
	"fmt"
	"math/big"

	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/accounts/abi/bind/v2"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/math"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
)

// Approver sends a transaction and reads its receipt; *ethclient.Client is one.
type Approver interface {
	ChainReader
	bind.ContractTransactor
	bind.DeployBackend
}

// Allowance reads how much of a token Permit2 may move for the owner.
func Allowance(ctx context.Context, reader ChainReader, token, owner common.Address) (*big.Int, error) {
	return (&chain{reader: reader}).allowance(ctx, token, owner)
}

// ErrContractApproves says that a contract wallet has to approve Permit2 itself.
var ErrContractApproves = fmt.Errorf(
	"approve: a contract wallet has to do this by a call of its own: approve(%s, amount) of the token",
	x402.Permit2,
)

// Approve sends the transaction that lets Permit2 move any amount of the token for
// the signer. Each wallet needs it once for each token, and pays its gas. Approve
// returns the receipt when the transaction is mined and has succeeded. A contract
// wallet has no key to send it with: the error is ErrContractApproves.
func Approve(ctx context.Context, backend Approver, signer Signer, token common.Address) (*types.Receipt, error) {
	if _, contract := signer.(contractSigner); contract {
		return nil, ErrContractApproves
	}
	chainID, err := backend.ChainID(ctx)
	if err != nil {
		return nil, fmt.Errorf("approve: chain id: %w", err)
	}
	rules := types.LatestSignerForChainID(chainID)
	contract := bind.NewBoundContract(token, abi.ABI{}, nil, backend, nil)
	tx, err := contract.RawTransact(&bind.TransactOpts{
		Context: ctx,
		From:    signer.Address(),
		Signer: func(_ common.Address, tx *types.Transaction) (*types.Transaction, error) {
			signature, err := signer.SignDigest(ctx, rules.Hash(tx))
			if err != nil {
				return nil, err
			}
			if len(signature) != crypto.SignatureLength {
				return nil, x402.ErrSignatureLength
			}
			standard := append([]byte(nil), signature...)
			standard[64] -= 27
			return tx.WithSignature(rules, standard)
		},
	}, callData("approve(address,uint256)", x402.Permit2[:], math.MaxBig256.Bytes()))
	if err != nil {
		return nil, fmt.Errorf("approve: %w", err)
	}
	receipt, err := bind.WaitMined(ctx, backend, tx.Hash())
	switch {
	case err != nil:
		return nil, fmt.Errorf("approve: transaction %s: %w", tx.Hash(), err)
	case receipt.Status != types.ReceiptStatusSuccessful:
		return receipt, fmt.Errorf("approve: transaction %s reverted", tx.Hash())
	}
	return receipt, nil
}
