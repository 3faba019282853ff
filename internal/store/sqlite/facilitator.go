package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/ethereum/go-ethereum/common"

	"boxoffice"
	"boxoffice/internal/facilitator"
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
	return s.write(ctx, "clear exposure", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM exposures WHERE intent_id = ?", intentID)
		return err
	})
}

const selectSubmitted = `
	SELECT ` + intentColumns + ` FROM permits p JOIN intents i ON i.submission_id = p.submission_id
	WHERE p.chain_id = ? AND p.owner = ? AND p.nonce = ?`

func submitted(ctx context.Context, db querier, chainID uint64, permit payment.Permit) (payment.Intent, error) {
	intent, err := scanIntent(db.QueryRowContext(ctx, selectSubmitted, chainID, text{permit.From}, text{permit.Nonce}))
	if errors.Is(err, sql.ErrNoRows) {
		return payment.Intent{}, facilitator.ErrNotFound
	}
	return intent, err
}

// Submitted implements facilitator.Store.
func (s *Store) Submitted(ctx context.Context, chainID uint64, permit payment.Permit) (payment.Intent, error) {
	intent, err := submitted(ctx, s.readers, chainID, permit)
	return intent, named(ctx, "read submitted payment", err)
}

// Submit implements facilitator.Store.
func (s *Store) Submit(ctx context.Context, intent payment.Intent) (saved payment.Intent, err error) {
	err = s.write(ctx, "submit payment", func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO submissions (id) VALUES (?)", intent.SubmissionID); err != nil {
			return err
		}
		permit := intent.Permit
		free, err := affects(ctx, tx, `
			INSERT INTO permits (chain_id, owner, nonce, submission_id) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`,
			intent.ChainID, text{permit.From}, text{permit.Nonce}, intent.SubmissionID)
		if err != nil {
			return err
		}
		if !free {
			return facilitator.ErrPermitTaken
		}
		return insertIntent(ctx, tx, intent)
	})
	if errors.Is(err, facilitator.ErrPermitTaken) {
		earlier, found := s.Submitted(ctx, intent.ChainID, intent.Permit)
		if !errors.Is(found, facilitator.ErrNotFound) {
			return earlier, found
		}
	}
	return intent, err
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

// AnsweredCaller implements facilitator.Store.
func (s *Store) AnsweredCaller(ctx context.Context, submissionID boxoffice.UUID) (string, error) {
	var caller *string
	err := s.readers.QueryRowContext(ctx, "SELECT caller FROM submissions WHERE id = ?", submissionID).Scan(&caller)
	return orZero(caller), named(ctx, "read answered caller", err)
}

// ReserveAnswer implements facilitator.Store.
func (s *Store) ReserveAnswer(
	ctx context.Context, submissionID boxoffice.UUID, caller string,
) (reserved bool, err error) {
	err = s.write(ctx, "reserve answer", func(tx *sql.Tx) error {
		reserved, err = affects(ctx, tx, `
			UPDATE submissions SET caller = ?1 WHERE id = ?2 AND (caller IS NULL OR caller = ?1)`, caller, submissionID)
		return err
	})
	return reserved, err
}

// ReleaseAnswer implements facilitator.Store.
func (s *Store) ReleaseAnswer(ctx context.Context, submissionID boxoffice.UUID, caller string) error {
	return s.write(ctx, "release answer", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx,
			"UPDATE submissions SET caller = NULL WHERE id = ? AND caller = ?", submissionID, caller)
		return err
	})
}
