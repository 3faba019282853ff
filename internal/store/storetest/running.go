package storetest

import (
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
			{ID: "a", Objective: "first", Template: "research"}, {ID: "b", Objective: "second", Template: "audit", After: []string{"a"}},
		}, now)
		return opened, err
	})
	return opened.JobID
}

const holder = "process 1"

func claim(t testing.TB, store Store, run work.Run) work.Assignment {
	t.Helper()
	assignment, err := store.Claim(t.Context(), run, holder, now+minute, now, nil)
	fatal(t, err)
	return assignment
}

func finish(t testing.TB, store Store, run work.Run, result work.Result) {
	t.Helper()
	fatal(t, store.Finish(t.Context(), run, holder, result, now+1))
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
		a, b, delivery := work.Run{Work: id, Attempt: 1}, work.Run{Work: id, Position: 1, Attempt: 1}, work.Run{Work: id, Position: 2, Attempt: 1}
		_, err := store.Claim(t.Context(), b, holder, now, now, nil)
		wantError(t, err, work.ErrLost) // it waits for a
		claim(t, store, a)
		finish(t, store, a, work.Result{Verdict: work.Done, Summary: "A", Log: "log"})
		assignment := claim(t, store, b)
		if len(assignment.Predecessors) != 1 || assignment.Predecessors[0].Summary != "A" || assignment.Node.Objective != "second" || assignment.Job.ID != id {
			t.Errorf("%+v", assignment)
		}
		finish(t, store, b, work.Result{Verdict: work.Done, Summary: "B"})
		claim(t, store, delivery)
		delivered := &boxoffice.Delivery{RepoURL: "https://example.com/r.git", Commit: fmt.Sprintf("%040x", 7), DeliveredAt: pointer(now)}
		finish(t, store, delivery, work.Result{Verdict: work.Done, Delivery: delivered})
		job, err := store.Job(t.Context(), alice, id)
		fatal(t, err)
		same(t, job.State, boxoffice.JobCompleted)
		same(t, job.Delivery, delivered)
		same(t, job.UpdatedAt, now+1)
	},

	"ClaimOnce": func(t *testing.T, store Store) {
		run := work.Run{Work: runnable(t, store, 1), Attempt: 1}
		if won := race(t, work.ErrLost, func(ctx context.Context, i int) error {
			_, err := store.Claim(ctx, run, fmt.Sprint("process ", i), now+minute, now, nil)
			return err
		}); won != 1 {
			t.Errorf("the run was taken %d times", won)
		}
	},

	"FinishOnce": func(t *testing.T, store Store) {
		run := work.Run{Work: runnable(t, store, 1), Attempt: 1}
		claim(t, store, run)
		wantError(t, store.Finish(t.Context(), run, "process 2", work.Result{Verdict: work.Done}, now), work.ErrLost)
		if won := race(t, work.ErrLost, func(ctx context.Context, i int) error {
			verdicts := []work.Verdict{work.Done, work.Again, work.Blocked, work.Failed, work.Abandoned}
			return store.Finish(ctx, run, holder, work.Result{Verdict: verdicts[i%len(verdicts)], Summary: "s", Reason: "r"}, now)
		}); won != 1 {
			t.Errorf("the run was finished %d times", won)
		}
	},

	"LapsedRunsAreGivenBack": func(t *testing.T, store Store) {
		id := runnable(t, store, 1)
		run := work.Run{Work: id, Attempt: 1}
		claim(t, store, run)
		kept, err := store.Renew(t.Context(), holder, now+2*minute)
		fatal(t, err)
		same(t, kept, []work.Run{run})
		lapsed, err := store.Lapsed(t.Context(), now+2*minute, 10)
		fatal(t, err)
		same(t, lapsed, []work.Held(nil))
		lapsed, err = store.Lapsed(t.Context(), now+2*minute+1, 10)
		fatal(t, err)
		same(t, lapsed, []work.Held{{Run: run, Holder: holder}})
		finish(t, store, run, work.Result{Verdict: work.Again})
		kept, err = store.Renew(t.Context(), holder, now)
		fatal(t, err)
		same(t, kept, []work.Run(nil))
		_, err = store.Claim(t.Context(), run, holder, now, now, nil)
		wantError(t, err, work.ErrLost) // its second attempt is due now
		run.Attempt++
		same(t, claim(t, store, run).Node.Failures, 1)
	},

	// Between being found silent and being taken from, a holder may speak.
	"LapsedAndRenewed": func(t *testing.T, store Store) {
		run := work.Run{Work: runnable(t, store, 1), Attempt: 1}
		claim(t, store, run)
		_, err := store.Renew(t.Context(), holder, now+2*minute)
		fatal(t, err)
		lost := work.Result{Verdict: work.Lost, Lapsed: true}
		wantError(t, store.Finish(t.Context(), run, holder, lost, now+minute+1), work.ErrLost)
		fatal(t, store.Finish(t.Context(), run, holder, lost, now+2*minute+1))
	},

	// What is refused by who would run it was not begun.
	"NotAble": func(t *testing.T, store Store) {
		broken := errors.New("no agent")
		run := work.Run{Work: runnable(t, store, 1), Attempt: 1}
		_, err := store.Claim(t.Context(), run, holder, now+minute, now, func(node work.Node) error {
			same(t, node.Template, "research")
			return broken
		})
		wantError(t, err, broken)
		state, _ := nodeStates(t, store, run.Work)
		same(t, state, boxoffice.JobQueued)
		same(t, claim(t, store, run).Node.Attempts, 1)
	},

	// A lost worker is counted, and no failure; an input begins the count anew.
	"LostWorkers": func(t *testing.T, store Store) {
		run := work.Run{Work: runnable(t, store, 1), Attempt: 1}
		for losses := range 3 {
			same(t, claim(t, store, run).Node.Failures, 0)
			lapsed, err := store.Lapsed(t.Context(), now+minute+1, 10)
			fatal(t, err)
			same(t, lapsed, []work.Held{{Run: run, Holder: holder, Losses: losses}})
			finish(t, store, run, work.Result{Verdict: work.Lost, Reason: "its worker was lost"})
			run.Attempt++
		}
		claim(t, store, run)
		finish(t, store, run, work.Result{Verdict: work.Failed, Reason: "its worker was lost"})
		admit(t, store, alice, 2, func(tx work.Tx, owner work.Owner) (work.Opened, error) {
			return work.ContinueJob(t.Context(), tx, owner, run.Work, "try again", now)
		})
		run.Attempt++
		claim(t, store, run)
		lapsed, err := store.Lapsed(t.Context(), now+minute+1, 10)
		fatal(t, err)
		same(t, lapsed, []work.Held{{Run: run, Holder: holder}})
	},

	// Whose work is over: it was delivered, or its delivery failed a while ago.
	"Delivered": func(t *testing.T, store Store) {
		deliveries := []*boxoffice.Delivery{
			{RepoURL: "https://example.com/r.git", Commit: fmt.Sprintf("%040x", 7), DeliveredAt: pointer(now)}, {Failure: "refused"}, nil,
		}
		var jobs []boxoffice.UUID
		for i, delivery := range deliveries {
			id := runnable(t, store, uint64(i))
			jobs = append(jobs, id)
			for position := range 3 {
				run := work.Run{Work: id, Position: position, Attempt: 1}
				claim(t, store, run)
				if position < 2 {
					finish(t, store, run, work.Result{Verdict: work.Done})
				} else if delivery != nil {
					finish(t, store, run, work.Result{Verdict: work.Done, Delivery: delivery})
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

	"BlockedAndAnswered": func(t *testing.T, store Store) {
		id := runnable(t, store, 1)
		run := work.Run{Work: id, Attempt: 1}
		claim(t, store, run)
		finish(t, store, run, work.Result{Verdict: work.Blocked, Reason: "which?"})
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
		same(t, claim(t, store, run).Answers, []string{"this"})
	},

	// What the queue has an entry for is not queued again.
	"Requeue": func(t *testing.T, store Store) {
		runnable(t, store, 1)
		n, err := store.Requeue(t.Context(), now+minute, now, 10)
		fatal(t, err)
		same(t, n, 0)
	},

	"AdmissionThatFailsQueuesNothing": func(t *testing.T, store Store) {
		record, _ := pay(t, store, alice, 1)
		broken := errors.New("broken")
		var id boxoffice.UUID
		wantError(t, store.Admit(t.Context(), admission(t, store, record, now), func(tx work.Tx) (work.Opened, error) {
			opened, err := work.OpenJob(t.Context(), tx, work.Owner{Requester: alice, Payer: wallet, OrderID: record.ID}, "research", "o", nil, work.Brief{}, now)
			fatal(t, err)
			id = opened.ID
			return opened, broken
		}), broken)
		_, err := store.Claim(t.Context(), work.Run{Work: id, Attempt: 1}, holder, now, now, nil)
		wantError(t, err, work.ErrLost)
	},
}

var scheduleTests = map[string]func(*testing.T, Store){
	// Many workers at one due run open its job once.
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
		wantError(t, store.RunSchedule(t.Context(), schedule.ID, now-1, open(t.Context())), work.ErrLost)
		due, err := store.DueSchedules(t.Context(), now, work.Due{}, 10)
		fatal(t, err)
		same(t, due, []work.Due{{At: now, ID: schedule.ID}})
		due, err = store.DueSchedules(t.Context(), now, due[0], 10)
		fatal(t, err)
		same(t, due, []work.Due(nil))
		if won := race(t, work.ErrLost, func(ctx context.Context, _ int) error {
			return store.RunSchedule(ctx, schedule.ID, now, open(ctx))
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

	// A run that cannot be opened stays due, and bought.
	"OpenFails": func(t *testing.T, store Store) {
		var schedule work.Schedule
		admit(t, store, alice, 1, func(tx work.Tx, owner work.Owner) (work.Opened, error) {
			schedule = aSchedule(owner)
			return work.Opened{Kind: work.KindSchedule, ID: schedule.ID}, tx.InsertSchedule(t.Context(), schedule)
		})
		broken := errors.New("broken")
		wantError(t, store.RunSchedule(t.Context(), schedule.ID, now+minute, func(work.Tx, work.Schedule) (work.Opened, error) {
			return work.Opened{}, broken
		}), broken)
		got, err := store.Schedule(t.Context(), alice, schedule.ID)
		fatal(t, err)
		same(t, got, schedule)
	},
}
