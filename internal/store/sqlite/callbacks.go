package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"boxoffice"
	"boxoffice/internal/work"
)

// CallbackStore keeps the results that HTTP agents send later, in the table callbacks,
// so that they reach a run in another process, or one that started after a
// restart. It implements agent.CallbackStore.
type CallbackStore struct {
	Store *Store
	Poll  time.Duration // how often a result is looked for
}

// Open saves that a result of a task is waited for, unless that is saved already,
// and returns the result that was sent, if any. The row is deleted with the
// end of the run: see work.NodeChange.TaskEnded. While the database is away it
// tries again, as Wait does.
func (c CallbackStore) Open(ctx context.Context, id string, of boxoffice.UUID, node string) (kept []byte, err error) {
	err = c.untilDone(ctx, func() error {
		return c.Store.writer.QueryRowContext(ctx, `
			INSERT INTO callbacks (task_id, work_id, node) VALUES (?, ?, ?)
			ON CONFLICT (task_id) DO UPDATE SET result = result RETURNING result`,
			id, of, node).Scan(&kept)
	})
	return kept, err
}

// Put saves the result of a task, unless one is saved, and returns the saved one,
// or work.ErrNotFound if no run waits for it.
func (c CallbackStore) Put(ctx context.Context, id string, result []byte) (kept []byte, err error) {
	err = c.Store.write(ctx, "save callback", func(tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx,
			"UPDATE callbacks SET result = coalesce(result, ?) WHERE task_id = ? RETURNING result", result, id,
		).Scan(&kept)
		if errors.Is(err, sql.ErrNoRows) {
			err = work.ErrNotFound
		}
		return err
	})
	return kept, err
}

// Wait returns the result of a task as soon as one is saved. While the database
// is away it tries again, because the agent goes on with its work.
func (c CallbackStore) Wait(ctx context.Context, id string) (result []byte, err error) {
	err = c.untilDone(ctx, func() error {
		return c.Store.readers.QueryRowContext(ctx,
			"SELECT result FROM callbacks WHERE task_id = ? AND result IS NOT NULL", id).Scan(&result)
	})
	return result, err
}

// untilDone tries until it is done or ctx has ended.
func (c CallbackStore) untilDone(ctx context.Context, try func() error) error {
	poll := time.NewTicker(c.Poll)
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
