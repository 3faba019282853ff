package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/work"
	"boxoffice/internal/work/agent"
)

func TestJob(t *testing.T) {
	p := newPlace(t)
	id := p.openJob("look")
	p.run(agentFunc(func(_ context.Context, task agent.Task) (agent.Result, error) {
		if task.Job != id || task.Node != "main" || task.Template != "research" || task.Objective != "look" {
			t.Errorf("task %+v", task)
		}
		return done("seen")
	}))
	job := p.untilJob(id, boxoffice.JobCompleted)
	if job.Delivery == nil || job.Delivery.Commit != fmt.Sprintf("%040x", 1) {
		t.Errorf("delivery %+v", job.Delivery)
	}
	if node := job.Nodes[0]; len(job.Nodes) != 1 || node.State != boxoffice.NodeDone || node.Summary != "seen" ||
		node.Attempts != 1 {
		t.Errorf("nodes %+v", job.Nodes)
	}
}

func step(id string, after ...string) boxoffice.WorkflowNode {
	return boxoffice.WorkflowNode{ID: id, Objective: "do " + id, Template: "audit", After: after}
}

// A node runs when the nodes before it are done, and its agent gets their results.
// Nodes that do not wait for each other run at the same time.
func TestGraph(t *testing.T) {
	p := newPlace(t)
	opened := p.openWorkflow("dag", step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c"))
	var both sync.WaitGroup
	both.Add(2)
	p.run(agentFunc(func(_ context.Context, task agent.Task) (agent.Result, error) {
		if task.Node == "b" || task.Node == "c" {
			both.Done()
			both.Wait()
		}
		var told []string
		for _, before := range task.Predecessors {
			told = append(told, before.Summary)
		}
		return done(task.Node + "(" + strings.Join(told, ",") + ")")
	}))
	job := p.untilJob(opened.JobID, boxoffice.JobCompleted)
	if got := job.Nodes[3].Summary; got != "d(b(a()),c(a()))" {
		t.Errorf("the last node came to %s", got)
	}
	workflow, err := p.store.Workflow(t.Context(), p.owner, opened.ID)
	if err != nil || workflow.State != boxoffice.JobCompleted || workflow.Nodes[1].State != boxoffice.NodeDone ||
		workflow.Nodes[1].Summary != "b(a())" {
		t.Errorf("workflow %+v, %v", workflow, err)
	}
}

func TestConcurrencyLimit(t *testing.T) {
	p := newPlace(t)
	var jobs []boxoffice.UUID
	for range 8 {
		jobs = append(jobs, p.openJob("look"))
	}
	var running, most atomic.Int64
	p.run(agentFunc(func(context.Context, agent.Task) (agent.Result, error) {
		for n, old := running.Add(1), most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		defer running.Add(-1)
		return done("x")
	}), func(c *config) { c.Concurrency = 2 })
	for _, id := range jobs {
		p.untilJob(id, boxoffice.JobCompleted)
	}
	if most.Load() > 2 {
		t.Errorf("%d ran at once", most.Load())
	}
}

// A blocked node names what it needs. The paid input resumes that node and no other.
func TestBlockedAndContinued(t *testing.T) {
	p := newPlace(t)
	opened := p.openWorkflow("chain", step("plan"), step("build", "plan"))
	var plans atomic.Int64
	p.run(agentFunc(func(_ context.Context, task agent.Task) (agent.Result, error) {
		switch {
		case task.Node == "plan":
			plans.Add(1)
			return done("planned")
		case len(task.Inputs) == 0:
			return agent.Result{Outcome: agent.Blocked, Reason: "which chain?"}, nil
		}
		return done("built on " + strings.Join(task.Inputs, "+"))
	}))
	job := p.untilJob(opened.JobID, boxoffice.JobBlocked)
	if want := "node build needs input: which chain?"; *job.BlockedReason != want {
		t.Errorf("blocked: %q, want %q", *job.BlockedReason, want)
	}
	if resumed := p.carryOn(job.ID, "Base"); resumed.ID != job.ID {
		t.Errorf("%s was opened", resumed.ID)
	}
	job = p.untilJob(job.ID, boxoffice.JobCompleted)
	if job.Nodes[1].Summary != "built on Base" || plans.Load() != 1 {
		t.Errorf("%+v after %d plans", job.Nodes, plans.Load())
	}
	next := p.carryOn(job.ID, "More")
	version := p.untilJob(next.ID, boxoffice.JobCompleted)
	if version.Project == nil || version.Project.Version != 2 || version.Project.Of != 2 ||
		version.Nodes[1].Summary != "built on More" {
		t.Errorf("the next version %+v", version)
	}
}

// If an input is paid for while the node runs, the node runs again with it.
func TestInputWhileRunning(t *testing.T) {
	p := newPlace(t)
	id := p.openJob("look")
	started, goOn := make(chan struct{}, 8), make(chan struct{})
	p.run(agentFunc(func(_ context.Context, task agent.Task) (agent.Result, error) {
		started <- struct{}{}
		<-goOn
		return done(fmt.Sprint(task.Inputs))
	}))
	<-started
	p.carryOn(id, "and there")
	close(goOn)
	job := p.untilJob(id, boxoffice.JobCompleted)
	if node := job.Nodes[0]; node.Summary != "[and there]" || node.Attempts != 2 {
		t.Errorf("%+v", node)
	}
}

// If an input is paid for while a run fails for good, the node runs again with it.
// If that run was the delivery, the last step runs again.
func TestInputWhileFailing(t *testing.T) {
	for name, failing := range map[string]string{"a node": "main", "the delivery": "delivery"} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			id := p.openJob("look")
			started, goOn := make(chan struct{}, 1), make(chan struct{})
			fail := func(node string, told int64) bool {
				if node != failing || told > 0 {
					return false
				}
				started <- struct{}{}
				<-goOn
				return true
			}
			var told atomic.Int64
			p.run(agentFunc(func(_ context.Context, task agent.Task) (agent.Result, error) {
				told.Store(int64(len(task.Inputs)))
				if fail("main", told.Load()) {
					return agent.Result{}, &agent.Failure{Kind: agent.Exited, Code: 64}
				}
				return done(fmt.Sprint(task.Inputs))
			}), func(c *config) {
				c.MaxFailures = 1
				c.Deliverer = failingDeliverer{new(fakeDeliverer), func() bool { return fail("delivery", told.Load()) }}
			})
			<-started
			p.carryOn(id, "and there")
			close(goOn)
			if node := p.untilJob(id, boxoffice.JobCompleted).Nodes[0]; node.Summary != "[and there]" ||
				node.Attempts != 2 {
				t.Errorf("%+v", node)
			}
		})
	}
}

