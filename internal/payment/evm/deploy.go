package evm

import (
	"context"
	"errors"
	"fmt"
	"math/big"

	"boxoffice/contracts/settlement"
	"boxoffice/internal/payment"

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
	Cost    *big.Int // the most that it can cost, in wei, without the data fee of a rollup
	Balance *big.Int // of the wallet, in wei
}

// SignDeployment returns a transaction that deploys the settlement contract. It is nil
// if the chain has the contract. Any wallet may deploy it: the factory puts it at the
// same address on every chain.
func (w *Wallet) SignDeployment(ctx context.Context) (*Deployment, error) {
	const op = "prepare the deployment of the settlement contract"
	data := append(make([]byte, 32), settlement.Creation()...) // salt 0
	var code, factory hexutil.Bytes
	var nonce, estimate hexutil.Uint64
	message := map[string]any{"from": w.address, "to": settlement.Factory, "input": hexutil.Bytes(data)}
	requests := []rpc.BatchElem{
		codeRequest(settlement.Address, &code),
		codeRequest(settlement.Factory, &factory),
		{Method: "eth_getTransactionCount", Args: []any{w.address, "pending"}, Result: &nonce},
		{Method: "eth_estimateGas", Args: []any{message}, Result: &estimate},
	}
	if err := w.chain.send(ctx, op, requests); err != nil {
		return nil, err
	}
	if err := w.chain.firstError(op, requests[:3]); err != nil {
		return nil, err
	}
	switch {
	case w.chain.checkSettlement(code):
		return nil, nil
	case len(code) > 0:
		return nil, w.chain.fail(op, fmt.Errorf("%s has other code", hexOf(settlement.Address)))
	case len(factory) == 0:
		return nil, w.chain.fail(op, fmt.Errorf("the chain has no CREATE2 factory at %s; deploy the factory first: "+
			"https://github.com/Arachnid/deterministic-deployment-proxy", hexOf(settlement.Factory)))
	case requests[3].Error != nil:
		return nil, w.chain.fail(op, requests[3].Error)
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
		Nonce: uint64(nonce), Gas: gas, To: &settlement.Factory, Data: data,
	}))
	return &Deployment{Tx: tx, Cost: new(big.Int).Mul(o.cap, new(big.Int).SetUint64(gas)), Balance: m.balance}, err
}

// Deployed reports whether the transaction of a deployment is mined. It fails if it is
// and the contract is not there.
func (w *Wallet) Deployed(ctx context.Context, tx common.Hash) (bool, error) {
	receipts, err := w.chain.Receipts(ctx, []common.Hash{tx}, 0)
	if err != nil || receipts[0] == nil {
		return false, err
	}
	found, err := w.chain.hasSettlement(ctx)
	if err == nil && !found {
		err = w.chain.fail("deploy the settlement contract", errors.New("transaction "+tx.Hex()+" is mined, and the "+
			"contract is not there"))
	}
	return found, err
}
