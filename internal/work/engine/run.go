package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"boxoffice/internal/work"
	"boxoffice/internal/work/agent"
	"boxoffice/internal/work/workspace"

	"github.com/riverqueue/river"
)

type nodeWorker[TTx any] struct {
	river.WorkerDefaults[work.Run]
	engine *Engine[TTx]
}

// Work runs a node. An error of it is one of the store: the queue brings the
// run again.
func (w *nodeWorker[TTx]) Work(ctx context.Context, entry *river.Job[work.Run]) error {
	e, run := w.engine, entry.Args
	assignment, err := e.Store.Claim(ctx, run, e.holder, e.until(), e.now(), e.able)
	_, without := errors.AsType[noAgentError](err)
	switch {
	case err == nil:
	case errors.Is(err, work.ErrLost):
		return nil
	case errors.Is(err, work.ErrLeaving):
		return river.JobSnooze(leavingRetry)
	case without:
		e.Log.ErrorContext(ctx, "work waits: no agent is configured for its template", "work", run.Work, "err", err)
		return river.JobSnooze(noAgentRetry)
	case ctx.Err() != nil:
		return river.JobSnooze(0) // this process stops: another takes it
	default:
		return err
	}
	stopped := ctx.Done()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	e.mu.Lock()
	e.runs[run] = end
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		delete(e.runs, run)
		e.mu.Unlock()
	}()
	result := e.run(ctx, assignment)
	if errors.Is(context.Cause(ctx), work.ErrLost) {
		e.Log.WarnContext(ctx, "a run was ended: it was cancelled, or given to another worker", "work", run.Work, "node", assignment.Node.ID)
		e.left(context.WithoutCancel(ctx), run)
		return nil
	}
	return e.finish(ctx, stopped, assignment, result)
}

// finish saves a result. An agent's work of an hour is not thrown away because
// the database is away for a minute.
func (e *Engine[TTx]) finish(ctx context.Context, stopped <-chan struct{}, assignment work.Assignment, result work.Result) error {
	if result.Verdict == work.Again || result.Verdict == work.Failed {
		e.Log.WarnContext(ctx, "a run failed", "work", assignment.Work, "node", assignment.Node.ID,
			"attempt", assignment.Attempt, "again", result.Verdict == work.Again, "reason", result.Reason)
	}
	saving := context.WithoutCancel(ctx)
	pause := time.NewTimer(0)
	defer pause.Stop()
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := e.Store.Finish(saving, assignment.Run, e.holder, result, e.now())
		if err == nil && assignment.Node.Kind == work.NodeDelivery {
			e.discard(saving, assignment.Work)
		}
		if errors.Is(err, work.ErrLost) {
			e.left(saving, assignment.Run)
			return nil
		}
		if err == nil {
			return nil
		}
		e.Log.ErrorContext(ctx, "a result could not be saved; it will be tried again", "work", assignment.Work, "node", assignment.Node.ID, "err", err)
		pause.Reset(wait)
		select {
		case <-pause.C:
		case <-stopped: // the run lapses, and is done again
			return err
		}
	}
}

// left says that a run that was taken from this process has ended, so that the
// next one need not wait until its lease is over.
func (e *Engine[TTx]) left(ctx context.Context, run work.Run) {
	if err := e.Store.Left(ctx, run, e.holder); err != nil {
		e.Log.WarnContext(ctx, "the end of a cancelled run could not be saved; the next one waits for the lease", "work", run.Work, "err", err)
	}
}

// run does what a node is there for.
func (e *Engine[TTx]) run(ctx context.Context, a work.Assignment) work.Result {
	switch a.Node.Kind {
	case work.NodeDelivery:
		return e.deliver(ctx, a)
	case work.NodeMember:
		dir, err := e.Deliverer.Scratch()
		if err != nil {
			return e.ours(ctx, a, err)
		}
		defer workspace.Remove(dir)
		return e.ask(ctx, a, dir, memberTask(a))
	default:
		dir, err := e.Deliverer.Workspace(ctx, a.Job)
		if err != nil {
			return e.ours(ctx, a, fmt.Errorf("workspace: %w", err))
		}
		return e.ask(ctx, a, dir, nodeTask(a))
	}
}

func (e *Engine[TTx]) deliver(ctx context.Context, a work.Assignment) work.Result {
	workspace, err := e.Deliverer.Workspace(ctx, a.Job)
	if err != nil {
		return e.ours(ctx, a, fmt.Errorf("workspace: %w", err))
	}
	delivery, err := e.Deliverer.Deliver(ctx, a.Job, workspace)
	if err != nil {
		return e.ours(ctx, a, fmt.Errorf("deliver: %w", err))
	}
	return work.Result{Verdict: work.Done, Delivery: &delivery}
}

// After how long a run is looked at again that has no agent here, or that waits
// for another to end.
const (
	noAgentRetry = time.Minute
	leavingRetry = time.Second
)

type noAgentError struct{ template string }

func (e noAgentError) Error() string { return "no agent for " + e.template }

// able says whether this process can run a node. Finding out begins no run.
func (e *Engine[TTx]) able(node work.Node) error {
	template := templateOf(node)
	if node.Kind != work.NodeDelivery && e.agent(template) == nil {
		return noAgentError{template}
	}
	return nil
}

func templateOf(node work.Node) string {
	if node.Kind == work.NodeMember {
		return Oracle
	}
	return node.Template
}

func (e *Engine[TTx]) agent(template string) agent.Runner {
	if runner, ok := e.Agents[template]; ok {
		return runner
	}
	return e.Agents[Any]
}

