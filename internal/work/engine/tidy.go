package engine

import (
	"context"
	"time"

	"boxoffice"
)

// How often what a killed process left is looked for, and how long the workspace
// of a delivery that failed is kept for the operator: it may hold the only copy.
const (
	tidyEvery  = time.Hour
	keepFailed = 7 * 24 * time.Hour
)

// tidy removes the workspaces of jobs that are over, until ctx ends. The worker
// of a delivery does so itself; this finds those whose worker died before.
func (e *Engine[TTx]) tidy(ctx context.Context) {
	if len(e.Agents) == 0 {
		return // there are no workspaces
	}
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for {
		jobs, err := e.Deliverer.Workspaces()
		if err != nil {
			e.Log.ErrorContext(ctx, "workspaces cannot be listed", "err", err)
		}
		e.discard(ctx, jobs...)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// discard removes the workspaces of those of the given jobs that are over. A job
// that is completed stays so, and its next version starts from what was delivered.
func (e *Engine[TTx]) discard(ctx context.Context, jobs ...boxoffice.UUID) {
	if len(jobs) == 0 {
		return
	}
	over, err := e.Store.Delivered(ctx, jobs, boxoffice.At(e.Now().Add(-keepFailed)))
	if err != nil && ctx.Err() == nil {
		e.Log.ErrorContext(ctx, "workspaces stay: the store does not say whose work is over", "err", err)
	}
	for _, job := range over {
		if err := e.Deliverer.Discard(job); err != nil {
			e.Log.ErrorContext(ctx, "a workspace could not be removed; it will be tried again", "work", job, "err", err)
		}
	}
}
