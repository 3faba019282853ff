package engine

import (
	"context"
	"time"

	"boxoffice"
)

// tidyEvery is how often workspaces are looked for that a killed process left.
// keepFailed is how long the workspace of a delivery that failed is kept for the
// operator: it may hold the only copy of the work.
const (
	tidyEvery  = time.Hour
	keepFailed = 7 * 24 * time.Hour
)

// tidy removes the workspaces of jobs that are over, until ctx ends. The worker
// of a delivery does so itself; tidy finds those whose worker died before that.
func (e *Engine) tidy(ctx context.Context) {
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

// discard removes the workspaces of those of the jobs that are over. A completed
// job stays completed, and its next version starts from what was delivered.
func (e *Engine) discard(ctx context.Context, jobs ...boxoffice.UUID) {
	if len(jobs) == 0 {
		return
	}
	over, err := e.Store.Delivered(ctx, jobs, boxoffice.At(e.Now().Add(-keepFailed)))
	if err != nil && ctx.Err() == nil {
		e.Log.ErrorContext(ctx, "workspaces stay: the completed jobs could not be read", "err", err)
	}
	for _, job := range over {
		if err := e.Deliverer.Discard(job); err != nil {
			e.Log.ErrorContext(ctx, "a workspace could not be removed; it is tried again", "work", job, "err", err)
		}
	}
}
