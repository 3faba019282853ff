// Package work holds what admitted actions create: jobs, oracles, workflows and
// schedules. It decides every change of them: a store reads rows, calls the methods
// of Graph and Schedule, and writes what they return. It does not know how the work
// was paid for.
//
// A job has steps and a delivery, an oracle has the members of a panel. All of these
// are nodes. A run is one attempt to carry out a node. A scheduled run is one
// repetition of what a schedule bought: it opens a job or an oracle.
package work

import (
	"context"
	"errors"

	"boxoffice"

	"github.com/ethereum/go-ethereum/common"
)

// The kinds of work.
const (
	KindJob      = "job"
	KindOracle   = "oracle"
	KindWorkflow = "workflow"
	KindSchedule = "schedule"
)

// Opened names the work that an admission created or changed.
type Opened struct {
	Kind  string
	ID    boxoffice.UUID
	JobID boxoffice.UUID // of a workflow: the job whose nodes are its steps
}

// Owner says whose work it is.
type Owner struct {
	Requester boxoffice.Requester
	Payer     common.Address
	OrderID   boxoffice.UUID // the order whose admission opened it
}

// Job is a job as it is stored.
type Job struct {
	boxoffice.Job
	Owner
	Brief Brief
	Steps []Node // the nodes of a new job: its steps, then its delivery; set only when it is opened
}

// Brief is what the agent of a job gets beside template and objective.
type Brief struct {
	Context  []boxoffice.Document     `json:"context,omitempty"`
	RepoURL  string                   `json:"repoUrl,omitempty"` // deliver there
	ChainID  uint64                   `json:"chainId,omitempty"` // launches
	PairWith string                   `json:"pairWith,omitempty"`
	Name     string                   `json:"name,omitempty"`
	Symbol   string                   `json:"symbol,omitempty"`
	Nodes    []boxoffice.WorkflowNode `json:"nodes,omitempty"`   // workflows
	Follows  boxoffice.UUID           `json:"follows,omitempty"` // the job whose next version this is
}

// Oracle is an oracle as it is stored.
type Oracle struct {
	boxoffice.Oracle
	Owner
	Panel []Node // its first members; set when the oracle is opened
}

// Workflow is a workflow as it is stored. Its state is the state of its job.
type Workflow struct {
	boxoffice.Workflow
	Owner
}

// Schedule is a schedule as it is stored.
type Schedule struct {
	boxoffice.Schedule
	Owner
	StoppedBefore *boxoffice.Timestamp // of a stopped schedule: when its next run was due
}

// Due is a schedule that has a scheduled run due. The zero value sorts before all
// others.
type Due struct {
	At boxoffice.Timestamp
	ID boxoffice.UUID
}

// ErrNotFound is returned for work that does not exist or is not the requester's.
var ErrNotFound = errors.New("work: not found")

// Tx is the part of a store's transaction in which work is opened and changed.
type Tx interface {
	Inserter
	Changer
}

// Inserter saves new work, with its nodes.
type Inserter interface {
	InsertJob(ctx context.Context, job Job) error
	InsertOracle(ctx context.Context, oracle Oracle) error
	InsertWorkflow(ctx context.Context, workflow Workflow) error
	InsertSchedule(ctx context.Context, schedule Schedule) error
	InsertScheduledRun(ctx context.Context, schedule boxoffice.UUID, run boxoffice.ScheduledRun) error
}

// Changer changes work that exists. Each method returns ErrNotFound if there is none.
type Changer interface {
	// Find returns the kind of some work. For a workflow it returns the workflow's job.
	Find(ctx context.Context, id boxoffice.UUID) (Opened, error)
	// Change reads a job or an oracle with its nodes and writes what decide returns.
	// Nothing else changes these rows until the transaction ends.
	Change(ctx context.Context, id boxoffice.UUID, decide func(Graph) (Change, error)) error
	// ChangeSchedule reads a schedule in the same way and writes what decide returns.
	ChangeSchedule(ctx context.Context, id boxoffice.UUID, decide func(Schedule) (Schedule, error)) error
	// NextVersion returns a job with the project of its next version. A job that
	// has no project becomes version 1 of a new one.
	NextVersion(ctx context.Context, id boxoffice.UUID) (Job, error)
}

// Store reads work for its requester.
type Store interface {
	Jobs(ctx context.Context, requester boxoffice.Requester, query JobQuery) ([]Job, error)
	Job(ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID) (Job, error)
	Oracle(ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID) (Oracle, error)
	Workflow(ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID) (Workflow, error)
	Schedule(ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID) (Schedule, error)
}

// JobQuery filters and pages a list of jobs, newest first, ties by id.
type JobQuery struct {
	State      boxoffice.JobState // empty: any
	Template   string             // empty: any
	LaunchKind string             // empty: any
	Limit      int
	After      *JobCursor // the last job of the page before
}

// JobCursor is a place in a list of jobs.
type JobCursor struct {
	CreatedAt boxoffice.Timestamp
	ID        boxoffice.UUID
}
