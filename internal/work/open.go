package work

import (
	"context"
	"encoding/json"
	"errors"

	"boxoffice"
)

// OpenJob queues a new job.
func OpenJob(ctx context.Context, tx Tx, owner Owner, template, objective string, launchKind *string, brief Brief, now boxoffice.Timestamp) (Opened, error) {
	job := newJob(owner, template, objective, now)
	job.LaunchKind, job.Brief = launchKind, brief
	job.Steps = nodesOf(job)
	return Opened{Kind: KindJob, ID: job.ID}, tx.InsertJob(ctx, job)
}

// ContinueJob gives an input to a job. A completed job is left as it is: its
// project's next version is opened as a new job. Any other takes the input as
// an answer, which resumes it if it is blocked.
func ContinueJob(ctx context.Context, tx Tx, owner Owner, id boxoffice.UUID, input string, now boxoffice.Timestamp) (Opened, error) {
	err := tx.AnswerJob(ctx, id, Answer{OrderID: owner.OrderID, Text: input, At: now})
	if !errors.Is(err, ErrEnded) {
		return Opened{Kind: KindJob, ID: id}, err
	}
	job, err := tx.NextVersion(ctx, id)
	if err != nil {
		return Opened{}, err
	}
	next := newJob(owner, job.Template, input, now)
	next.LaunchKind, next.Brief, next.Project = job.LaunchKind, job.Brief, job.Project
	next.Brief.Follows = id
	next.Steps = nodesOf(next)
	return Opened{Kind: KindJob, ID: next.ID}, tx.InsertJob(ctx, next)
}

// OpenOracle queues a question for a panel.
func OpenOracle(ctx context.Context, tx Tx, owner Owner, oracle boxoffice.Oracle, now boxoffice.Timestamp) (Opened, error) {
	oracle.ID, oracle.State = boxoffice.NewUUID(), boxoffice.JobQueued
	oracle.CreatedAt, oracle.UpdatedAt = now, now
	panel := make([]Node, oracle.PanelSize)
	for i := range panel {
		panel[i] = NewMember(oracle.ID, i)
	}
	return Opened{Kind: KindOracle, ID: oracle.ID}, tx.InsertOracle(ctx, Oracle{Oracle: oracle, Owner: owner, Panel: panel})
}

// OpenWorkflow queues a workflow and the job that carries it, whose template is
// shape:chain or shape:dag.
func OpenWorkflow(ctx context.Context, tx Tx, owner Owner, objective, shape string, nodes []boxoffice.WorkflowNode, now boxoffice.Timestamp) (Opened, error) {
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
	Missed          string               // boxoffice.MissedSkip or MissedCatchUp
}

// CreateSchedule starts a schedule. Its first run is due at its start.
func CreateSchedule(ctx context.Context, tx Tx, owner Owner, r Recurrence, now boxoffice.Timestamp) (Opened, error) {
	first := now
	if r.StartAt != nil {
		first = max(first, *r.StartAt)
	}
	schedule := boxoffice.Schedule{
		ID: boxoffice.NewUUID(), State: boxoffice.ScheduleActive, Action: r.Action, Input: r.Input,
		IntervalMinutes: r.IntervalMinutes, RunsBought: r.Runs, RunsLeft: r.Runs, NextRunAt: &first, Missed: r.Missed,
		CreatedAt: now, UpdatedAt: now,
	}
	return Opened{Kind: KindSchedule, ID: schedule.ID}, tx.InsertSchedule(ctx, Schedule{Schedule: schedule, Owner: owner})
}

// TopUpSchedule adds runs to a schedule, live or ended.
func TopUpSchedule(ctx context.Context, tx Tx, id boxoffice.UUID, runs int64, now boxoffice.Timestamp) (Opened, error) {
	return Opened{Kind: KindSchedule, ID: id}, tx.AddRuns(ctx, id, runs, now)
}

func newJob(owner Owner, template, objective string, now boxoffice.Timestamp) Job {
	return Job{Owner: owner, Job: boxoffice.Job{
		ID: boxoffice.NewUUID(), State: boxoffice.JobQueued, Template: template, Objective: objective,
		CreatedAt: now, UpdatedAt: now,
	}}
}
