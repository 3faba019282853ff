// Package work keeps what admitted actions created: jobs, oracles, workflows
// and schedules. It does not know who paid for them or how.
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
	JobID boxoffice.UUID // the job that carries a workflow; else empty
}

// Owner is whose work it is.
type Owner struct {
	Requester boxoffice.Requester
	Payer     common.Address
	OrderID   boxoffice.UUID // the order whose admission opened it
}

// Document is a named text that a job is given beside its objective.
type Document struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Job is a job as it is stored.
type Job struct {
	boxoffice.Job
	Owner
	Brief Brief
	Steps []Node // what is run for it, the delivery included; set when it is opened
}

// Brief is what the one who does a job is told beside template and objective.
type Brief struct {
	Context  []Document               `json:"context,omitempty"`
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
	Panel []Node // its first members; set when it is opened
}

// Workflow is a workflow as it is stored. Its state is that of its job.
type Workflow struct {
	boxoffice.Workflow
	Owner
}

// Schedule is a schedule as it is stored.
type Schedule struct {
	boxoffice.Schedule
	Owner
}

// Due is a schedule that has a run due. The zero value is before all of them.
type Due struct {
	At boxoffice.Timestamp
	ID boxoffice.UUID
}

// ErrNotFound is returned for work that does not exist or is not the requester's.
var ErrNotFound = errors.New("work: not found")

// ErrEnded is returned for work that is completed, or a schedule without runs
// left: it takes no input, and there is nothing to be cancelled.
var ErrEnded = errors.New("work: it has ended")

// Cancelled is work that an operator cancelled: a job, an oracle or a schedule.
type Cancelled struct {
	Kind  string         `json:"kind"`
	ID    boxoffice.UUID `json:"id"`
	State string         `json:"state"` // now: blocked, or stopped
}

// Tx is the part of a store's transaction in which work is opened.
type Tx interface {
	Inserter
	Changer
}

// Inserter saves new work. What can be run of it is queued, in the same
// transaction.
type Inserter interface {
	InsertJob(ctx context.Context, job Job) error
	InsertOracle(ctx context.Context, oracle Oracle) error
	InsertWorkflow(ctx context.Context, workflow Workflow) error
	InsertSchedule(ctx context.Context, schedule Schedule) error
}

// Changer changes work that exists. Each method returns ErrNotFound if there is none.
type Changer interface {
	// AnswerJob keeps an input for a job. Its nodes that are blocked or have
	// failed are queued again, and so is the job if it was blocked. It returns
	// ErrEnded, and keeps nothing, if the job is completed.
	AnswerJob(ctx context.Context, id boxoffice.UUID, answer Answer) error
	// NextVersion returns a job with the project of its next version. A job that
	// has no project becomes version 1 of a new one.
	NextVersion(ctx context.Context, id boxoffice.UUID) (Job, error)
	// AddRuns adds bought runs to a schedule. One that ended or was stopped
	// becomes active, its next run being one interval after now, and not before its start.
	AddRuns(ctx context.Context, id boxoffice.UUID, runs int64, now boxoffice.Timestamp) error
}

// Answer is an input that a requester paid to give to a job.
type Answer struct {
	OrderID boxoffice.UUID
	Text    string
	At      boxoffice.Timestamp
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
