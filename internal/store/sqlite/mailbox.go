package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// Mailbox keeps the answers that agents elsewhere sent later, so that they reach
// a run in another process, or one that began after a restart.
type Mailbox struct {
	Store *Store
	Poll  time.Duration // how often an answer is looked for
}

// Put keeps an answer under an id, unless there is one, and returns the one that is kept.
func (m Mailbox) Put(ctx context.Context, id string, answer []byte) (kept []byte, err error) {
	err = m.Store.write(ctx, "keep answer", func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO agent_answers (id, answer) VALUES (?, ?) ON CONFLICT (id) DO NOTHING`, id, answer); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, selectAnswer, id).Scan(&kept)
	})
	return kept, err
}

const selectAnswer = "SELECT answer FROM agent_answers WHERE id = ?"

// Wait returns the answer that is kept under an id, when there is one.
func (m Mailbox) Wait(ctx context.Context, id string) (answer []byte, err error) {
	poll := time.NewTicker(m.Poll)
	defer poll.Stop()
	for {
		err := m.Store.readers.QueryRowContext(ctx, selectAnswer, id).Scan(&answer)
		if !errors.Is(err, sql.ErrNoRows) {
			return answer, named(ctx, "read answer", err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-poll.C:
		}
	}
}
