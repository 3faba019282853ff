package work

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"boxoffice"
)

// OpenJob queues a new job.
func OpenJob(
	ctx context.Context, tx Tx, owner Owner,
	template, objective string, launchKind *string, brief Brief, now boxoffice.Timestamp,
) (Opened, error) {
	job := newJob(owner, template, objective, now)
	job.LaunchKind, job.Brief = launchKind, brief
	job.Steps = nodesOf(job)
	return Opened{Kind: KindJob, ID: job.ID}, tx.InsertJob(ctx, job)
}

// ContinueJob gives an input to a job. A job that is blocked is queued again. A job that
// is completed stays as it is: a new job is opened for the next version of its project.
func ContinueJob(
	ctx context.Context, tx Tx, owner Owner, id boxoffice.UUID, text string, now boxoffice.Timestamp,
) (Opened, error) {
	input := Input{OrderID: owner.OrderID, Text: text, At: now}
	err := tx.Change(ctx, id, func(g Graph) (Change, error) { return g.GiveInput(input) })
	if !errors.Is(err, ErrEnded) {
		return Opened{Kind: KindJob, ID: id}, err
	}
	job, err := tx.NextVersion(ctx, id)
	if err != nil {
		return Opened{}, err
	}
	next := newJob(owner, job.Template, text, now)
	next.LaunchKind, next.Brief, next.Project = job.LaunchKind, job.Brief, job.Project
	next.Brief.Follows = id
	next.Steps = nodesOf(next)
	return Opened{Kind: KindJob, ID: next.ID}, tx.InsertJob(ctx, next)
}

// OpenOracle queues a question for a panel.
func OpenOracle(
	ctx context.Context, tx Tx, owner Owner, oracle boxoffice.Oracle, now boxoffice.Timestamp,
) (Opened, error) {
	oracle.ID, oracle.State = boxoffice.NewUUID(), boxoffice.JobQueued
	oracle.CreatedAt, oracle.UpdatedAt = now, now
	panel := make([]Node, oracle.PanelSize)
	for i := range panel {
		panel[i] = NewMember(oracle.ID, i, now)
	}
	return Opened{Kind: KindOracle, ID: oracle.ID},
		tx.InsertOracle(ctx, Oracle{Oracle: oracle, Owner: owner, Panel: panel})
}

// OpenWorkflow saves a workflow and queues its job, whose steps are the workflow's
// nodes and whose template is shape:chain or shape:dag.
func OpenWorkflow(
	ctx context.Context, tx Tx, owner Owner,
	objective, shape string, nodes []boxoffice.WorkflowNode, now boxoffice.Timestamp,
) (Opened, error) {
	job := newJob(owner, "shape:"+shape, objective, now)
	job.Brief.Nodes = nodes
	job.Steps = nodesOf(job)
	if err := tx.InsertJob(ctx, job); err != nil {
		return Opened{}, err
	}
	workflow := boxoffice.Workflow{
		ID: boxoffice.NewUUID(), State: job.State, Objective: objective, Shape: shape,
		Nodes: nodes, JobID: job.ID, CreatedAt: now, UpdatedAt: now,
	}
	return Opened{Kind: KindWorkflow, ID: workflow.ID, JobID: job.ID},
		tx.InsertWorkflow(ctx, Workflow{Workflow: workflow, Owner: owner})
}

// Recurrence is what a schedule repeats and how often.
type Recurrence struct {
	Action          string // job.open or oracle.request
	Input           json.RawMessage
	IntervalMinutes int64
	Runs            int64
	StartAt         *boxoffice.Timestamp // nil: now
	Missed          string               // boxoffice.MissedSkip, the default, or MissedCatchUp
}

