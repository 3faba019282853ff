package work

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"boxoffice"

	"pgregory.net/rapid"
)

const (
	now    = boxoffice.Timestamp(1_780_000_000_000)
	second = boxoffice.Timestamp(1000)
	worker = "worker 1"
)

var retries = Retries{MaxFailures: 3, Backoff: 5 * time.Second}

// chain returns a job of the steps a and b, b after a, and its delivery, in the
// given states.
func chain(states ...boxoffice.NodeState) Graph {
	job := Job{Job: boxoffice.Job{ID: "job", CreatedAt: now}, Brief: Brief{Nodes: []boxoffice.WorkflowNode{
		{ID: "a", Objective: "first", Template: "research"},
		{ID: "b", Objective: "second", Template: "audit", After: []string{"a"}},
	}}}
	graph := Graph{Kind: KindJob, ID: job.ID, State: boxoffice.JobRunning, Nodes: nodesOf(job)}
	for i, state := range states {
		graph.Nodes[i] = in(graph.Nodes[i], state)
	}
	return graph
}

// panel returns an oracle whose first members have the given states.
func panel(size int, states ...boxoffice.NodeState) Graph {
	graph := Graph{Kind: KindOracle, ID: "oracle", State: boxoffice.JobRunning, PanelSize: size}
	for i := range max(size, len(states)) {
		member := NewMember(graph.ID, i, now)
		if i < len(states) {
			member = in(member, states[i])
		}
		member.Choice = "yes"
		graph.Nodes = append(graph.Nodes, member)
	}
	return graph
}

// in returns a node as it is in a state.
func in(node Node, state boxoffice.NodeState) Node {
	node.State, node.DueAt, node.Holder, node.HeldUntil = state, nil, "", nil
	switch state {
	case boxoffice.NodeQueued:
		due := now
		node.DueAt = &due
	case boxoffice.NodeRunning:
		until := now + 30*second
		node.Holder, node.HeldUntil, node.Attempts = worker, &until, 1
	case boxoffice.NodeBlocked, boxoffice.NodeFailed:
		node.Reason = "because"
	}
	return node
}

// written returns the graph after a change.
func written(graph Graph, change Change) Graph {
	graph.Nodes = slices.Clone(graph.Nodes)
	for _, node := range change.Nodes {
		graph.Nodes[node.To.Position] = node.To
	}
	graph.Nodes = append(graph.Nodes, change.Members...)
	if change.Record != nil {
		graph.State = change.Record.To
	}
	if change.Input != nil {
		graph.Inputs++
	}
	return graph
}

func statesOf(graph Graph) (states []boxoffice.NodeState) {
	for _, node := range graph.Nodes {
		states = append(states, node.State)
	}
	return states
}

// Short names for the table.
const (
	waiting = boxoffice.NodeWaiting
	queued  = boxoffice.NodeQueued
	running = boxoffice.NodeRunning
	blocked = boxoffice.NodeBlocked
	done    = boxoffice.NodeDone
	failed  = boxoffice.NodeFailed
)

type states = []boxoffice.NodeState

// finishing returns the change that finishes the first running node.
func finishing(result Result, prepare ...func(*Node)) func(Graph) (Change, error) {
	return func(graph Graph) (Change, error) {
		i := slices.IndexFunc(graph.Nodes, func(node Node) bool { return node.State == running })
		for _, apply := range prepare {
			apply(&graph.Nodes[i])
		}
		return graph.Finish(Run{graph.ID, i, graph.Nodes[i].Attempts}, worker, result, retries, now)
	}
}

func starting(position int) func(Graph) (Change, error) {
	return func(graph Graph) (Change, error) { return graph.Start(position, worker, now+30*second, now) }
}

func expiring(at boxoffice.Timestamp, prepare ...func(*Node)) func(Graph) (Change, error) {
	return func(graph Graph) (Change, error) {
		for _, apply := range prepare {
			apply(&graph.Nodes[0])
		}
		return graph.Expire(Run{graph.ID, 0, graph.Nodes[0].Attempts}, at)
	}
}

func givingInput(graph Graph) (Change, error) {
	return graph.GiveInput(Input{OrderID: "o", Text: "t", At: now})
}

func cancelling(graph Graph) (Change, error) { return graph.Cancel(now) }

// with returns a graph in another state and with more inputs.
func with(graph Graph, state boxoffice.JobState, inputs int) Graph {
	graph.State, graph.Inputs = state, inputs
	return graph
}

