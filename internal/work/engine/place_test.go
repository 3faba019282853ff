package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/store/sqlite"
	"boxoffice/internal/store/storetest"
	"boxoffice/internal/test/testdb"
	"boxoffice/internal/test/testlog"
	"boxoffice/internal/work"
	"boxoffice/internal/work/agent"
	"boxoffice/internal/work/engine"
)

// A place is a store with engines on it and a clock that the test sets.
type place struct {
	t      testing.TB
	store  *sqlite.Store
	path   string
	ahead  atomic.Int64 // of the real clock, in nanoseconds
	orders atomic.Uint64
	owner  boxoffice.Requester
	log    testlog.Log
}

func newPlace(t testing.TB) *place {
	t.Helper()
	return placeAt(t, testdb.Path(t))
}

func placeAt(t testing.TB, path string) *place {
	t.Helper()
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	p := &place{t: t, store: store, path: path}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(p.log.String())
		}
	})
	return p
}

func (p *place) Now() time.Time { return time.Now().Add(time.Duration(p.ahead.Load())) }

func (p *place) advance(d time.Duration) { p.ahead.Add(int64(d)) }

// agentFunc is an agent that is a function.
type agentFunc func(ctx context.Context, task agent.Task) (agent.Result, error)

func (f agentFunc) Run(ctx context.Context, _ string, task agent.Task) (agent.Report, error) {
	answer, err := f(ctx, task)
	return agent.Report{Result: answer, Log: []byte("said")}, err
}

func done(text string) (agent.Result, error) {
	return agent.Result{Outcome: agent.Done, Summary: text}, nil
}

// fakeDeliverer gives every job a delivery that names its run.
type fakeDeliverer struct {
	count atomic.Int64

	mu       sync.Mutex
	existing map[boxoffice.UUID]bool // workspaces
}

func (d *fakeDeliverer) Workspace(_ context.Context, job work.Job) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.existing == nil {
		d.existing = map[boxoffice.UUID]bool{}
	}
	d.existing[job.ID] = true
	return "/", nil
}

func (d *fakeDeliverer) Scratch() (string, error) { return os.MkdirTemp("", "") }

func (d *fakeDeliverer) Workspaces() ([]boxoffice.UUID, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.existing)), nil
}

func (d *fakeDeliverer) Discard(job boxoffice.UUID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.existing, job)
	return nil
}

// untilGone waits until a job has no workspace.
func (d *fakeDeliverer) untilGone(p *place, job boxoffice.UUID) {
	p.t.Helper()
	until(p, job, p.store.Job, func(work.Job) bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return !d.existing[job]
	})
}

func (d *fakeDeliverer) Deliver(_ context.Context, job work.Job, _ string) (boxoffice.Delivery, error) {
	at := boxoffice.At(time.Now())
	return boxoffice.Delivery{
		RepoURL: "https://example.com/git/" + string(job.ID) + ".git", Commit: fmt.Sprintf("%040x", d.count.Add(1)),
		DeliveredAt: &at,
	}, nil
}

type config = engine.Config

// run starts an engine whose only agent is the given one, and returns how to stop it.
func (p *place) run(runner agent.Runner, change ...func(*config)) (stop func()) {
	p.t.Helper()
	c := config{
		Store: p.store, Deliverer: new(fakeDeliverer), Open: open,
		Agents: map[string]agent.Runner{engine.TemplateAny: runner}, Poll: 5 * time.Millisecond,
		Concurrency: 4, MaxFailures: 3, Backoff: time.Millisecond,
		Scheduling: 10 * time.Millisecond, Lease: 10 * time.Second, Heartbeat: 20 * time.Millisecond, Now: p.Now,
		Log: slog.New(slog.NewTextHandler(&p.log, nil)),
	}
	for _, apply := range change {
		apply(&c)
	}
	e := engine.New(c)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				p.t.Errorf("the engine ended with %v", err)
			}
		})
	}
	p.t.Cleanup(stop)
	return stop
}

