package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"boxoffice/internal/work"
)

// claimNodes claims due nodes and runs them until ctx ends, as many at once as
// Concurrency allows.
func (e *Engine) claimNodes(ctx context.Context) {
	poll := time.NewTicker(e.Poll)
	defer poll.Stop()
	templates := e.templates()
	retryAt, wait, reportAt := time.Time{}, e.Poll, time.Time{}
	for {
		// Queued is called before the claim: its channel is closed also if a node is
		// queued during the claim.
		queued := e.Store.Queued()
		if time.Now().After(retryAt) {
			err := e.claimOnce(ctx, templates)
			switch {
			case err == nil:
				wait = e.Poll
			case ctx.Err() == nil:
				e.Log.ErrorContext(ctx, "nodes could not be claimed; the claim is repeated", "err", err)
				retryAt, wait = time.Now().Add(wait), min(2*wait, 5*time.Second)
			}
		}
		if templates != nil && time.Now().After(reportAt) {
			reportAt = time.Now().Add(time.Minute)
			e.reportUnclaimed(ctx, templates)
		}
		select {
		case <-ctx.Done():
			return
		case <-queued:
		case <-e.freed:
		case <-poll.C:
		}
	}
}

// templates returns the templates of the nodes that this process can run, or nil
// if it can run all.
func (e *Engine) templates() []string {
	if e.Agents[TemplateAny] != nil {
		return nil
	}
	return append(slices.Sorted(maps.Keys(e.Agents)), work.TemplateDelivery)
}

// claimOnce claims as many nodes as this process may still run at once, and starts
// a goroutine for each.
func (e *Engine) claimOnce(ctx context.Context, templates []string) error {
	e.mu.Lock()
	free := e.Concurrency - len(e.runs)
	e.mu.Unlock()
	if free <= 0 {
		return nil
	}
	now, until := e.now(), e.until()
	assignments, err := e.Store.Claim(ctx, work.Claim{Templates: templates, Limit: free}, now,
		func(graph work.Graph, position int) (work.Change, error) {
			return graph.Start(position, e.holder, until, now)
		})
	for _, assignment := range assignments {
		running, end := context.WithCancelCause(ctx)
		e.mu.Lock()
		e.runs[assignment.Run] = end
		e.mu.Unlock()
		e.running.Go(func() {
			defer end(nil)
			e.carryOut(running, ctx.Done(), assignment)
			e.mu.Lock()
			delete(e.runs, assignment.Run)
			e.mu.Unlock()
			select {
			case e.freed <- struct{}{}:
			default: // claimNodes has not received the last value yet
			}
		})
	}
	return err
}

// reportUnclaimed logs the due nodes that this process cannot run: perhaps no
// process can.
func (e *Engine) reportUnclaimed(ctx context.Context, templates []string) {
	due, err := e.Store.DueTemplates(ctx, e.now())
	if err != nil && ctx.Err() == nil {
		e.Log.ErrorContext(ctx, "due nodes could not be counted", "err", err)
	}
	for template, nodes := range due {
		if !slices.Contains(templates, template) {
			e.Log.WarnContext(ctx, "nodes wait: this process has no agent for "+template, "nodes", nodes)
		}
	}
}

// carryOut runs a node and saves the result. If the run was cancelled, or expired
// and belongs to another worker, it saves only that the agent has ended.
func (e *Engine) carryOut(ctx context.Context, stopped <-chan struct{}, a work.Assignment) {
	result := e.run(ctx, a)
	if errors.Is(context.Cause(ctx), work.ErrStale) {
		e.Log.WarnContext(ctx, "a run was ended: it was cancelled, or it expired and another worker has it",
			"work", a.Work, "node", a.Node.ID)
		e.reportEnd(context.WithoutCancel(ctx), a)
		return
	}
	e.finish(ctx, stopped, a, result)
}

// saveWithin is how long finish tries to save a result: the result may be the work of
// hours, but if the error is permanent the run would never end.
const saveWithin = time.Hour

// finish saves a result. If that fails it tries again until it succeeds or the process
// stops, for at most saveWithin. A run whose result was not saved expires and is
// repeated.
func (e *Engine) finish(ctx context.Context, stopped <-chan struct{}, a work.Assignment, result work.Result) {
	retries := work.Retries{MaxFailures: e.MaxFailures, Backoff: e.Backoff}
	saving := context.WithoutCancel(ctx)
	begin := e.Now()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		saved, err := e.change(saving, "finish run", a.Work, func(graph work.Graph) (work.Change, error) {
			return graph.Finish(a.Run, e.holder, result, retries, e.now())
		})
		switch {
		case err == nil:
			if result.Outcome == work.Retry || result.Outcome == work.Failed {
				e.Log.WarnContext(ctx, "a run failed", "work", a.Work, "node", a.Node.ID, "attempt", a.Attempt,
					"reason", result.Reason, "state", saved.Node(a.Position).State)
			}
			if a.Node.Kind == work.NodeDelivery {
				e.discard(saving, a.Work)
			}
			return
		case errors.Is(err, work.ErrStale):
			e.reportEnd(saving, a)
			return
		}
		log := e.Log.With("work", a.Work, "node", a.Node.ID, "err", err)
		if e.Now().Sub(begin) > saveWithin {
			log.ErrorContext(ctx, "a result could not be saved and is dropped; the run expires and is repeated")
			return
		}
		log.ErrorContext(ctx, "a result could not be saved; saving is repeated")
		pause.Reset(wait)
		select {
		case <-pause.C:
		case <-stopped:
			return
		}
	}
}

// reportEnd saves that the agent of a cancelled run has ended, so that the job's
// next run need not wait until the cancelled run expires.
func (e *Engine) reportEnd(ctx context.Context, a work.Assignment) {
	_, err := e.change(ctx, "end cancelled run", a.Work, func(graph work.Graph) (work.Change, error) {
		return graph.RunEnded(a.Run, e.holder)
	})
	if err != nil {
		const message = "the end of a cancelled run could not be saved; " +
			"the job's next run waits until the cancelled one expires"
		e.Log.WarnContext(ctx, message, "work", a.Work, "err", err)
	}
}
