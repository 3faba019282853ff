package storetest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"boxoffice"
	"boxoffice/internal/work"
)

func cancel(t testing.TB, store Store, id boxoffice.UUID, want work.Cancelled) {
	t.Helper()
	got, err := work.Canceller{Store: store}.Cancel(t.Context(), id, now+2)
	fatal(t, err)
	same(t, got, want)
}

func blockedReason(t testing.TB, store Store, id boxoffice.UUID) string {
	t.Helper()
	job, err := store.Job(t.Context(), alice, id)
	fatal(t, err)
	fatal(t, job.Validate())
	if job.BlockedReason == nil {
		return ""
	}
	return *job.BlockedReason
}

var cancelTests = map[string]func(*testing.T, Store){
	// The result of a run that was cancelled does not count. An input resumes the
	// job at the node that was cancelled.
	"Running": func(t *testing.T, store Store) {
		id := runnable(t, store, 1)
		run := work.Run{Work: id, Attempt: 1}
		claim(t, store, run)
		blocked := work.Cancelled{Kind: work.KindJob, ID: id, State: "blocked"}
		cancel(t, store, id, blocked)
		same(t, blockedReason(t, store, id), "analysis failed at node a: cancelled by the operator")
		held, err := store.Renew(t.Context(), holder, []work.Run{run}, now+minute)
		fatal(t, err)
		same(t, held, []work.Run(nil))
		wantError(t, Finish(t.Context(), store, run, holder, work.Result{Outcome: work.Done, Summary: "late"}, now+3),
			work.ErrStale)
		cancel(t, store, id, blocked) // a second time changes nothing
		admit(t, store, alice, 2, func(tx work.Tx, owner work.Owner) (work.Opened, error) {
			return work.ContinueJob(t.Context(), tx, owner, id, "go on", now+4)
		})
		wantError(t, Finish(t.Context(), store, run, holder, work.Result{Outcome: work.Done, Summary: "later"}, now+5),
			work.ErrStale)
		run.Attempt++
		// Its agent may use the workspace until its process reports the end, or the lease is over.
		_, err = Start(t.Context(), store, run, "process 2", now+2*minute, now+minute)
		wantError(t, err, work.ErrStale)
		runEnded(t, store, run, "process 2")
		_, err = Start(t.Context(), store, run, "process 2", now+2*minute, now+minute)
		wantError(t, err, work.ErrStale)
		runEnded(t, store, run, holder)
		same(t, claim(t, store, run).Inputs, []string{"go on"})
		first := work.Run{Work: id, Attempt: 1}
		wantError(t, Finish(t.Context(), store, first, holder, work.Result{Outcome: work.Done}, now+6), work.ErrStale)
		finish(t, store, run, work.Result{Outcome: work.Done})
		state, nodes := nodeStates(t, store, id)
		same(t, state, boxoffice.JobRunning)
		same(t, nodes, []boxoffice.NodeState{boxoffice.NodeDone, boxoffice.NodeQueued})
	},

	"Queued": func(t *testing.T, store Store) {
		id := runnable(t, store, 1)
		cancel(t, store, id, work.Cancelled{Kind: work.KindJob, ID: id, State: "blocked"})
		_, err := Start(t.Context(), store, work.Run{Work: id, Attempt: 1}, holder, now+minute, now)
		wantError(t, err, work.ErrStale)
	},

	"DeliveryAndCompleted": func(t *testing.T, store Store) {
		id := runnable(t, store, 1)
		for position := range 2 {
			run := work.Run{Work: id, Position: position, Attempt: 1}
			claim(t, store, run)
			finish(t, store, run, work.Result{Outcome: work.Done})
		}
		delivery := work.Run{Work: id, Position: 2, Attempt: 1}
		claim(t, store, delivery)
		cancel(t, store, id, work.Cancelled{Kind: work.KindJob, ID: id, State: "blocked"})
		same(t, blockedReason(t, store, id), "delivery failed: cancelled by the operator")
		admit(t, store, alice, 2, func(tx work.Tx, owner work.Owner) (work.Opened, error) {
			return work.ContinueJob(t.Context(), tx, owner, id, "after all", now+4)
		})
		runEnded(t, store, delivery, holder)
		// The delivery runs again; then the last step is given the input, and the job is delivered again.
		for _, run := range []work.Run{
			{Work: id, Position: 2, Attempt: 2},
			{Work: id, Position: 1, Attempt: 2},
			{Work: id, Position: 2, Attempt: 3},
		} {
			claim(t, store, run)
			finish(t, store, run, work.Result{Outcome: work.Done, Delivery: &boxoffice.Delivery{Failure: "refused"}})
		}
		_, err := work.Canceller{Store: store}.Cancel(t.Context(), id, now+5)
		wantError(t, err, work.ErrEnded)
		state, _ := nodeStates(t, store, id)
		same(t, state, boxoffice.JobCompleted)
	},

	// If a result and a cancellation come at once, one of them counts.
	"Race": func(t *testing.T, store Store) {
		id := runnable(t, store, 1)
		run := work.Run{Work: id, Attempt: 1}
		claim(t, store, run)
		var finished atomic.Int32
		race(t, work.ErrStale, func(ctx context.Context, i int) error {
			if i%2 == 0 {
				_, err := work.Canceller{Store: store}.Cancel(ctx, id, now)
				return err
			}
			err := Finish(ctx, store, run, holder, work.Result{Outcome: work.Failed, Reason: "by itself"}, now)
			if err == nil {
				finished.Add(1)
			}
			return err
		})
		want := map[int32]string{0: "cancelled by the operator", 1: "by itself"}[finished.Load()]
		same(t, blockedReason(t, store, id), "analysis failed at node a: "+want)
	},

	"Workflow": func(t *testing.T, store Store) {
		var opened work.Opened
		admit(t, store, alice, 1, func(tx work.Tx, owner work.Owner) (_ work.Opened, err error) {
			opened, err = work.OpenWorkflow(t.Context(), tx, owner, "all", boxoffice.ShapeDAG, []boxoffice.WorkflowNode{
				{ID: "a", Objective: "first", Template: "research"}, {ID: "b", Objective: "second", Template: "audit"},
			}, now)
			return opened, err
		})
		claim(t, store, work.Run{Work: opened.JobID, Attempt: 1})
		cancel(t, store, opened.ID, work.Cancelled{Kind: work.KindJob, ID: opened.JobID, State: "blocked"})
		_, nodes := nodeStates(t, store, opened.JobID)
		same(t, nodes, []boxoffice.NodeState{boxoffice.NodeFailed, boxoffice.NodeFailed})
	},

	// Members of a panel that was cancelled are not replaced.
	"Oracle": func(t *testing.T, store Store) {
		var opened work.Opened
		admit(t, store, alice, 1, func(tx work.Tx, owner work.Owner) (_ work.Opened, err error) {
			oracle := boxoffice.Oracle{Question: "Is it?", PanelSize: 5}
			opened, err = work.OpenOracle(t.Context(), tx, owner, oracle, now)
			return opened, err
		})
		answered, running := work.Run{Work: opened.ID, Attempt: 1}, work.Run{Work: opened.ID, Position: 1, Attempt: 1}
		claim(t, store, answered)
		claim(t, store, running)
		finish(t, store, answered, work.Result{Outcome: work.Done, Choice: "yes"})
		cancel(t, store, opened.ID, work.Cancelled{Kind: work.KindOracle, ID: opened.ID, State: "blocked"})
		wantError(t, Finish(t.Context(), store, running, holder, work.Result{Outcome: work.Done, Choice: "no"}, now),
			work.ErrStale)
		oracle, err := store.Oracle(t.Context(), alice, opened.ID)
		fatal(t, err)
		fatal(t, oracle.Validate())
		same(t, *oracle.BlockedReason, "cancelled by the operator")
		same(t, oracle.Tally, []boxoffice.Votes{{Choice: "yes", Votes: 1}})
		same(t, len(oracle.Members), 5)
	},

	// A schedule that was stopped opens nothing and keeps its runs. It goes on when
	// more runs are bought.
	"Schedule": func(t *testing.T, store Store) {
		var schedule work.Schedule
		admit(t, store, alice, 1, func(tx work.Tx, owner work.Owner) (work.Opened, error) {
			schedule = aSchedule(owner)
			return work.Opened{Kind: work.KindSchedule, ID: schedule.ID}, tx.InsertSchedule(t.Context(), schedule)
		})
		cancel(t, store, schedule.ID, work.Cancelled{Kind: work.KindSchedule, ID: schedule.ID, State: "stopped"})
		due, err := store.DueSchedules(t.Context(), now+minute, work.Due{}, 10)
		fatal(t, err)
		same(t, due, []work.Due(nil))
		open := func(work.Tx, work.Schedule) (work.Opened, error) {
			return work.Opened{}, errors.New("it was opened")
		}
		wantError(t, runSchedule(t.Context(), store, schedule.ID, now+minute, open), work.ErrStale)
		stopped := schedule
		stopped.State, stopped.NextRunAt, stopped.UpdatedAt = boxoffice.ScheduleStopped, nil, now+2
		stopped.StoppedBefore = schedule.NextRunAt
		got, err := store.Schedule(t.Context(), alice, schedule.ID)
		fatal(t, err)
		fatal(t, got.Validate())
		same(t, got, stopped)
		at := now + 90*minute
		admit(t, store, alice, 2, func(tx work.Tx, _ work.Owner) (work.Opened, error) {
			return work.TopUpSchedule(t.Context(), tx, schedule.ID, 3, at)
		})
		schedule.RunsBought, schedule.RunsLeft, schedule.UpdatedAt = schedule.RunsBought+3, schedule.RunsLeft+3, at
		schedule.NextRunAt = pointer(at + boxoffice.Timestamp(schedule.IntervalMinutes)*minute)
		got, err = store.Schedule(t.Context(), alice, schedule.ID)
		fatal(t, err)
		same(t, got, schedule)
	},

	// A process that died while its run was cancelled delays the next run by its
	// lease at most.
	"EndingIsOver": func(t *testing.T, store Store) {
		run := work.Run{Work: runnable(t, store, 1), Attempt: 1}
		claim(t, store, run)
		cancel(t, store, run.Work, work.Cancelled{Kind: work.KindJob, ID: run.Work, State: "blocked"})
		admit(t, store, alice, 2, func(tx work.Tx, owner work.Owner) (work.Opened, error) {
			return work.ContinueJob(t.Context(), tx, owner, run.Work, "go on", now)
		})
		run.Attempt++
		_, err := Start(t.Context(), store, run, "process 2", now+2*minute, now+minute+1)
		fatal(t, err)
	},

	// A schedule that was stopped before its start does not start sooner.
	"ScheduleBeforeItsStart": func(t *testing.T, store Store) {
		var schedule work.Schedule
		admit(t, store, alice, 1, func(tx work.Tx, owner work.Owner) (work.Opened, error) {
			schedule = aSchedule(owner)
			schedule.NextRunAt = pointer(now + 1000*minute)
			return work.Opened{Kind: work.KindSchedule, ID: schedule.ID}, tx.InsertSchedule(t.Context(), schedule)
		})
		cancel(t, store, schedule.ID, work.Cancelled{Kind: work.KindSchedule, ID: schedule.ID, State: "stopped"})
		admit(t, store, alice, 2, func(tx work.Tx, _ work.Owner) (work.Opened, error) {
			return work.TopUpSchedule(t.Context(), tx, schedule.ID, 3, now)
		})
		got, err := store.Schedule(t.Context(), alice, schedule.ID)
		fatal(t, err)
		same(t, got.NextRunAt, schedule.NextRunAt)
	},

	"Unknown": func(t *testing.T, store Store) {
		_, err := work.Canceller{Store: store}.Cancel(t.Context(), boxoffice.NewUUID(), now)
		wantError(t, err, work.ErrNotFound)
	},
}
