package work

import (
	"fmt"
	"slices"

	"boxoffice"
)

// Start starts a run of the queued node at a position. The run belongs to holder, which
// has to renew it before until. It returns ErrStale if the node is not queued or not due,
// and ErrEnding if the agent of a cancelled run may still use the workspace.
func (g Graph) Start(position int, holder string, until, now boxoffice.Timestamp) (Change, error) {
	node := g.Nodes[position]
	switch {
	case node.State != boxoffice.NodeQueued || *node.DueAt > now:
		return Change{}, ErrStale
	case g.ending(now):
		return Change{}, ErrEnding
	}
	started := node
	started.State, started.Holder, started.HeldUntil, started.DueAt = boxoffice.NodeRunning, holder, &until, nil
	started.Attempts++
	started.StartedAt, started.EndedAt = &now, nil
	started.InputsGiven = g.Inputs
	change := Change{Nodes: []NodeChange{{From: node, To: started}}}
	if g.State == boxoffice.JobQueued {
		change.Record = &RecordChange{From: g.State, To: boxoffice.JobRunning, UpdatedAt: now}
	}
	return change, nil
}

// Finish ends a run with a result. The change includes everything that follows from
// it. It returns ErrStale if the run does not belong to holder any more.
func (g Graph) Finish(run Run, holder string, result Result, retries Retries, now boxoffice.Timestamp) (Change, error) {
	node, running := g.running(run)
	if !running || node.Holder != holder {
		return Change{}, ErrStale
	}
	return g.finish(node, result, retries, now), nil
}

// Expire ends a run that its holder did not renew, and queues the node again, or fails
// it if it has lost too many workers. It returns ErrStale if the run has ended or was
// renewed.
func (g Graph) Expire(run Run, now boxoffice.Timestamp) (Change, error) {
	node, running := g.running(run)
	if !running || *node.HeldUntil >= now {
		return Change{}, ErrStale
	}
	return g.finish(node, Result{Outcome: WorkerLost}, Retries{}, now), nil
}

// running returns the node of a run, and whether it still carries out that attempt.
func (g Graph) running(run Run) (Node, bool) {
	if run.Position >= len(g.Nodes) {
		return Node{}, false
	}
	node := g.Nodes[run.Position]
	return node, node.State == boxoffice.NodeRunning && node.Attempts == run.Attempt
}

// maxWorkersLost is how many lost workers fail a node. A lost worker is not counted as
// a failure of the agent, because a machine may have gone down. But a node whose agent
// brings down its worker every time, for example by its use of memory, has to end.
const maxWorkersLost = 5

// finish decides what a result means for a node, and for the work.
func (g Graph) finish(node Node, result Result, retries Retries, now boxoffice.Timestamp) Change {
	ended := node
	ended.Holder, ended.HeldUntil, ended.EndedAt = "", nil, &now
	ended.Summary, ended.Choice, ended.Reason = result.Summary, result.Choice, result.Reason
	outcome := result.Outcome
	switch {
	case outcome == Blocked && node.Kind == NodeMember, // it takes no input: it is replaced
		outcome == Retry && node.Kind == NodeMember && !result.OurFault, // it is replaced
		outcome == Retry && node.Failures+1 >= retries.MaxFailures:
		outcome = Failed
	case outcome == WorkerLost && node.WorkersLost+1 >= maxWorkersLost:
		outcome, ended.Reason = Failed, fmt.Sprintf("its worker was lost %d times", maxWorkersLost)
	case outcome == WorkerLost:
		ended.Reason = "its worker was lost"
	}
	due := now
	switch outcome {
	case Done:
		ended.State = boxoffice.NodeDone
	case Blocked, Failed:
		ended.State = boxoffice.NodeFailed
		if outcome == Blocked {
			ended.State = boxoffice.NodeBlocked
		}
		if g.hasInputFor(node) { // perhaps the one that it needs
			ended = ended.queued(now)
		}
	case Retry:
		wait := max(result.RetryAfter, retries.after(node.Failures))
		due += boxoffice.Timestamp(wait.Milliseconds())
		ended.State, ended.Failures = boxoffice.NodeQueued, node.Failures+1
	case WorkerStopped:
		ended.State = boxoffice.NodeQueued
	case WorkerLost:
		ended.State, ended.WorkersLost = boxoffice.NodeQueued, node.WorkersLost+1
	}
	if ended.State == boxoffice.NodeQueued {
		ended.DueAt = &due
	}
	first := NodeChange{From: node, To: ended, Log: &result.Log}
	// If a worker stopped or was lost, the next run repeats the same task, and uses a
	// result that the agent of the earlier run still reports.
	first.TaskEnded = outcome != WorkerStopped && outcome != WorkerLost
	return g.advance(first, result.Delivery, now)
}

// RunEnded says that the agent of a cancelled run of holder has ended: from now on
// other runs of the job may use the workspace. It changes nothing if no cancelled run
// of holder is marked.
func (g Graph) RunEnded(run Run, holder string) (Change, error) {
	if run.Position >= len(g.Nodes) || g.Nodes[run.Position].EndingHolder != holder {
		return Change{}, nil
	}
	node := g.Nodes[run.Position]
	ended := node
	ended.EndingHolder, ended.EndingUntil = "", nil
	return Change{Nodes: []NodeChange{{From: node, To: ended}}}, nil
}

// GiveInput gives a job an input that its requester paid for, and queues again its
// nodes that are blocked or have failed. It returns ErrEnded if the job is
// completed.
func (g Graph) GiveInput(input Input) (Change, error) {
	if g.State == boxoffice.JobCompleted {
		return Change{}, ErrEnded
	}
	change := Change{Input: &input}
	for _, node := range g.Nodes {
		if node.State == boxoffice.NodeBlocked || node.State == boxoffice.NodeFailed {
			change.Nodes = append(change.Nodes, NodeChange{From: node, To: node.queued(input.At)})
		}
	}
	if g.State == boxoffice.JobBlocked {
		change.Record = &RecordChange{From: g.State, To: boxoffice.JobQueued, UpdatedAt: input.At}
	}
	return change, nil
}

// CancelledReason is the reason of a node that an operator cancelled.
const CancelledReason = "cancelled by the operator"

// Cancel ends everything that is queued or runs for a job or an oracle. Work
// that is blocked stays as it is. It returns ErrEnded for work that is completed.
func (g Graph) Cancel(now boxoffice.Timestamp) (change Change, err error) {
	switch g.State {
	case boxoffice.JobCompleted:
		return Change{}, ErrEnded
	case boxoffice.JobBlocked:
		return Change{}, nil
	}
	nodes := slices.Clone(g.Nodes)
	for i, node := range nodes {
		if node.State != boxoffice.NodeQueued && node.State != boxoffice.NodeRunning {
			continue
		}
		if node.State == boxoffice.NodeRunning {
			nodes[i].EndingHolder, nodes[i].EndingUntil = node.Holder, node.HeldUntil
		}
		nodes[i].State, nodes[i].Reason, nodes[i].EndedAt = boxoffice.NodeFailed, CancelledReason, &now
		nodes[i].Holder, nodes[i].HeldUntil, nodes[i].DueAt = "", nil, nil
		change.Nodes = append(change.Nodes, NodeChange{From: node, To: nodes[i], TaskEnded: true})
	}
	reason := CancelledReason
	if g.Kind == KindJob {
		reason = blockedReason(nodes)
	}
	change.Record = &RecordChange{From: g.State, To: boxoffice.JobBlocked, BlockedReason: &reason, UpdatedAt: now}
	return change, nil
}
