package evm

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"boxoffice"
	"boxoffice/contracts/settlement"
	"boxoffice/internal/payment"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rpc"
)

// Why a transaction is not signed or not accepted.
var (
	ErrBatch       = payment.ErrBatch // see Wallet.MaxBatch
	ErrFeeCeiling  = payment.ErrFeeCeiling
	ErrWalletEmpty = payment.ErrWalletEmpty
	// ErrNonceTooLow says that another transaction of the wallet with the same
	// nonce is mined.
	ErrNonceTooLow = errors.New("the wallet nonce is used by another transaction")
	ErrUnderpriced = payment.ErrUnderpriced
)

// Wallet is the settlement key on a chain. It implements payment.Wallet.
type Wallet struct {
	chain   *Chain
	key     *ecdsa.PrivateKey
	address common.Address
	signer  types.Signer
}

var _ payment.Wallet = (*Wallet)(nil)

// Wallet returns the wallet of a settlement key.
func (c *Chain) Wallet(key *ecdsa.PrivateKey) *Wallet {
	return &Wallet{
		chain:   c,
		key:     key,
		address: crypto.PubkeyToAddress(key.PublicKey),
		signer:  types.LatestSignerForChainID(new(big.Int).SetUint64(c.cfg.ChainID)),
	}
}

// Address returns the wallet's address.
func (w *Wallet) Address() common.Address { return w.address }

// MaxBatch returns how many permits fit one transaction: as many as its gas
// allows.
func (w *Wallet) MaxBatch() int {
	each := w.chain.cfg.batchGas(1, maxPayment) - GasBase
	return int((w.chain.cfg.MaxTxGas - GasBase) / each)
}

// Ready fails with ErrFeeCeiling or ErrWalletEmpty if the wallet could not
// settle one payment at the current fees.
func (w *Wallet) Ready(ctx context.Context) error {
	const op = "check the settlement wallet"
	m, err := w.chain.readFees(ctx, op, w.address)
	if err != nil {
		return err
	}
	_, err = w.affordableFees(op, m, w.chain.cfg.batchGas(1, maxPayment), nil)
	return err
}

// affordableFees returns the fees of a transaction. It fails if the wallet cannot pay
// for the transaction at these fees.
func (w *Wallet) affordableFees(op string, m feeData, gas uint64, replaces *payment.Tx) (fees, error) {
	o, err := m.fees(w.chain.cfg.MaxFee, replaces)
	if err != nil {
		return fees{}, w.chain.fail(op, err)
	}
	if cost := new(big.Int).Mul(o.cap, new(big.Int).SetUint64(gas)); m.balance.Cmp(cost) < 0 {
		return fees{}, w.chain.fail(op, fmt.Errorf("%w: %s holds %s wei, a transaction may cost %s",
			ErrWalletEmpty, hexOf(w.address), m.balance, cost))
	}
	return o, nil
}

// Sign returns a transaction that settles the permits by one call of the settlement
// contract. Its gas limit is enough even if each permit uses up the gas that it is
// given. Without permits the transaction is an empty one to the wallet itself.
//
// It fails with ErrBatch, ErrFeeCeiling or ErrWalletEmpty, or because the node
// does not answer.
func (w *Wallet) Sign(ctx context.Context, calls []payment.Call, nonce uint64,
	replaces *payment.Tx) (payment.Tx, error) {
	op := fmt.Sprintf("sign a transaction for %d payments with nonce %d", len(calls), nonce)
	to, data, gas := w.address, []byte(nil), uint64(payment.EmptyGas)
	if len(calls) > 0 {
		var err error
		if data, err = packBatch(0, w.chain.cfg.GasPerSettle, calls); err != nil {
			return payment.Tx{}, w.chain.fail(op, err)
		}
		to, gas = settlement.Address, w.chain.cfg.batchGas(len(calls), len(data))
	}
	if gas > w.chain.cfg.MaxTxGas {
		return payment.Tx{}, w.chain.fail(op, fmt.Errorf("%w: it needs %d gas, a transaction may have %d", ErrBatch,
			gas, w.chain.cfg.MaxTxGas))
	}
	m, err := w.chain.readFees(ctx, op, w.address)
	if err != nil {
		return payment.Tx{}, err
	}
	if m.blockGas > 0 && gas > m.blockGas {
		return payment.Tx{}, w.chain.fail(op, fmt.Errorf("%w: it needs %d gas, a block has %d", ErrBatch, gas,
			m.blockGas))
	}
	o, err := w.affordableFees(op, m, gas, replaces)
	if err != nil {
		return payment.Tx{}, err
	}
	return w.sign(op, w.unsigned(m, o, types.DynamicFeeTx{Nonce: nonce, Gas: gas, To: &to, Data: data}))
}

