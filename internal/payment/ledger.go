package payment

import (
	"context"
	"math"
	"math/big"

	"boxoffice"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/params"
)

// Ledger is what an operator sees of payments. Nothing in it was signed by a
// payer, so all of it may be shown.
type Ledger interface {
	// Totals counts the intents by state and what settling them has cost.
	Totals(ctx context.Context) (Totals, error)
	// Entries returns intents, newest first.
	Entries(ctx context.Context, query EntryQuery) ([]Entry, error)
}

// EntryQuery chooses entries.
type EntryQuery struct {
	State State // empty: any
	Limit int
}

// Totals is the sum of all payments.
type Totals struct {
	Waiting       int                  `json:"waiting"`
	Sent          int                  `json:"sent"`
	Settled       int                  `json:"settled"`
	Failed        int                  `json:"failed"`
	Doubtful      int                  `json:"doubtful"`      // failed, and anyone may still settle them
	OldestPending *boxoffice.Timestamp `json:"oldestPending"` // of those waiting or sent
	Gas           Gas                  `json:"gas"`
}

// Gas is what our own mined transactions have cost.
type Gas struct {
	Transactions int   `json:"transactions"`
	Payments     int   `json:"payments"` // that they settled
	GasUsed      int64 `json:"gasUsed"`
	FeesGwei     int64 `json:"feesGwei"`
}

// Entry is an intent with every transaction that was signed for it.
type Entry struct {
	ID           boxoffice.UUID       `json:"id"`
	OrderID      boxoffice.UUID       `json:"orderId"`
	State        State                `json:"state"`
	Reason       string               `json:"reason,omitempty"`
	Final        bool                 `json:"final"`
	Payer        common.Address       `json:"payer"`
	Asset        common.Address       `json:"asset"`
	Amount       boxoffice.Amount     `json:"amount"`
	Nonce        boxoffice.Amount     `json:"nonce"` // of Permit2
	SubmittedAt  boxoffice.Timestamp  `json:"submittedAt"`
	SettledAt    *boxoffice.Timestamp `json:"settledAt"`
	SettledBy    *common.Hash         `json:"settledBy"` // the transaction with its Transfer, ours or somebody else's
	Transactions []EntryTx            `json:"transactions"`
}

// EntryTx is a transaction that carries an intent.
type EntryTx struct {
	Hash        common.Hash         `json:"hash"`
	WalletNonce uint64              `json:"walletNonce"`
	FeeCap      boxoffice.Amount    `json:"feeCap"` // wei a gas
	SignedAt    boxoffice.Timestamp `json:"signedAt"`
	GasUsed     *int64              `json:"gasUsed"` // null until it is mined and confirmed
	FeeGwei     *int64              `json:"feeGwei"`
}

// Costs keeps what settling has cost.
type Costs interface {
	// Mined keeps the gas that a confirmed transaction of ours used and the fee
	// that it paid, in gwei. Keeping it again changes nothing.
	Mined(ctx context.Context, tx common.Hash, gasUsed, feeGwei int64) error
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
