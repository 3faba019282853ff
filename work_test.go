package boxoffice_test

import (
	"encoding/json"
	"strings"
	"testing"

	"boxoffice"

	"github.com/google/go-cmp/cmp"
)

func TestJobRules(t *testing.T) {
	type job = boxoffice.Job
	delivered := func(change func(*boxoffice.Delivery)) func(*job) { return func(j *job) { change(j.Delivery) } }
	checkRules(t, someJob, []breach[job]{
		{"id", func(j *job) { j.ID = "x" }, "/id"},
		{"queued", func(j *job) { j.State = boxoffice.JobQueued }, "ok"},
		{"running", func(j *job) { j.State = boxoffice.JobRunning }, "ok"},
		{"failed", func(j *job) { j.State = "failed" }, "/state"},
		{"blocked without a reason", func(j *job) { j.State = boxoffice.JobBlocked }, "/blockedReason"},
		{"blocked", func(j *job) { j.State, j.BlockedReason = boxoffice.JobBlocked, some("node 2 needs input") }, "ok"},
		{"a reason without being blocked", func(j *job) { j.BlockedReason = some("x") }, "/blockedReason"},
		{"no template", func(j *job) { j.Template = "" }, "/template"},
		{"no objective", func(j *job) { j.Objective = "" }, "/objective"},
		{"no launch", func(j *job) { j.LaunchKind = nil }, "ok"},
		{"another launch", func(j *job) { j.LaunchKind = some("rocket") }, "/launchKind"},
		{"createdAt", func(j *job) { j.CreatedAt = 1 << 62 }, "/createdAt"},
		{"updatedAt", func(j *job) { j.UpdatedAt = 1 << 62 }, "/updatedAt"},
		{"no delivery", func(j *job) { j.Delivery = nil }, "ok"},
		{
			"completed with a failed delivery",
			func(j *job) { j.Delivery = &boxoffice.Delivery{Failure: "exit status 1"} },
			"ok",
		},
		{"an empty delivery", func(j *job) { j.Delivery = &boxoffice.Delivery{} }, "/delivery/repoUrl"},
		{
			"a mixed delivery",
			delivered(func(d *boxoffice.Delivery) { d.Failure = "exit status 1" }),
			"/delivery/failure",
		},
		{"repoUrl", delivered(func(d *boxoffice.Delivery) { d.RepoURL = "git/1.git" }), "/delivery/repoUrl"},
		{
			"pullRequestUrl",
			delivered(func(d *boxoffice.Delivery) { d.PullRequestURL = some("") }),
			"/delivery/pullRequestUrl",
		},
		{
			"a pull request",
			delivered(func(d *boxoffice.Delivery) { d.PullRequestURL = some("https://forge.example/1") }),
			"ok",
		},
		{
			"short commit",
			delivered(func(d *boxoffice.Delivery) { d.Commit = strings.Repeat("a", 39) }),
			"/delivery/commit",
		},
		{
			"long commit",
			delivered(func(d *boxoffice.Delivery) { d.Commit = strings.Repeat("a", 41) }),
			"/delivery/commit",
		},
		{
			"commit not hex",
			delivered(func(d *boxoffice.Delivery) { d.Commit = strings.Repeat("g", 40) }),
			"/delivery/commit",
		},
		{"no deliveredAt", delivered(func(d *boxoffice.Delivery) { d.DeliveredAt = nil }), "/delivery/deliveredAt"},
		{
			"deliveredAt",
			delivered(func(d *boxoffice.Delivery) { d.DeliveredAt = some(boxoffice.Timestamp(1 << 62)) }),
			"/delivery/deliveredAt",
		},
		{"a node", func(j *job) {
			j.Nodes = []boxoffice.Node{{ID: "main", State: boxoffice.NodeRunning, StartedAt: some(someTime)}}
		}, "ok"},
		{
			"a node without a name",
			func(j *job) { j.Nodes = []boxoffice.Node{{State: boxoffice.NodeRunning}} },
			"/nodes/0/id",
		},
		{
			"a node in no state",
			func(j *job) { j.Nodes = []boxoffice.Node{{ID: "main", State: "completed"}} },
			"/nodes/0/state",
		},
		{"no project", func(j *job) { j.Project = nil }, "ok"},
		{"project id", func(j *job) { j.Project.ID = "" }, "/project/id"},
		{"project version", func(j *job) { j.Project.Version = 0 }, "/project/version"},
		{"version beyond the total", func(j *job) { j.Project.Version = 4 }, "/project/of"},
	})
}

func TestJobListRules(t *testing.T) {
	valid := func() boxoffice.JobList {
		return boxoffice.JobList{Count: 2, Jobs: []boxoffice.Job{someJob(), someJob()}}
	}
	checkRules(t, valid, []breach[boxoffice.JobList]{
		{"empty", func(l *boxoffice.JobList) { *l = boxoffice.JobList{} }, "ok"},
		{"count", func(l *boxoffice.JobList) { l.Count = 3 }, "/count"},
		{"second job", func(l *boxoffice.JobList) { l.Jobs[1].State = "" }, "/jobs/1/state"},
	})
}

