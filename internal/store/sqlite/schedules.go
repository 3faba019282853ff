package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"boxoffice"
	"boxoffice/internal/work"
)

const (
	selectSchedule = `
	SELECT ` + ownerColumns + `, id, state, action, input, interval_minutes, runs_bought, runs_left,
	       next_run_at, stopped_before, missed, created_at, updated_at
	FROM schedules `
	selectDue = `SELECT next_run_at, id FROM schedules
	WHERE state = 'active' AND next_run_at <= ? AND (next_run_at, id) > (?, ?) ORDER BY next_run_at, id LIMIT ?`
)

func scanSchedule(from row) (schedule work.Schedule, err error) {
	var input string
	err = from.Scan(append(intoOwner(&schedule.Owner), &schedule.ID, &schedule.State, &schedule.Action, &input,
		&schedule.IntervalMinutes, &schedule.RunsBought, &schedule.RunsLeft,
		&schedule.NextRunAt, &schedule.StoppedBefore, &schedule.Missed, &schedule.CreatedAt, &schedule.UpdatedAt)...)
	schedule.Input = []byte(input)
	return schedule, err
}

// lastRuns is how many of its runs the record of a schedule shows.
const lastRuns = 10

// Schedule implements work.Store.
func (s *Store) Schedule(
	ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID,
) (schedule work.Schedule, err error) {
	err = s.view(ctx, "read schedule", func(tx *sql.Tx) error {
		const where = "WHERE id = ? AND requester = ?"
		if schedule, err = queryWork(ctx, tx, scanSchedule, selectSchedule+where, id, identity(requester)); err != nil {
			return err
		}
		schedule.LastRuns, err = collect(ctx, tx, func(from row) (run boxoffice.ScheduledRun, err error) {
			err = from.Scan(&run.Number, &run.Kind, &run.ID, &run.DueAt, &run.At)
			return run, err
		}, `SELECT number, kind, work_id, due_at, at FROM schedule_runs
			WHERE schedule_id = ? ORDER BY number DESC LIMIT ?`, id, lastRuns)
		return err
	})
	return schedule, err
}

// DueSchedules returns the schedules that have a run due and sort after the given
// one; the one that is due longest comes first.
func (s *Store) DueSchedules(
	ctx context.Context, now boxoffice.Timestamp, after work.Due, limit int,
) ([]work.Due, error) {
	due, err := collect(ctx, s.readers, func(from row) (due work.Due, err error) {
		err = from.Scan(&due.At, &due.ID)
		return due, err
	}, selectDue, now, after.At, after.ID, limit)
	return due, named(ctx, "read due schedules", err)
}

// ChangeSchedule implements work.Changer.
func (t *workTx) ChangeSchedule(
	ctx context.Context, id boxoffice.UUID, decide func(work.Schedule) (work.Schedule, error),
) error {
	from, err := queryWork(ctx, t.tx, scanSchedule, selectSchedule+"WHERE id = ?", id)
	if err != nil {
		return err
	}
	to, err := decide(from)
	if err != nil {
		return err
	}
	return moveWork(ctx, t.tx, `
		UPDATE schedules
		SET state = ?, runs_bought = ?, runs_left = ?, next_run_at = ?, stopped_before = ?, updated_at = ?
		WHERE id = ? AND state = ? AND runs_bought = ? AND runs_left = ? AND next_run_at IS ?`,
		to.State, to.RunsBought, to.RunsLeft, to.NextRunAt, to.StoppedBefore, to.UpdatedAt,
		id, from.State, from.RunsBought, from.RunsLeft, from.NextRunAt)
}

// InsertScheduledRun implements work.Inserter.
func (t *workTx) InsertScheduledRun(ctx context.Context, schedule boxoffice.UUID, run boxoffice.ScheduledRun) error {
	_, err := t.tx.ExecContext(ctx, `
		INSERT INTO schedule_runs (schedule_id, number, kind, work_id, due_at, at) VALUES (?, ?, ?, ?, ?, ?)`,
		schedule, run.Number, run.Kind, run.ID, run.DueAt, run.At)
	if err != nil {
		return fmt.Errorf("insert scheduled run: %w", err)
	}
	return nil
}
