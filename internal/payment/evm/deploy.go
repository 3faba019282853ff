package evm

import (
	"context"
	"errors"
	"fmt"
	"math/big"

	"boxoffice"
	"boxoffice/contracts/settlement"
	"boxoffice/internal/payment"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rpc"
)

// ErrNotDeployed says that the chain has no settlement contract, so a key cannot settle
// there.
var ErrNotDeployed = fmt.Errorf("the chain has no settlement contract at %s; deploy it once with the settlement "+
	"key: boxoffice deploy --config FILE", hexOf(settlement.Address))

// Deployment is a signed transaction that deploys the settlement contract.
type Deployment struct {
	payment.Tx
	Cost    boxoffice.Amount // the most that its gas costs, in wei
	Balance boxoffice.Amount // of the wallet, in wei
}

// SignDeployment returns a transaction that deploys the settlement contract. It is nil
// if the chain has the contract. Any wallet may deploy it: the factory puts it at the
// same address on every chain.
//
// It fails while a transaction of the wallet is not mined: that may be an earlier
// deployment, and a second one would revert and cost all of its gas.
func (w *Wallet) SignDeployment(ctx context.Context) (*Deployment, error) {
	const op = "prepare the deployment of the settlement contract"
	data := append(make([]byte, 32), settlement.Creation()...) // salt 0
	var code, factory hexutil.Bytes
	var chainID, mined, sent, estimate hexutil.Uint64
	message := map[string]any{"from": w.address, "to": settlement.Factory, "input": hexutil.Bytes(data)}
	requests := []rpc.BatchElem{
		{Method: "eth_chainId", Result: &chainID},
		codeRequest(settlement.Address, &code),
		codeRequest(settlement.Factory, &factory),
		{Method: "eth_getTransactionCount", Args: []any{w.address, latest}, Result: &mined},
		{Method: "eth_getTransactionCount", Args: []any{w.address, "pending"}, Result: &sent},
		{Method: "eth_estimateGas", Args: []any{message}, Result: &estimate},
	}
	if err := w.chain.send(ctx, op, requests); err != nil {
		return nil, err
	}
	answers := requests[:len(requests)-1] // the estimate fails if the contract or the factory is not as expected
	if err := w.chain.firstError(op, answers); err != nil {
		return nil, err
	}
	switch {
	case uint64(chainID) != w.chain.cfg.ChainID:
		return nil, w.chain.fail(op, fmt.Errorf("%w: the node serves chain %d, not %d", ErrWrongChain, chainID,
			w.chain.cfg.ChainID))
	case w.chain.checkSettlement(code):
		return nil, nil
	case len(code) > 0:
		return nil, w.chain.fail(op, fmt.Errorf("%s has other code", hexOf(settlement.Address)))
	case len(factory) == 0:
		return nil, w.chain.fail(op, fmt.Errorf("the chain has no CREATE2 factory at %s; deploy the factory first: "+
			"github.com/Arachnid/deterministic-deployment-proxy", hexOf(settlement.Factory)))
	case sent > mined:
		return nil, w.chain.fail(op, fmt.Errorf("a transaction of %s is not mined yet; try again when it is mined",
			hexOf(w.address)))
	case requests[len(answers)].Error != nil:
		return nil, w.chain.fail(op, requests[len(answers)].Error)
	}
	m, err := w.chain.readFees(ctx, op, w.address)
	if err != nil {
		return nil, err
	}
	gas := uint64(estimate) + uint64(estimate)/5
	o, err := w.affordableFees(op, m, gas, nil)
	if err != nil {
		return nil, err
	}
	tx, err := w.sign(op, w.unsigned(m, o, types.DynamicFeeTx{
		Nonce: uint64(mined), Gas: gas, To: &settlement.Factory, Data: data,
	}))
	if err != nil {
		return nil, err
	}
	cost, errCost := x402.Uint256FromBig(new(big.Int).Mul(o.cap, new(big.Int).SetUint64(gas)))
	balance, errBalance := x402.Uint256FromBig(m.balance)
	if err := errors.Join(errCost, errBalance); err != nil {
		return nil, w.chain.fail(op, err)
	}
	return &Deployment{tx, cost, balance}, nil
}

// ErrNotMined says that a transaction is not mined yet.
var ErrNotMined = errors.New("the transaction is not mined yet")

// Deployed returns what the gas of a mined deployment cost, in wei. It fails with
// ErrNotMined, or if the transaction is mined and did not deploy the contract.
func (w *Wallet) Deployed(ctx context.Context, tx common.Hash) (cost boxoffice.Amount, err error) {
	const op = "deploy the settlement contract"
	receipts, err := w.chain.Receipts(ctx, []common.Hash{tx}, 0)
	if err != nil {
		return cost, err
	}
	found, err := w.chain.hasSettlement(ctx)
	switch {
	case err != nil:
		return cost, err
	case receipts[0] != nil && receipts[0].Failed:
		return cost, w.chain.fail(op, fmt.Errorf("transaction %s reverted", tx))
	case receipts[0] == nil || !found: // also if another node than the one with the receipt answered, and is behind
		return cost, ErrNotMined
	}
	cost, _ = receipts[0].GasPrice.Mul(x402.NewUint256(receipts[0].GasUsed))
	return cost, nil
}
