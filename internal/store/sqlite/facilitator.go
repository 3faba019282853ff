package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/uuid"

	"boxoffice"
	"boxoffice/internal/facilitator"
	"boxoffice/internal/order"
	"boxoffice/internal/payment"
	"boxoffice/internal/payment/remote"
)

var (
	_ facilitator.Store = (*Store)(nil)
	_ remote.Exposures  = (*Store)(nil)
)

// MarkExposed implements remote.Exposures.
func (s *Store) MarkExposed(ctx context.Context, intentID boxoffice.UUID) (before bool, err error) {
	err = s.write(ctx, "expose payment", func(tx *sql.Tx) error {
		first, err := affects(ctx, tx, "INSERT INTO exposures (intent_id) VALUES (?) ON CONFLICT DO NOTHING", intentID)
		before = !first
		return err
	})
	return before, err
}

// ClearExposed implements remote.Exposures.
func (s *Store) ClearExposed(ctx context.Context, intentID boxoffice.UUID) error {
	return s.write(ctx, "withdraw exposure", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM exposures WHERE intent_id = ?", intentID)
		return err
	})
}

// foreignRequester is the requester of the orders that payments of other servers
// are. No token hashes to it.
const foreignRequester = "0000000000000000000000000000000000000000000000000000000000000000"

// permitKey is the request_key of a permit: one order for each, whoever asks.
func permitKey(chainID uint64, permit payment.Permit) boxoffice.UUID {
	hash := sha256.Sum256(fmt.Appendf(nil, "boxoffice-permit-v1\x00%d\x00%s\x00%s", chainID, text{permit.From}, permit.Nonce))
	id := uuid.UUID(hash[:16])
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // version 8, RFC 9562
	return boxoffice.UUID(id.String())
}

const selectForeign = `
	SELECT ` + intentColumns + ` FROM orders o JOIN intents i ON i.id = o.intent_id
	WHERE o.requester = ? AND o.request_key = ?`

func foreignIntent(ctx context.Context, db querier, chainID uint64, permit payment.Permit) (payment.Intent, error) {
	intent, err := scanIntent(db.QueryRowContext(ctx, selectForeign, foreignRequester, permitKey(chainID, permit)))
	if errors.Is(err, sql.ErrNoRows) {
		return payment.Intent{}, facilitator.ErrNotFound
	}
	return intent, err
}

// Submitted implements facilitator.Store.
func (s *Store) Submitted(ctx context.Context, chainID uint64, permit payment.Permit) (payment.Intent, error) {
	intent, err := foreignIntent(ctx, s.readers, chainID, permit)
	return intent, named(ctx, "read submitted payment", err)
}

// Submit implements facilitator.Store.
func (s *Store) Submit(ctx context.Context, intent payment.Intent, requirements []byte) (saved payment.Intent, err error) {
	err = s.write(ctx, "submit payment", func(tx *sql.Tx) error {
		created, err := affects(ctx, tx, `
			INSERT INTO orders (id, requester, request_key, status, quote, input, submitted_hash, requirements, created_at)
			VALUES (?, ?, ?, 'quoted', '{}', '{}', ?, ?, ?)
			ON CONFLICT (requester, request_key) DO NOTHING`,
			intent.OrderID, foreignRequester, permitKey(intent.ChainID, intent.Permit), text{intent.PayloadHash}, string(requirements), intent.SubmittedAt)
		if err != nil {
			return err
		}
		if created {
			if err := changeOrder(ctx, tx, order.Change{
				OrderID: intent.OrderID, From: order.Stage{Status: boxoffice.Quoted},
				To: order.Stage{Status: boxoffice.PaymentPending, IntentID: &intent.ID},
			}); err != nil {
				return err
			}
			if err := insertIntent(ctx, tx, intent); err != nil {
				return err
			}
		}
		saved, err = foreignIntent(ctx, tx, intent.ChainID, intent.Permit)
		return err
	})
	if errors.Is(err, order.ErrPermitTaken) {
		err = facilitator.ErrPermitTaken
	}
	return saved, err
}

// LastTransaction implements facilitator.Store.
func (s *Store) LastTransaction(ctx context.Context, intentID boxoffice.UUID) (hash *common.Hash, err error) {
	var last common.Hash
	err = s.readers.QueryRowContext(ctx, `
		SELECT t.hash FROM intents i JOIN transactions t ON t.slot_id = i.slot_id
		WHERE i.id = ? ORDER BY t.position DESC LIMIT 1`, intentID).Scan(intoText{&last})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return &last, named(ctx, "read last transaction", err)
}

// Answered implements facilitator.Store.
func (s *Store) Answered(ctx context.Context, intentID boxoffice.UUID) (caller string, err error) {
	err = s.readers.QueryRowContext(ctx, "SELECT caller FROM answers WHERE intent_id = ?", intentID).Scan(&caller)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return caller, named(ctx, "read answer", err)
}

// Answer implements facilitator.Store.
func (s *Store) Answer(ctx context.Context, intentID boxoffice.UUID, caller string) (taken bool, err error) {
	err = s.write(ctx, "answer payment", func(tx *sql.Tx) error {
		// The update changes nothing, but counts as a row if it is the same caller's.
		taken, err = affects(ctx, tx, `
			INSERT INTO answers (intent_id, caller) VALUES (?, ?)
			ON CONFLICT DO UPDATE SET caller = caller WHERE caller = excluded.caller`, intentID, caller)
		return err
	})
	return taken, err
}

// Unanswer implements facilitator.Store.
func (s *Store) Unanswer(ctx context.Context, intentID boxoffice.UUID, caller string) error {
	return s.write(ctx, "take answer back", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM answers WHERE intent_id = ? AND caller = ?", intentID, caller)
		return err
	})
}
