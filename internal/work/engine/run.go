package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"boxoffice/internal/work"
	"boxoffice/internal/work/agent"
	"boxoffice/internal/work/workspace"
)

// run carries out a node and returns its result. A panic becomes an error of this
// run; the process and its other runs go on.
func (e *Engine) run(ctx context.Context, a work.Assignment) (result work.Result) {
	defer func() {
		if problem := recover(); problem != nil {
			result = e.errorResult(context.WithoutCancel(ctx), a, fmt.Errorf("panic: %v\n%s", problem, debug.Stack()))
		}
	}()
	switch a.Node.Kind {
	case work.NodeDelivery:
		return e.deliver(ctx, a)
	case work.NodeMember:
		dir, err := e.Deliverer.Scratch()
		if err != nil {
			return e.errorResult(ctx, a, err)
		}
		defer workspace.Remove(dir)
		return e.runAgent(ctx, a, dir, memberTask(a))
	default:
		dir, err := e.Deliverer.Workspace(ctx, a.Job)
		if err != nil {
			return e.errorResult(ctx, a, fmt.Errorf("workspace: %w", err))
		}
		return e.runAgent(ctx, a, dir, nodeTask(a))
	}
}

func (e *Engine) deliver(ctx context.Context, a work.Assignment) work.Result {
	workspace, err := e.Deliverer.Workspace(ctx, a.Job)
	if err != nil {
		return e.errorResult(ctx, a, fmt.Errorf("workspace: %w", err))
	}
	delivery, err := e.Deliverer.Deliver(ctx, a.Job, workspace)
	if err != nil {
		return e.errorResult(ctx, a, fmt.Errorf("deliver: %w", err))
	}
	return work.Result{Outcome: work.Done, Delivery: &delivery}
}

// agent returns the agent for a template.
func (e *Engine) agent(template string) agent.Runner {
	if runner, ok := e.Agents[template]; ok {
		return runner
	}
	return e.Agents[TemplateAny]
}

// runAgent runs the agent for a step of a job or a member of a panel.
func (e *Engine) runAgent(ctx context.Context, a work.Assignment, workspace string, task agent.Task) work.Result {
	task.Template = a.Node.Template
	report, err := e.agent(task.Template).Run(ctx, workspace, task)
	result := e.agentResult(ctx, a, report, err)
	result.Log = string(report.Log)
	return result
}

// agentResult returns the result of a run from what its agent reported or from its
// error.
func (e *Engine) agentResult(ctx context.Context, a work.Assignment, report agent.Report, err error) work.Result {
	failure, agentFailed := errors.AsType[*agent.Failure](err)
	switch returned := report.Result; {
	case err != nil && !agentFailed:
		return e.errorResult(ctx, a, err)
	case agentFailed:
		e.Log.WarnContext(ctx, "an agent failed", "work", a.Work, "node", a.Node.ID, "err", failure)
		// The failure's detail is for the operator; the requester reads its kind.
		kind := agent.Failure{Kind: failure.Kind, Code: failure.Code}
		outcome := work.Failed
		if failure.Retryable {
			outcome = work.Retry
		}
		return work.Result{Outcome: outcome, Reason: kind.Error(), RetryAfter: failure.RetryAfter}
	case returned.Outcome == agent.Blocked:
		return work.Result{Outcome: work.Blocked, Reason: returned.Reason}
	default:
		return work.Result{Outcome: work.Done, Summary: returned.Summary, Choice: returned.Choice}
	}
}

// errorResult returns the result of a run that ended with an error which is not one
// of its agent. If this process stopped the run, another worker repeats it. Otherwise
// it is retried. The requester reads the text of the error only if it is a
// *work.Failure, which says what the requester's side did wrong. Any other error is a
// fault of this service, and goes to the log.
func (e *Engine) errorResult(ctx context.Context, a work.Assignment, err error) work.Result {
	if ctx.Err() != nil {
		return work.Result{Outcome: work.WorkerStopped}
	}
	if failure, requesters := errors.AsType[*work.Failure](err); requesters {
		return work.Result{Outcome: work.Retry, Reason: failure.Text}
	}
	e.Log.ErrorContext(ctx, "a run could not be carried out", "work", a.Work, "node", a.Node.ID, "err", err)
	return work.Result{Outcome: work.Retry, OurFault: true, Reason: "the service could not run it"}
}

func nodeTask(a work.Assignment) agent.Task {
	brief := a.Job.Brief
	task := agent.Task{
		Job: a.Job.ID, Node: a.Node.Label(), Failures: a.Node.Failures, Objective: a.Node.Objective,
		Context: brief.Context, Inputs: a.Inputs, RepoURL: brief.RepoURL,
		ChainID: brief.ChainID, PairWith: brief.PairWith, Name: brief.Name, Symbol: brief.Symbol,
	}
	if a.Job.LaunchKind != nil {
		task.LaunchKind = *a.Job.LaunchKind
	}
	if brief.Follows != "" && len(brief.Nodes) > 0 {
		// The steps of a workflow keep their objectives. The objective of its next
		// version is given to them as the first input.
		task.Inputs = append([]string{a.Job.Objective}, task.Inputs...)
	}
	for _, node := range a.Predecessors {
		task.Predecessors = append(task.Predecessors, agent.Predecessor{Node: node.ID, Summary: node.Summary})
	}
	return task
}

func memberTask(a work.Assignment) agent.Task {
	oracle := a.Oracle
	return agent.Task{
		Job: oracle.ID, Node: a.Node.Label(), Objective: oracle.Question, Failures: a.Node.Failures,
		Panel: &agent.Panel{
			Question: oracle.Question, Options: oracle.Options, Context: oracle.Context,
			Member: a.Position, Size: oracle.PanelSize,
		},
	}
}
