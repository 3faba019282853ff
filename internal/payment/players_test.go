package payment_test

import (
	"context"
	"crypto/ecdsa"
	"fmt"
	"math/big"

	"boxoffice/contracts"
	"boxoffice/internal/payment"
	"boxoffice/internal/test/devchain"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
)

// What payers and others do on the chain. Each transaction is mined at once.

// settleAs settles a permit as somebody else.
func (w *world) settleAs(sender *ecdsa.PrivateKey, permit payment.Permit) *types.Receipt {
	w.Helper()
	receipt, err := w.trySettle(sender, permit)
	w.must(err)
	return receipt
}

func (w *world) trySettle(sender *ecdsa.PrivateKey, permit payment.Permit) (*types.Receipt, error) {
	w.Helper()
	type permitted struct {
		Token  common.Address
		Amount *big.Int
	}
	type transfer struct {
		Permitted       permitted
		Nonce, Deadline *big.Int
	}
	type witness struct {
		To         common.Address
		ValidAfter *big.Int
	}
	return w.tryCall(sender, x402.ExactProxy, contracts.ExactProxy(), "settle",
		transfer{permitted{permit.Permitted.Token, permit.Permitted.Amount.Big()}, permit.Nonce.Big(),
			permit.Deadline.Big()},
		permit.From, witness{permit.Witness.To, permit.Witness.ValidAfter.Big()}, []byte(permit.Signature))
}

func (w *world) tryCall(sender *ecdsa.PrivateKey, to common.Address, contract *contracts.Contract, method string,
	args ...any) (*types.Receipt, error) {
	w.Helper()
	data, err := contract.ABI.Pack(method, args...)
	w.must(err)
	return w.dev.Transact(context.WithoutCancel(w.Context()), sender, to, nil, data)
}

func (w *world) call(sender *ecdsa.PrivateKey, to common.Address, contract *contracts.Contract, method string,
	args ...any) *types.Receipt {
	w.Helper()
	receipt, err := w.tryCall(sender, to, contract, method, args...)
	if err != nil {
		w.Fatal(fmt.Errorf("%s: %w", method, err))
	}
	return receipt
}

func (w *world) approve(payer int, amount int64) {
	w.Helper()
	w.call(key(w, payer), w.dev.Token(), contracts.TestToken(), "approve", x402.Permit2, big.NewInt(amount))
}

func (w *world) spend(payer int, amount int64) {
	w.Helper()
	w.call(key(w, payer), w.dev.Token(), contracts.TestToken(), "transfer", common.Address{0xee}, big.NewInt(amount))
}

// invalidate spends the first nonces of a payer without a payment, by mask.
func (w *world) invalidate(payer int, mask int64) {
	w.Helper()
	w.call(key(w, payer), x402.Permit2, contracts.Permit2(), "invalidateUnorderedNonces", new(big.Int),
		big.NewInt(mask))
}

// transactions returns the settlement wallet's transactions in the chain.
func (w *world) transactions() uint64 {
	w.Helper()
	nonce, err := w.dev.Client().NonceAt(w.Context(), w.wallet.Address(), nil)
	w.must(err)
	return nonce
}

func (w *world) slots() []payment.Slot {
	w.Helper()
	slots, err := w.store.Slots(w.Context(), w.config.ChainID)
	w.must(err)
	return slots
}

// foreignTx is a transaction that somebody else signed with the settlement key.
func (w *world) foreignTx(nonce uint64, tip, fee *big.Int) *types.Transaction {
	w.Helper()
	return types.MustSignNewTx(devchain.SettlementKey(), types.LatestSignerForChainID(w.dev.ChainID()),
		&types.DynamicFeeTx{
			ChainID: w.dev.ChainID(), Nonce: nonce, GasTipCap: tip, GasFeeCap: fee, Gas: 21_000,
			To: &common.Address{0xfe}, Value: big.NewInt(1),
		})
}

// foreign mines such a transaction.
func (w *world) foreign(nonce uint64) {
	w.Helper()
	w.must(w.dev.Client().SendTransaction(w.Context(), w.foreignTx(nonce, big.NewInt(50e9), big.NewInt(50e9))))
	w.mine()
}
