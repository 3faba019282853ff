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

// away is a store whose database is away again and again.
type away struct {
	*sqlite.Store
	claims, finishes atomic.Int64
}

var errAway = errors.New("the database is away")

func (a *away) Claim(ctx context.Context, run work.Run, holder string, until, now boxoffice.Timestamp, able func(work.Node) error) (work.Assignment, error) {
	if a.claims.Add(1) == 1 {
		return work.Assignment{}, errAway
	}
	return a.Store.Claim(ctx, run, holder, until, now, able)
}

func (a *away) Finish(ctx context.Context, run work.Run, holder string, result work.Result, now boxoffice.Timestamp) error {
	if a.finishes.Add(1) < 4 {
		return errAway
	}
	return a.Store.Finish(ctx, run, holder, result, now)
}

// A run that could not be taken is taken later, and what an agent came to while
// the database was away is kept.
func TestDatabaseAway(t *testing.T) {
	p := newPlace(t)
	id := p.openJob("look")
	var runs atomic.Int64
	p.run(answers(func(context.Context, agent.Task) (agent.Answer, error) {
		runs.Add(1)
		return done("x")
	}), func(c *config) { c.Store = &away{Store: p.store} })
	if job := p.untilJob(id, boxoffice.JobCompleted); job.Nodes[0].Attempts != 1 || runs.Load() != 1 {
		t.Errorf("%+v after %d runs", job.Nodes, runs.Load())
	}
}

// outage is a store whose database is away while it says so.
type outage struct {
	*sqlite.Store
	away   atomic.Bool
	looked atomic.Int64 // times that others' runs were looked for with success
}

func (o *outage) Finish(ctx context.Context, run work.Run, holder string, result work.Result, now boxoffice.Timestamp) error {
	if o.away.Load() {
		return errAway
	}
	return o.Store.Finish(ctx, run, holder, result, now)
}

func (o *outage) Renew(ctx context.Context, holder string, until boxoffice.Timestamp) ([]work.Run, error) {
	if o.away.Load() {
		return nil, errAway
	}
	return o.Store.Renew(ctx, holder, until)
}

func (o *outage) Lapsed(ctx context.Context, now boxoffice.Timestamp, limit int) ([]work.Held, error) {
	if o.away.Load() {
		return nil, errAway
	}
	defer o.looked.Add(1)
	return o.Store.Lapsed(ctx, now, limit)
}

// The database is away for a minute, twice as long as a process may be silent,
// and an agent ends meanwhile. Whichever process sees it first when it is back:
// the result is kept and nothing is done again. A process that stays silent then
// is given up all the same.
func TestDatabaseAwayForAMinute(t *testing.T) {
	p := newPlace(t)
	id := p.openJob("look")
	const lease = 30 * time.Second
	working, other := &outage{Store: p.store}, &outage{Store: p.store}
	started, goOn := make(chan struct{}), make(chan struct{})
	var runs atomic.Int64
	stop := p.run(answers(func(context.Context, agent.Task) (agent.Answer, error) {
		runs.Add(1)
		close(started)
		<-goOn
		return done("x")
	}), func(c *config) { c.Store, c.Lease = working, lease })
	<-started
	p.run(answers(func(context.Context, agent.Task) (agent.Answer, error) {
		return done("by another")
	}), func(c *config) { c.Store, c.Lease, c.Queue = other, lease, "nothing" })
	p.until(func() bool { return other.looked.Load() > 0 })

	working.away.Store(true)
	other.away.Store(true)
	close(goOn)
	p.advance(time.Minute)
	p.until(func() bool { return strings.Count(p.log.String(), "runs could not be kept") > 1 })
	looked := other.looked.Load()
	other.away.Store(false)
	p.until(func() bool { return other.looked.Load() > looked+1 })
	working.away.Store(false)
	if job := p.untilJob(id, boxoffice.JobCompleted); job.Nodes[0].Attempts != 1 || job.Nodes[0].Summary != "x" || runs.Load() != 1 {
		t.Errorf("%+v after %d runs", job.Nodes, runs.Load())
	}

	stop()
	silent := p.openJob("look")
	if _, err := p.store.Claim(t.Context(), work.Run{Work: silent, Attempt: 1}, "killed", p.now(), p.now(), nil); err != nil {
		t.Fatal(err)
	}
	for range 4 { // step by step, or it would seem to have slept itself
		looked := other.looked.Load()
		p.advance(lease / 3)
		p.until(func() bool { return other.looked.Load() > looked+1 })
	}
	if job, err := p.store.Job(t.Context(), p.owner, silent); err != nil || job.Nodes[0].State != boxoffice.NodeQueued {
		t.Errorf("%+v, %v", job.Nodes, err)
	}
}

// speaks is a store on which another process renews its runs while the engine
// looks for the second time who is silent.
type speaks struct {
	*sqlite.Store
	other string
	looks atomic.Int64
}

func (s *speaks) Lapsed(ctx context.Context, now boxoffice.Timestamp, limit int) ([]work.Held, error) {
	if s.looks.Add(1) == 2 {
		if _, err := s.Store.Renew(ctx, s.other, now+60_000); err != nil {
			return nil, err
		}
	}
	return s.Store.Lapsed(ctx, now, limit)
}

// Who starts when the database is back lets those speak first that it was away from.
func TestStartAfterAnOutage(t *testing.T) {
	p := newPlace(t)
	run := work.Run{Work: p.openJob("look"), Attempt: 1}
	if _, err := p.store.Claim(t.Context(), run, "other", p.now()-1, p.now(), nil); err != nil {
		t.Fatal(err)
	}
	store := &speaks{Store: p.store, other: "other"}
	p.run(answers(func(context.Context, agent.Task) (agent.Answer, error) { return done("again") }), func(c *config) {
		c.Store, c.Heartbeat = store, 500*time.Millisecond
	})
	p.until(func() bool { return store.looks.Load() > 2 })
	if err := p.store.Finish(t.Context(), run, "other", work.Result{Verdict: work.Done, Summary: "mine"}, p.now()); err != nil {
		t.Error(err)
	}
}
