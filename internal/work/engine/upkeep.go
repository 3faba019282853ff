package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"boxoffice"
	"boxoffice/internal/work"
)

// upkeepLease is the lease of the process that repeats expired runs and opens
// scheduled runs for all processes. Both are conditional writes, so it does no harm
// if two processes do them at once. The lease only avoids that all of them do.
const upkeepLease = "work/upkeep"

// takeUpkeepLease takes or renews the upkeep lease, and reports whether this process
// has it.
func (e *Engine) takeUpkeepLease(ctx context.Context, now time.Time) (bool, error) {
	return e.Store.HoldLease(ctx, upkeepLease, e.holder, boxoffice.At(now), boxoffice.At(now.Add(3*e.Heartbeat)))
}

// endUpkeepLease ends the upkeep lease of this process, so that another process takes
// it at once.
func (e *Engine) endUpkeepLease(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, e.Heartbeat)
	defer cancel()
	if _, err := e.Store.HoldLease(ctx, upkeepLease, e.holder, e.now(), e.now()); err != nil {
		e.Log.WarnContext(ctx, "the upkeep lease could not be ended; another process takes it when it expires",
			"err", err)
	}
}

// renewAndExpire does two things every Heartbeat until ctx ends: it renews the runs
// of this process, and, with the upkeep lease, it repeats the expired runs of all
// processes.
//
// If the database did not answer for a while, or the machine slept, other workers
// could not renew their runs either. Their runs have expired then, although the
// workers are not lost. So expired runs are not repeated at once, to let these
// workers renew first: for one Lease after such a pause, and for three heartbeats
// after the start of this process, which may follow an outage too.
func (e *Engine) renewAndExpire(ctx context.Context) {
	tick := time.NewTicker(e.Heartbeat)
	defer tick.Stop()
	last := e.Now()
	waitUntil := last.Add(3 * e.Heartbeat)
	for {
		now := e.Now()
		// Round removes the monotonic reading, which does not show that the machine
		// slept or that its clock was set.
		if now.Round(0).Sub(last.Round(0)) > e.Lease/2 {
			waitUntil = now.Add(e.Lease)
		}
		err := errors.Join(e.renew(ctx), e.repeatExpired(ctx, now, now.Before(waitUntil)))
		if err == nil {
			last = now
		} else if ctx.Err() == nil {
			e.Log.ErrorContext(ctx, "runs could not be renewed or repeated; the next heartbeat tries again", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// renew renews the runs of this process. It ends the agents of those that do not
// belong to it any more, because they were cancelled or expired.
func (e *Engine) renew(ctx context.Context) error {
	e.mu.Lock()
	runs := slices.Collect(maps.Keys(e.runs))
	e.mu.Unlock()
	if len(runs) == 0 {
		return nil
	}
	held, err := e.Store.Renew(ctx, e.holder, runs, e.until())
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, run := range runs {
		if end, running := e.runs[run]; running && !slices.Contains(held, run) {
			end(work.ErrStale)
		}
	}
	return nil
}

const expiredAtOnce = 100

// repeatExpired queues the nodes of runs that have expired at now again, if this
// process has the upkeep lease. If wait is true it only renews that lease. It does
// not read the clock: if the clock was set since the caller read it, the caller has
// not decided yet whether to wait.
//
// If a run cannot be changed, repeatExpired logs that and goes on with the others. It
// ends after a heartbeat, because the runs of this process have to be renewed then.
func (e *Engine) repeatExpired(ctx context.Context, now time.Time, wait bool) error {
	leased, err := e.takeUpkeepLease(ctx, now)
	if err != nil || !leased {
		return err
	}
	expired, err := e.Store.Expired(ctx, boxoffice.At(now), expiredAtOnce)
	if err != nil || wait {
		return err
	}
	begin := time.Now()
	for _, run := range expired {
		if time.Since(begin) > e.Heartbeat {
			break
		}
		change, err := e.change(ctx, "expire run", run.Work, func(graph work.Graph) (work.Change, error) {
			return graph.Expire(run, boxoffice.At(now))
		})
		switch {
		case errors.Is(err, work.ErrStale): // it was renewed or has ended
		case err != nil:
			e.Log.ErrorContext(ctx, "an expired run could not be repeated; the next heartbeat tries again",
				"work", run.Work, "position", run.Position, "err", err)
		default:
			node := change.Node(run.Position)
			e.Log.WarnContext(ctx, "a run expired: its worker did not renew it",
				"work", run.Work, "node", node.ID, "attempt", run.Attempt, "state", node.State)
		}
	}
	return nil
}

// openScheduledRuns opens due scheduled runs until ctx ends, while this process has
// the upkeep lease.
func (e *Engine) openScheduledRuns(ctx context.Context) {
	tick := time.NewTicker(e.Scheduling)
	defer tick.Stop()
	for {
		if err := e.openAllDue(ctx); err != nil && ctx.Err() == nil {
			e.Log.ErrorContext(ctx, "due scheduled runs could not be opened; the next round tries again", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// openAllDue opens due scheduled runs, one of each schedule per round, until none is
// due.
func (e *Engine) openAllDue(ctx context.Context) error {
	leased, err := e.takeUpkeepLease(ctx, e.Now())
	for opened := 1; leased && err == nil && opened > 0; {
		opened, err = e.openDue(ctx)
	}
	return err
}

const schedulesAtOnce = 500

// openDue opens one scheduled run of each schedule that has one due. If a schedule
// fails it goes on with the others. It returns the error of the first schedule that
// failed, with the number of those that did.
func (e *Engine) openDue(ctx context.Context) (opened int, err error) {
	failed, first := 0, error(nil)
	now, last := e.now(), work.Due{}
	for more := true; more; {
		due, err := e.Store.DueSchedules(ctx, now, last, schedulesAtOnce)
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
