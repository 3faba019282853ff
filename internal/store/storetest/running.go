package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"boxoffice"
	"boxoffice/internal/work"
)

// runnable returns a job with the nodes of a chain a → b.
func runnable(t testing.TB, store Store, nonce uint64) boxoffice.UUID {
	t.Helper()
	var opened work.Opened
	admit(t, store, alice, nonce, func(tx work.Tx, owner work.Owner) (_ work.Opened, err error) {
		opened, err = work.OpenWorkflow(t.Context(), tx, owner, "all", boxoffice.ShapeChain, []boxoffice.WorkflowNode{
			{ID: "a", Objective: "first", Template: "research"},
			{ID: "b", Objective: "second", Template: "audit", After: []string{"a"}},
		}, now)
		return opened, err
	})
	return opened.JobID
}

const holder = "process 1"

// Start starts one run, whichever other nodes are due. It returns work.ErrStale
// if the node is not queued for that attempt or may not run yet.
func Start(
	ctx context.Context, store Store, run work.Run, holder string, until, at boxoffice.Timestamp,
) (work.Assignment, error) {
	started, err := store.Claim(ctx, work.Claim{Limit: 1000}, at,
		func(graph work.Graph, position int) (work.Change, error) {
			if graph.ID != run.Work || position != run.Position || graph.Nodes[position].Attempts != run.Attempt-1 {
				return work.Change{}, work.ErrStale
			}
			return graph.Start(position, holder, until, at)
		})
	if err != nil || len(started) == 0 {
		return work.Assignment{}, cmp.Or(err, work.ErrStale)
	}
	return started[0], nil
}

// Finish saves the result of a run.
func Finish(
	ctx context.Context, store Store, run work.Run, holder string, result work.Result, at boxoffice.Timestamp,
) error {
	return change(ctx, store, run.Work, func(graph work.Graph) (work.Change, error) {
		return graph.Finish(run, holder, result, work.Retries{MaxFailures: 3}, at)
	})
}

func change(ctx context.Context, store Store, id boxoffice.UUID, decide func(work.Graph) (work.Change, error)) error {
	return store.Update(ctx, "change", func(tx work.Tx) error { return tx.Change(ctx, id, decide) })
}

func runEnded(t testing.TB, store Store, run work.Run, holder string) {
	t.Helper()
	fatal(t, change(t.Context(), store, run.Work, func(graph work.Graph) (work.Change, error) {
		return graph.RunEnded(run, holder)
	}))
}

func claim(t testing.TB, store Store, run work.Run) work.Assignment {
	t.Helper()
	assignment, err := Start(t.Context(), store, run, holder, now+minute, now+10)
	fatal(t, err)
	return assignment
}

func finish(t testing.TB, store Store, run work.Run, result work.Result) {
	t.Helper()
	fatal(t, Finish(t.Context(), store, run, holder, result, now+1))
}

func nodeStates(t testing.TB, store Store, id boxoffice.UUID) (state boxoffice.JobState, nodes []boxoffice.NodeState) {
	t.Helper()
	job, err := store.Job(t.Context(), alice, id)
	fatal(t, err)
	for _, node := range job.Nodes {
		nodes = append(nodes, node.State)
	}
	return job.State, nodes
}

