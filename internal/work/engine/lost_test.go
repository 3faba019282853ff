package engine_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/store/sqlite"
	"boxoffice/internal/work"
	"boxoffice/internal/work/agent"
)

// The run of a killed worker is repeated, and a result of that worker does not
// count any more.
func TestKilledWorker(t *testing.T) {
	p := newPlace(t)
	id := p.openJob("look")
	run := work.Run{Work: id, Attempt: 1}
	p.start(run, "killed", time.Second)
	p.advance(time.Minute)
	p.run(agentFunc(func(context.Context, agent.Task) (agent.Result, error) { return done("by another") }))
	job := p.untilJob(id, boxoffice.JobCompleted)
	if node := job.Nodes[0]; node.Attempts != 2 || node.Summary != "by another" {
		t.Errorf("%+v", node)
	}
	err := p.finish(run, "killed", work.Result{Outcome: work.Done, Summary: "too late"})
	if !errors.Is(err, work.ErrStale) {
		t.Errorf("the killed worker's result: %v", err)
	}
}

// A lost worker is no failure of the agent, which gets the same task again. But a
// node that costs five workers has failed.
func TestLostWorkers(t *testing.T) {
	for name, test := range map[string]struct {
		lost int
		want boxoffice.JobState
	}{"a few": {4, boxoffice.JobCompleted}, "one after the other": {5, boxoffice.JobBlocked}} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			id := p.openJob("look")
			rescuer := p.run(nil, alone)
			for attempt := range test.lost {
				until(p, id, p.store.Job, func(job work.Job) bool { return job.Nodes[0].State == boxoffice.NodeQueued })
				p.start(work.Run{Work: id, Attempt: attempt + 1}, "killed", -time.Millisecond)
			}
			until(p, id, p.store.Job, func(job work.Job) bool { return job.Nodes[0].State != boxoffice.NodeRunning })
			rescuer()
			p.run(agentFunc(func(_ context.Context, task agent.Task) (agent.Result, error) {
				if task.Failures != 0 {
					t.Errorf("the agent is told of %d failures", task.Failures)
				}
				return done("by another")
			}), func(c *config) { c.MaxFailures = 1 })
			job := p.untilJob(id, test.want)
			if test.want == boxoffice.JobBlocked {
				if want := "analysis failed at node main: its worker was lost 5 times"; *job.BlockedReason != want {
					t.Errorf("blocked: %q", *job.BlockedReason)
				}
				p.carryOn(id, "once more")
				p.untilJob(id, boxoffice.JobCompleted)
			}
		})
	}
}

const childVariable = "BOXOFFICE_TEST_WORKER"

// startChild runs a test of this program in another process, which uses the same
// database. It returns once that process has printed that its agent started. kill
// kills the process.
func startChild(p *place, args ...string) (kill func()) {
	p.t.Helper()
	child := exec.CommandContext(p.t.Context(), os.Args[0], args...)
	child.Env = append(os.Environ(), childVariable+"="+p.path)
	output, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	lines := bufio.NewScanner(output)
	for lines.Scan() && lines.Text() != "started" { // benchmarks print their machine first
	}
	if lines.Text() != "started" {
		p.t.Fatal("the other process did not start its agent")
	}
	return func() {
		if err := child.Process.Kill(); err != nil {
			p.t.Fatal(err)
		}
		child.Wait() // it was killed
	}
}

// untilKilled is an agent that says that it started and never ends.
var untilKilled = agentFunc(func(context.Context, agent.Task) (agent.Result, error) {
	fmt.Println("started")
	select {}
})

// The same with a process that is killed.
func TestKilledProcess(t *testing.T) {
	if path := os.Getenv(childVariable); path != "" {
		placeAt(t, path).run(untilKilled)
		select {}
	}
	p := newPlace(t)
	id := p.openJob("look")
	startChild(p, "-test.run=^TestKilledProcess$")()
	p.advance(time.Minute)
	p.run(agentFunc(func(context.Context, agent.Task) (agent.Result, error) { return done("by another") }))
	if node := p.untilJob(id, boxoffice.JobCompleted).Nodes[0]; node.Attempts != 2 || node.Summary != "by another" {
		t.Errorf("%+v", node)
	}
}