// TestNodes has one case for each row of the table of nodes in docs/states.md,
// and for each condition in it.
func TestNodes(t *testing.T) {
	const (
		jobQueued, jobRunning      = boxoffice.JobQueued, boxoffice.JobRunning
		jobBlocked, jobCompleted   = boxoffice.JobBlocked, boxoffice.JobCompleted
		analysisFailed, needsInput = "analysis failed at node a: because", "node a needs input: because"
	)
	failures := func(n int) func(*Node) { return func(node *Node) { node.Failures = n } }
	lost := func(n int) func(*Node) { return func(node *Node) { node.WorkersLost = n } }
	for name, test := range map[string]struct {
		graph  Graph
		do     func(Graph) (Change, error)
		nodes  states
		state  boxoffice.JobState
		reason string // of a job that is blocked
		due    int    // seconds until the first queued node may start
	}{
		"opened": {with(chain(), jobQueued, 0), func(Graph) (Change, error) { return Change{}, nil },
			states{queued, waiting, waiting}, jobQueued, "", 0},

		"waiting to queued: the node before is done": {chain(running, waiting, waiting),
			finishing(Result{Outcome: Done}),
			states{done, queued, waiting}, jobRunning, "", 0},
		"waiting to queued: the delivery": {chain(done, running, waiting), finishing(Result{Outcome: Done}),
			states{done, done, queued}, jobRunning, "", 0},

		"queued to running": {with(chain(queued), jobQueued, 0), starting(0),
			states{running, waiting, waiting}, jobRunning, "", 0},
		"queued to running: later": {chain(done, queued), starting(1),
			states{done, running, waiting}, jobRunning, "", 0},
		"running to done: the delivery": {chain(done, done, running),
			finishing(Result{Outcome: Done, Delivery: &boxoffice.Delivery{}}),
			states{done, done, done}, jobCompleted, "", 0},
		"running to blocked": {chain(running), finishing(Result{Outcome: Blocked, Reason: "because"}),
			states{blocked, waiting, waiting}, jobBlocked, needsInput, 0},
		"running to queued: blocked": {with(chain(running), jobRunning, 1), finishing(Result{Outcome: Blocked}),
			states{queued, waiting, waiting}, jobRunning, "", 0},
		"running to queued: failed": {with(chain(running), jobRunning, 1), finishing(Result{Outcome: Failed}),
			states{queued, waiting, waiting}, jobRunning, "", 0},
		"running to queued: retry": {chain(running), finishing(Result{Outcome: Retry}),
			states{queued, waiting, waiting}, jobRunning, "", 5},
		"running to queued: 2nd retry": {chain(running), finishing(Result{Outcome: Retry}, failures(1)),
			states{queued, waiting, waiting}, jobRunning, "", 10},
		"running to queued: retry later": {chain(running), finishing(Result{Outcome: Retry, RetryAfter: time.Minute}),
			states{queued, waiting, waiting}, jobRunning, "", 60},
		"running to queued: stopped": {chain(running), finishing(Result{Outcome: WorkerStopped}, failures(2), lost(4)),
			states{queued, waiting, waiting}, jobRunning, "", 0},
		"running to queued: expired": {chain(running), expiring(now+30*second+1, failures(2), lost(3)),
			states{queued, waiting, waiting}, jobRunning, "", 30},
		"running to failed: 5 lost": {chain(running), expiring(now+30*second+1, lost(4)),
			states{failed, waiting, waiting}, jobBlocked, "analysis failed at node a: its worker was lost 5 times", 0},
		"running to failed: failures": {chain(running),
			finishing(Result{Outcome: Retry, Reason: "because"}, failures(2)),
			states{failed, waiting, waiting}, jobBlocked, analysisFailed, 0},
		"running to failed: for good": {chain(running), finishing(Result{Outcome: Failed, Reason: "because"}),
			states{failed, waiting, waiting}, jobBlocked, analysisFailed, 0},
		"running to failed: the delivery": {chain(done, done, running),
			finishing(Result{Outcome: Failed, Reason: "because"}),
			states{done, done, failed}, jobBlocked, "delivery failed: because", 0},
		"running to failed: cancelled": {chain(running), cancelling,
			states{failed, waiting, waiting}, jobBlocked, "analysis failed at node a: cancelled by the operator", 0},
		"queued to failed: cancelled": {with(chain(queued), jobQueued, 0), cancelling,
			states{failed, waiting, waiting}, jobBlocked, "analysis failed at node a: cancelled by the operator", 0},

		"running to waiting: the delivery is done": {with(chain(done, done, running), jobRunning, 1),
			finishing(Result{Outcome: Done}),
			states{done, queued, waiting}, jobRunning, "", 0},
		"running to waiting: the delivery failed": {with(chain(done, done, running), jobRunning, 1),
			finishing(Result{Outcome: Failed}),
			states{done, queued, waiting}, jobRunning, "", 0},
		"running to queued: done before a new input": {with(chain(done, running), jobRunning, 1),
			finishing(Result{Outcome: Done}),
			states{done, queued, waiting}, jobRunning, "", 0},

		"blocked to queued": {with(chain(blocked), jobBlocked, 0), givingInput,
			states{queued, waiting, waiting}, jobQueued, "", 0},
		"failed to queued": {with(chain(failed), jobBlocked, 0), givingInput,
			states{queued, waiting, waiting}, jobQueued, "", 0},
		"failed to queued: the delivery": {with(chain(done, done, failed), jobBlocked, 0), givingInput,
			states{done, done, queued}, jobQueued, "", 0},
		"input while running": {chain(running), givingInput,
			states{running, waiting, waiting}, jobRunning, "", 0},
		"cancelled while blocked: nothing": {with(chain(failed), jobBlocked, 0), cancelling,
			states{failed, waiting, waiting}, jobBlocked, "", 0},
		"a member that failed is replaced": {panel(5, running), finishing(Result{Outcome: Failed}),
			states{failed, queued, queued, queued, queued, queued}, jobRunning, "", 0},
		"a member that could retry is replaced": {panel(5, running), finishing(Result{Outcome: Retry}),
			states{failed, queued, queued, queued, queued, queued}, jobRunning, "", 0},
		"a member that is blocked is replaced": {panel(5, running), finishing(Result{Outcome: Blocked}),
			states{failed, queued, queued, queued, queued, queued}, jobRunning, "", 0},
		"a member that we failed is tried again": {panel(5, running), finishing(Result{Outcome: Retry, OurFault: true}),
			states{queued, queued, queued, queued, queued}, jobRunning, "", 5},
		"the last member": {panel(5, done, done, done, done, running), finishing(Result{Outcome: Done, Choice: "yes"}),
			states{done, done, done, done, done}, jobCompleted, "", 0},
		"too many members were replaced": {panel(5, failed, failed, done, done, done, done, running),
			finishing(Result{Outcome: Failed}),
			states{failed, failed, done, done, done, done, failed}, jobBlocked,
			"the panel could not be reached: 4 of 5 members answered, and no more than 2 may be replaced", 0},
		"a panel that is cancelled": {panel(5, done, running), cancelling,
			states{done, failed, failed, failed, failed}, jobBlocked, CancelledReason, 0},
	} {
		t.Run(name, func(t *testing.T) {
			change, err := test.do(test.graph)
			if err != nil {
				t.Fatal(err)
			}
			after := written(test.graph, change)
			if got := statesOf(after); !slices.Equal(got, test.nodes) || after.State != test.state {
				t.Errorf("%s with nodes %v, want %s with %v", after.State, got, test.state, test.nodes)
			}
			if change.Record != nil {
				if got := *cmp.Or(change.Record.BlockedReason, new("")); got != test.reason {
					t.Errorf("blocked: %q, want %q", got, test.reason)
				}
			}
			consistent(t, after)
			for _, node := range after.Nodes {
				if node.State == queued {
					if want := now + boxoffice.Timestamp(test.due)*second; *node.DueAt < want || *node.DueAt > want+1 {
						t.Errorf("node %d is due in %dms, want %ds", node.Position, *node.DueAt-now, test.due)
					}
					break
				}
			}
		})
	}
}