var runningTests = map[string]func(*testing.T, Store){
	"FromQueuedToDelivered": func(t *testing.T, store Store) {
		id := runnable(t, store, 1)
		a, b := work.Run{Work: id, Attempt: 1}, work.Run{Work: id, Position: 1, Attempt: 1}
		delivery := work.Run{Work: id, Position: 2, Attempt: 1}
		_, err := Start(t.Context(), store, b, holder, now, now)
		wantError(t, err, work.ErrStale) // it waits for a
		claim(t, store, a)
		finish(t, store, a, work.Result{Outcome: work.Done, Summary: "A", Log: "log"})
		assignment := claim(t, store, b)
		if len(assignment.Predecessors) != 1 || assignment.Predecessors[0].Summary != "A" ||
			assignment.Node.Objective != "second" || assignment.Job.ID != id {
			t.Errorf("%+v", assignment)
		}
		finish(t, store, b, work.Result{Outcome: work.Done, Summary: "B"})
		claim(t, store, delivery)
		delivered := &boxoffice.Delivery{
			RepoURL: "https://example.com/r.git", Commit: fmt.Sprintf("%040x", 7), DeliveredAt: pointer(now),
		}
		finish(t, store, delivery, work.Result{Outcome: work.Done, Delivery: delivered})
		job, err := store.Job(t.Context(), alice, id)
		fatal(t, err)
		same(t, job.State, boxoffice.JobCompleted)
		same(t, job.Delivery, delivered)
		same(t, job.UpdatedAt, now+1)
	},

	"ClaimOnce": func(t *testing.T, store Store) {
		run := work.Run{Work: runnable(t, store, 1), Attempt: 1}
		if won := race(t, work.ErrStale, func(ctx context.Context, i int) error {
			_, err := Start(ctx, store, run, fmt.Sprint("process ", i), now+minute, now)
			return err
		}); won != 1 {
			t.Errorf("the run was started %d times", won)
		}
	},

	"FinishOnce": func(t *testing.T, store Store) {
		run := work.Run{Work: runnable(t, store, 1), Attempt: 1}
		claim(t, store, run)
		wantError(t, Finish(t.Context(), store, run, "process 2", work.Result{Outcome: work.Done}, now), work.ErrStale)
		if won := race(t, work.ErrStale, func(ctx context.Context, i int) error {
			outcomes := []work.Outcome{work.Done, work.Retry, work.Blocked, work.Failed, work.WorkerStopped}
			return Finish(ctx, store, run, holder,
				work.Result{Outcome: outcomes[i%len(outcomes)], Summary: "s", Reason: "r"}, now)
		}); won != 1 {
			t.Errorf("the run was finished %d times", won)
		}
	},

	// Nodes are claimed in the order in which they became due, as many as the
	// worker can run and of the templates for which it has an agent.
	"ClaimWhatIsDue": func(t *testing.T, store Store) {
		jobs := []boxoffice.UUID{runnable(t, store, 1), runnable(t, store, 2), runnable(t, store, 3)}
		for i, id := range jobs {
			run := work.Run{Work: id, Attempt: 1}
			claim(t, store, run)
			due := now + minute - boxoffice.Timestamp(i)
			fatal(t, Finish(t.Context(), store, run, holder, work.Result{Outcome: work.WorkerStopped}, due))
		}
		take := func(claim work.Claim, at boxoffice.Timestamp) (taken []boxoffice.UUID) {
			started, err := store.Claim(t.Context(), claim, at,
				func(graph work.Graph, position int) (work.Change, error) {
					return graph.Start(position, holder, at+minute, at)
				})
			fatal(t, err)
			for _, assignment := range started {
				taken = append(taken, assignment.Work)
			}
			return taken
		}
		same(t, take(work.Claim{Limit: 10}, now+minute-3), []boxoffice.UUID(nil))
		same(t, take(work.Claim{Limit: 10, Templates: []string{"audit"}}, now+minute), []boxoffice.UUID(nil))
		due, err := store.DueTemplates(t.Context(), now+minute-1)
		fatal(t, err)
		same(t, due, map[string]int{"research": 2})
		same(t, take(work.Claim{Limit: 2, Templates: []string{"audit", "research"}}, now+minute),
			[]boxoffice.UUID{jobs[2], jobs[1]})
		same(t, take(work.Claim{Limit: 2}, now+minute), jobs[:1])
	},

	// A job whose cancelled agent has not ended is passed over: it keeps no worker from
	// the nodes that are due after it.
	"ClaimPassesOverEnding": func(t *testing.T, store Store) {
		run := work.Run{Work: runnable(t, store, 1), Attempt: 1}
		claim(t, store, run)
		_, err := work.Canceller{Store: store}.Cancel(t.Context(), run.Work, now+2)
		fatal(t, err)
		admit(t, store, alice, 2, func(tx work.Tx, owner work.Owner) (work.Opened, error) {
			return work.ContinueJob(t.Context(), tx, owner, run.Work, "go on", now-1)
		})
		later := runnable(t, store, 3)
		take := func(at boxoffice.Timestamp) boxoffice.UUID {
			started, err := store.Claim(t.Context(), work.Claim{Limit: 1}, at,
				func(g work.Graph, i int) (work.Change, error) {
					return g.Start(i, holder, at+minute, at)
				})
			fatal(t, err)
			if len(started) != 1 {
				t.Fatalf("claimed %+v", started)
			}
			return started[0].Work
		}
		same(t, take(now+minute), later) // the lease of the cancelled run ends
		same(t, take(now+minute+1), run.Work)
	},

	// A change writes the row of its node and of its job or oracle, and no other row.
	"ChangeOfOneRow": func(t *testing.T, store Store) {
		steps := []boxoffice.WorkflowNode{
			{ID: "a", Objective: "first", Template: "research"}, {ID: "b", Objective: "second", Template: "audit"},
		}
		var jobs, oracles []boxoffice.UUID
		for nonce := range uint64(2) {
			admit(t, store, alice, nonce, func(tx work.Tx, owner work.Owner) (work.Opened, error) {
				opened, err := work.OpenWorkflow(t.Context(), tx, owner, "all", boxoffice.ShapeDAG, steps, now)
				jobs = append(jobs, opened.JobID)
				return opened, err
			})
			admit(t, store, alice, 2+nonce, func(tx work.Tx, owner work.Owner) (work.Opened, error) {
				opened, err := work.OpenOracle(t.Context(), tx, owner,
					boxoffice.Oracle{Question: "Is it?", PanelSize: 5}, now)
				oracles = append(oracles, opened.ID)
				return opened, err
			})
		}
		claim(t, store, work.Run{Work: jobs[0], Attempt: 1})
		claim(t, store, work.Run{Work: oracles[0], Position: 1, Attempt: 1})
		state, nodes := nodeStates(t, store, jobs[0])
		same(t, state, boxoffice.JobRunning)
		same(t, nodes, []boxoffice.NodeState{boxoffice.NodeRunning, boxoffice.NodeQueued})
		state, nodes = nodeStates(t, store, jobs[1])
		same(t, state, boxoffice.JobQueued)
		same(t, nodes, []boxoffice.NodeState{boxoffice.NodeQueued, boxoffice.NodeQueued})
		untouched, err := store.Oracle(t.Context(), alice, oracles[1])
		fatal(t, err)
		same(t, untouched.State, boxoffice.JobQueued)
		same(t, untouched.Members[1].State, boxoffice.NodeQueued)
	},

	// The channel is closed when a queued node is committed, and not before.
	"Queued": func(t *testing.T, store Store) {
		id := runnable(t, store, 1)
		run := work.Run{Work: id, Attempt: 1}
		claim(t, store, run)
		queued := store.Queued()
		isQueued := func() bool {
			select {
			case <-queued:
				return true
			default:
				return false
			}
		}
		broken := errors.New("broken")
		wantError(t, store.Update(t.Context(), "fail", func(tx work.Tx) error {
			fatal(t, tx.Change(t.Context(), id, func(graph work.Graph) (work.Change, error) {
				return graph.Finish(run, holder, work.Result{Outcome: work.Done}, work.Retries{}, now)
			}))
			return broken
		}), broken)
		same(t, isQueued(), false)
		finish(t, store, run, work.Result{Outcome: work.Done})
		same(t, isQueued(), true)
	},

	// If one row is not as it was read nothing is written.
	"StaleChange": func(t *testing.T, store Store) {
		id := runnable(t, store, 1)
		run := work.Run{Work: id, Attempt: 1}
		claim(t, store, run)
		for name, spoil := range map[string]func(*work.Change){
			"state":    func(c *work.Change) { c.Nodes[1].From.State = boxoffice.NodeQueued },
			"attempts": func(c *work.Change) { c.Nodes[1].From.Attempts++ },
			"holder":   func(c *work.Change) { c.Nodes[1].From.Holder = "process 2" },
			"job":      func(c *work.Change) { c.Record.From = boxoffice.JobBlocked },
		} {
			t.Run(name, func(t *testing.T) {
				wantError(t, change(t.Context(), store, id, func(graph work.Graph) (work.Change, error) {
					change, err := graph.Finish(run, holder, work.Result{Outcome: work.Done}, work.Retries{}, now)
					spoil(&change)
					return change, err
				}), work.ErrStale)
			})
		}
		_, nodes := nodeStates(t, store, id)
		same(t, nodes, []boxoffice.NodeState{boxoffice.NodeRunning, boxoffice.NodeWaiting})
	},

	// Every column of a node that can change is kept.
	"NodeColumns": func(t *testing.T, store Store) {
		id := runnable(t, store, 1)
		var want work.Node
		fatal(t, change(t.Context(), store, id, func(graph work.Graph) (work.Change, error) {
			want = graph.Nodes[0]
			want.State, want.DueAt, want.Holder, want.HeldUntil = boxoffice.NodeRunning, nil, "h", pointer(now+1)
			want.Attempts, want.Failures, want.WorkersLost, want.InputsGiven = 1, 2, 3, 4
			want.EndingHolder, want.EndingUntil = "e", pointer(now+2)
			want.Summary, want.Choice, want.Reason = "s", "c", "r"
			want.StartedAt, want.EndedAt = pointer(now+3), pointer(now+4)
			return work.Change{Nodes: []work.NodeChange{{From: graph.Nodes[0], To: want}}}, nil
		}))
		fatal(t, change(t.Context(), store, id, func(graph work.Graph) (work.Change, error) {
			same(t, graph.Nodes[0], want)
			return work.Change{}, nil
		}))
	},

	"ExpiredRuns": func(t *testing.T, store Store) {
		id := runnable(t, store, 1)
		run, another := work.Run{Work: id, Attempt: 1}, work.Run{Work: runnable(t, store, 2), Attempt: 1}
		claim(t, store, run)
		claim(t, store, another)
		expire := func(run work.Run, at boxoffice.Timestamp) error {
			return change(t.Context(), store, run.Work,
				func(graph work.Graph) (work.Change, error) { return graph.Expire(run, at) })
		}
		for _, wrong := range []work.Run{
			{Work: id, Position: 1, Attempt: 1}, {Work: id, Attempt: 2}, {Work: boxoffice.NewUUID(), Attempt: 1},
		} {
			kept, err := store.Renew(t.Context(), holder, []work.Run{wrong}, now+2*minute)
			fatal(t, err)
			same(t, kept, []work.Run(nil))
		}
		kept, err := store.Renew(t.Context(), holder, []work.Run{run}, now+2*minute)
		fatal(t, err)
		same(t, kept, []work.Run{run})
		expired, err := store.Expired(t.Context(), now+2*minute, 10)
		fatal(t, err)
		same(t, expired, []work.Run{another}) // its holder did not name it
		expired, err = store.Expired(t.Context(), now+2*minute+1, 10)
		fatal(t, err)
		same(t, expired, []work.Run{another, run})
		wantError(t, expire(run, now+2*minute), work.ErrStale)
		fatal(t, expire(run, now+2*minute+1))
		kept, err = store.Renew(t.Context(), holder, []work.Run{run}, now)
		fatal(t, err)
		same(t, kept, []work.Run(nil))
		kept, err = store.Renew(t.Context(), "process 2", []work.Run{another}, now)
		fatal(t, err)
		same(t, kept, []work.Run(nil))
	},

	// A job is over if it was delivered, or if its delivery failed a while ago.
	"Delivered": func(t *testing.T, store Store) {
		deliveries := []*boxoffice.Delivery{
			{RepoURL: "https://example.com/r.git", Commit: fmt.Sprintf("%040x", 7), DeliveredAt: pointer(now)},
			{Failure: "refused"}, nil,
		}
		var jobs []boxoffice.UUID
		for i, delivery := range deliveries {
			id := runnable(t, store, uint64(i))
			jobs = append(jobs, id)
			for position := range 3 {
				run := work.Run{Work: id, Position: position, Attempt: 1}
				claim(t, store, run)
				if position < 2 {
					finish(t, store, run, work.Result{Outcome: work.Done})
				} else if delivery != nil {
					finish(t, store, run, work.Result{Outcome: work.Done, Delivery: delivery})
				}
			}
		}
		asked := append([]boxoffice.UUID{boxoffice.NewUUID()}, jobs...)
		over, err := store.Delivered(t.Context(), asked, now)
		fatal(t, err)
		same(t, over, jobs[:1])
		over, err = store.Delivered(t.Context(), asked, now+minute)
		fatal(t, err)
		slices.Sort(over)
		slices.Sort(jobs[:2])
		same(t, over, jobs[:2])
	},

	"BlockedAndGivenInput": func(t *testing.T, store Store) {
		id := runnable(t, store, 1)
		run := work.Run{Work: id, Attempt: 1}
		claim(t, store, run)
		finish(t, store, run, work.Result{Outcome: work.Blocked, Reason: "which?"})
		state, nodes := nodeStates(t, store, id)
		same(t, state, boxoffice.JobBlocked)
		same(t, nodes, []boxoffice.NodeState{boxoffice.NodeBlocked, boxoffice.NodeWaiting})
		admit(t, store, alice, 2, func(tx work.Tx, owner work.Owner) (work.Opened, error) {
			return work.ContinueJob(t.Context(), tx, owner, id, "this", now)
		})
		state, nodes = nodeStates(t, store, id)
		same(t, state, boxoffice.JobQueued)
		same(t, nodes, []boxoffice.NodeState{boxoffice.NodeQueued, boxoffice.NodeWaiting})
		run.Attempt++
		same(t, claim(t, store, run).Inputs, []string{"this"})
	},

	"AdmissionThatFailsQueuesNothing": func(t *testing.T, store Store) {
		record, _ := pay(t, store, alice, 1)
		broken := errors.New("broken")
		var id boxoffice.UUID
		wantError(t, store.Admit(t.Context(), admission(t, store, record, now), func(tx work.Tx) (work.Opened, error) {
			owner := work.Owner{Requester: alice, Payer: wallet, OrderID: record.ID}
			opened, err := work.OpenJob(t.Context(), tx, owner, "research", "o", nil, work.Brief{}, now)
			fatal(t, err)
			id = opened.ID
			return opened, broken
		}), broken)
		_, err := Start(t.Context(), store, work.Run{Work: id, Attempt: 1}, holder, now, now)
		wantError(t, err, work.ErrStale)
	},
}

