package engine_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/store/sqlite"
	"boxoffice/internal/work"
	"boxoffice/internal/work/agent"
)

func TestJob(t *testing.T) {
	p := newPlace(t)
	id := p.openJob("look")
	p.run(answers(func(_ context.Context, task agent.Task) (agent.Answer, error) {
		if task.Job != id || task.Node != "main" || task.Template != "research" || task.Objective != "look" {
			t.Errorf("task %+v", task)
		}
		return done("seen")
	}))
	job := p.untilJob(id, boxoffice.JobCompleted)
	if job.Delivery == nil || job.Delivery.Commit != fmt.Sprintf("%040x", 1) {
		t.Errorf("delivery %+v", job.Delivery)
	}
	if node := job.Nodes[0]; len(job.Nodes) != 1 || node.State != boxoffice.NodeDone || node.Summary != "seen" || node.Attempts != 1 {
		t.Errorf("nodes %+v", job.Nodes)
	}
}

func step(id string, after ...string) boxoffice.WorkflowNode {
	return boxoffice.WorkflowNode{ID: id, Objective: "do " + id, Template: "audit", After: after}
}

// A node runs when those before it are done, and is told their results. Those
// that do not wait for each other run at once.
func TestGraph(t *testing.T) {
	p := newPlace(t)
	opened := p.openWorkflow("dag", step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c"))
	var both sync.WaitGroup
	both.Add(2)
	p.run(answers(func(_ context.Context, task agent.Task) (agent.Answer, error) {
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
	if err != nil || workflow.State != boxoffice.JobCompleted || workflow.Nodes[1].State != boxoffice.NodeDone || workflow.Nodes[1].Summary != "b(a())" {
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
	p.run(answers(func(context.Context, agent.Task) (agent.Answer, error) {
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

// A blocked node names what it needs; the paid answer resumes it, and it alone.
func TestBlockedAndContinued(t *testing.T) {
	p := newPlace(t)
	opened := p.openWorkflow("chain", step("plan"), step("build", "plan"))
	var plans atomic.Int64
	p.run(answers(func(_ context.Context, task agent.Task) (agent.Answer, error) {
		switch {
		case task.Node == "plan":
			plans.Add(1)
			return done("planned")
		case len(task.Answers) == 0:
			return agent.Answer{Outcome: agent.Blocked, Reason: "which chain?"}, nil
		}
		return done("built on " + strings.Join(task.Answers, "+"))
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
	if version.Project == nil || version.Project.Version != 2 || version.Project.Of != 2 || version.Nodes[1].Summary != "built on More" {
		t.Errorf("the next version %+v", version)
	}
}

// An input that was paid while the node ran is not lost: the node runs again with it.
func TestAnswerWhileRunning(t *testing.T) {
	p := newPlace(t)
	id := p.openJob("look")
	started, goOn := make(chan struct{}, 8), make(chan struct{})
	p.run(answers(func(_ context.Context, task agent.Task) (agent.Answer, error) {
		started <- struct{}{}
		<-goOn
		return done(fmt.Sprint(task.Answers))
	}))
	<-started
	p.carryOn(id, "and there")
	close(goOn)
	job := p.untilJob(id, boxoffice.JobCompleted)
	if node := job.Nodes[0]; node.Summary != "[and there]" || node.Attempts != 2 {
		t.Errorf("%+v", node)
	}
}

// Nor is one that was paid while a run was on its way to fail for good: the
// node begins anew with it. If it was the delivery, the last node does.
func TestAnswerWhileFailing(t *testing.T) {
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
			p.run(answers(func(_ context.Context, task agent.Task) (agent.Answer, error) {
				told.Store(int64(len(task.Answers)))
				if fail("main", told.Load()) {
					return agent.Answer{}, &agent.Failure{Kind: agent.Exited, Code: 64}
				}
				return done(fmt.Sprint(task.Answers))
			}), func(c *config) {
				c.Attempts = 1
				c.Deliverer = breaks{new(delivers), func() bool { return fail("delivery", told.Load()) }}
			})
			<-started
			p.carryOn(id, "and there")
			close(goOn)
			if node := p.untilJob(id, boxoffice.JobCompleted).Nodes[0]; node.Summary != "[and there]" || node.Attempts != 2 {
				t.Errorf("%+v", node)
			}
		})
	}
}

// breaks cannot deliver when it is told so.
type breaks struct {
	*delivers
	broken func() bool
}

func (b breaks) Deliver(ctx context.Context, job work.Job, workspace string) (boxoffice.Delivery, error) {
	if b.broken() {
		return boxoffice.Delivery{}, errors.New("broken")
	}
	return b.delivers.Deliver(ctx, job, workspace)
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
			p.run(answers(func(_ context.Context, task agent.Task) (agent.Answer, error) {
				if n := runs.Add(1); int(n) <= test.fails && len(task.Answers) == 0 {
					failed := *failure
					failed.Retryable = !test.final
					return agent.Answer{}, &failed
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

func vote(choice string) (agent.Answer, error) {
	return agent.Answer{Outcome: agent.Done, Summary: "because", Choice: choice}, nil
}

func TestOracle(t *testing.T) {
	p := newPlace(t)
	id := p.openOracle(5, "yes", "no")
	p.run(answers(func(_ context.Context, task agent.Task) (agent.Answer, error) {
		switch task.Panel.Member {
		case 0, 3:
			return agent.Answer{}, &agent.Failure{Kind: agent.TimedOut, Retryable: true}
		case 1:
			return vote("no")
		}
		return vote("yes")
	}))
	oracle := until(p, id, p.store.Oracle, func(o work.Oracle) bool { return o.State == boxoffice.JobCompleted })
	if err := oracle.Validate(); err != nil {
		t.Error(err)
	}
	if *oracle.Answer != (boxoffice.Verdict{Choice: "yes", Votes: 4, Of: 5}) || len(oracle.Members) != 7 ||
		!slices.Equal(oracle.Tally, []boxoffice.Votes{{Choice: "yes", Votes: 4}, {Choice: "no", Votes: 1}}) {
		t.Errorf("%+v", oracle.Oracle)
	}
	if member := oracle.Members[0]; member.State != boxoffice.NodeFailed || member.Reason != "the agent did not answer in time" {
		t.Errorf("the first member %+v", member)
	}
}

// Without options the members' own words are counted, however they write them.
func TestOracleOfFreeText(t *testing.T) {
	for name, test := range map[string]struct {
		options, said []string
		want          []boxoffice.Votes
	}{
		"free text": {nil, []string{" Café\u00a0 Central ", "tea house", "CAFE\u0301 central", "café central", "Tea House\n"},
			[]boxoffice.Votes{{Choice: "Café\u00a0 Central", Votes: 3}, {Choice: "tea house", Votes: 2}}},
		"options": {[]string{"A", "a"}, []string{"A", "a", "a", "A", "a"},
			[]boxoffice.Votes{{Choice: "a", Votes: 3}, {Choice: "A", Votes: 2}}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			id := p.openOracle(5, test.options...)
			p.run(answers(func(_ context.Context, task agent.Task) (agent.Answer, error) {
				return vote(test.said[task.Panel.Member])
			}))
			oracle := until(p, id, p.store.Oracle, func(o work.Oracle) bool { return o.State == boxoffice.JobCompleted })
			if !slices.Equal(oracle.Tally, test.want) || *oracle.Answer != (boxoffice.Verdict{Choice: test.want[0].Choice, Votes: 3, Of: 5}) {
				t.Errorf("%+v, %+v", oracle.Tally, oracle.Answer)
			}
			if member := oracle.Members[0]; member.Choice != test.said[0] {
				t.Errorf("the first member said %q", member.Choice)
			}
		})
	}
}

func TestOracleWithoutItsPanel(t *testing.T) {
	p := newPlace(t)
	id := p.openOracle(6)
	p.run(answers(func(_ context.Context, task agent.Task) (agent.Answer, error) {
		if task.Panel.Member == 2 {
			return vote("perhaps")
		}
		return agent.Answer{Outcome: agent.Blocked, Reason: "cannot say"}, nil
	}))
	oracle := until(p, id, p.store.Oracle, func(o work.Oracle) bool { return o.State == boxoffice.JobBlocked })
	if err := oracle.Validate(); err != nil {
		t.Error(err)
	}
	if want := "1 of 6 members answered"; !strings.Contains(*oracle.BlockedReason, want) || len(oracle.Members) != 6+work.MaxReplacements(6) {
		t.Errorf("%q with %d members", *oracle.BlockedReason, len(oracle.Members))
	}
	if len(oracle.Tally) != 1 || oracle.Answer != nil {
		t.Errorf("tally %v, answer %v", oracle.Tally, oracle.Answer)
	}
}

// A worker that is killed in the middle of a node is replaced, and what it says
// after that does not count.
func TestKilledWorker(t *testing.T) {
	p := newPlace(t)
	id := p.openJob("look")
	run := work.Run{Work: id, Attempt: 1}
	if _, err := p.store.Claim(t.Context(), run, "killed", p.now()+1000, p.now(), nil); err != nil {
		t.Fatal(err)
	}
	p.advance(time.Minute)
	p.run(answers(func(context.Context, agent.Task) (agent.Answer, error) { return done("by another") }))
	job := p.untilJob(id, boxoffice.JobCompleted)
	if node := job.Nodes[0]; node.Attempts != 2 || node.Summary != "by another" {
		t.Errorf("%+v", node)
	}
	err := p.store.Finish(t.Context(), run, "killed", work.Result{Verdict: work.Done, Summary: "too late"}, p.now())
	if !errors.Is(err, work.ErrLost) {
		t.Errorf("the killed worker's result: %v", err)
	}
}

// Lost workers are no failures of the agent, which is told the same task again;
// but a node that costs one worker after the other comes to an end.
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
				if _, err := p.store.Claim(t.Context(), work.Run{Work: id, Attempt: attempt + 1}, "killed", p.now()-1, p.now(), nil); err != nil {
					t.Fatal(err)
				}
			}
			until(p, id, p.store.Job, func(job work.Job) bool { return job.Nodes[0].State != boxoffice.NodeRunning })
			rescuer()
			p.run(answers(func(_ context.Context, task agent.Task) (agent.Answer, error) {
				if task.Attempt != 1 {
					t.Errorf("the agent is told of attempt %d", task.Attempt)
				}
				return done("by another")
			}), func(c *config) { c.Attempts = 1 })
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

// A workspace is removed when its job was delivered, also if the worker died
// right before; that of a delivery that failed is kept for a while, and what is
// not over keeps its own.
func TestWorkspacesAreDiscarded(t *testing.T) {
	p := newPlace(t)
	folders := new(delivers)
	with := func(c *config) { c.Deliverer = folders }
	stop := p.run(answers(func(_ context.Context, task agent.Task) (agent.Answer, error) {
		if task.Objective == "ask" && len(task.Answers) == 0 {
			return agent.Answer{Outcome: agent.Blocked, Reason: "what?"}, nil
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
	stop = p.run(answers(nil), with)
	folders.untilGone(p, delivered)
	stop()
	if left, err := folders.Workspaces(); err != nil || !slices.Equal(left, []boxoffice.UUID{blocked}) {
		t.Errorf("workspaces of %v, %v; want that of %s", left, err, blocked)
	}

	stop = p.run(answers(func(context.Context, agent.Task) (agent.Answer, error) { return done("x") }),
		func(c *config) { c.Deliverer = refused{folders} })
	p.carryOn(blocked, "this")
	p.untilJob(blocked, boxoffice.JobCompleted)
	stop() // waits for the worker of the delivery
	if left, err := folders.Workspaces(); err != nil || len(left) != 1 {
		t.Errorf("workspaces of %v, %v", left, err)
	}
	p.advance(8 * 24 * time.Hour)
	p.run(answers(nil), with)
	folders.untilGone(p, blocked)
}

// refused delivers nothing.
type refused struct{ *delivers }

func (refused) Deliver(context.Context, work.Job, string) (boxoffice.Delivery, error) {
	return boxoffice.Delivery{Failure: "refused"}, nil
}

// An agent is told how often it failed before.
func TestAttempts(t *testing.T) {
	p := newPlace(t)
	id := p.openJob("look")
	p.run(answers(func(_ context.Context, task agent.Task) (agent.Answer, error) {
		if task.Attempt < 3 {
			return agent.Answer{}, &agent.Failure{Kind: agent.BadAnswer, Retryable: true}
		}
		return done(fmt.Sprint("attempt ", task.Attempt))
	}))
	if node := p.untilJob(id, boxoffice.JobCompleted).Nodes[0]; node.Summary != "attempt 3" {
		t.Errorf("%+v", node)
	}
}

const childVariable = "BOXOFFICE_TEST_WORKER"

// The same with a process that is really killed, without a word.
func TestKilledProcess(t *testing.T) {
	if path := os.Getenv(childVariable); path != "" {
		placeAt(t, path).run(answers(func(context.Context, agent.Task) (agent.Answer, error) {
			fmt.Println("started")
			select {} // until it is killed
		}))
		select {}
	}
	p := newPlace(t)
	id := p.openJob("look")
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledProcess$")
	child.Env = append(os.Environ(), childVariable+"="+p.path)
	said, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(said).ReadString('\n'); line != "started\n" {
		t.Fatalf("the worker said %q, %v", line, err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	child.Wait() // it was killed
	p.advance(time.Minute)
	p.run(answers(func(context.Context, agent.Task) (agent.Answer, error) { return done("by another") }))
	if node := p.untilJob(id, boxoffice.JobCompleted).Nodes[0]; node.Attempts != 2 || node.Summary != "by another" {
		t.Errorf("%+v", node)
	}
}

// Two workers and every run queued twice: each node runs once.
func TestManyWorkers(t *testing.T) {
	p := newPlace(t)
	var runs sync.Map
	once := answers(func(_ context.Context, task agent.Task) (agent.Answer, error) {
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
	if _, err := p.store.Requeue(t.Context(), p.now()+1000, p.now(), 100); err != nil {
		t.Fatal(err)
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
	stop := p.run(answers(func(ctx context.Context, _ agent.Task) (agent.Answer, error) {
		close(started)
		<-ctx.Done()
		return agent.Answer{}, ctx.Err()
	}))
	<-started
	stop()
	job, err := p.store.Job(t.Context(), p.owner, id)
	if err != nil || job.Nodes[0].State != boxoffice.NodeQueued {
		t.Errorf("%+v, %v", job.Nodes, err)
	}
	p.run(answers(func(context.Context, agent.Task) (agent.Answer, error) { return done("x") }))
	p.untilJob(id, boxoffice.JobCompleted)
}

// An operator's word ends an agent that runs within seconds, and what it says
// after that does not count; an input makes the job go on.
func TestCancel(t *testing.T) {
	p := newPlace(t)
	id := p.openJob("look")
	started, ended := make(chan struct{}), make(chan error, 1)
	p.run(answers(func(ctx context.Context, task agent.Task) (agent.Answer, error) {
		if len(task.Answers) > 0 {
			return done("after all")
		}
		close(started)
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return done("too late")
	}))
	<-started
	if _, err := p.store.Cancel(t.Context(), id, p.now()); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, work.ErrLost) {
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

// away is a store whose database is away again and again.
type away struct {
	*sqlite.Store
	claims, finishes atomic.Int64
}

var errAway = errors.New("the database is away")

func (a *away) Claim(ctx context.Context, run work.Run, holder string, until, now boxoffice.Timestamp, able func(work.Node) error) (work.Assignment, error) {
	if a.claims.Add(1) == 1 {
		return work.Assignment{}, errAway
	}
	return a.Store.Claim(ctx, run, holder, until, now, able)
}

func (a *away) Finish(ctx context.Context, run work.Run, holder string, result work.Result, now boxoffice.Timestamp) error {
	if a.finishes.Add(1) < 4 {
		return errAway
	}
	return a.Store.Finish(ctx, run, holder, result, now)
}

// A run that could not be taken is taken later, and what an agent came to while
// the database was away is kept.
func TestDatabaseAway(t *testing.T) {
	p := newPlace(t)
	id := p.openJob("look")
	var runs atomic.Int64
	p.run(answers(func(context.Context, agent.Task) (agent.Answer, error) {
		runs.Add(1)
		return done("x")
	}), func(c *config) { c.Store = &away{Store: p.store} })
	if job := p.untilJob(id, boxoffice.JobCompleted); job.Nodes[0].Attempts != 1 || runs.Load() != 1 {
		t.Errorf("%+v after %d runs", job.Nodes, runs.Load())
	}
}

// outage is a store whose database is away while it says so.
type outage struct {
	*sqlite.Store
	away   atomic.Bool
	looked atomic.Int64 // times that others' runs were looked for with success
}

func (o *outage) Finish(ctx context.Context, run work.Run, holder string, result work.Result, now boxoffice.Timestamp) error {
	if o.away.Load() {
		return errAway
	}
	return o.Store.Finish(ctx, run, holder, result, now)
}

func (o *outage) Renew(ctx context.Context, holder string, until boxoffice.Timestamp) ([]work.Run, error) {
	if o.away.Load() {
		return nil, errAway
	}
	return o.Store.Renew(ctx, holder, until)
}

func (o *outage) Lapsed(ctx context.Context, now boxoffice.Timestamp, limit int) ([]work.Held, error) {
	if o.away.Load() {
		return nil, errAway
	}
	defer o.looked.Add(1)
	return o.Store.Lapsed(ctx, now, limit)
}

// The database is away for a minute, twice as long as a process may be silent,
// and an agent ends meanwhile. Whichever process sees it first when it is back:
// the result is kept and nothing is done again. A process that stays silent then
// is given up all the same.
func TestDatabaseAwayForAMinute(t *testing.T) {
	p := newPlace(t)
	id := p.openJob("look")
	const lease = 30 * time.Second
	working, other := &outage{Store: p.store}, &outage{Store: p.store}
	started, goOn := make(chan struct{}), make(chan struct{})
	var runs atomic.Int64
	stop := p.run(answers(func(context.Context, agent.Task) (agent.Answer, error) {
		runs.Add(1)
		close(started)
		<-goOn
		return done("x")
	}), func(c *config) { c.Store, c.Lease = working, lease })
	<-started
	p.run(answers(func(context.Context, agent.Task) (agent.Answer, error) {
		return done("by another")
	}), func(c *config) { c.Store, c.Lease, c.Queue = other, lease, "nothing" })
	p.until(func() bool { return other.looked.Load() > 0 })

	working.away.Store(true)
	other.away.Store(true)
	close(goOn)
	p.advance(time.Minute)
	p.until(func() bool { return strings.Count(p.log.String(), "runs could not be kept") > 1 })
	looked := other.looked.Load()
	other.away.Store(false)
	p.until(func() bool { return other.looked.Load() > looked+1 })
	working.away.Store(false)
	if job := p.untilJob(id, boxoffice.JobCompleted); job.Nodes[0].Attempts != 1 || job.Nodes[0].Summary != "x" || runs.Load() != 1 {
		t.Errorf("%+v after %d runs", job.Nodes, runs.Load())
	}

	stop()
	silent := p.openJob("look")
	if _, err := p.store.Claim(t.Context(), work.Run{Work: silent, Attempt: 1}, "killed", p.now(), p.now(), nil); err != nil {
		t.Fatal(err)
	}
	for range 4 { // step by step, or it would seem to have slept itself
		looked := other.looked.Load()
		p.advance(lease / 3)
		p.until(func() bool { return other.looked.Load() > looked+1 })
	}
	if job, err := p.store.Job(t.Context(), p.owner, silent); err != nil || job.Nodes[0].State != boxoffice.NodeQueued {
		t.Errorf("%+v, %v", job.Nodes, err)
	}
}

// Work for which the operator has no agent waits. It is not lost, and was not
// attempted.
func TestNoAgent(t *testing.T) {
	p := newPlace(t)
	id := p.openJob("look")
	stop := p.run(nil, func(c *config) { c.Agents = map[string]agent.Runner{"audit": answers(nil)} })
	p.until(func() bool { return strings.Contains(p.log.String(), "no agent for research") })
	stop()
	job := p.untilJob(id, boxoffice.JobQueued)
	if node := job.Nodes[0]; node.State != boxoffice.NodeQueued || node.Attempts != 0 {
		t.Errorf("%+v", node)
	}
}

// waits is a store that counts the runs that had to wait for a cancelled one.
type waits struct {
	*sqlite.Store
	count atomic.Int64
}

func (w *waits) Claim(ctx context.Context, run work.Run, holder string, until, now boxoffice.Timestamp, able func(work.Node) error) (work.Assignment, error) {
	assignment, err := w.Store.Claim(ctx, run, holder, until, now, able)
	if errors.Is(err, work.ErrLeaving) {
		w.count.Add(1)
	}
	return assignment, err
}

// An input that is paid for while a cancelled agent ends begins the next run
// when that agent has left the workspace, whichever process takes it.
func TestContinuedWhileTheAgentEnds(t *testing.T) {
	p := newPlace(t)
	id := p.openJob("look")
	started, ending, leave := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var inside, most atomic.Int64
	runner := answers(func(ctx context.Context, task agent.Task) (agent.Answer, error) {
		most.Store(max(most.Load(), inside.Add(1)))
		defer inside.Add(-1)
		if len(task.Answers) > 0 {
			return done("after all")
		}
		close(started)
		<-ctx.Done()
		close(ending)
		<-leave
		return done("too late")
	})
	store := &waits{Store: p.store}
	for range 2 {
		p.run(runner, func(c *config) { c.Store = store })
	}
	<-started
	if _, err := p.store.Cancel(t.Context(), id, p.now()); err != nil {
		t.Fatal(err)
	}
	<-ending
	p.carryOn(id, "go on")
	p.until(func() bool { return store.count.Load() > 0 || most.Load() > 1 })
	close(leave)
	p.untilJob(id, boxoffice.JobCompleted)
	if most.Load() != 1 {
		t.Errorf("%d agents were in the workspace at once", most.Load())
	}
}

// speaks is a store on which another process renews its runs while the engine
// looks for the second time who is silent.
type speaks struct {
	*sqlite.Store
	other string
	looks atomic.Int64
}

func (s *speaks) Lapsed(ctx context.Context, now boxoffice.Timestamp, limit int) ([]work.Held, error) {
	if s.looks.Add(1) == 2 {
		if _, err := s.Store.Renew(ctx, s.other, now+60_000); err != nil {
			return nil, err
		}
	}
	return s.Store.Lapsed(ctx, now, limit)
}

// Who starts when the database is back lets those speak first that it was away from.
func TestStartAfterAnOutage(t *testing.T) {
	p := newPlace(t)
	run := work.Run{Work: p.openJob("look"), Attempt: 1}
	if _, err := p.store.Claim(t.Context(), run, "other", p.now()-1, p.now(), nil); err != nil {
		t.Fatal(err)
	}
	store := &speaks{Store: p.store, other: "other"}
	p.run(answers(func(context.Context, agent.Task) (agent.Answer, error) { return done("again") }), func(c *config) {
		c.Store, c.Heartbeat = store, 500*time.Millisecond
	})
	p.until(func() bool { return store.looks.Load() > 2 })
	if err := p.store.Finish(t.Context(), run, "other", work.Result{Verdict: work.Done, Summary: "mine"}, p.now()); err != nil {
		t.Error(err)
	}
}
