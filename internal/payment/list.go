package payment

import (
	"context"
	"math"
	"math/big"

	"boxoffice"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/params"
)

// PaymentQuery, PaymentEntry and PaymentTotals are the payment list, which an
// operator reads. It holds no signature and no signed payload, so all of it may
// be shown.

// PaymentQuery says which intents to list.
type PaymentQuery struct {
	State State // empty: any
	Limit int
}

// PaymentTotals counts all payments.
type PaymentTotals struct {
	Waiting int `json:"waiting"`
	Sent    int `json:"sent"`
	Settled int `json:"settled"`
	Failed  int `json:"failed"`
	// Unsettled are failed and not final: anyone with the signed permit can settle them.
	Unsettled     int                  `json:"unsettled"`
	OldestPending *boxoffice.Timestamp `json:"oldestPending"` // of those waiting or sent
	Gas           Gas                  `json:"gas"`
}

// Gas is what our own confirmed transactions have cost.
type Gas struct {
	Transactions int   `json:"transactions"`
	Payments     int   `json:"payments"` // that they settled
	GasUsed      int64 `json:"gasUsed"`
	FeesGwei     int64 `json:"feesGwei"`
}

// PaymentEntry is an intent with every transaction that was signed for it.
type PaymentEntry struct {
	ID      boxoffice.UUID `json:"id"`
	OrderID boxoffice.UUID `json:"orderId,omitempty"` // it pays for an order
	// SubmissionID: another server submitted it to our facilitator.
	SubmissionID boxoffice.UUID       `json:"submissionId,omitempty"`
	State        State                `json:"state"`
	Reason       string               `json:"reason,omitempty"`
	Final        bool                 `json:"final"`
	Payer        common.Address       `json:"payer"`
	Asset        common.Address       `json:"asset"`
	Amount       boxoffice.Amount     `json:"amount"`
	Nonce        boxoffice.Amount     `json:"nonce"` // of Permit2
	SubmittedAt  boxoffice.Timestamp  `json:"submittedAt"`
	SettledAt    *boxoffice.Timestamp `json:"settledAt"`
	SettledBy    *common.Hash         `json:"settledBy"` // the transaction with its Transfer, ours or another
	Transactions []PaymentTx          `json:"transactions"`
}

// PaymentTx is a transaction that carries an intent.
type PaymentTx struct {
	Hash        common.Hash         `json:"hash"`
	WalletNonce uint64              `json:"walletNonce"`
	FeeCap      boxoffice.Amount    `json:"feeCap"` // wei a gas
	SignedAt    boxoffice.Timestamp `json:"signedAt"`
	GasUsed     *int64              `json:"gasUsed"` // null until it is mined and confirmed
	FeeGwei     *int64              `json:"feeGwei"`
}

// Costs saves what settling has cost.
type Costs interface {
	// SaveCost saves the gas that a confirmed transaction of ours used and the fee
	// that it paid, in gwei. Saving it again changes nothing.
	SaveCost(ctx context.Context, tx common.Hash, gasUsed, feeGwei int64) error
}

// feeGwei returns the fee that a transaction paid, rounded down.
func (r *Receipt) feeGwei() int64 {
	wei := new(big.Int).Mul(r.GasPrice.Big(), new(big.Int).SetUint64(r.GasUsed))
	gwei := wei.Div(wei, big.NewInt(params.GWei))
	if !gwei.IsInt64() {
		return math.MaxInt64
	}
	return gwei.Int64()
}

// Undecided counts the payments of a chain that can still move money.
type Undecided struct {
	ChainID  uint64
	Payments int // waiting, sent, or failed and not final
	Sent     int // of these, those in a transaction of ours
}
