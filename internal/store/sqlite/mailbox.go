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
			INSERT INTO mailbox (id, work_id, node) VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET answer = answer RETURNING answer`,
			id, of, node).Scan(&kept)
	})
	return kept, err
}

// Put keeps an answer in a box, unless there is one, and returns the one that is
// kept; work.ErrNotFound if nobody waits for it.
func (m Mailbox) Put(ctx context.Context, id string, answer []byte) (kept []byte, err error) {
	err = m.Store.write(ctx, "keep answer", func(tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, `UPDATE mailbox SET answer = coalesce(answer, ?) WHERE id = ? RETURNING answer`, answer, id).Scan(&kept)
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
		return m.Store.readers.QueryRowContext(ctx, "SELECT answer FROM mailbox WHERE id = ? AND answer IS NOT NULL", id).Scan(&answer)
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

// emptied takes away the boxes of a node whose run is over, or of all nodes of
// a work if none is named. The next run has a task of its own, and so another box.
func emptied(ctx context.Context, tx *sql.Tx, of boxoffice.UUID, node string) error {
	_, err := tx.ExecContext(ctx, "DELETE FROM mailbox WHERE work_id = ?1 AND (node = ?2 OR ?2 = '')", of, node)
	return err
}