// consistent checks what the schema demands of rows.
func consistent(t interface {
	Helper()
	Errorf(string, ...any)
}, graph Graph) {
	t.Helper()
	for _, node := range graph.Nodes {
		if (node.State == queued) != (node.DueAt != nil) || (node.State == running) != (node.Holder != "") ||
			(node.State == running) != (node.HeldUntil != nil) ||
			(node.EndingHolder != "") != (node.EndingUntil != nil) {
			t.Errorf("node %+v", node)
		}
	}
}

// Counts begin anew with an input; lost workers and failures are counted apart.
func TestCounts(t *testing.T) {
	graph := chain(running)
	step := func(name string, failures, workersLost int, do func(Graph) (Change, error)) {
		t.Helper()
		change, err := do(graph)
		if err != nil {
			t.Fatal(err)
		}
		graph = written(graph, change)
		if node := graph.Nodes[0]; node.Failures != failures || node.WorkersLost != workersLost {
			t.Errorf("%s: %d failures and %d lost workers", name, node.Failures, node.WorkersLost)
		}
		if graph.Nodes[0].State == queued {
			graph.Nodes[0] = in(graph.Nodes[0], running)
		}
	}
	step("retry", 1, 0, finishing(Result{Outcome: Retry}))
	step("lost", 1, 1, expiring(now+31*second))
	step("stopped", 1, 1, finishing(Result{Outcome: WorkerStopped}))
	step("blocked", 1, 1, finishing(Result{Outcome: Blocked, Reason: "what?"}))
	step("input", 0, 0, givingInput)
}

