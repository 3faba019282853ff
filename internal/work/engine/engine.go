// Package engine runs work: the nodes of jobs, the members of panels, deliveries
// and schedules. Any number of processes run it on one store.
//
// A queue, River, says which run may be due, holds it back while too many run,
// and wakes the schedules. It may say so twice, or to two workers: the rows of
// nodes and schedules decide, each by a conditional write. A worker takes a run
// (Claim), says again and again that it still has it (Renew), and saves what it
// came to together with everything that follows (Finish). Of a worker that falls
// silent, any other gives the runs back.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"boxoffice"
	"boxoffice/internal/work"
	"boxoffice/internal/work/agent"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
)

// Store keeps what is run. Every method is one transaction.
type Store interface {
	// Claim takes a queued run for holder until the given moment, and returns
	// what it needs to know, or work.ErrLost, or work.ErrLeaving if it has to wait
	// for one that was cancelled, or an error of able, which is asked about its node.
	Claim(ctx context.Context, run work.Run, holder string, until, now boxoffice.Timestamp, able func(work.Node) error) (work.Assignment, error)
	// Left says that a run that was taken from holder has ended.
	Left(ctx context.Context, run work.Run, holder string) error
	// Renew keeps the runs of holder until the given moment, and returns them.
	Renew(ctx context.Context, holder string, until boxoffice.Timestamp) ([]work.Run, error)
	// Finish saves what a run came to and all that follows from it, or returns
	// work.ErrLost if the run is not holder's any more.
	Finish(ctx context.Context, run work.Run, holder string, result work.Result, now boxoffice.Timestamp) error
	// Lapsed returns the runs whose holders did not renew them.
	Lapsed(ctx context.Context, now boxoffice.Timestamp, limit int) ([]work.Held, error)
	// Requeue queues again what was due before the given moment and that the
	// queue has no entry for.
	Requeue(ctx context.Context, before, now boxoffice.Timestamp, limit int) (int, error)
	// Delivered returns those of the jobs that are completed, those whose delivery
	// failed only if that was before the given moment.
	Delivered(ctx context.Context, jobs []boxoffice.UUID, failedBefore boxoffice.Timestamp) ([]boxoffice.UUID, error)
}

// Schedules keeps what is opened again and again. Every method is one transaction.
type Schedules interface {
	// DueSchedules returns the schedules that have a run due, after the given one.
	DueSchedules(ctx context.Context, now boxoffice.Timestamp, after work.Due, limit int) ([]work.Due, error)
	// RunSchedule takes the due run of a schedule and keeps what open creates
	// for it, or returns work.ErrLost if none is due.
	RunSchedule(ctx context.Context, id boxoffice.UUID, now boxoffice.Timestamp, open func(work.Tx, work.Schedule) (work.Opened, error)) error
}

// Deliverer keeps the workspaces of jobs and delivers what is in them.
type Deliverer interface {
	// Workspace returns the folder in which the nodes of a job run. A
	// *work.Failure says what the requester's side did wrong; any other error is
	// a fault of ours.
	Workspace(ctx context.Context, job work.Job) (string, error)
	// Deliver delivers the workspace. What the requester's side did wrong is in
	// the delivery; an error is a fault of ours.
	Deliver(ctx context.Context, job work.Job, workspace string) (boxoffice.Delivery, error)
	// Scratch returns an empty folder in which a member of a panel runs, and which
	// the caller removes; if it dies, Scratch of another process does, in time.
	Scratch() (string, error)
	// Workspaces returns the jobs that have a workspace.
	Workspaces() ([]boxoffice.UUID, error)
	// Discard removes the workspace of a job that is over.
	Discard(job boxoffice.UUID) error
}

// Open opens the work of a run of a schedule: the action with its prepared input.
type Open func(ctx context.Context, tx work.Tx, owner work.Owner, action string, input []byte, now boxoffice.Timestamp) (work.Opened, error)