// unsigned adds the fees and the chain to a transaction. On a chain without a base fee
// it is a legacy transaction.
func (w *Wallet) unsigned(m feeData, o fees, tx types.DynamicFeeTx) types.TxData {
	if m.baseFee == nil {
		return &types.LegacyTx{Nonce: tx.Nonce, GasPrice: o.cap, Gas: tx.Gas, To: tx.To, Data: tx.Data}
	}
	tx.ChainID, tx.GasTipCap, tx.GasFeeCap = w.signer.ChainID(), o.tip, o.cap
	return &tx
}

func (w *Wallet) sign(op string, unsigned types.TxData) (payment.Tx, error) {
	tx, err := types.SignNewTx(w.key, w.signer, unsigned)
	if err != nil {
		return payment.Tx{}, w.chain.fail(op, err)
	}
	raw, err := tx.MarshalBinary()
	if err != nil {
		return payment.Tx{}, w.chain.fail(op, err)
	}
	feeCap, errCap := x402.Uint256FromBig(tx.GasFeeCap())
	tipCap, errTip := x402.Uint256FromBig(tx.GasTipCap())
	if err := errors.Join(errCap, errTip); err != nil {
		return payment.Tx{}, w.chain.fail(op, err)
	}
	return payment.Tx{
		Hash:     tx.Hash(),
		Raw:      raw,
		GasLimit: tx.Gas(),
		FeeCap:   feeCap,
		TipCap:   tipCap,
		SignedAt: boxoffice.At(w.chain.cfg.Now()),
	}, nil
}

// Broadcast hands a transaction to the node. If the node or the chain has it
// already, that is no error. It fails with ErrNonceTooLow, ErrUnderpriced or
// ErrWalletEmpty if the text of the node's error says so.
func (w *Wallet) Broadcast(ctx context.Context, tx payment.Tx) error {
	op := fmt.Sprintf("broadcast %s", tx.Hash)
	requests := []rpc.BatchElem{{Method: "eth_sendRawTransaction", Args: []any{hexutil.Bytes(tx.Raw)},
		Result: new(common.Hash)}}
	if err := w.chain.send(ctx, op, requests); err != nil {
		return err
	}
	err := requests[0].Error
	if err == nil {
		return nil
	}
	if !refused(err) {
		return w.chain.fail(op, err)
	}
	switch kind := refusal(err.Error()); kind {
	case errKnown:
		return nil
	case nil:
		return w.chain.fail(op, err)
	case ErrNonceTooLow: // a node also returns this if this very transaction is mined
		receipts, lookup := w.chain.Receipts(ctx, []common.Hash{tx.Hash}, 0)
		switch {
		case lookup != nil:
			return lookup
		case receipts[0] != nil:
			return nil
		}
		return w.chain.fail(op, fmt.Errorf("%w: %w", kind, err))
	default:
		return w.chain.fail(op, fmt.Errorf("%w: %w", kind, err))
	}
}

var errKnown = errors.New("the node has the transaction already")

// refusal returns the error that the text of a node means which did not accept a
// transaction, nil if it is none of these. JSON-RPC has no codes for them, and each
// kind of node has its own texts.
func refusal(text string) error {
	text = strings.ToLower(text)
	for _, kind := range []struct {
		err   error
		words []string
	}{
		{errKnown, []string{"already known", "alreadyknown", "known transaction", "already imported",
			"already exists", "already in mempool"}},
		{ErrNonceTooLow, []string{"nonce too low", "nonce is too low", "oldnonce", "nonce_too_low", "already mined",
			"already been mined"}},
		{ErrUnderpriced, []string{"underpriced", "fee too low", "feetoolow", "price too low", "replacementnotallowed",
			"less than block base fee", "below minimum", "below the minimum", "less than the base fee",
			"gas price is too low"}},
		{ErrWalletEmpty, []string{"insufficient funds", "insufficientfunds", "insufficient balance",
			"upfront cost exceeds", "not enough funds"}},
	} {
		for _, words := range kind.words {
			if strings.Contains(text, words) {
				return kind.err
			}
		}
	}
	return nil
}
