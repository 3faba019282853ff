package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"boxoffice"
	"boxoffice/internal/work"
)

// Mailbox keeps the results that HTTP agents report later, in the table callbacks,
// so that they reach a run in another process, or one that started after a
// restart. It implements agent.Mailbox.
type Mailbox struct {
	Store *Store
	Poll  time.Duration // how often a result is looked for
}

// Open saves that a result of a task is waited for, unless that is saved already,
// and returns the result that was reported, if any. The row is deleted with the
// end of the run: see work.NodeChange.TaskEnded. While the database is away it
// tries again, as Wait does.
func (m Mailbox) Open(ctx context.Context, id string, of boxoffice.UUID, node string) (kept []byte, err error) {
	err = m.untilDone(ctx, func() error {
		return m.Store.writer.QueryRowContext(ctx, `
			INSERT INTO callbacks (task_id, work_id, node) VALUES (?, ?, ?) ON CONFLICT (task_id) DO UPDATE SET result = result RETURNING result`,
			id, of, node).Scan(&kept)
	})
	return kept, err
}

// Put saves the result of a task, unless one is saved, and returns the saved one,
// or work.ErrNotFound if no run waits for it.
func (m Mailbox) Put(ctx context.Context, id string, answer []byte) (kept []byte, err error) {
	err = m.Store.write(ctx, "save callback", func(tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, `UPDATE callbacks SET result = coalesce(result, ?) WHERE task_id = ? RETURNING result`, answer, id).Scan(&kept)
		if errors.Is(err, sql.ErrNoRows) {
			err = work.ErrNotFound
		}
		return err
	})
	return kept, err
}

// Wait returns the result of a task as soon as one is saved. While the database
// is away it tries again, because the agent goes on with its work.
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
