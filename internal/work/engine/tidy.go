package engine

import (
	"context"
	"time"

	"boxoffice"
)

// tidyEvery is how often removeWorkspaces looks for workspaces that a killed process
// left. keepFailed is how long the workspace stays for the operator if the push to the
// requester's host failed: it may hold the only copy of the work.
const (
	tidyEvery  = time.Hour
	keepFailed = 7 * 24 * time.Hour
)

// removeWorkspaces removes the workspaces of jobs that need none any more, until ctx
// ends. The worker that delivers a job removes its workspace itself. This loop finds
// the workspaces of workers that were killed before they did so.
func (e *Engine) removeWorkspaces(ctx context.Context) {
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

// discard removes the workspaces of those of the jobs that were delivered, or whose
// push failed longer than keepFailed ago. A completed job never runs again: its next
// version starts from what was delivered.
func (e *Engine) discard(ctx context.Context, jobs ...boxoffice.UUID) {
	if len(jobs) == 0 {
		return
	}
	delivered, err := e.Store.Delivered(ctx, jobs, boxoffice.At(e.Now().Add(-keepFailed)))
	if err != nil && ctx.Err() == nil {
		e.Log.ErrorContext(ctx, "workspaces are not removed: the completed jobs could not be read", "err", err)
	}
	for _, job := range delivered {
		if err := e.Deliverer.Discard(job); err != nil {
			e.Log.ErrorContext(ctx, "a workspace could not be removed; the next round tries again",
				"work", job, "err", err)
		}
	}
}
