package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/store/sqlite"
	"boxoffice/internal/work"
	"boxoffice/internal/work/agent"
)

// failingStore is a store whose first claim and first saves fail.
type failingStore struct {
	*sqlite.Store
	claims, finishes atomic.Int64
}

var errAway = errors.New("the database is away")

func (f *failingStore) Claim(
	ctx context.Context, claim work.Claim, now boxoffice.Timestamp, start func(work.Graph, int) (work.Change, error),
) ([]work.Assignment, error) {
	if f.claims.Add(1) == 1 {
		return nil, errAway
	}
	return f.Store.Claim(ctx, claim, now, start)
}

func (f *failingStore) Update(ctx context.Context, name string, change func(work.Tx) error) error {
	if f.finishes.Add(1) < 4 {
		return errAway
	}
	return f.Store.Update(ctx, name, change)
}

// A claim that failed is repeated, and so is the saving of a result.
func TestDatabaseAway(t *testing.T) {
	p := newPlace(t)
	id := p.openJob("look")
	var runs atomic.Int64
	p.run(agentFunc(func(context.Context, agent.Task) (agent.Result, error) {
		runs.Add(1)
		return done("x")
	}), func(c *config) { c.Store = &failingStore{Store: p.store} })
	if job := p.untilJob(id, boxoffice.JobCompleted); job.Nodes[0].Attempts != 1 || runs.Load() != 1 {
		t.Errorf("%+v after %d runs", job.Nodes, runs.Load())
	}
}

// outage is a store whose database cannot be reached while away is true.
type outage struct {
	*sqlite.Store
	away   atomic.Bool
	looked atomic.Int64 // how often expired runs were read
	leased func()       // runs after each lease, if it is not nil
}

func (o *outage) Update(ctx context.Context, name string, change func(work.Tx) error) error {
	if o.away.Load() {
		return errAway
	}
	return o.Store.Update(ctx, name, change)
}

func (o *outage) Renew(
	ctx context.Context, holder string, runs []work.Run, until boxoffice.Timestamp,
) ([]work.Run, error) {
	if o.away.Load() {
		return nil, errAway
	}
	return o.Store.Renew(ctx, holder, runs, until)
}

func (o *outage) HoldLease(ctx context.Context, name, holder string, now, until boxoffice.Timestamp) (bool, error) {
	if o.away.Load() {
		return false, errAway
	}
	if o.leased != nil {
		defer o.leased()
	}
	return o.Store.HoldLease(ctx, name, holder, now, until)
}

func (o *outage) Expired(ctx context.Context, now boxoffice.Timestamp, limit int) ([]work.Run, error) {
	if o.away.Load() {
		return nil, errAway
	}
	defer o.looked.Add(1)
	return o.Store.Expired(ctx, now, limit)
}

// The database is away for a minute, which is twice the lease, and an agent ends
// meanwhile. Even if another process reaches the database first, the result is
// saved and the run is not repeated. A process that does not renew after that
// loses its run.
func TestDatabaseAwayForAMinute(t *testing.T) {
	p := newPlace(t)
	id := p.openJob("look")
	const lease = 30 * time.Second
	working, other := &outage{Store: p.store}, &outage{Store: p.store}
	started, goOn := make(chan struct{}), make(chan struct{})
	var runs atomic.Int64
	p.run(nil, alone, func(c *config) { c.Store, c.Lease = other, lease })
	p.until(func() bool { return other.looked.Load() > 0 })
	stop := p.run(agentFunc(func(context.Context, agent.Task) (agent.Result, error) {
		runs.Add(1)
		close(started)
		<-goOn
		return done("x")
	}), func(c *config) { c.Store, c.Lease = working, lease })
	<-started

	working.away.Store(true)
	other.away.Store(true)
	close(goOn)
	p.advance(time.Minute)
	p.until(func() bool { return strings.Count(p.log.String(), "runs could not be renewed") > 1 })
	looked := other.looked.Load()
	other.away.Store(false)
	p.until(func() bool { return other.looked.Load() > looked+1 })
	working.away.Store(false)
	if job := p.untilJob(id, boxoffice.JobCompleted); job.Nodes[0].Attempts != 1 || job.Nodes[0].Summary != "x" ||
		runs.Load() != 1 {
		t.Errorf("%+v after %d runs", job.Nodes, runs.Load())
	}

	stop()
	silent := p.openJob("look")
	p.start(work.Run{Work: silent, Attempt: 1}, "killed", 0)
	for range 4 { // in steps, or the engine would take it for a sleep of its own
		looked := other.looked.Load()
		p.advance(lease / 3)
		p.until(func() bool { return other.looked.Load() > looked+1 })
	}
	if job, err := p.store.Job(t.Context(), p.owner, silent); err != nil || job.Nodes[0].State != boxoffice.NodeQueued {
		t.Errorf("%+v, %v", job.Nodes, err)
	}
}