// However many workers there are, each node runs once.
func TestManyWorkers(t *testing.T) {
	p := newPlace(t)
	var runs sync.Map
	once := agentFunc(func(_ context.Context, task agent.Task) (agent.Result, error) {
		if _, again := runs.LoadOrStore(string(task.Job)+task.Node, true); again {
			t.Errorf("node %s of job %s ran twice", task.Node, task.Job)
		}
		return done("x")
	})
	for range 3 {
		p.run(once)
	}
	var jobs []boxoffice.UUID
	for range 20 {
		jobs = append(jobs, p.openWorkflow("chain", step("a"), step("b", "a"), step("c", "b")).JobID)
	}
	for _, id := range jobs {
		p.untilJob(id, boxoffice.JobCompleted)
	}
}

// An engine that is stopped ends its agents and gives their nodes back at once.
func TestStop(t *testing.T) {
	p := newPlace(t)
	id := p.openJob("look")
	started := make(chan struct{})
	stop := p.run(agentFunc(func(ctx context.Context, _ agent.Task) (agent.Result, error) {
		close(started)
		<-ctx.Done()
		return agent.Result{}, ctx.Err()
	}))
	<-started
	stop()
	job, err := p.store.Job(t.Context(), p.owner, id)
	if err != nil || job.Nodes[0].State != boxoffice.NodeQueued {
		t.Errorf("%+v, %v", job.Nodes, err)
	}
	p.run(agentFunc(func(context.Context, agent.Task) (agent.Result, error) { return done("x") }))
	p.untilJob(id, boxoffice.JobCompleted)
}

// A panic in the code around an agent fails the run, which is tried again, and
// nothing else.
func TestPanic(t *testing.T) {
	p := newPlace(t)
	id := p.openJob("look")
	p.run(agentFunc(func(_ context.Context, task agent.Task) (agent.Result, error) {
		if task.Failures == 0 {
			panic("broken")
		}
		return done("after all")
	}))
	if node := p.untilJob(id, boxoffice.JobCompleted).Nodes[0]; node.Attempts != 2 || node.Summary != "after all" {
		t.Errorf("%+v", node)
	}
}

// lostClaim is a store whose first claim is committed although the worker gets an error.
type lostClaim struct {
	*sqlite.Store
	claims atomic.Int64
}

func (f *lostClaim) Claim(
	ctx context.Context, claim work.Claim, now boxoffice.Timestamp, start func(work.Graph, int) (work.Change, error),
) ([]work.Assignment, error) {
	claimed, err := f.Store.Claim(ctx, claim, now, start)
	if err == nil && len(claimed) > 0 && f.claims.Add(1) == 1 {
		return nil, errAway
	}
	return claimed, err
}

// A worker does not renew a run that it claimed without learning of it, even
// while it has others: the run expires and is repeated.
func TestClaimWithoutAnswer(t *testing.T) {
	p := newPlace(t)
	lost := p.openJob("look")
	started, goOn := make(chan struct{}, 1), make(chan struct{})
	p.run(agentFunc(func(_ context.Context, task agent.Task) (agent.Result, error) {
		if task.Job != lost {
			started <- struct{}{}
			<-goOn
		}
		return done("x")
	}), func(c *config) { c.Store, c.Lease = &lostClaim{Store: p.store}, 300*time.Millisecond })
	until(p, lost, p.store.Job, func(job work.Job) bool { return job.State == boxoffice.JobRunning })
	other := p.openJob("another")
	<-started
	if node := p.untilJob(lost, boxoffice.JobCompleted).Nodes[0]; node.Attempts != 2 {
		t.Errorf("%+v", node)
	}
	close(goOn)
	p.untilJob(other, boxoffice.JobCompleted)
}
