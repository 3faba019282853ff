package sqlite

import (
	"context"
	"database/sql"

	"github.com/ethereum/go-ethereum/common"

	"boxoffice/internal/payment"
)

// SaveCost implements payment.Costs.
func (s *Store) SaveCost(ctx context.Context, tx common.Hash, gasUsed, feeGwei int64) error {
	return s.write(ctx, "save cost", func(db *sql.Tx) error {
		_, err := db.ExecContext(ctx, `
			UPDATE transactions SET gas_used = ?, fee_gwei = ? WHERE hash = ?`, gasUsed, feeGwei, text{tx})
		return err
	})
}

// PaymentTotals counts the intents by state and sums what settling them cost.
func (s *Store) PaymentTotals(ctx context.Context) (totals payment.PaymentTotals, err error) {
	err = s.view(ctx, "sum up payments", func(tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, `
			SELECT count(*) FILTER (WHERE state = 'waiting'), count(*) FILTER (WHERE state = 'sent'),
				count(*) FILTER (WHERE state = 'settled'), count(*) FILTER (WHERE state = 'failed'),
				count(*) FILTER (WHERE state = 'failed' AND final = 0),
				min(submitted_at) FILTER (WHERE state IN ('waiting', 'sent'))
			FROM intents`).Scan(&totals.Waiting, &totals.Sent, &totals.Settled, &totals.Failed,
			&totals.Unsettled, &totals.OldestPending); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, `
			SELECT count(*), coalesce(sum(gas_used), 0), coalesce(sum(fee_gwei), 0),
				(SELECT count(*) FROM intents i JOIN transactions m ON m.hash = i.tx_hash
				 WHERE i.state = 'settled' AND m.gas_used IS NOT NULL)
			FROM transactions WHERE gas_used IS NOT NULL`).
			Scan(&totals.Gas.Transactions, &totals.Gas.GasUsed, &totals.Gas.FeesGwei, &totals.Gas.Payments)
	})
	return totals, err
}

// Payments lists intents, newest first.
func (s *Store) Payments(ctx context.Context, query payment.PaymentQuery) (payments []payment.PaymentEntry, err error) {
	err = s.view(ctx, "list payments", func(tx *sql.Tx) error {
		payments, err = collect(ctx, tx, scanPayment, `
			SELECT id, coalesce(order_id, ''), coalesce(submission_id, ''), state, coalesce(reason, ''), final,
			       owner, token, amount, nonce, submitted_at, settled_at, tx_hash
			FROM intents WHERE ?1 = '' OR state = ?1
			ORDER BY submitted_at DESC, id DESC LIMIT ?2`, string(query.State), query.Limit)
		if err != nil {
			return err
		}
		for i := range payments {
			signed, err := collect(ctx, tx, scanPaymentTx, `
				SELECT t.hash, s.wallet_nonce, t.fee_cap, t.signed_at, t.gas_used, t.fee_gwei
				FROM slot_intents m JOIN slots s ON s.id = m.slot_id JOIN transactions t ON t.slot_id = s.id
				WHERE m.intent_id = ? ORDER BY t.signed_at, t.position`, payments[i].ID)
			if err != nil {
				return err
			}
			payments[i].Transactions = append(payments[i].Transactions, signed...)
		}
		return nil
	})
	return payments, err
}

func scanPayment(from row) (payment.PaymentEntry, error) {
	entry := payment.PaymentEntry{Transactions: []payment.PaymentTx{}}
	var settledBy sql.Null[string]
	err := from.Scan(&entry.ID, &entry.OrderID, &entry.SubmissionID, &entry.State, &entry.Reason, &entry.Final,
		intoText{&entry.Payer}, intoText{&entry.Asset},
		intoText{&entry.Amount}, intoText{&entry.Nonce}, &entry.SubmittedAt, &entry.SettledAt, &settledBy)
	if settledBy.Valid {
		hash := common.HexToHash(settledBy.V)
		entry.SettledBy = &hash
	}
	return entry, err
}

func scanPaymentTx(from row) (payment.PaymentTx, error) {
	var tx payment.PaymentTx
	err := from.Scan(intoText{&tx.Hash}, &tx.WalletNonce, intoText{&tx.FeeCap}, &tx.SignedAt, &tx.GasUsed, &tx.FeeGwei)
	if tx.GasUsed == nil {
		tx.FeeGwei = nil
	}
	return tx, err
}

const selectUndecided = `
	SELECT chain_id, count(*), sum(sent) FROM (
		SELECT chain_id, 0 AS sent FROM intents WHERE state = 'waiting'
		UNION ALL SELECT i.chain_id, 0 FROM intents i LEFT JOIN orders o ON o.id = i.order_id
		WHERE i.state = 'failed' AND i.final = 0 AND (i.submission_id IS NOT NULL OR o.intent_id = i.id)
		UNION ALL SELECT chain_id, 1 FROM intents WHERE slot_id IS NOT NULL
	) GROUP BY chain_id ORDER BY chain_id`

// Undecided counts the payments that can still move money, by chain.
func (s *Store) Undecided(ctx context.Context) ([]payment.Undecided, error) {
	undecided, err := collect(ctx, s.readers, func(from row) (u payment.Undecided, err error) {
		err = from.Scan(&u.ChainID, &u.Payments, &u.Sent)
		return u, err
	}, selectUndecided)
	return undecided, named(ctx, "count undecided payments", err)
}
