// Package engine runs work: the nodes of jobs, the members of panels, deliveries
// and schedules. Any number of processes run it on one store.
//
// The rows of nodes are the queue. A worker claims queued nodes by conditional
// writes, renews its runs while their agents work, and saves each result together
// with everything that follows from it. A transaction of the same process that
// queues a node wakes the worker. The worker finds nodes that other processes
// queued by polling. If a worker stops renewing its runs, they expire and another
// worker repeats them. Package work decides how rows change.
//
//	claim.go   claim queued nodes, run them, save their results
//	run.go     run one node: the agent or the delivery
//	upkeep.go  renew the runs of this process, repeat expired runs, open scheduled runs
//	tidy.go    remove workspaces that are not needed any more
//
// A run is one attempt to carry out a node. A scheduled run is one repetition of
// what a schedule bought: it opens a job or an oracle.
package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"boxoffice"
	"boxoffice/internal/work"
	"boxoffice/internal/work/agent"
)

// Store has the queue of nodes. Every method is one transaction.
type Store interface {
	work.Updater
	// Claim starts due nodes, those that are due longest first. start decides how
	// a row changes; if it returns work.ErrStale or work.ErrEnding, Claim skips the node.
	Claim(
		ctx context.Context, claim work.Claim, now boxoffice.Timestamp, start func(work.Graph, int) (work.Change, error),
	) ([]work.Assignment, error)
	// Renew extends, until the given moment, those of the runs that still belong to
	// holder, and returns these.
	Renew(ctx context.Context, holder string, runs []work.Run, until boxoffice.Timestamp) ([]work.Run, error)
	// Queued returns a channel that is closed when this process next commits a
	// node that is queued.
	Queued() <-chan struct{}
	// DueTemplates returns how many queued nodes are due, by template.
	DueTemplates(ctx context.Context, now boxoffice.Timestamp) (map[string]int, error)
	// Delivered returns those of the jobs that are completed and were delivered. A job
	// that was completed although its push failed is returned only if that was before
	// the given moment.
	Delivered(ctx context.Context, jobs []boxoffice.UUID, failedBefore boxoffice.Timestamp) ([]boxoffice.UUID, error)

	// The rest is for the one process that does the upkeep for all processes.

	// HoldLease gives the lease of a name to holder, or renews it, until the given
	// moment. held is false if another process has the lease.
	HoldLease(ctx context.Context, name, holder string, now, until boxoffice.Timestamp) (held bool, err error)
	// Expired returns the runs whose holders did not renew them.
	Expired(ctx context.Context, now boxoffice.Timestamp, limit int) ([]work.Run, error)
	// DueSchedules returns the schedules that have a scheduled run due and that sort
	// after the given one.
	DueSchedules(ctx context.Context, now boxoffice.Timestamp, after work.Due, limit int) ([]work.Due, error)
}

// Deliverer has the workspaces of jobs and delivers what is in them.
type Deliverer interface {
	// Workspace returns the folder in which the nodes of a job run. A
	// *work.Failure says what the requester's side did wrong; any other error is
	// a fault of this service.
	Workspace(ctx context.Context, job work.Job) (string, error)
	// Deliver delivers the workspace. If the requester's side did something wrong,
	// for example its host refused the push, the delivery says so. An error is a
	// fault of this service.
	Deliver(ctx context.Context, job work.Job, workspace string) (boxoffice.Delivery, error)
	// Scratch returns an empty folder for a member of a panel. The caller removes
	// it. If the caller is killed, Scratch of another process removes it later.
	Scratch() (string, error)
	// Workspaces returns the jobs that have a workspace.
	Workspaces() ([]boxoffice.UUID, error)
	// Discard removes the workspace of a job.
	Discard(job boxoffice.UUID) error
}

// Open opens the job or oracle of a scheduled run: the action with its prepared input.
type Open func(
	ctx context.Context, tx work.Tx, owner work.Owner, action string, input []byte, now boxoffice.Timestamp,
) (work.Opened, error)

// Config is what New needs. Every field is required; the defaults are the configuration's.
type Config struct {
	Store     Store
	Deliverer Deliverer
	Open      Open

	// Agents run nodes, by template; members of panels have the template
	// work.TemplateOracle. The agent of TemplateAny runs the nodes of all other
	// templates. Nodes for which no process has an agent wait. An engine without
	// agents claims no nodes and does only the upkeep.
	Agents map[string]agent.Runner

	Concurrency int           // nodes that this process runs at once
	MaxFailures int           // failed runs of a node after which it has failed
	Backoff     time.Duration // before the first retry, doubling
	Lease       time.Duration // how long a run belongs to a process that does not renew it
	Heartbeat   time.Duration // how often runs are renewed, which also shows that one was cancelled; at most Lease/3
	Poll        time.Duration // how often the engine looks for nodes that other processes queued or that became due
	Scheduling  time.Duration // how often the engine looks for due schedules

	Now func() time.Time
	Log *slog.Logger
}

// TemplateAny names the agent for every template that has none of its own.
const TemplateAny = "default"

// Engine runs work in one process.
type Engine struct {
	Config
	holder string        // the name of this process in leases and runs
	freed  chan struct{} // gets a value when a run has ended

	mu      sync.Mutex
	runs    map[work.Run]context.CancelCauseFunc // the runs of this process, and what ends each
	running sync.WaitGroup
}

// New returns an Engine.
func New(config Config) *Engine {
	return &Engine{
		Config: config, holder: string(boxoffice.NewUUID()),
		freed: make(chan struct{}, 1), runs: map[work.Run]context.CancelCauseFunc{},
	}
}

// Run runs work until ctx ends. Then it ends the agents that run, queues their
// nodes again for other workers, and returns.
func (e *Engine) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	loops.Go(func() { e.renewAndExpire(ctx) })
	loops.Go(func() { e.openScheduledRuns(ctx) })
	if len(e.Agents) > 0 {
		loops.Go(func() { e.claimNodes(ctx) })
		loops.Go(func() { e.removeWorkspaces(ctx) })
	}
	loops.Wait()
	e.endUpkeepLease(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		e.running.Wait()
		close(ended)
	}()
	timeout := time.NewTimer(stopWithin)
	defer timeout.Stop()
	select {
	case <-ended:
		return nil
	case <-timeout.C:
		return errors.New("engine: agents did not end; their runs expire and are repeated")
	}
}

// stopWithin is how long Run waits for agents to end and for their nodes to be
// queued again.
const stopWithin = 20 * time.Second

func (e *Engine) now() boxoffice.Timestamp { return boxoffice.At(e.Now()) }

// until returns when a run expires that this process starts or renews now.
func (e *Engine) until() boxoffice.Timestamp { return boxoffice.At(e.Now().Add(e.Lease)) }

// change changes a job or an oracle in a transaction of its own, and returns what was
// written.
func (e *Engine) change(
	ctx context.Context, name string, id boxoffice.UUID, decide func(work.Graph) (work.Change, error),
) (written work.Change, err error) {
	err = e.Store.Update(ctx, name, func(tx work.Tx) error {
		return tx.Change(ctx, id, func(graph work.Graph) (work.Change, error) {
			written, err = decide(graph)
			return written, err
		})
	})
	return written, err
}
