package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"boxoffice"
	"boxoffice/internal/work"
)

const (
	scheduleState  = `CASE WHEN stopped_at IS NULL THEN state ELSE 'stopped' END`
	selectSchedule = `
	SELECT ` + ownerColumns + `, id, ` + scheduleState + `, action, input, interval_minutes, runs_bought, runs_left,
	       CASE WHEN stopped_at IS NULL THEN next_run_at END, missed, created_at, updated_at
	FROM schedules `
	selectDue = `SELECT next_run_at, id FROM schedules
	WHERE state = 'active' AND stopped_at IS NULL AND next_run_at <= ? AND (next_run_at, id) > (?, ?) ORDER BY next_run_at, id LIMIT ?`
)

func scanSchedule(from row) (schedule work.Schedule, err error) {
	var input string
	err = from.Scan(append(intoOwner(&schedule.Owner), &schedule.ID, &schedule.State, &schedule.Action, &input,
		&schedule.IntervalMinutes, &schedule.RunsBought, &schedule.RunsLeft, &schedule.NextRunAt, &schedule.Missed,
		&schedule.CreatedAt, &schedule.UpdatedAt)...)
	schedule.Input = []byte(input)
	return schedule, err
}

// lastRuns is how many of its works the record of a schedule shows.
const lastRuns = 10

// Schedule implements work.Store.
func (s *Store) Schedule(ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID) (schedule work.Schedule, err error) {
	err = s.view(ctx, "read schedule", func(tx *sql.Tx) error {
		if schedule, err = queryWork(ctx, tx, scanSchedule, selectSchedule+"WHERE id = ? AND requester = ?", id, identity(requester)); err != nil {
			return err
		}
		schedule.LastRuns, err = collect(ctx, tx, func(from row) (run boxoffice.ScheduledRun, err error) {
			err = from.Scan(&run.Number, &run.Kind, &run.ID, &run.DueAt, &run.At)
			return run, err
		}, "SELECT number, kind, work_id, due_at, at FROM schedule_runs WHERE schedule_id = ? ORDER BY number DESC LIMIT ?", id, lastRuns)
		return err
	})
	return schedule, err
}

// DueSchedules returns the schedules that have a run due, longest due first,
// those that come after the given one.
func (s *Store) DueSchedules(ctx context.Context, now boxoffice.Timestamp, after work.Due, limit int) ([]work.Due, error) {
	due, err := collect(ctx, s.readers, func(from row) (due work.Due, err error) {
		err = from.Scan(&due.At, &due.ID)
		return due, err
	}, selectDue, now, after.At, after.ID, limit)
	return due, named(ctx, "read due schedules", err)
}

// RunSchedule takes the run of a schedule that is due and keeps what open
// creates for it, in one transaction. It returns work.ErrLost if none is due any
// more: runs left and next time are read and written under one lock.
func (s *Store) RunSchedule(ctx context.Context, id boxoffice.UUID, now boxoffice.Timestamp, open func(work.Tx, work.Schedule) (work.Opened, error)) error {
	return s.write(ctx, "run schedule", func(tx *sql.Tx) error {
		schedule, err := queryWork(ctx, tx, scanSchedule, selectSchedule+"WHERE id = ?", id)
		if err != nil {
			return err
		}
		if schedule.NextRunAt == nil || *schedule.NextRunAt > now {
			return work.ErrLost
		}
		due, state := *schedule.NextRunAt, boxoffice.ScheduleActive
		next := new(work.NextRun(due, now, schedule.IntervalMinutes, schedule.Missed))
		if schedule.RunsLeft == 1 {
			state, next = boxoffice.ScheduleEnded, nil
		}
		if err := take(ctx, tx, `
			UPDATE schedules SET runs_left = runs_left - 1, state = ?, next_run_at = ?, updated_at = ?
			WHERE id = ? AND state = 'active' AND stopped_at IS NULL AND next_run_at = ? AND runs_left = ?`,
			state, next, now, id, due, schedule.RunsLeft,
		); err != nil {
			return err
		}
		opened, err := open(workTx{tx, s.queue}, schedule)
		if err != nil {
			return fmt.Errorf("open: %w", err)
		}
		_, err = tx.ExecContext(ctx, `
			INSERT INTO schedule_runs (schedule_id, number, kind, work_id, due_at, at) VALUES (?, ?, ?, ?, ?, ?)`,
			id, schedule.RunsBought-schedule.RunsLeft+1, opened.Kind, opened.ID, due, now)
		return err
	})
}