// Config is what New needs. Every field without a default is required.
type Config[TTx any] struct {
	Store     Store
	Schedules Schedules
	Driver    riverdriver.Driver[TTx] // of the same database
	Queue     string                  // in which the store puts runs
	Deliverer Deliverer
	Open      Open

	// Agents run nodes, by template; members of panels have the template Oracle.
	// The one for Any does what no other does. Work that has no agent waits. With
	// no agents at all the engine runs schedules alone.
	Agents map[string]agent.Runner

	Concurrency int           // nodes that this process runs at once; default 4
	Attempts    int           // failed runs of a node after which it is given up; default 3
	Backoff     time.Duration // until the first retry, doubling; default 5s
	Lease       time.Duration // how long a process that fell silent keeps its runs; default 30s
	Heartbeat   time.Duration // how often a process says that it has its runs, and hears that one was cancelled; default 2s
	Poll        time.Duration // how often the queue is asked; default 250ms
	Scheduling  time.Duration // how often schedules are looked at; default 5s

	Now func() time.Time // default time.Now
	Log *slog.Logger
}

// The templates that are no job's.
const (
	Oracle = "oracle"  // the members of panels
	Any    = "default" // what no other agent is configured for
)

// Engine runs work in one process.
type Engine[TTx any] struct {
	Config[TTx]
	holder string // this process
	client *river.Client[TTx]

	mu   sync.Mutex
	runs map[work.Run]context.CancelCauseFunc // that this process holds
}

// New returns an Engine.
func New[TTx any](config Config[TTx]) (*Engine[TTx], error) {
	config.Concurrency = orDefault(config.Concurrency, 4)
	config.Attempts = orDefault(config.Attempts, 3)
	config.Backoff = orDefault(config.Backoff, 5*time.Second)
	config.Lease = orDefault(config.Lease, 30*time.Second)
	config.Heartbeat = orDefault(config.Heartbeat, 2*time.Second)
	config.Poll = orDefault(config.Poll, 250*time.Millisecond)
	config.Scheduling = orDefault(config.Scheduling, 5*time.Second)
	if config.Now == nil {
		config.Now = time.Now
	}
	e := &Engine[TTx]{Config: config, holder: string(boxoffice.NewUUID()), runs: map[work.Run]context.CancelCauseFunc{}}
	workers := river.NewWorkers()
	river.AddWorker(workers, &nodeWorker[TTx]{engine: e})
	river.AddWorker(workers, &scheduleWorker[TTx]{engine: e})
	queues := map[string]river.QueueConfig{scheduleQueue: {MaxWorkers: 1, FetchPollInterval: config.Scheduling}}
	if len(config.Agents) > 0 {
		queues[config.Queue] = river.QueueConfig{MaxWorkers: config.Concurrency}
	}
	var err error
	e.client, err = river.NewClient(config.Driver, &river.Config{
		ID: e.holder, Queues: queues, Workers: workers, PollOnly: true,
		FetchPollInterval: config.Poll, FetchCooldown: min(config.Poll, 100*time.Millisecond),
		JobTimeout: -1, // agents have their own
		PeriodicJobs: []*river.PeriodicJob{river.NewPeriodicJob(
			river.PeriodicInterval(config.Scheduling),
			func() (river.JobArgs, *river.InsertOpts) { return scheduleArgs{}, &scheduleOptions },
			&river.PeriodicJobOpts{RunOnStart: true},
		)},
		Logger: slog.New(raised{config.Log.Handler()}),
	})
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	return e, nil
}

func orDefault[T int | time.Duration](value, standard T) T {
	if value <= 0 {
		return standard
	}
	return value
}