// open opens what schedules repeat: their input is an objective, or a question.
func open(
	ctx context.Context, tx work.Tx, owner work.Owner, action string, input []byte, now boxoffice.Timestamp,
) (work.Opened, error) {
	if action == boxoffice.ActionOracleRequest {
		return work.OpenOracle(ctx, tx, owner, boxoffice.Oracle{Question: string(input), PanelSize: 5}, now)
	}
	return work.OpenJob(ctx, tx, owner, "research", string(input), nil, work.Brief{}, now)
}

// admit saves an order that opened something.
func (p *place) admit(open func(work.Tx, work.Owner) (work.Opened, error)) (opened work.Opened) {
	p.t.Helper()
	p.owner = storetest.Admit(p.t, p.store, p.orders.Add(1),
		func(tx work.Tx, owner work.Owner) (_ work.Opened, err error) {
			opened, err = open(tx, owner)
			return opened, err
		})
	return opened
}

// start starts a run as a worker of the given name would that holds it for so long.
func (p *place) start(run work.Run, worker string, holds time.Duration) {
	p.t.Helper()
	until := boxoffice.At(p.Now().Add(holds))
	if _, err := storetest.Start(p.t.Context(), p.store, run, worker, until, p.now()); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) finish(run work.Run, worker string, result work.Result) error {
	return storetest.Finish(p.t.Context(), p.store, run, worker, result, p.now())
}

func (p *place) cancel(id boxoffice.UUID) {
	p.t.Helper()
	_, err := work.Canceller{Store: p.store}.Cancel(p.t.Context(), id, p.now())
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) now() boxoffice.Timestamp { return boxoffice.At(p.Now()) }

func (p *place) openJob(objective string) boxoffice.UUID {
	p.t.Helper()
	return p.admit(func(tx work.Tx, owner work.Owner) (work.Opened, error) {
		return work.OpenJob(p.t.Context(), tx, owner, "research", objective, nil, work.Brief{}, p.now())
	}).ID
}

func (p *place) openWorkflow(shape string, nodes ...boxoffice.WorkflowNode) work.Opened {
	p.t.Helper()
	return p.admit(func(tx work.Tx, owner work.Owner) (work.Opened, error) {
		return work.OpenWorkflow(p.t.Context(), tx, owner, "all of it", shape, nodes, p.now())
	})
}

func (p *place) openOracle(size int, options ...string) boxoffice.UUID {
	p.t.Helper()
	return p.admit(func(tx work.Tx, owner work.Owner) (work.Opened, error) {
		return work.OpenOracle(p.t.Context(), tx, owner,
			boxoffice.Oracle{Question: "Is it?", PanelSize: size, Options: options}, p.now())
	}).ID
}

func (p *place) carryOn(job boxoffice.UUID, input string) work.Opened {
	p.t.Helper()
	return p.admit(func(tx work.Tx, owner work.Owner) (work.Opened, error) {
		return work.ContinueJob(p.t.Context(), tx, owner, job, input, p.now())
	})
}

// until waits until something is so.
func (p *place) until(is func() bool) {
	p.t.Helper()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	deadline := time.After(30 * time.Second)
	for !is() {
		select {
		case <-again.C:
		case <-deadline:
			p.t.Fatal("it does not come so far")
		}
	}
}

// until reads a record until it is as it should be.
func until[T any](
	p *place, id boxoffice.UUID, read func(context.Context, boxoffice.Requester, boxoffice.UUID) (T, error),
	is func(T) bool,
) T {
	p.t.Helper()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	deadline := time.After(30 * time.Second)
	for {
		record, err := read(p.t.Context(), p.owner, id)
		if err != nil {
			p.t.Fatal(err)
		}
		if is(record) {
			return record
		}
		select {
		case <-again.C:
		case <-deadline:
			p.t.Fatalf("it stays %+v", record)
		}
	}
}

func (p *place) untilJob(id boxoffice.UUID, state boxoffice.JobState) boxoffice.Job {
	p.t.Helper()
	job := until(p, id, p.store.Job, func(job work.Job) bool { return job.State == state }).Job
	if err := job.Validate(); err != nil {
		p.t.Error(err)
	}
	return job
}
