package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/ethereum/go-ethereum/common"

	"boxoffice"
	"boxoffice/internal/payment"
	"boxoffice/internal/strictjson"
	"boxoffice/x402"
)

const intentColumns = `i.id, i.order_id, i.submission_id, i.chain_id, i.payload, i.payload_hash, i.quote_signature,
	i.state, i.reason, i.final, i.slot_id, i.from_block, i.reverts,
	i.tx_hash, i.log_index, i.block_number, i.settled_at, i.submitted_at`

// intentRow has the columns of an intent. All are NULL where an outer join found
// no intent.
type intentRow struct {
	id             *boxoffice.UUID
	orderID        *boxoffice.UUID
	submissionID   *boxoffice.UUID
	chainID        *uint64
	payload        *string
	payloadHash    boxoffice.Hash
	quoteSignature boxoffice.Signature
	state          *payment.State
	reason         *string
	final          *bool
	slotID         *boxoffice.UUID
	fromBlock      *uint64
	reverts        *int
	txHash         common.Hash
	logIndex       *uint
	blockNumber    *uint64
	settledAt      *boxoffice.Timestamp
	submittedAt    *boxoffice.Timestamp
}

func (r *intentRow) columns() []any {
	return []any{
		&r.id, &r.orderID, &r.submissionID, &r.chainID, &r.payload, intoText{&r.payloadHash},
		intoText{&r.quoteSignature}, &r.state, &r.reason, &r.final, &r.slotID, &r.fromBlock, &r.reverts,
		intoText{&r.txHash}, &r.logIndex, &r.blockNumber, &r.settledAt, &r.submittedAt,
	}
}

func (r *intentRow) intent() (payment.Intent, error) {
	intent := payment.Intent{
		ID:             orZero(r.id),
		OrderID:        orZero(r.orderID),
		SubmissionID:   orZero(r.submissionID),
		ChainID:        orZero(r.chainID),
		Payload:        []byte(orZero(r.payload)),
		PayloadHash:    r.payloadHash,
		QuoteSignature: r.quoteSignature,
		FromBlock:      orZero(r.fromBlock),
		SubmittedAt:    orZero(r.submittedAt),
		Progress: payment.Progress{
			State: orZero(r.state), SlotID: r.slotID, Reason: orZero(r.reason), Final: orZero(r.final),
			Reverts: orZero(r.reverts),
		},
	}
	var payload x402.Payload
	if err := strictjson.Decode(intent.Payload, &payload); err != nil { // its errors contain no value
		return payment.Intent{}, fmt.Errorf("payload of intent %s: %w", intent.ID, err)
	}
	intent.Permit = payment.Permit{Authorization: payload.Payload.Authorization, Signature: payload.Payload.Signature}
	if r.settledAt != nil {
		intent.Evidence = &payment.Evidence{
			TxHash:      r.txHash,
			LogIndex:    orZero(r.logIndex),
			BlockNumber: orZero(r.blockNumber),
			SettledAt:   *r.settledAt,
		}
	}
	return intent, nil
}

func scanIntent(from row) (payment.Intent, error) {
	var r intentRow
	if err := from.Scan(r.columns()...); err != nil {
		return payment.Intent{}, err
	}
	return r.intent()
}

const (
	selectWaiting = `
		SELECT ` + intentColumns + ` FROM intents i
		WHERE i.state = 'waiting' AND i.chain_id = ?
		ORDER BY i.submitted_at, i.id LIMIT ?`
	selectUnresolved = `
		SELECT ` + intentColumns + ` FROM intents i LEFT JOIN orders o ON o.id = i.order_id
		WHERE i.state = 'failed' AND i.final = 0 AND i.chain_id = ?
			AND (i.submission_id IS NOT NULL OR o.intent_id = i.id)
		ORDER BY i.submitted_at, i.id LIMIT ?`
	selectSettled = `
		SELECT ` + intentColumns + ` FROM intents i
		WHERE i.state = 'settled' AND i.chain_id = ? AND i.block_number >= ?
		ORDER BY i.block_number DESC LIMIT ?`
	selectPending = `
		SELECT amount FROM intents
		WHERE owner = ? AND token = ? AND chain_id = ? AND state IN ('waiting', 'sent')`
)

func insertIntent(ctx context.Context, tx *sql.Tx, intent payment.Intent) error {
	permit := intent.Permit
	var quoteSignature any
	if intent.OrderID != "" {
		quoteSignature = text{intent.QuoteSignature}
	}
	_, err := tx.ExecContext(ctx, `
		INSERT INTO intents (id, order_id, submission_id, chain_id, owner, nonce, token, amount, payload, payload_hash,
		                     quote_signature, state, from_block, submitted_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		intent.ID, unlessEmpty(intent.OrderID), unlessEmpty(intent.SubmissionID), intent.ChainID, text{permit.From},
		text{permit.Nonce}, text{permit.Permitted.Token}, text{permit.Permitted.Amount}, string(intent.Payload),
		text{intent.PayloadHash}, quoteSignature, intent.State, intent.FromBlock, intent.SubmittedAt)
	return err
}

// Waiting implements payment.Store.
func (s *Store) Waiting(ctx context.Context, chainID uint64, limit int) ([]payment.Intent, error) {
	intents, err := collect(ctx, s.readers, scanIntent, selectWaiting, chainID, limit)
	return intents, named(ctx, "read waiting payments", err)
}

// Unresolved implements payment.Store, oldest first.
func (s *Store) Unresolved(ctx context.Context, chainID uint64, limit int) ([]payment.Intent, error) {
	intents, err := collect(ctx, s.readers, scanIntent, selectUnresolved, chainID, limit)
	return intents, named(ctx, "read unresolved payments", err)
}

// Settled implements payment.History.
func (s *Store) Settled(ctx context.Context, chainID, first uint64, limit int) ([]payment.Intent, error) {
	intents, err := collect(ctx, s.readers, scanIntent, selectSettled, chainID, first, limit)
	return intents, named(ctx, "read settled payments", err)
}

// PendingAmount implements payment.PendingPayments. A sum above 256 bits, which no balance
// covers, is the largest Amount.
func (s *Store) PendingAmount(ctx context.Context, permit payment.Permit, chainID uint64) (boxoffice.Amount, error) {
	amounts, err := collect(ctx, s.readers, func(from row) (amount boxoffice.Amount, err error) {
		err = from.Scan(intoText{&amount})
		return amount, err
	}, selectPending, text{permit.From}, text{permit.Permitted.Token}, chainID)
	if err != nil {
		return boxoffice.Amount{}, named(ctx, "read pending amounts", err)
	}
	return sum(amounts), nil
}

func sum(amounts []boxoffice.Amount) (total boxoffice.Amount) {
	for _, amount := range amounts {
		var fits bool
		if total, fits = total.Add(amount); !fits {
			return x402.MaxUint256()
		}
	}
	return total
}