func (e *Engine[TTx]) ask(ctx context.Context, a work.Assignment, workspace string, task agent.Task) work.Result {
	task.Template = templateOf(a.Node)
	report, err := e.agent(task.Template).Run(ctx, workspace, task)
	result := e.result(ctx, a, report, err)
	result.Log = string(report.Log)
	return result
}

func (e *Engine[TTx]) result(ctx context.Context, a work.Assignment, report agent.Report, err error) work.Result {
	failure, agents := errors.AsType[*agent.Failure](err)
	switch answer := report.Answer; {
	case err != nil && !agents:
		return e.ours(ctx, a, err)
	case agents:
		e.Log.WarnContext(ctx, "an agent failed", "work", a.Work, "node", a.Node.ID, "err", failure)
		kind := agent.Failure{Kind: failure.Kind, Code: failure.Code} // what it says is the operator's
		return e.failed(a.Node.Kind, a.Node.Failures, failure.Retryable, kind.Error(), failure.RetryAfter)
	case answer.Outcome == agent.Blocked && a.Node.Kind == work.NodeMember:
		return work.Result{Verdict: work.Failed, Reason: answer.Reason}
	case answer.Outcome == agent.Blocked:
		return work.Result{Verdict: work.Blocked, Reason: answer.Reason}
	default:
		return work.Result{Verdict: work.Done, Summary: answer.Summary, Choice: answer.Choice}
	}
}

// ours is what becomes of a run that this service failed, or that it stopped.
// The requester reads the reason only if it was his side that failed.
func (e *Engine[TTx]) ours(ctx context.Context, a work.Assignment, err error) work.Result {
	if ctx.Err() != nil {
		return work.Result{Verdict: work.Abandoned}
	}
	if failure, theirs := errors.AsType[*work.Failure](err); theirs {
		return e.failed(a.Node.Kind, a.Node.Failures, true, failure.Text, 0)
	}
	e.Log.ErrorContext(ctx, "a run could not be done", "work", a.Work, "node", a.Node.ID, "err", err)
	return e.failed(work.NodeAgent, a.Node.Failures, true, "the service could not run it", 0)
}

// failed decides whether a node that failed is tried again. A member of a panel
// is not: it is replaced.
func (e *Engine[TTx]) failed(kind work.NodeKind, failures int, retryable bool, reason string, after time.Duration) work.Result {
	if kind == work.NodeMember || !retryable || failures+1 >= e.Attempts {
		return work.Result{Verdict: work.Failed, Reason: reason}
	}
	return work.Result{Verdict: work.Again, Reason: reason, After: max(after, e.Backoff<<min(failures, 10))}
}

func nodeTask(a work.Assignment) agent.Task {
	brief := a.Job.Brief
	task := agent.Task{
		Job: a.Job.ID, Node: a.Node.Label(), Attempt: a.Node.Failures + 1, Objective: a.Node.Objective, Context: brief.Context, RepoURL: brief.RepoURL,
		ChainID: brief.ChainID, PairWith: brief.PairWith, Name: brief.Name, Symbol: brief.Symbol, Answers: a.Answers,
	}
	if a.Job.LaunchKind != nil {
		task.LaunchKind = *a.Job.LaunchKind
	}
	if brief.Follows != "" && len(brief.Nodes) > 0 {
		// The steps of a graph keep their objectives: what is asked of its next
		// version is the job's.
		task.Answers = append([]string{a.Job.Objective}, task.Answers...)
	}
	for _, node := range a.Predecessors {
		task.Predecessors = append(task.Predecessors, agent.Result{Node: node.ID, Summary: node.Summary})
	}
	return task
}

func memberTask(a work.Assignment) agent.Task {
	oracle := a.Oracle
	return agent.Task{
		Job: oracle.ID, Node: a.Node.Label(), Objective: oracle.Question, Attempt: a.Node.Failures + 1,
		Panel: &agent.Panel{
			Question: oracle.Question, Options: oracle.Options, Context: oracle.Context, Member: a.Position, Size: oracle.PanelSize,
		},
	}
}

// scheduleArgs wake the schedules.
type scheduleArgs struct{}

// Kind names the entry in the queue.
func (scheduleArgs) Kind() string { return "schedules" }

const scheduleQueue = "schedules"

var scheduleOptions = river.InsertOpts{Queue: scheduleQueue, MaxAttempts: 1}

type scheduleWorker[TTx any] struct {
	river.WorkerDefaults[scheduleArgs]
	engine *Engine[TTx]
}

const schedulesAtOnce = 500

// Work opens the runs that are due, one for each schedule and round, until none
// is due. Those that fail do not hold up the others, however many they are.
func (w *scheduleWorker[TTx]) Work(ctx context.Context, _ *river.Job[scheduleArgs]) error {
	for {
		opened, err := w.engine.openDue(ctx)
		if ctx.Err() != nil {
			return nil // this process stops: the next round finds what is due
		}
		if err != nil || opened == 0 {
			return err
		}
	}
}

// openDue opens a run of each schedule that has one due. Its error is that of the
// first one that failed, and says how many did.
func (e *Engine[TTx]) openDue(ctx context.Context) (opened int, err error) {
	failed, first := 0, error(nil)
	now, last := e.now(), work.Due{}
	for more := true; more; {
		due, err := e.Schedules.DueSchedules(ctx, now, last, schedulesAtOnce)
		if err != nil {
			return opened, err
		}
		for _, last = range due {
			err := e.Schedules.RunSchedule(ctx, last.ID, now, func(tx work.Tx, schedule work.Schedule) (work.Opened, error) {
				return e.Open(ctx, tx, schedule.Owner, schedule.Action, schedule.Input, now)
			})
			switch {
			case ctx.Err() != nil:
				return opened, ctx.Err()
			case err == nil:
				opened++
			case !errors.Is(err, work.ErrLost):
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
