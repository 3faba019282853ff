package storetest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"boxoffice"
	"boxoffice/internal/action"
	"boxoffice/internal/work"
)

var workTests = map[string]func(*testing.T, Store){
	"Job": func(t *testing.T, store Store) {
		record, _ := pay(t, store, alice, 1)
		plain, full := job(alice, record.ID), job(alice, record.ID)
		full.State, full.BlockedReason, full.LaunchKind = boxoffice.JobBlocked, pointer("node 2 needs input"), pointer("univ4_hook")
		full.Project = &boxoffice.Project{ID: boxoffice.NewUUID(), Version: 1, Of: 1}
		full.Delivery = &boxoffice.Delivery{RepoURL: "https://example.com/git/1.git", Commit: fmt.Sprintf("%040x", 77),
			DeliveredAt: pointer(now)}
		full.Brief = work.Brief{
			Context: []boxoffice.Document{{Name: "readme", Text: "\u2028 <b>&"}}, RepoURL: "https://example.com/r.git",
			ChainID:  8453,
			PairWith: "ETH", Name: "Coin", Symbol: "C", Follows: boxoffice.NewUUID(),
			Nodes: []boxoffice.WorkflowNode{{ID: "a", Objective: "o", Template: "research", After: []string{"b"}}},
		}
		broken := job(alice, record.ID)
		broken.State, broken.Delivery = boxoffice.JobCompleted, &boxoffice.Delivery{Failure: "git push: exit status 1"}
		fatal(t, store.Admit(t.Context(), admission(t, store, record, now), func(tx work.Tx) (work.Opened, error) {
			for _, job := range []work.Job{plain, full, broken} {
				fatal(t, tx.InsertJob(t.Context(), job))
			}
			wantError(t, giveInput(t.Context(), tx, broken.ID, work.Input{OrderID: record.ID, Text: "more", At: now}),
				work.ErrEnded)
			return work.Opened{Kind: work.KindJob, ID: plain.ID}, nil
		}))
		for _, want := range []work.Job{plain, full, broken} {
			got, err := store.Job(t.Context(), alice, want.ID)
			fatal(t, err)
			same(t, got, want)
			_, err = store.Job(t.Context(), bob, want.ID)
			wantError(t, err, work.ErrNotFound)
		}
	},

	"OracleWorkflowSchedule": func(t *testing.T, store Store) {
		var (
			oracle, bare work.Oracle
			workflow     work.Workflow
			schedule     work.Schedule
		)
		admit(t, store, alice, 1, func(tx work.Tx, owner work.Owner) (work.Opened, error) {
			oracle = work.Oracle{Owner: owner, Oracle: boxoffice.Oracle{
				ID: boxoffice.NewUUID(), State: boxoffice.JobQueued, Question: "Will it?", PanelSize: 5,
				Options: []string{"yes", "no"}, Context: "none", CreatedAt: now, UpdatedAt: now,
			}}
			bare = oracle
			bare.ID, bare.Options, bare.Context = boxoffice.NewUUID(), nil, ""
			carrier := job(alice, owner.OrderID)
			workflow = work.Workflow{Owner: owner, Workflow: boxoffice.Workflow{
				ID: boxoffice.NewUUID(), State: carrier.State, Objective: "all of it", Shape: "dag", JobID: carrier.ID,
				Nodes: []boxoffice.WorkflowNode{{ID: "a", Objective: "o", Template: "research"},
					{ID: "b", After: []string{"a"}}},
				CreatedAt: now, UpdatedAt: now,
			}}
			schedule = aSchedule(owner)
			fatal(t, tx.InsertOracle(t.Context(), oracle))
			fatal(t, tx.InsertOracle(t.Context(), bare))
			fatal(t, tx.InsertJob(t.Context(), carrier))
			fatal(t, tx.InsertWorkflow(t.Context(), workflow))
			fatal(t, tx.InsertSchedule(t.Context(), schedule))
			return work.Opened{Kind: work.KindWorkflow, ID: workflow.ID, JobID: carrier.ID}, nil
		})
		for _, want := range []work.Oracle{oracle, bare} {
			got, err := store.Oracle(t.Context(), alice, want.ID)
			fatal(t, err)
			same(t, got, want)
			_, err = store.Oracle(t.Context(), bob, want.ID)
			wantError(t, err, work.ErrNotFound)
		}
		gotWorkflow, err := store.Workflow(t.Context(), alice, workflow.ID)
		fatal(t, err)
		same(t, gotWorkflow, workflow)
		gotSchedule, err := store.Schedule(t.Context(), alice, schedule.ID)
		fatal(t, err)
		same(t, gotSchedule, schedule)
		_, err = store.Workflow(t.Context(), bob, workflow.ID)
		wantError(t, err, work.ErrNotFound)
		_, err = store.Schedule(t.Context(), bob, schedule.ID)
		wantError(t, err, work.ErrNotFound)
		_, err = store.Oracle(t.Context(), alice, workflow.ID)
		wantError(t, err, work.ErrNotFound)

		payer, err := store.JobPayer(t.Context(), alice, workflow.JobID)
		fatal(t, err)
		same(t, payer, wallet)
		payer, err = store.SchedulePayer(t.Context(), alice, schedule.ID)
		fatal(t, err)
		same(t, payer, wallet)
		_, err = store.JobPayer(t.Context(), bob, workflow.JobID)
		wantError(t, err, action.ErrNoOriginal)
		_, err = store.JobPayer(t.Context(), alice, schedule.ID)
		wantError(t, err, action.ErrNoOriginal)
		_, err = store.SchedulePayer(t.Context(), bob, schedule.ID)
		wantError(t, err, action.ErrNoOriginal)
		_, err = store.SchedulePayer(t.Context(), alice, workflow.JobID)
		wantError(t, err, action.ErrNoOriginal)
	},

	"PagesAreStable": func(t *testing.T, store Store) {
		var want []boxoffice.UUID
		insert := func(nonce uint64, at ...boxoffice.Timestamp) {
			admit(t, store, alice, nonce, func(tx work.Tx, owner work.Owner) (opened work.Opened, err error) {
				for _, at := range at {
					job := job(alice, owner.OrderID)
					job.CreatedAt, job.UpdatedAt = at, at
					opened = work.Opened{Kind: work.KindJob, ID: job.ID}
					fatal(t, tx.InsertJob(t.Context(), job))
					want = append([]boxoffice.UUID{job.ID}, want...)
				}
				return opened, nil
			})
		}
		insert(1, now, now+1, now+2, now+2, now+2, now+3, now+4, now+4) // ids rise with insertion: ties go by id
		expected := slices.Clone(want)

		var got []boxoffice.UUID
		query := work.JobQuery{Limit: 3}
		for page := uint64(2); ; page++ {
			jobs, err := store.Jobs(t.Context(), alice, query)
			fatal(t, err)
			for _, job := range jobs {
				got = append(got, job.ID)
			}
			if len(jobs) < query.Limit {
				break
			}
			last := jobs[len(jobs)-1]
			query.After = &work.JobCursor{CreatedAt: last.CreatedAt, ID: last.ID}
			insert(page, now+10*minute) // newer ones arrive between the pages
		}
		same(t, got, expected)
		theirs, err := store.Jobs(t.Context(), bob, work.JobQuery{Limit: 100})
		fatal(t, err)
		same(t, theirs, []work.Job(nil))
	},

	"Filters": func(t *testing.T, store Store) {
		templates := []string{"research", "audit"}
		kinds := []*string{nil, pointer("custom_token"), pointer("evm_project")}
		states := []boxoffice.JobState{boxoffice.JobQueued, boxoffice.JobRunning, boxoffice.JobCompleted}
		var all []work.Job
		admit(t, store, alice, 1, func(tx work.Tx, owner work.Owner) (opened work.Opened, err error) {
			for i := range 36 {
				job := job(alice, owner.OrderID)
				job.State, job.Template, job.LaunchKind = states[i%3], templates[i%2], kinds[i/6%3]
				fatal(t, tx.InsertJob(t.Context(), job))
				all = append([]work.Job{job}, all...)
				opened = work.Opened{Kind: work.KindJob, ID: job.ID}
			}
			return opened, nil
		})
		for _, state := range append(states, "") {
			for _, template := range append(templates, "") {
				for _, kind := range append(kinds, pointer("never")) {
					query := work.JobQuery{State: state, Template: template, Limit: 5}
					if kind != nil {
						query.LaunchKind = *kind
					}
					var want []work.Job
					for _, job := range all {
						if (state == "" || job.State == state) && (template == "" || job.Template == template) &&
							(kind == nil || job.LaunchKind != nil && *job.LaunchKind == *kind) {
							want = append(want, job)
						}
					}
					for len(want) > 0 || query.After == nil {
						got, err := store.Jobs(t.Context(), alice, query)
						fatal(t, err)
						page := want[:min(query.Limit, len(want))]
						same(t, got, page)
						if len(page) == 0 {
							break
						}
						query.After = &work.JobCursor{CreatedAt: page[len(page)-1].CreatedAt, ID: page[len(page)-1].ID}
						want = want[len(page):]
					}
				}
			}
		}
	},

	"ProjectVersions": func(t *testing.T, store Store) {
		var versions []work.Job
		admit(t, store, alice, 1, func(tx work.Tx, owner work.Owner) (work.Opened, error) {
			versions = append(versions, job(alice, owner.OrderID))
			return work.Opened{Kind: work.KindJob, ID: versions[0].ID}, tx.InsertJob(t.Context(), versions[0])
		})
		for nonce := range uint64(3) {
			admit(t, store, alice, 10+nonce, func(tx work.Tx, owner work.Owner) (work.Opened, error) {
				before := versions[0] // any version will do
				version, err := tx.NextVersion(t.Context(), before.ID)
				fatal(t, err)
				number := len(versions) + 1
				before.Project = &boxoffice.Project{ID: version.Project.ID, Version: number, Of: number}
				same(t, version, before)
				next := job(alice, owner.OrderID)
				next.Project = version.Project
				versions = append(versions, next)
				_, err = tx.NextVersion(t.Context(), boxoffice.NewUUID())
				wantError(t, err, work.ErrNotFound)
				return work.Opened{Kind: work.KindJob, ID: next.ID}, tx.InsertJob(t.Context(), next)
			})
		}
		jobs, err := store.Jobs(t.Context(), alice, work.JobQuery{Limit: 10})
		fatal(t, err)
		slices.Reverse(jobs)
		for i, job := range jobs {
			same(t, job.ID, versions[i].ID)
			same(t, job.Project, &boxoffice.Project{ID: jobs[0].Project.ID, Version: i + 1, Of: 4})
		}
	},

	"GiveInput": func(t *testing.T, store Store) {
		var blocked, queued work.Job
		admit(t, store, alice, 1, func(tx work.Tx, owner work.Owner) (work.Opened, error) {
			blocked, queued = job(alice, owner.OrderID), job(alice, owner.OrderID)
			blocked.State, blocked.BlockedReason = boxoffice.JobBlocked, pointer("which chain?")
			fatal(t, tx.InsertJob(t.Context(), queued))
			return work.Opened{Kind: work.KindJob, ID: blocked.ID}, tx.InsertJob(t.Context(), blocked)
		})
		at := now + 9*minute
		for nonce, given := range []work.Job{blocked, queued} {
			admit(t, store, alice, 10+uint64(nonce), func(tx work.Tx, owner work.Owner) (work.Opened, error) {
				input := work.Input{OrderID: owner.OrderID, Text: "Base", At: at}
				wantError(t, giveInput(t.Context(), tx, boxoffice.NewUUID(), input), work.ErrNotFound)
				return work.Opened{Kind: work.KindJob, ID: given.ID}, giveInput(t.Context(), tx, given.ID, input)
			})
		}
		blocked.State, blocked.BlockedReason, blocked.UpdatedAt = boxoffice.JobQueued, nil, at
		for _, want := range []work.Job{blocked, queued} {
			got, err := store.Job(t.Context(), alice, want.ID)
			fatal(t, err)
			same(t, got, want)
		}
	},

	"AddRuns": func(t *testing.T, store Store) {
		var active, ended work.Schedule
		admit(t, store, alice, 1, func(tx work.Tx, owner work.Owner) (work.Opened, error) {
			active, ended = aSchedule(owner), aSchedule(owner)
			ended.State, ended.RunsLeft, ended.NextRunAt = boxoffice.ScheduleEnded, 0, nil
			fatal(t, tx.InsertSchedule(t.Context(), ended))
			return work.Opened{Kind: work.KindSchedule, ID: active.ID}, tx.InsertSchedule(t.Context(), active)
		})
		at := now + 90*minute
		admit(t, store, alice, 2, func(tx work.Tx, _ work.Owner) (work.Opened, error) {
			_, err := work.TopUpSchedule(t.Context(), tx, boxoffice.NewUUID(), 4, at)
			wantError(t, err, work.ErrNotFound)
			_, err = work.TopUpSchedule(t.Context(), tx, active.ID, 4, at)
			fatal(t, err)
			return work.TopUpSchedule(t.Context(), tx, ended.ID, 4, at)
		})
		active.RunsBought, active.RunsLeft, active.UpdatedAt = active.RunsBought+4, active.RunsLeft+4, at
		ended.RunsBought, ended.RunsLeft, ended.UpdatedAt = ended.RunsBought+4, 4, at
		ended.State, ended.NextRunAt = boxoffice.ScheduleActive, pointer(at+boxoffice.Timestamp(ended.IntervalMinutes)*minute)
		for _, want := range []work.Schedule{active, ended} {
			got, err := store.Schedule(t.Context(), alice, want.ID)
			fatal(t, err)
			same(t, got, want)
		}
	},
}

func giveInput(ctx context.Context, tx work.Tx, job boxoffice.UUID, input work.Input) error {
	return tx.Change(ctx, job, func(graph work.Graph) (work.Change, error) { return graph.GiveInput(input) })
}

func job(owner boxoffice.Requester, orderID boxoffice.UUID) work.Job {
	return work.Job{
		Owner: work.Owner{Requester: owner, Payer: wallet, OrderID: orderID},
		Job: boxoffice.Job{
			ID: boxoffice.NewUUID(), State: boxoffice.JobQueued, Template: "research", Objective: "compare them",
			CreatedAt: now, UpdatedAt: now,
		},
	}
}

func aSchedule(owner work.Owner) work.Schedule {
	return work.Schedule{Owner: owner, Schedule: boxoffice.Schedule{
		ID: boxoffice.NewUUID(), State: boxoffice.ScheduleActive, Action: boxoffice.ActionJobOpen,
		Input: []byte(`{"objective":"again","template":"research"}`), IntervalMinutes: 30, RunsBought: 10, RunsLeft: 7,
		NextRunAt: pointer(now + minute), Missed: boxoffice.MissedSkip, CreatedAt: now, UpdatedAt: now,
	}}
}
