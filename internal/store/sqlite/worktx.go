package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/riverqueue/river"

	"boxoffice"
	"boxoffice/internal/work"
)

// workTx is a transaction in which work is opened or goes on. It holds the write lock, so what
// it reads nobody changes before it ends.
type workTx struct {
	tx    *sql.Tx
	queue *river.Client[*sql.Tx]
}

var _ work.Tx = workTx{}

func (t workTx) insert(ctx context.Context, what, statement string, owner work.Owner, args ...any) error {
	owned := append([]any{identity(owner.Requester), text{owner.Payer}, owner.OrderID}, args...)
	if _, err := t.tx.ExecContext(ctx, statement, owned...); err != nil {
		return fmt.Errorf("insert %s: %w", what, err)
	}
	return nil
}

func (t workTx) InsertJob(ctx context.Context, job work.Job) error {
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
	return t.insertNodes(ctx, job.Steps, job.CreatedAt)
}

func (t workTx) InsertOracle(ctx context.Context, oracle work.Oracle) error {
	if err := t.insert(ctx, "oracle", `
		INSERT INTO oracles (`+ownerColumns+`, id, state, question, panel_size, options, context, created_at, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, oracle.Owner,
		oracle.ID, oracle.State, oracle.Question, oracle.PanelSize, document{oracle.Options}, oracle.Context,
		oracle.CreatedAt, oracle.UpdatedAt,
	); err != nil {
		return err
	}
	return t.insertNodes(ctx, oracle.Panel, oracle.CreatedAt)
}

// InsertWorkflow needs the workflow's job to be inserted. The state and
// UpdatedAt of the workflow are those of that job.
func (t workTx) InsertWorkflow(ctx context.Context, workflow work.Workflow) error {
	return t.insert(ctx, "workflow", `
		INSERT INTO workflows (`+ownerColumns+`, id, objective, shape, nodes, job_id, created_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`, workflow.Owner,
		workflow.ID, workflow.Objective, workflow.Shape, document{workflow.Nodes}, workflow.JobID, workflow.CreatedAt)
}

func (t workTx) InsertSchedule(ctx context.Context, schedule work.Schedule) error {
	return t.insert(ctx, "schedule", `
		INSERT INTO schedules (`+ownerColumns+`, id, state, action, input, interval_minutes, runs_bought, runs_left,
		                       next_run_at, missed, created_at, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, schedule.Owner,
		schedule.ID, schedule.State, schedule.Action, string(schedule.Input), schedule.IntervalMinutes, schedule.RunsBought,
		schedule.RunsLeft, schedule.NextRunAt, cmp.Or(schedule.Missed, boxoffice.MissedSkip), schedule.CreatedAt, schedule.UpdatedAt)
}

func (t workTx) NextVersion(ctx context.Context, id boxoffice.UUID) (work.Job, error) {
	if err := t.change(ctx, "next version", `
		UPDATE jobs SET project_id = coalesce(project_id, ?), project_version = coalesce(project_version, 1) WHERE id = ?`,
		boxoffice.NewUUID(), id,
	); err != nil {
		return work.Job{}, err
	}
	job, err := queryWork(ctx, t.tx, scanJob, selectJob+"WHERE j.id = ?", id)
	if err == nil {
		err = t.tx.QueryRowContext(ctx, "SELECT max(project_version) + 1, count(*) + 1 FROM jobs WHERE project_id = ?", job.Project.ID).
			Scan(&job.Project.Version, &job.Project.Of)
	}
	if err != nil {
		return work.Job{}, fmt.Errorf("next version: %w", err)
	}
	return job, nil
}

func (t workTx) AnswerJob(ctx context.Context, id boxoffice.UUID, answer work.Answer) error {
	kept, err := affects(ctx, t.tx, `
		INSERT INTO job_answers (order_id, job_id, text, at) SELECT ?, id, ?, ? FROM jobs WHERE id = ? AND state <> 'completed'`,
		answer.OrderID, answer.Text, answer.At, id)
	if err != nil {
		return fmt.Errorf("answer job: %w", err)
	}
	if !kept {
		_, err := queryWork(ctx, t.tx, scanJob, selectJob+"WHERE j.id = ?", id)
		return cmp.Or(err, work.ErrEnded)
	}
	nodes, err := nodesOf(ctx, t.tx, id)
	if err != nil {
		return err
	}
	for _, node := range nodes {
		if node.State == boxoffice.NodeBlocked || node.State == boxoffice.NodeFailed {
			if err := t.requeue(ctx, node, answer.At); err != nil {
				return err
			}
		}
	}
	_, err = t.tx.ExecContext(ctx, `
		UPDATE jobs SET state = 'queued', blocked_reason = NULL, updated_at = ? WHERE id = ? AND state = 'blocked'`, answer.At, id)
	return err
}

func (t workTx) AddRuns(ctx context.Context, id boxoffice.UUID, runs int64, now boxoffice.Timestamp) error {
	return t.change(ctx, "add runs", `
		UPDATE schedules
		SET runs_bought = runs_bought + ?1, runs_left = runs_left + ?1, state = 'active', updated_at = ?2, stopped_at = NULL,
		    next_run_at = CASE WHEN state = 'ended' OR stopped_at IS NOT NULL THEN max(coalesce(next_run_at, 0), ?2 + interval_minutes * ?3) ELSE next_run_at END
		WHERE id = ?4`, runs, now, time.Minute.Milliseconds(), id)
}

// change writes to a record, or returns ErrNotFound if there is none.
func (t workTx) change(ctx context.Context, what, statement string, args ...any) error {
	found, err := affects(ctx, t.tx, statement, args...)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	case !found:
		return work.ErrNotFound
	}
	return nil
}