// renewsLast is a store on which another process renews its run right before the
// engine reads expired runs for the second time.
type renewsLast struct {
	*sqlite.Store
	other string
	run   work.Run
	looks atomic.Int64
}

func (s *renewsLast) Expired(ctx context.Context, now boxoffice.Timestamp, limit int) ([]work.Run, error) {
	if s.looks.Add(1) == 2 {
		if _, err := s.Store.Renew(ctx, s.other, []work.Run{s.run}, now+60_000); err != nil {
			return nil, err
		}
	}
	return s.Store.Expired(ctx, now, limit)
}

// An engine that starts when the database is back lets the others renew first.
func TestStartAfterAnOutage(t *testing.T) {
	p := newPlace(t)
	run := work.Run{Work: p.openJob("look"), Attempt: 1}
	p.start(run, "other", -time.Millisecond)
	store := &renewsLast{Store: p.store, other: "other", run: run}
	p.run(agentFunc(func(context.Context, agent.Task) (agent.Result, error) { return done("again") }), func(c *config) {
		c.Store, c.Heartbeat = store, 500*time.Millisecond
	})
	p.until(func() bool { return store.looks.Load() > 2 })
	if err := p.finish(run, "other", work.Result{Outcome: work.Done, Summary: "mine"}); err != nil {
		t.Error(err)
	}
}

// brokenRow is a store in which a job cannot be changed until it is mended.
type brokenRow struct {
	*sqlite.Store
	job    boxoffice.UUID
	mended atomic.Bool
}

func (b *brokenRow) Update(ctx context.Context, name string, change func(work.Tx) error) error {
	return b.Store.Update(ctx, name, func(tx work.Tx) error { return change(brokenTx{tx, b}) })
}

type brokenTx struct {
	work.Tx
	store *brokenRow
}

func (t brokenTx) Change(ctx context.Context, id boxoffice.UUID, decide func(work.Graph) (work.Change, error)) error {
	if id == t.store.job && !t.store.mended.Load() {
		return errors.New("the row is broken")
	}
	return t.Tx.Change(ctx, id, decide)
}

// An expired run that cannot be repeated keeps no other from being repeated.
func TestExpiredRunOfABrokenRow(t *testing.T) {
	p := newPlace(t)
	broken, whole := p.openJob("look"), p.openJob("look")
	p.start(work.Run{Work: broken, Attempt: 1}, "killed", -time.Second)
	p.start(work.Run{Work: whole, Attempt: 1}, "killed", -time.Millisecond)
	p.run(nil, alone, func(c *config) { c.Store = &brokenRow{Store: p.store, job: broken} })
	until(p, whole, p.store.Job, func(job work.Job) bool { return job.Nodes[0].State == boxoffice.NodeQueued })
}

// A result that cannot be saved for an hour is dropped, and the run is repeated.
func TestResultThatCannotBeSaved(t *testing.T) {
	p := newPlace(t)
	store := &brokenRow{Store: p.store, job: p.openJob("look")}
	p.run(agentFunc(func(context.Context, agent.Task) (agent.Result, error) { return done("x") }),
		func(c *config) { c.Store, c.Lease = store, 300*time.Millisecond })
	logged := func(text string) {
		p.until(func() bool { return strings.Contains(p.log.String(), text) })
	}
	logged("saving is repeated")
	p.advance(2 * time.Hour)
	logged("is dropped")
	store.mended.Store(true)
	if node := p.untilJob(store.job, boxoffice.JobCompleted).Nodes[0]; node.Attempts < 2 {
		t.Errorf("%+v", node)
	}
}