// failingDeliverer fails to deliver while broken returns true.
type failingDeliverer struct {
	*fakeDeliverer
	broken func() bool
}

func (b failingDeliverer) Deliver(ctx context.Context, job work.Job, workspace string) (boxoffice.Delivery, error) {
	if b.broken() {
		return boxoffice.Delivery{}, errors.New("broken")
	}
	return b.fakeDeliverer.Deliver(ctx, job, workspace)
}

func TestRetries(t *testing.T) {
	failure := &agent.Failure{Kind: agent.Exited, Code: 3, Detail: "the operator's secret", Retryable: true}
	for name, test := range map[string]struct {
		fails, attempts int
		final           bool
		want            boxoffice.JobState
	}{
		"twice":      {fails: 2, attempts: 3, want: boxoffice.JobCompleted},
		"too often":  {fails: 99, attempts: 3, want: boxoffice.JobBlocked},
		"hopelessly": {fails: 99, attempts: 1, final: true, want: boxoffice.JobBlocked},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			id := p.openJob("look")
			var runs atomic.Int64
			p.run(agentFunc(func(_ context.Context, task agent.Task) (agent.Result, error) {
				if n := runs.Add(1); int(n) <= test.fails && len(task.Inputs) == 0 {
					failed := *failure
					failed.Retryable = !test.final
					return agent.Result{}, &failed
				}
				return done("at last")
			}))
			job := p.untilJob(id, test.want)
			if job.Nodes[0].Attempts != test.attempts {
				t.Errorf("%d attempts, want %d", job.Nodes[0].Attempts, test.attempts)
			}
			if test.want == boxoffice.JobBlocked {
				if want := "analysis failed at node main: the agent ended with exit code 3"; *job.BlockedReason != want {
					t.Errorf("blocked: %q", *job.BlockedReason)
				}
				p.carryOn(id, "try again")
				p.untilJob(id, boxoffice.JobCompleted)
			}
		})
	}
}

// A workspace is removed when its job was delivered, also if the worker died right
// before it. The workspace of a delivery that failed is kept for a week, and that
// of a job that is not over stays.
func TestWorkspacesAreDiscarded(t *testing.T) {
	p := newPlace(t)
	folders := new(fakeDeliverer)
	with := func(c *config) { c.Deliverer = folders }
	stop := p.run(agentFunc(func(_ context.Context, task agent.Task) (agent.Result, error) {
		if task.Objective == "ask" && len(task.Inputs) == 0 {
			return agent.Result{Outcome: agent.Blocked, Reason: "what?"}, nil
		}
		return done("x")
	}), with)
	delivered, blocked := p.openJob("look"), p.openJob("ask")
	p.untilJob(delivered, boxoffice.JobCompleted)
	folders.untilGone(p, delivered)
	p.untilJob(blocked, boxoffice.JobBlocked)
	stop()

	if _, err := folders.Workspace(t.Context(), work.Job{Job: boxoffice.Job{ID: delivered}}); err != nil {
		t.Fatal(err) // as a worker leaves it that dies before it removes it
	}
	stop = p.run(agentFunc(nil), with)
	folders.untilGone(p, delivered)
	stop()
	if left, err := folders.Workspaces(); err != nil || !slices.Equal(left, []boxoffice.UUID{blocked}) {
		t.Errorf("workspaces of %v, %v; want that of %s", left, err, blocked)
	}

	stop = p.run(agentFunc(func(context.Context, agent.Task) (agent.Result, error) { return done("x") }),
		func(c *config) { c.Deliverer = refusingDeliverer{folders} })
	p.carryOn(blocked, "this")
	p.untilJob(blocked, boxoffice.JobCompleted)
	stop() // waits for the worker of the delivery
	if left, err := folders.Workspaces(); err != nil || len(left) != 1 {
		t.Errorf("workspaces of %v, %v", left, err)
	}
	p.advance(8 * 24 * time.Hour)
	p.run(agentFunc(nil), with)
	folders.untilGone(p, blocked)
}