// Run runs work until ctx ends. Then it ends the agents that run, gives their
// nodes back, and returns.
func (e *Engine[TTx]) Run(ctx context.Context) error {
	if err := e.start(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	var tidying sync.WaitGroup
	tidying.Go(func() { e.tidy(ctx) })
	e.keep(ctx)
	tidying.Wait()
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	if err := e.client.StopAndCancel(stopping); err != nil {
		return fmt.Errorf("engine: stop: %w", err)
	}
	return nil
}

// stopWithin is how long agents may take to end, and their nodes to be given back.
const stopWithin = 20 * time.Second

// start starts the queue's client. It waits for a database that is away.
func (e *Engine[TTx]) start(ctx context.Context) error {
	retry := time.NewTicker(time.Second)
	defer retry.Stop()
	for {
		err := e.client.Start(context.WithoutCancel(ctx))
		if err == nil {
			return nil
		}
		e.Log.WarnContext(ctx, "the queue does not start; work waits", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-retry.C:
		}
	}
}

// keep holds on to the runs of this process, and gives back those that others
// let go, until ctx ends. A process that was away itself, because the database
// was or the machine slept, does not know who is silent and who was kept from
// speaking: it gives the others a lease to renew first. One that starts, perhaps
// because the database came back, gives them a few heartbeats.
func (e *Engine[TTx]) keep(ctx context.Context) {
	heartbeat := min(e.Lease/3, e.Heartbeat)
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	last, searched := e.Now(), time.Time{}
	patient := last.Add(3 * heartbeat)
	for {
		now := e.Now()
		if now.Sub(last) > e.Lease/2 {
			patient = now.Add(e.Lease)
		}
		err := errors.Join(e.renew(ctx), e.rescue(ctx, now.Before(patient)))
		if now.Sub(searched) > e.Lease/2 { // it reads all that is queued
			searched = now
			err = errors.Join(err, e.requeue(ctx))
		}
		if err == nil {
			last = now
		} else if ctx.Err() == nil {
			e.Log.ErrorContext(ctx, "runs could not be kept; it will be tried again", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (e *Engine[TTx]) now() boxoffice.Timestamp { return boxoffice.At(e.Now()) }

func (e *Engine[TTx]) until() boxoffice.Timestamp { return boxoffice.At(e.Now().Add(e.Lease)) }

// renew keeps this process's runs. One that is not its own any more is ended.
func (e *Engine[TTx]) renew(ctx context.Context) error {
	e.mu.Lock()
	mine := make([]work.Run, 0, len(e.runs))
	for run := range e.runs {
		mine = append(mine, run)
	}
	e.mu.Unlock()
	if len(mine) == 0 {
		return nil
	}
	held, err := e.Store.Renew(ctx, e.holder, e.until())
	if err != nil {
		return err
	}
	kept := map[work.Run]bool{}
	for _, run := range held {
		kept[run] = true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, run := range mine {
		if end, running := e.runs[run]; running && !kept[run] {
			end(work.ErrLost)
		}
	}
	return nil
}

const rescueAtOnce = 100

// mostLosses is how many workers a node may cost. They are no failures of its
// agent: a machine may have gone down. But what takes its worker with it every
// time, by memory for one, has to end.
const mostLosses = 5

// rescue gives back the runs of processes that fell silent, unless it is to be
// patient with them.
func (e *Engine[TTx]) rescue(ctx context.Context, patient bool) error {
	lapsed, err := e.Store.Lapsed(ctx, e.now(), rescueAtOnce)
	if err != nil || patient {
		return err
	}
	for _, held := range lapsed {
		result := work.Result{Verdict: work.Lost, Reason: "its worker was lost", Lapsed: true}
		if held.Losses+1 >= mostLosses {
			result.Verdict, result.Reason = work.Failed, fmt.Sprintf("its worker was lost %d times", mostLosses)
		}
		err := e.Store.Finish(ctx, held.Run, held.Holder, result, e.now())
		switch {
		case errors.Is(err, work.ErrLost):
		case err != nil:
			return err
		default:
			e.Log.WarnContext(ctx, "a run was given back: its worker fell silent", "work", held.Work, "node", held.Position, "attempt", held.Attempt)
		}
	}
	return nil
}

// requeue queues what the queue lost.
func (e *Engine[TTx]) requeue(ctx context.Context) error {
	for {
		n, err := e.Store.Requeue(ctx, boxoffice.At(e.Now().Add(-e.Lease)), e.now(), rescueAtOnce)
		if n > 0 {
			e.Log.WarnContext(ctx, "runs were queued again", "runs", n)
		}
		if err != nil || n < rescueAtOnce {
			return err
		}
	}
}

// raised lets the queue's warnings through, and nothing below them. That it was
// stopped in the middle of something is no news.
type raised struct{ slog.Handler }

func (h raised) Handle(ctx context.Context, record slog.Record) error {
	stopped := false
	record.Attrs(func(attr slog.Attr) bool {
		stopped = strings.Contains(attr.Value.String(), context.Canceled.Error())
		return !stopped
	})
	if stopped {
		return nil
	}
	return h.Handler.Handle(ctx, record)
}

func (h raised) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && h.Handler.Enabled(ctx, level)
}

func (h raised) WithAttrs(attrs []slog.Attr) slog.Handler { return raised{h.Handler.WithAttrs(attrs)} }

func (h raised) WithGroup(name string) slog.Handler { return raised{h.Handler.WithGroup(name)} }