func TestDeliveryOnTheWire(t *testing.T) {
	commit := strings.Repeat("0123456789", 4)
	success := `{"repoUrl":"https://f.example/r","pullRequestUrl":null,"commit":"` + commit +
		`","deliveredAt":"2026-11-20T10:00:00.000Z"}`
	for name, tc := range map[string]struct {
		wire string
		want boxoffice.Delivery
	}{
		"success": {success,
			boxoffice.Delivery{RepoURL: "https://f.example/r", Commit: commit, DeliveredAt: some(someTime)}},
		"success with a pull request": {
			strings.Replace(success, "null", `"https://f.example/r/1"`, 1),
			boxoffice.Delivery{
				RepoURL: "https://f.example/r", PullRequestURL: some("https://f.example/r/1"),
				Commit: commit, DeliveredAt: some(someTime),
			},
		},
		"failure": {`{"failure":"push: \u003cdenied\u003e"}`, boxoffice.Delivery{Failure: "push: <denied>"}},
	} {
		t.Run(name, func(t *testing.T) {
			var delivery boxoffice.Delivery
			if err := json.Unmarshal([]byte(tc.wire), &delivery); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, delivery); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tc.wire, string(marshal(t, delivery))); diff != "" {
				t.Error(diff)
			}
			wantField(t, delivery.Validate(), "ok")
		})
	}
	for name, wire := range map[string]string{
		"both":            `{"failure":"x","commit":"` + commit + `"}`,
		"a string":        `"done"`,
		"a wrong type":    `{"failure":1}`,
		"a wrong instant": `{"deliveredAt":"yesterday"}`,
	} {
		var delivery boxoffice.Delivery
		if err := json.Unmarshal([]byte(wire), &delivery); err == nil {
			t.Errorf("%s was decoded", name)
		}
	}
}

// TestJobOnTheWire: a job has exactly the members of docs/protocol.md §2.9.
func TestJobOnTheWire(t *testing.T) {
	job := boxoffice.Job{
		ID:        someID,
		State:     boxoffice.JobQueued,
		Template:  "research",
		Objective: "x",
		CreatedAt: someTime,
		UpdatedAt: someTime,
	}
	want := `{"id":"` + string(
		someID,
	) + `","state":"queued","template":"research","objective":"x","originalRequest":null,"launchKind":null,` +
		`"blockedReason":null,"delivery":null,"createdAt":"2026-11-20T10:00:00.000Z",` +
		`"updatedAt":"2026-11-20T10:00:00.000Z","project":null}`
	if diff := cmp.Diff(want, string(marshal(t, job))); diff != "" {
		t.Error(diff)
	}
	var decoded boxoffice.Job
	if err := json.Unmarshal(marshal(t, someJob()), &decoded); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(someJob(), decoded); diff != "" {
		t.Error(diff)
	}
}

func TestOracleRules(t *testing.T) {
	valid := func() boxoffice.Oracle {
		return boxoffice.Oracle{
			ID:        someID,
			State:     boxoffice.JobQueued,
			Question:  "Will it rain?",
			PanelSize: 5,
			CreatedAt: someTime,
			UpdatedAt: someTime,
		}
	}
	checkRules(t, valid, []breach[boxoffice.Oracle]{
		{"id", func(o *boxoffice.Oracle) { o.ID = "" }, "/id"},
		{"state", func(o *boxoffice.Oracle) { o.State = "" }, "/state"},
		{"question", func(o *boxoffice.Oracle) { o.Question = "" }, "/question"},
		{"panelSize", func(o *boxoffice.Oracle) { o.PanelSize = 0 }, "/panelSize"},
		{"updatedAt", func(o *boxoffice.Oracle) { o.UpdatedAt = 1 << 62 }, "/updatedAt"},
		{"completed without an answer", func(o *boxoffice.Oracle) { o.State = boxoffice.JobCompleted }, "/answer"},
		{
			"an answer too early",
			func(o *boxoffice.Oracle) { o.Answer = &boxoffice.PanelAnswer{Choice: "yes", Votes: 1, Of: 5} },
			"/answer",
		},
		{"blocked without a reason", func(o *boxoffice.Oracle) { o.State = boxoffice.JobBlocked }, "/blockedReason"},
		{"a member", func(o *boxoffice.Oracle) {
			o.Members = []boxoffice.Member{{Number: 1, State: boxoffice.NodeDone, Choice: "yes"}}
		}, "ok"},
		{
			"a member that chose nothing",
			func(o *boxoffice.Oracle) { o.Members = []boxoffice.Member{{Number: 1, State: boxoffice.NodeDone}} },
			"/members/0/choice",
		},
		{
			"a member without a number",
			func(o *boxoffice.Oracle) { o.Members = []boxoffice.Member{{State: boxoffice.NodeQueued}} },
			"/members/0/number",
		},
	})
}