// refusingDeliverer delivers nothing: the requester's host refused the push.
type refusingDeliverer struct{ *fakeDeliverer }

func (refusingDeliverer) Deliver(context.Context, work.Job, string) (boxoffice.Delivery, error) {
	return boxoffice.Delivery{Failure: "refused"}, nil
}

// An agent is told how often it has failed.
func TestFailures(t *testing.T) {
	p := newPlace(t)
	id := p.openJob("look")
	p.run(agentFunc(func(_ context.Context, task agent.Task) (agent.Result, error) {
		if task.Failures < 2 {
			return agent.Result{}, &agent.Failure{Kind: agent.BadResult, Retryable: true}
		}
		return done(fmt.Sprint("failures ", task.Failures))
	}))
	if node := p.untilJob(id, boxoffice.JobCompleted).Nodes[0]; node.Summary != "failures 2" {
		t.Errorf("%+v", node)
	}
}

// A cancellation ends an agent that runs within seconds, and the agent's result
// does not count. An input resumes the job.
func TestCancel(t *testing.T) {
	p := newPlace(t)
	id := p.openJob("look")
	started, ended := make(chan struct{}), make(chan error, 1)
	p.run(agentFunc(func(ctx context.Context, task agent.Task) (agent.Result, error) {
		if len(task.Inputs) > 0 {
			return done("after all")
		}
		close(started)
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return done("too late")
	}))
	<-started
	p.cancel(id)
	select {
	case err := <-ended:
		if !errors.Is(err, work.ErrStale) {
			t.Errorf("the agent was ended by %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the agent goes on")
	}
	job := p.untilJob(id, boxoffice.JobBlocked)
	if want := "analysis failed at node main: cancelled by the operator"; *job.BlockedReason != want {
		t.Errorf("blocked: %q", *job.BlockedReason)
	}
	p.carryOn(id, "go on")
	if node := p.untilJob(id, boxoffice.JobCompleted).Nodes[0]; node.Summary != "after all" || node.Attempts != 2 {
		t.Errorf("%+v", node)
	}
}

// A node for which there is no agent waits, without an attempt.
func TestNoAgent(t *testing.T) {
	p := newPlace(t)
	id := p.openJob("look")
	stop := p.run(nil, func(c *config) { c.Agents = map[string]agent.Runner{"audit": agentFunc(nil)} })
	p.until(func() bool { return strings.Contains(p.log.String(), "no agent for research") })
	stop()
	job := p.untilJob(id, boxoffice.JobQueued)
	if node := job.Nodes[0]; node.State != boxoffice.NodeQueued || node.Attempts != 0 {
		t.Errorf("%+v", node)
	}
}

// If an input is paid for while a cancelled agent ends, the next run starts when
// that agent has ended, in whichever process.
func TestContinuedWhileTheAgentEnds(t *testing.T) {
	p := newPlace(t)
	id := p.openJob("look")
	started, ending, leave := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var inside, most atomic.Int64
	runner := agentFunc(func(ctx context.Context, task agent.Task) (agent.Result, error) {
		if task.Job != id {
			return done("x")
		}
		most.Store(max(most.Load(), inside.Add(1)))
		defer inside.Add(-1)
		if len(task.Inputs) > 0 {
			return done("after all")
		}
		close(started)
		<-ctx.Done()
		close(ending)
		<-leave
		return done("too late")
	})
	for range 2 {
		p.run(runner)
	}
	<-started
	p.cancel(id)
	<-ending
	p.carryOn(id, "go on")
	// Both engines claim what is due meanwhile, which is not the job's next run.
	p.untilJob(p.openJob("another"), boxoffice.JobCompleted)
	p.untilJob(p.openJob("a third"), boxoffice.JobCompleted)
	close(leave)
	p.untilJob(id, boxoffice.JobCompleted)
	if most.Load() != 1 {
		t.Errorf("%d agents were in the workspace at once", most.Load())
	}
}
