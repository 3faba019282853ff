package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"boxoffice"
	"boxoffice/internal/work"
)

const selectNamed = `
	SELECT 'job', id, state FROM jobs WHERE id IN (?1, (SELECT job_id FROM workflows WHERE id = ?1))
	UNION ALL SELECT 'oracle', id, state FROM oracles WHERE id = ?1
	UNION ALL SELECT 'schedule', id, ` + scheduleState + ` FROM schedules WHERE id = ?1`

// Cancel ends what is done for a job, a workflow's job or an oracle, or stops a
// schedule, and returns how it stands now. Its nodes that run or are queued have
// failed: what their workers say does not count any more, and Renew tells them.
// It returns work.ErrNotFound, and work.ErrEnded for what is completed or has no
// runs left. What is blocked or stopped stays as it is.
func (s *Store) Cancel(ctx context.Context, id boxoffice.UUID, now boxoffice.Timestamp) (found work.Cancelled, err error) {
	err = s.write(ctx, "cancel", func(tx *sql.Tx) error {
		found, err = queryWork(ctx, tx, func(from row) (c work.Cancelled, err error) {
			err = from.Scan(&c.Kind, &c.ID, &c.State)
			return c, err
		}, selectNamed, id)
		if err != nil {
			return err
		}
		switch found.State {
		case string(boxoffice.JobCompleted), string(boxoffice.ScheduleEnded):
			return work.ErrEnded
		case string(boxoffice.JobBlocked), string(boxoffice.ScheduleStopped):
			return nil
		}
		if found.Kind == work.KindSchedule {
			found.State = string(boxoffice.ScheduleStopped)
			return take(ctx, tx, `
				UPDATE schedules SET stopped_at = ?1, updated_at = ?1 WHERE id = ?2 AND state = 'active' AND stopped_at IS NULL`, now, found.ID)
		}
		found.State = string(boxoffice.JobBlocked)
		return cancelRunning(ctx, tx, found, now)
	})
	return found, err
}

func cancelRunning(ctx context.Context, tx *sql.Tx, found work.Cancelled, now boxoffice.Timestamp) error {
	if _, err := tx.ExecContext(ctx, `
		UPDATE nodes SET state = 'failed', reason = ?, ended_at = ?, due_at = NULL, queue_id = NULL,
		       leaving = coalesce(holder, leaving), leaving_until = coalesce(held_until, leaving_until), holder = NULL, held_until = NULL
		WHERE work_id = ? AND state IN ('queued', 'running')`, work.CancelledReason, now, found.ID); err != nil {
		return fmt.Errorf("cancel nodes: %w", err)
	}
	if err := emptied(ctx, tx, found.ID, ""); err != nil {
		return fmt.Errorf("cancel nodes: %w", err)
	}
	table, reason := "oracles", work.CancelledReason
	if found.Kind == work.KindJob {
		nodes, err := nodesOf(ctx, tx, found.ID)
		if err != nil {
			return err
		}
		table, reason = "jobs", work.BlockedReason(nodes)
	}
	return take(ctx, tx, `
		UPDATE `+table+` SET state = 'blocked', blocked_reason = ?, updated_at = ? WHERE id = ? AND state IN ('queued', 'running')`,
		reason, now, found.ID)
}
