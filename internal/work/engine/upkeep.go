package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"boxoffice"
	"boxoffice/internal/work"
)

// upkeepLease is the lease of the process that repeats expired runs and opens the
// due runs of schedules. Both are conditional writes, so two processes that do
// them at once do no harm; the lease saves the work of doing them twice.
const upkeepLease = "work/upkeep"

// leads takes or renews the upkeep lease, and reports whether this process has it.
func (e *Engine) leads(ctx context.Context) (bool, error) {
	now := e.Now()
	return e.Upkeep.HoldLease(ctx, upkeepLease, e.holder, boxoffice.At(now), boxoffice.At(now.Add(3*e.Heartbeat)))
}

// yield ends the upkeep lease of this process, so that another takes it at once.
func (e *Engine) yield(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, e.Heartbeat)
	defer cancel()
	if _, err := e.Upkeep.HoldLease(ctx, upkeepLease, e.holder, e.now(), e.now()); err != nil {
		e.Log.WarnContext(ctx, "the upkeep lease could not be ended; another process takes it when it expires", "err", err)
	}
}

// keep renews the runs of this process, and repeats expired runs of others, until
// ctx ends. A process that was away itself, because the database was or the
// machine slept, cannot tell whose worker is lost and who could not renew: it
// gives the others a lease to renew first. A process that starts, perhaps because
// the database came back, gives them three heartbeats.
func (e *Engine) keep(ctx context.Context) {
	tick := time.NewTicker(e.Heartbeat)
	defer tick.Stop()
	last := e.Now()
	waitUntil := last.Add(3 * e.Heartbeat)
	for {
		now := e.Now()
		if now.Sub(last) > e.Lease/2 {
			waitUntil = now.Add(e.Lease)
		}
		err := errors.Join(e.renew(ctx), e.repeatExpired(ctx, now.Before(waitUntil)))
		if err == nil {
			last = now
		} else if ctx.Err() == nil {
			e.Log.ErrorContext(ctx, "runs could not be renewed; it is tried again", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// renew renews the runs of this process. It ends those that are not its own any more.
func (e *Engine) renew(ctx context.Context) error {
	e.mu.Lock()
	mine := make([]work.Run, 0, len(e.runs))
	for run := range e.runs {
		mine = append(mine, run)
	}
	e.mu.Unlock()
	if len(mine) == 0 {
		return nil
	}
	held, err := e.Store.Renew(ctx, e.holder, mine, e.until())
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
			end(work.ErrStale)
		}
	}
	return nil
}

const expiredAtOnce = 100

// repeatExpired queues expired runs again if this process has the upkeep lease,
// and unless it has to wait for their holders.
func (e *Engine) repeatExpired(ctx context.Context, wait bool) error {
	leads, err := e.leads(ctx)
	if err != nil || !leads {
		return err
	}
	expired, err := e.Upkeep.Expired(ctx, e.now(), expiredAtOnce)
	if err != nil || wait {
		return err
	}
	for _, run := range expired {
		var node work.Node
		err := e.change(ctx, "expire run", run.Work, func(graph work.Graph) (change work.Change, err error) {
			if change, err = graph.Expire(run, e.now()); err == nil {
				node = change.Node(run.Position)
			}
			return change, err
		})
		switch {
		case errors.Is(err, work.ErrStale): // it was renewed or has ended
		case err != nil:
			return err
		default:
			e.Log.WarnContext(ctx, "a run expired: its worker did not renew it", "work", run.Work, "node", node.ID, "attempt", run.Attempt, "state", node.State)
		}
	}
	return nil
}

// schedule opens the due runs of schedules until ctx ends, if this process has
// the upkeep lease.
func (e *Engine) schedule(ctx context.Context) {
	tick := time.NewTicker(e.Scheduling)
	defer tick.Stop()
	for {
		if err := e.openAllDue(ctx); err != nil && ctx.Err() == nil {
			e.Log.ErrorContext(ctx, "due schedules could not be run; it is tried again", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// openAllDue opens due runs, one of each schedule per round, until none is due.
func (e *Engine) openAllDue(ctx context.Context) error {
	leads, err := e.leads(ctx)
	for opened := 1; leads && err == nil && opened > 0; {
		opened, err = e.openDue(ctx)
	}
	return err
}

const schedulesAtOnce = 500

// openDue opens a run of each schedule that has one due. A schedule that fails
// does not stop the others. The error is that of the first one that failed, and
// says how many did.
func (e *Engine) openDue(ctx context.Context) (opened int, err error) {
	failed, first := 0, error(nil)
	now, last := e.now(), work.Due{}
	for more := true; more; {
		due, err := e.Upkeep.DueSchedules(ctx, now, last, schedulesAtOnce)
		if err != nil {
			return opened, err
		}
		for _, last = range due {
			err := e.Store.Update(ctx, "run schedule", func(tx work.Tx) error {
				return work.RunSchedule(ctx, tx, last.ID, now, func(schedule work.Schedule) (work.Opened, error) {
					return e.Open(ctx, tx, schedule.Owner, schedule.Action, schedule.Input, now)
				})
			})
			switch {
			case ctx.Err() != nil:
				return opened, ctx.Err()
			case err == nil:
				opened++
			case !errors.Is(err, work.ErrStale):
				failed++
				first = cmp.Or(first, fmt.Errorf("schedule %s: %w", last.ID, err))
			}
		}
		more = len(due) == schedulesAtOnce
	}
	if failed > 0 {
		return opened, fmt.Errorf("%d schedules could not be run: %w", failed, first)
	}
	return opened, nil
}