func runSchedule(
	ctx context.Context, store Store, id boxoffice.UUID, at boxoffice.Timestamp,
	open func(work.Tx, work.Schedule) (work.Opened, error),
) error {
	return store.Update(ctx, "run schedule", func(tx work.Tx) error {
		return work.RunSchedule(ctx, tx, id, at,
			func(schedule work.Schedule) (work.Opened, error) { return open(tx, schedule) })
	})
}

var scheduleTests = map[string]func(*testing.T, Store){
	// If many workers take one due run its job is opened once.
	"RunOnce": func(t *testing.T, store Store) {
		var schedule work.Schedule
		admit(t, store, alice, 1, func(tx work.Tx, owner work.Owner) (work.Opened, error) {
			schedule = aSchedule(owner)
			schedule.NextRunAt = pointer(now)
			return work.Opened{Kind: work.KindSchedule, ID: schedule.ID}, tx.InsertSchedule(t.Context(), schedule)
		})
		var calls atomic.Int32
		open := func(ctx context.Context) func(work.Tx, work.Schedule) (work.Opened, error) {
			return func(tx work.Tx, due work.Schedule) (work.Opened, error) {
				calls.Add(1)
				return work.OpenJob(ctx, tx, due.Owner, "research", "o", nil, work.Brief{}, now)
			}
		}
		wantError(t, runSchedule(t.Context(), store, schedule.ID, now-1, open(t.Context())), work.ErrStale)
		due, err := store.DueSchedules(t.Context(), now, work.Due{}, 10)
		fatal(t, err)
		same(t, due, []work.Due{{At: now, ID: schedule.ID}})
		due, err = store.DueSchedules(t.Context(), now, due[0], 10)
		fatal(t, err)
		same(t, due, []work.Due(nil))
		if won := race(t, work.ErrStale, func(ctx context.Context, _ int) error {
			return runSchedule(ctx, store, schedule.ID, now, open(ctx))
		}); won != 1 || calls.Load() != 1 {
			t.Errorf("the run was taken %d times and opened %d", won, calls.Load())
		}
		got, err := store.Schedule(t.Context(), alice, schedule.ID)
		fatal(t, err)
		same(t, got.RunsLeft, schedule.RunsLeft-1)
		same(t, got.NextRunAt, pointer(now+30*minute))
		if len(got.LastRuns) != 1 || got.LastRuns[0].Number != 4 || got.LastRuns[0].DueAt != now {
			t.Errorf("%+v", got.LastRuns)
		}
	},

	// A run that cannot be opened stays due and bought.
	"OpenFails": func(t *testing.T, store Store) {
		var schedule work.Schedule
		admit(t, store, alice, 1, func(tx work.Tx, owner work.Owner) (work.Opened, error) {
			schedule = aSchedule(owner)
			return work.Opened{Kind: work.KindSchedule, ID: schedule.ID}, tx.InsertSchedule(t.Context(), schedule)
		})
		broken := errors.New("broken")
		open := func(work.Tx, work.Schedule) (work.Opened, error) { return work.Opened{}, broken }
		wantError(t, runSchedule(t.Context(), store, schedule.ID, now+minute, open), broken)
		got, err := store.Schedule(t.Context(), alice, schedule.ID)
		fatal(t, err)
		same(t, got, schedule)
	},
}