func TestRefusals(t *testing.T) {
	until := now
	ending := chain(failed)
	ending.Nodes[0].EndingHolder, ending.Nodes[0].EndingUntil = worker, &until
	resumed := written(ending, Change{Nodes: []NodeChange{{To: ending.Nodes[0].queued(now)}}})
	finish := func(run Run, holder string) func(Graph) (Change, error) {
		return func(graph Graph) (Change, error) {
			return graph.Finish(run, holder, Result{Outcome: Done}, retries, now)
		}
	}
	for name, test := range map[string]struct {
		graph Graph
		do    func(Graph) (Change, error)
		want  error
	}{
		"start what waits": {chain(running, waiting), starting(1), ErrStale},
		"start what runs":  {chain(running), starting(0), ErrStale},
		"start before it is due": {chain(queued),
			func(g Graph) (Change, error) { return g.Start(0, worker, now, now-1) }, ErrStale},
		"start while a cancelled run ends": {resumed, starting(0), ErrEnding},
		"start when a cancelled run is over": {resumed,
			func(g Graph) (Change, error) { return g.Start(0, worker, now+2, now+1) }, nil},
		"finish another's run":            {chain(running), finish(Run{"job", 0, 1}, "worker 2"), ErrStale},
		"finish an earlier run":           {chain(running), finish(Run{"job", 0, 0}, worker), ErrStale},
		"finish a run that was cancelled": {chain(failed), finish(Run{"job", 0, 0}, worker), ErrStale},
		"finish a node that is not there": {chain(running), finish(Run{"job", 9, 1}, worker), ErrStale},
		"expire a run that was renewed":   {chain(running), expiring(now + 30*second), ErrStale},
		"expire a run that has ended":     {chain(queued), expiring(now + 31*second), ErrStale},
		"give an input to what is completed": {with(chain(done, done, done), boxoffice.JobCompleted, 0), givingInput,
			ErrEnded},
		"cancel what is completed": {with(chain(done, done, done), boxoffice.JobCompleted, 0), cancelling,
			ErrEnded},
		"end a cancelled run": {ending,
			func(g Graph) (Change, error) { return g.RunEnded(Run{"job", 0, 1}, worker) }, nil},
		"end a cancelled run of another": {ending,
			func(g Graph) (Change, error) { return g.RunEnded(Run{"job", 0, 1}, "worker 2") }, nil},
		"end a cancelled run that nobody held": {chain(failed),
			func(g Graph) (Change, error) { return g.RunEnded(Run{"job", 9, 1}, worker) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := test.do(test.graph); !errors.Is(err, test.want) {
				t.Errorf("error %v, want %v", err, test.want)
			}
		})
	}
	change, err := ending.RunEnded(Run{"job", 0, 1}, worker)
	if err != nil || change.Node(0).EndingHolder != "" {
		t.Errorf("%+v, %v", change, err)
	}
}

// A node that runs again shows when this run started, and no end yet.
func TestStartAgain(t *testing.T) {
	earlier, graph := now-second, chain(queued)
	graph.Nodes[0].Attempts, graph.Nodes[0].StartedAt, graph.Nodes[0].EndedAt = 1, &earlier, &earlier
	change, err := starting(0)(graph)
	if err != nil {
		t.Fatal(err)
	}
	if node := change.Node(0); node.Attempts != 2 || *node.StartedAt != now || node.EndedAt != nil {
		t.Errorf("%+v", node)
	}
}

// The task of a run is over unless its worker stopped or was lost: the next run
// repeats the same task.
func TestTaskEnded(t *testing.T) {
	for outcome, want := range map[Outcome]bool{
		Done: true, Retry: true, Blocked: true, Failed: true, WorkerStopped: false, WorkerLost: false,
	} {
		change, err := finishing(Result{Outcome: outcome})(chain(running))
		if err != nil || change.Nodes[0].TaskEnded != want {
			t.Errorf("%s: task ended %t, %v", outcome, change.Nodes[0].TaskEnded, err)
		}
	}
}

