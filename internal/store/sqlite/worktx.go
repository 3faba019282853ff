package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"boxoffice"
	"boxoffice/internal/work"
)

// workTx is a transaction in which work is opened or changed. It holds the write
// lock, so nothing that it has read changes before it ends.
type workTx struct {
	tx     *sql.Tx
	queued bool // a node was queued
}

var _ work.Tx = (*workTx)(nil)

func (t *workTx) insert(ctx context.Context, what, statement string, owner work.Owner, args ...any) error {
	owned := append([]any{identity(owner.Requester), text{owner.Payer}, owner.OrderID}, args...)
	if _, err := t.tx.ExecContext(ctx, statement, owned...); err != nil {
		return fmt.Errorf("insert %s: %w", what, err)
	}
	return nil
}

func (t *workTx) InsertJob(ctx context.Context, job work.Job) error {
	var project *boxoffice.UUID
	var version *int
	if job.Project != nil {
		project, version = &job.Project.ID, &job.Project.Version
	}
	if err := t.insert(ctx, "job", `
		INSERT INTO jobs (`+ownerColumns+`, id, state, template, objective, launch_kind, blocked_reason, delivery,
		                  created_at, updated_at, brief, project_id, project_version)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, job.Owner,
		job.ID, job.State, job.Template, job.Objective, job.LaunchKind, job.BlockedReason, document{job.Delivery},
		job.CreatedAt, job.UpdatedAt, document{job.Brief}, project, version,
	); err != nil {
		return err
	}
	return t.insertNodes(ctx, job.Steps)
}

func (t *workTx) InsertOracle(ctx context.Context, oracle work.Oracle) error {
	if err := t.insert(ctx, "oracle", `
		INSERT INTO oracles (`+ownerColumns+`, id, state, question, panel_size, options, context,
		                     created_at, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, oracle.Owner,
		oracle.ID, oracle.State, oracle.Question, oracle.PanelSize, document{oracle.Options}, oracle.Context,
		oracle.CreatedAt, oracle.UpdatedAt,
	); err != nil {
		return err
	}
	return t.insertNodes(ctx, oracle.Panel)
}

// InsertWorkflow needs the workflow's job to be inserted. The state and
// UpdatedAt of the workflow are those of that job.
func (t *workTx) InsertWorkflow(ctx context.Context, workflow work.Workflow) error {
	return t.insert(ctx, "workflow", `
		INSERT INTO workflows (`+ownerColumns+`, id, objective, shape, nodes, job_id, created_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`, workflow.Owner,
		workflow.ID, workflow.Objective, workflow.Shape, document{workflow.Nodes}, workflow.JobID, workflow.CreatedAt)
}

func (t *workTx) InsertSchedule(ctx context.Context, schedule work.Schedule) error {
	return t.insert(ctx, "schedule", `
		INSERT INTO schedules (`+ownerColumns+`, id, state, action, input, interval_minutes, runs_bought, runs_left,
		                       next_run_at, stopped_before, missed, created_at, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, schedule.Owner,
		schedule.ID, schedule.State, schedule.Action, string(schedule.Input),
		schedule.IntervalMinutes, schedule.RunsBought, schedule.RunsLeft,
		schedule.NextRunAt, schedule.StoppedBefore, schedule.Missed, schedule.CreatedAt, schedule.UpdatedAt)
}

func (t *workTx) NextVersion(ctx context.Context, id boxoffice.UUID) (work.Job, error) {
	if _, err := t.tx.ExecContext(ctx, `
		UPDATE jobs SET project_id = coalesce(project_id, ?), project_version = coalesce(project_version, 1)
		WHERE id = ?`,
		boxoffice.NewUUID(), id,
	); err != nil {
		return work.Job{}, fmt.Errorf("next version: %w", err)
	}
	job, err := queryWork(ctx, t.tx, scanJob, selectJob+"WHERE j.id = ?", id)
	if err == nil {
		err = t.tx.QueryRowContext(ctx,
			"SELECT max(project_version) + 1, count(*) + 1 FROM jobs WHERE project_id = ?", job.Project.ID,
		).Scan(&job.Project.Version, &job.Project.Of)
	}
	if err != nil {
		return work.Job{}, fmt.Errorf("next version: %w", err)
	}
	return job, nil
}

// Find implements work.Changer.
func (t *workTx) Find(ctx context.Context, id boxoffice.UUID) (work.Opened, error) {
	return queryWork(ctx, t.tx, func(from row) (found work.Opened, err error) {
		err = from.Scan(&found.Kind, &found.ID)
		return found, err
	}, `
		SELECT 'job', id FROM jobs WHERE id IN (?1, (SELECT job_id FROM workflows WHERE id = ?1))
		UNION ALL SELECT 'oracle', id FROM oracles WHERE id = ?1
		UNION ALL SELECT 'schedule', id FROM schedules WHERE id = ?1`, id)
}

// moveWork is a conditional write on one row of work. It returns work.ErrStale if
// the row has changed.
func moveWork(ctx context.Context, tx *sql.Tx, statement string, args ...any) error {
	moved, err := affects(ctx, tx, statement, args...)
	if err == nil && !moved {
		return work.ErrStale
	}
	return err
}