// CreateSchedule starts a schedule. Its first run is due at its start.
func CreateSchedule(ctx context.Context, tx Tx, owner Owner, r Recurrence, now boxoffice.Timestamp) (Opened, error) {
	first := now
	if r.StartAt != nil {
		first = max(first, *r.StartAt)
	}
	schedule := boxoffice.Schedule{
		ID: boxoffice.NewUUID(), State: boxoffice.ScheduleActive, Action: r.Action, Input: r.Input,
		IntervalMinutes: r.IntervalMinutes, RunsBought: r.Runs, RunsLeft: r.Runs, NextRunAt: &first,
		Missed:    cmp.Or(r.Missed, boxoffice.MissedSkip),
		CreatedAt: now, UpdatedAt: now,
	}
	return Opened{Kind: KindSchedule, ID: schedule.ID},
		tx.InsertSchedule(ctx, Schedule{Schedule: schedule, Owner: owner})
}

// TopUpSchedule adds runs to a schedule, whatever its state.
func TopUpSchedule(ctx context.Context, tx Tx, id boxoffice.UUID, runs int64, now boxoffice.Timestamp) (Opened, error) {
	return Opened{Kind: KindSchedule, ID: id}, tx.ChangeSchedule(ctx, id, func(s Schedule) (Schedule, error) {
		return s.AddRuns(runs, now), nil
	})
}

// RunSchedule takes the due scheduled run of a schedule, and saves it with the job or
// oracle that open opens. It returns ErrStale if none is due.
func RunSchedule(
	ctx context.Context, tx Tx, id boxoffice.UUID, now boxoffice.Timestamp, open func(Schedule) (Opened, error),
) error {
	var schedule Schedule
	var run boxoffice.ScheduledRun
	err := tx.ChangeSchedule(ctx, id, func(s Schedule) (next Schedule, err error) {
		schedule = s
		next, run, err = s.TakeRun(now)
		return next, err
	})
	if err != nil {
		return err
	}
	opened, err := open(schedule)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	run.Kind, run.ID = opened.Kind, opened.ID
	return tx.InsertScheduledRun(ctx, id, run)
}

// Cancelled is work that an operator cancelled: a job, an oracle or a schedule.
type Cancelled struct {
	Kind  string         `json:"kind"`
	ID    boxoffice.UUID `json:"id"`
	State string         `json:"state"` // after the cancellation: blocked or stopped
}

// Updater runs a change in one transaction, under a name for errors.
type Updater interface {
	Update(ctx context.Context, name string, change func(Tx) error) error
}

// Canceller cancels work for the operator.
type Canceller struct{ Store Updater }

// Cancel fails the queued and running nodes of a job, of the job of a workflow, or of
// an oracle, or it stops a schedule. Results of the cancelled runs are dropped. Work
// that is blocked or stopped stays as it is. Cancel returns ErrNotFound, or, together
// with the State, ErrEnded for work that is completed or has no scheduled runs left.
func (c Canceller) Cancel(
	ctx context.Context, id boxoffice.UUID, now boxoffice.Timestamp,
) (cancelled Cancelled, err error) {
	err = c.Store.Update(ctx, "cancel", func(tx Tx) error {
		found, err := tx.Find(ctx, id)
		if err != nil {
			return err
		}
		cancelled = Cancelled{Kind: found.Kind, ID: found.ID}
		if found.Kind == KindSchedule {
			return tx.ChangeSchedule(ctx, found.ID, func(s Schedule) (Schedule, error) {
				next, err := s.Stop(now)
				cancelled.State = string(next.State)
				return next, err
			})
		}
		return tx.Change(ctx, found.ID, func(g Graph) (Change, error) {
			change, err := g.Cancel(now)
			cancelled.State = string(g.State)
			if change.Record != nil {
				cancelled.State = string(change.Record.To)
			}
			return change, err
		})
	})
	return cancelled, err
}

func newJob(owner Owner, template, objective string, now boxoffice.Timestamp) Job {
	return Job{Owner: owner, Job: boxoffice.Job{
		ID: boxoffice.NewUUID(), State: boxoffice.JobQueued, Template: template, Objective: objective,
		CreatedAt: now, UpdatedAt: now,
	}}
}