var allowed = map[[2]boxoffice.NodeState]bool{
	{waiting, queued}: true, {queued, running}: true, {queued, failed}: true,
	{running, done}: true, {running, blocked}: true, {running, failed}: true, {running, queued}: true,
	{running, waiting}: true,
	{blocked, queued}:  true, {failed, queued}: true, {done, queued}: true,
}

// Whatever happens to each run, and whenever inputs and cancellations come: rows
// stay consistent, nodes change only as docs/states.md says, no node runs before
// those that it waits for are done, and a job that is left to itself is completed
// with every node done and every input given, or blocked by a node that says why.
func TestJobsEnd(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		job := Job{Job: boxoffice.Job{ID: "job", CreatedAt: now}}
		ids := []string{"a", "b", "c", "d", "e"}[:rapid.IntRange(1, 5).Draw(rt, "nodes")]
		for i, id := range ids {
			node := boxoffice.WorkflowNode{ID: id, Objective: "o", Template: "research"}
			for _, before := range ids[:i] {
				if rapid.Bool().Draw(rt, before+" before "+id) {
					node.After = append(node.After, before)
				}
			}
			job.Brief.Nodes = append(job.Brief.Nodes, node)
		}
		graph := Graph{Kind: KindJob, ID: job.ID, State: boxoffice.JobQueued, Nodes: nodesOf(job)}
		at := now
		apply := func(name string, change Change, err error) {
			if err != nil {
				rt.Fatalf("%s: %v", name, err)
			}
			for _, node := range change.Nodes {
				if from, to := node.From.State, node.To.State; from != to &&
					!allowed[[2]boxoffice.NodeState{from, to}] {
					rt.Fatalf("%s: node %s goes from %s to %s", name, node.To.ID, from, to)
				}
			}
			graph = written(graph, change)
			consistent(rt, graph)
		}
		for calls := 0; ; calls++ {
			at += 3600 * second
			var ready, busy []int
			for i, node := range graph.Nodes {
				switch node.State {
				case queued:
					ready = append(ready, i)
				case running:
					busy = append(busy, i)
				}
			}
			if len(ready)+len(busy) == 0 && (calls > 40 || graph.State == boxoffice.JobCompleted) {
				break
			}
			action := rapid.IntRange(0, 9).Draw(rt, "action")
			switch {
			case action == 0 && calls <= 40 && graph.State != boxoffice.JobCompleted:
				change, err := graph.GiveInput(Input{At: at})
				apply("input", change, err)
			case action == 1 && calls <= 40 && graph.State != boxoffice.JobCompleted:
				change, err := graph.Cancel(at)
				apply("cancel", change, err)
			case len(ready) > 0 && (action < 6 || len(busy) == 0):
				i := rapid.SampledFrom(ready).Draw(rt, "starts")
				for _, before := range graph.Predecessors(i) {
					if before.State != done {
						rt.Fatalf("%s starts while %s is %s", graph.Nodes[i].ID, before.ID, before.State)
					}
				}
				change, err := graph.Start(i, worker, at+30*second, at)
				apply("start", change, err)
			case len(busy) > 0:
				i := rapid.SampledFrom(busy).Draw(rt, "ends")
				run := Run{graph.ID, i, graph.Nodes[i].Attempts}
				outcomes := []Outcome{Done, Done, Done, Retry, Blocked, Failed, WorkerStopped, WorkerLost}
				if calls > 200 {
					outcomes = outcomes[:1]
				}
				outcome := rapid.SampledFrom(outcomes).Draw(rt, "outcome")
				change, err := graph.Finish(run, worker, Result{Outcome: outcome, Reason: "r"}, retries, at)
				if outcome == WorkerLost {
					change, err = graph.Expire(run, at)
				}
				apply(fmt.Sprint("finish ", outcome), change, err)
			}
		}
		switch graph.State {
		case boxoffice.JobCompleted:
			given := 0
			for _, node := range graph.Nodes {
				given = max(given, node.InputsGiven)
				if node.State != done {
					rt.Fatalf("completed while %s is %s", node.ID, node.State)
				}
			}
			if given != graph.Inputs {
				rt.Fatalf("completed with %d of %d inputs given", given, graph.Inputs)
			}
		case boxoffice.JobBlocked:
			if blockedReason(graph.Nodes) == "no node can run" {
				rt.Fatalf("blocked by nothing: %+v", graph.Nodes)
			}
		default:
			rt.Fatalf("nothing is queued or runs, and the job is %s", graph.State)
		}
	})
}