func TestWorkflowRules(t *testing.T) {
	valid := func() boxoffice.Workflow {
		return boxoffice.Workflow{
			ID: someID, State: boxoffice.JobQueued, Objective: "A report", Shape: "dag", JobID: otherID,
			CreatedAt: someTime, UpdatedAt: someTime,
			Nodes: []boxoffice.WorkflowNode{
				{ID: "a", Objective: "read", Template: "research"},
				{ID: "b", Objective: "write", Template: "research", After: []string{"a"}},
			},
		}
	}
	checkRules(t, valid, []breach[boxoffice.Workflow]{
		{"id", func(w *boxoffice.Workflow) { w.ID = "" }, "/id"},
		{"state", func(w *boxoffice.Workflow) { w.State = "ended" }, "/state"},
		{"objective", func(w *boxoffice.Workflow) { w.Objective = "" }, "/objective"},
		{"shape", func(w *boxoffice.Workflow) { w.Shape = "ring" }, "/shape"},
		{"chain", func(w *boxoffice.Workflow) { w.Shape = "chain" }, "ok"},
		{"nodes", func(w *boxoffice.Workflow) { w.Nodes = nil }, "/nodes"},
		{"node id", func(w *boxoffice.Workflow) { w.Nodes[1].ID = "" }, "/nodes/1/id"},
		{"node objective", func(w *boxoffice.Workflow) { w.Nodes[0].Objective = "" }, "/nodes/0/objective"},
		{"node template", func(w *boxoffice.Workflow) { w.Nodes[0].Template = "" }, "/nodes/0/template"},
		{"node state", func(w *boxoffice.Workflow) { w.Nodes[0].State = boxoffice.NodeDone }, "ok"},
		{"node in no state", func(w *boxoffice.Workflow) { w.Nodes[0].State = "ended" }, "/nodes/0/state"},
		{"node after itself", func(w *boxoffice.Workflow) { w.Nodes[1].After = []string{"b"} }, "/nodes/1/after"},
		{"job", func(w *boxoffice.Workflow) { w.JobID = "" }, "/jobId"},
	})
}

func TestScheduleRules(t *testing.T) {
	valid := func() boxoffice.Schedule {
		return boxoffice.Schedule{
			ID: someID, State: boxoffice.ScheduleActive, Action: "job.open", Input: json.RawMessage(someInput),
			IntervalMinutes: 30,
			RunsBought:      4, RunsLeft: 4, NextRunAt: some(someTime), CreatedAt: someTime, UpdatedAt: someTime,
		}
	}
	checkRules(t, valid, []breach[boxoffice.Schedule]{
		{"id", func(s *boxoffice.Schedule) { s.ID = "" }, "/id"},
		{"state", func(s *boxoffice.Schedule) { s.State = "paused" }, "/state"},
		{
			"ended",
			func(s *boxoffice.Schedule) { s.State, s.RunsLeft, s.NextRunAt = boxoffice.ScheduleEnded, 0, nil },
			"ok",
		},
		{
			"ended with a next run",
			func(s *boxoffice.Schedule) { s.State, s.RunsLeft = boxoffice.ScheduleEnded, 0 },
			"/nextRunAt",
		},
		{"active without a next run", func(s *boxoffice.Schedule) { s.NextRunAt = nil }, "/nextRunAt"},
		{"oracle", func(s *boxoffice.Schedule) { s.Action = "oracle.request" }, "ok"},
		{"another action", func(s *boxoffice.Schedule) { s.Action = "launch.open" }, "/action"},
		{"input", func(s *boxoffice.Schedule) { s.Input = nil }, "/input"},
		{"interval", func(s *boxoffice.Schedule) { s.IntervalMinutes = 0 }, "/intervalMinutes"},
		{"runsBought", func(s *boxoffice.Schedule) { s.RunsBought = 0 }, "/runsBought"},
		{"runsLeft", func(s *boxoffice.Schedule) { s.RunsLeft = 5 }, "/runsLeft"},
		{"missed", func(s *boxoffice.Schedule) { s.Missed = boxoffice.MissedCatchUp }, "ok"},
		{"missed otherwise", func(s *boxoffice.Schedule) { s.Missed = "forget" }, "/missed"},
		{"a run", func(s *boxoffice.Schedule) {
			s.LastRuns = []boxoffice.ScheduledRun{{Number: 1, Kind: "job", ID: someID, DueAt: someTime, At: someTime}}
		}, "ok"},
		{
			"a run of nothing",
			func(s *boxoffice.Schedule) { s.LastRuns = []boxoffice.ScheduledRun{{Number: 1, ID: someID}} },
			"/lastRuns/0/kind",
		},
		{"negative runsLeft", func(s *boxoffice.Schedule) { s.RunsLeft = -1 }, "/runsLeft"},
	})
}
