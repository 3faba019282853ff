package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"

	"boxoffice"
	"boxoffice/internal/work"
)

// Queue is the name of the queue that runs of nodes wait in.
const Queue = "work"

// Driver returns the queue's way to the database. It writes through the store's
// only writing connection, one statement or short transaction at a time, so that
// it waits for its turn like everything else here.
func (s *Store) Driver() riverdriver.Driver[*sql.Tx] { return riversqlite.New(s.writer) }

// openQueue brings the queue's tables up to date and returns a client that can
// only put runs into it.
func openQueue(ctx context.Context, writer *sql.DB) (*river.Client[*sql.Tx], error) {
	quiet := slog.New(slog.DiscardHandler)
	driver := riversqlite.New(writer)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	client, err := river.NewClient(driver, &river.Config{Logger: quiet})
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	return client, nil
}

// queueGrain is the shortest pause that the queue can make: it looks every few
// seconds for what was put off.
const queueGrain = time.Second

// enqueue queues the next run of a node, which has to be in state queued. The
// queue goes by its own clock, so it is told how long to wait, not until when.
func (t workTx) enqueue(ctx context.Context, node work.Node, now boxoffice.Timestamp, after time.Duration) error {
	options := &river.InsertOpts{Queue: Queue}
	if after >= queueGrain {
		options.ScheduledAt = time.Now().Add(after)
	}
	run := work.Run{Work: node.Work, Position: node.Position, Attempt: node.Attempts + 1}
	entry, err := t.queue.InsertTx(ctx, t.tx, run, options)
	if err != nil {
		return fmt.Errorf("enqueue: %w", err)
	}
	return move(ctx, t.tx, `
		UPDATE nodes SET queue_id = ?, due_at = ? WHERE work_id = ? AND position = ? AND state = 'queued' AND attempt = ?`,
		entry.Job.ID, now+boxoffice.Timestamp(after.Milliseconds()), node.Work, node.Position, node.Attempts)
}

// Requeue queues again the runs that were due before the given moment and that
// no entry of the queue stands for any more: the worker that took the entry did
// not come as far as to take the run. It returns how many there were.
func (s *Store) Requeue(ctx context.Context, before, now boxoffice.Timestamp, limit int) (n int, err error) {
	forgotten, err := collect(ctx, s.readers, scanNode, selectForgotten, before, limit)
	if err != nil || len(forgotten) == 0 {
		return 0, named(ctx, "find forgotten runs", err)
	}
	err = s.write(ctx, "requeue", func(tx *sql.Tx) error {
		for _, node := range forgotten {
			err := workTx{tx, s.queue}.enqueue(ctx, node, now, 0)
			switch {
			case err == nil:
				n++
			case !isStale(err):
				return err
			}
		}
		return nil
	})
	return n, err
}

const selectForgotten = selectNode + `
	WHERE state = 'queued' AND due_at < ? AND NOT EXISTS (
		SELECT 1 FROM river_job q WHERE q.id = nodes.queue_id AND q.state IN ('available', 'pending', 'scheduled', 'retryable'))
	ORDER BY due_at LIMIT ?`
