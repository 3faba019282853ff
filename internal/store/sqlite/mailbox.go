package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"boxoffice"
	"boxoffice/internal/work"
)

// Mailbox keeps the answers that agents elsewhere sent later, so that they reach
// a run in another process, or one that began after a restart. It implements
// agent.Mailbox.
type Mailbox struct {
	Store *Store
	Poll  time.Duration // how often an answer is looked for
}

// Open makes a box for the answer to a task, unless there is one, and returns the
// answer that is in it. It goes with the run of its node: see emptied. A database
// that is away is asked again, as by Wait.
func (m Mailbox) Open(ctx context.Context, id string, of boxoffice.UUID, node string) (kept []byte, err error) {
	err = m.untilDone(ctx, func() error {
		return m.Store.writer.QueryRowContext(ctx, `
			INSERT INTO callbacks (task_id, work_id, node) VALUES (?, ?, ?) ON CONFLICT (task_id) DO UPDATE SET result = result RETURNING result`,
			id, of, node).Scan(&kept)
	})
	return kept, err
}

// Put keeps an answer in a box, unless there is one, and returns the one that is
// kept; work.ErrNotFound if nobody waits for it.
func (m Mailbox) Put(ctx context.Context, id string, answer []byte) (kept []byte, err error) {
	err = m.Store.write(ctx, "keep answer", func(tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, `UPDATE callbacks SET result = coalesce(result, ?) WHERE task_id = ? RETURNING result`, answer, id).Scan(&kept)
		if errors.Is(err, sql.ErrNoRows) {
			err = work.ErrNotFound
		}
		return err
	})
	return kept, err
}

// Wait returns the answer that is kept in a box, when there is one. A database
// that is away is asked again: what the agent does for the answer goes on.
func (m Mailbox) Wait(ctx context.Context, id string) (answer []byte, err error) {
	err = m.untilDone(ctx, func() error {
		return m.Store.readers.QueryRowContext(ctx, "SELECT result FROM callbacks WHERE task_id = ? AND result IS NOT NULL", id).Scan(&answer)
	})
	return answer, err
}

// untilDone tries until it is done or ctx has ended.
func (m Mailbox) untilDone(ctx context.Context, try func() error) error {
	poll := time.NewTicker(m.Poll)
	defer poll.Stop()
	for try() != nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-poll.C:
		}
	}
	return nil
}
