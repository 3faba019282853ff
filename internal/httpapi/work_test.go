package httpapi_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/httpapi"
	"boxoffice/internal/work"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func (s *storedWork) Jobs(_ context.Context, _ boxoffice.Requester, query work.JobQuery) ([]work.Job, error) {
	s.query = query
	var page []work.Job
	for _, job := range s.listed {
		after := query.After
		if after != nil && (job.CreatedAt > after.CreatedAt || job.CreatedAt == after.CreatedAt && job.ID >= after.ID) {
			continue
		}
		if len(page) < query.Limit {
			page = append(page, job)
		}
	}
	return page, s.err
}

func (s *storedWork) Job(_ context.Context, _ boxoffice.Requester, id boxoffice.UUID) (work.Job, error) {
	for _, job := range s.listed {
		if job.ID == id {
			return job, s.err
		}
	}
	return work.Job{}, errors.Join(s.err, work.ErrNotFound)
}

func (s *storedWork) Oracle(_ context.Context, _ boxoffice.Requester, id boxoffice.UUID) (work.Oracle, error) {
	return s.oracles, found(s, id, s.oracles.ID)
}

func (s *storedWork) Workflow(_ context.Context, _ boxoffice.Requester, id boxoffice.UUID) (work.Workflow, error) {
	return s.workflows, found(s, id, s.workflows.ID)
}

func (s *storedWork) Schedule(_ context.Context, _ boxoffice.Requester, id boxoffice.UUID) (work.Schedule, error) {
	return s.schedules, found(s, id, s.schedules.ID)
}

func found(s *storedWork, asked, held boxoffice.UUID) error {
	if s.err == nil && asked != held {
		return work.ErrNotFound
	}
	return s.err
}

const moment = boxoffice.Timestamp(1_795_000_000_123)

// job returns the nth job, newest first; two have the same time of creation.
func job(n int) work.Job {
	return work.Job{Job: boxoffice.Job{
		ID: boxoffice.UUID(fmt.Sprintf("0198f0a4-6c1e-7c3a-9f5e-%012x", 1000-n)), State: boxoffice.JobQueued,
		Template: "research", Objective: "count", CreatedAt: moment - boxoffice.Timestamp(n/2), UpdatedAt: moment,
	}}
}

func TestJobPages(t *testing.T) {
	s := serve(t, func(c *httpapi.Config) { c.PerToken, c.PerAddress = unlimited, unlimited })
	rapid.Check(t, func(rt *rapid.T) {
		s.work = storedWork{}
		total := rapid.IntRange(0, 25).Draw(rt, "jobs")
		limit := rapid.IntRange(1, 12).Draw(rt, "limit")
		var want, got []boxoffice.UUID
		for n := range total {
			s.work.listed = append(s.work.listed, job(n))
			want = append(want, job(n).ID)
		}
		next := fmt.Sprintf("/jobs?template=research&limit=%d", limit)
		for next != "" {
			answer := s.do("GET", next, "")
			answer.wantStatus(t, http.StatusOK)
			var page boxoffice.JobList
			answer.decode(t, &page)
			if page.Count != len(page.Jobs) || page.Count > limit || s.work.query.Template != "research" {
				rt.Fatalf("count %d of %d jobs, template %q", page.Count, len(page.Jobs), s.work.query.Template)
			}
			for _, job := range page.Jobs {
				got = append(got, job.ID)
			}
			link, ok := strings.CutSuffix(answer.Header.Get("Link"), `>; rel="next"`)
			if next = strings.TrimPrefix(link, "<"+baseURL); ok && page.Count < limit || !ok && link != "" {
				rt.Fatalf("Link %q after %d jobs", answer.Header.Get("Link"), page.Count)
			}
		}
		if !slices.Equal(want, got) {
			rt.Fatalf("pages list %v, want %v", got, want)
		}
	})
}

func TestJobFilters(t *testing.T) {
	s := serve(t)
	after := work.JobCursor{CreatedAt: moment, ID: anyID}
	cursor := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d.%s", int64(moment), anyID))
	for query, want := range map[string]work.JobQuery{
		"":               {Limit: 21},
		"?limit=100":     {Limit: 101},
		"?state=blocked": {State: boxoffice.JobBlocked, Limit: 21},
		"?template=skill%3Abuild-website&launchKind=x&limit=1": {
			Template: "skill:build-website", LaunchKind: "x", Limit: 2,
		},
		"?cursor=" + cursor: {Limit: 21, After: &after},
	} {
		s.do("GET", "/jobs"+query, "").wantStatus(t, http.StatusOK)
		if diff := cmp.Diff(want, s.work.query); diff != "" {
			t.Errorf("%s: %s", query, diff)
		}
	}
	var empty struct{ Jobs []boxoffice.Job }
	if s.do("GET", "/jobs", "").decode(t, &empty); empty.Jobs == nil {
		t.Error("no jobs are not an empty list")
	}
}

func TestJobFiltersRefused(t *testing.T) {
	s := serve(t)
	for query, place := range map[string]string{
		"limit=0": "?limit", "limit=101": "?limit", "limit=": "?limit", "limit=1.5": "?limit", "limit=%2B5": "?limit",
		"limit=05": "?limit", "limit=99999999999999999999": "?limit",
		"state=done": "?state", "state=": "?state", "state=queued&state=queued": "?state",
		"template=": "?template", "template=" + strings.Repeat("x", 65): "?template", "launchKind=%ff": "?launchKind",
		"cursor=": "?cursor", "cursor=x": "?cursor", "cursor=%20": "?cursor",
		"cursor=" + base64.RawURLEncoding.EncodeToString([]byte("+1."+anyID)):                   "?cursor",
		"cursor=" + base64.RawURLEncoding.EncodeToString([]byte("1."+strings.ToUpper(anyID))):   "?cursor",
		"cursor=" + base64.RawURLEncoding.EncodeToString([]byte("99999999999999999999."+anyID)): "?cursor",
		"offset=3": "?offset", "Limit=5": "?Limit", "%zz=1": "?", "a;b=1": "?",
	} {
		s.do("GET", "/jobs?"+query, "").wantProblem(t, boxoffice.InvalidRequest, place)
	}
}

func FuzzJobQuery(f *testing.F) {
	f.Add("limit=5&cursor=MS4w")
	f.Add("state=queued")
	var held storedWork
	handler := httpapi.New(httpapi.Config{Work: &held, BaseURL: baseURL, PerToken: unlimited, PerAddress: unlimited,
		Log: discard, Now: time.Now})
	f.Fuzz(func(t *testing.T, query string) {
		request := httptest.NewRequest("GET", "/jobs", nil)
		request.URL.RawQuery = query
		request.Header.Set("Authorization", "Bearer "+token)
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		if answer.Code != http.StatusOK && answer.Code != http.StatusBadRequest {
			t.Errorf("answered %d", answer.Code)
		}
	})
}

// A list cuts an objective to 200 characters, however many bytes they have. The job
// itself has the whole objective.
func TestObjectiveIsCutInLists(t *testing.T) {
	for objective, want := range map[string]string{
		strings.Repeat("é", 200):             strings.Repeat("é", 200),
		strings.Repeat("é", 201):             strings.Repeat("é", 200) + "…",
		strings.Repeat("x", 198) + " \n y z": strings.Repeat("x", 198) + "…",
		"":                                   "",
	} {
		s := serve(t)
		long := job(0)
		long.Objective = objective
		s.work.listed = []work.Job{long}
		var page boxoffice.JobList
		s.do("GET", "/jobs", "").decode(t, &page)
		if page.Jobs[0].Objective != want {
			t.Errorf("%q is listed as %q", objective, page.Jobs[0].Objective)
		}
		var whole boxoffice.Job
		s.do("GET", "/jobs/"+string(long.ID), "").decode(t, &whole)
		if whole.Objective != objective {
			t.Errorf("%q is shown as %q", objective, whole.Objective)
		}
	}
}

// Every form of every resource matches the document.
func TestWorkIsAsDocumented(t *testing.T) {
	s := serve(t)
	text, next := "text", boxoffice.At(time.Unix(1_795_000_000, 0))
	plain, blocked, delivered, failed := job(0), job(1), job(2), job(3)
	blocked.State, blocked.BlockedReason, blocked.LaunchKind = boxoffice.JobBlocked, &text, new("custom_token")
	delivered.State, delivered.Project = boxoffice.JobCompleted, &boxoffice.Project{ID: anyID, Version: 1, Of: 2}
	delivered.Delivery = &boxoffice.Delivery{RepoURL: "https://git.example/r.git", Commit: strings.Repeat("ab", 20),
		DeliveredAt: &next}
	failed.Delivery = &boxoffice.Delivery{Failure: "exit status 1"}
	plain.Nodes = []boxoffice.Node{{ID: "main", State: boxoffice.NodeBlocked, After: []string{}, Attempts: 2,
		Reason: "why?", StartedAt: &next}}
	s.work = storedWork{
		listed: []work.Job{plain, blocked, delivered, failed},
		oracles: work.Oracle{Oracle: boxoffice.Oracle{ID: anyID, State: boxoffice.JobQueued,
			Question: "?", PanelSize: 5,
			Options: []string{"a", "b"},
			Answer:  &boxoffice.PanelAnswer{Choice: "a", Votes: 3, Of: 5},
			Tally:   []boxoffice.Votes{{Choice: "a", Votes: 3}},
			Members: []boxoffice.Member{{Number: 1, State: boxoffice.NodeDone,
				Choice: "a", Summary: "so", EndedAt: &next}}}},
		workflows: work.Workflow{Workflow: boxoffice.Workflow{ID: anyID, State: boxoffice.JobQueued, Shape: "dag",
			JobID: anyID,
			Nodes: []boxoffice.WorkflowNode{{ID: "a", Objective: "o", Template: "research", After: []string{},
				State: boxoffice.NodeDone, Summary: "so"}}}},
		schedules: work.Schedule{Schedule: boxoffice.Schedule{ID: anyID, State: boxoffice.ScheduleActive,
			Action: "job.open",
			Input:  []byte(`{"objective":"<&>"}`), IntervalMinutes: 30, RunsBought: 2, RunsLeft: 1, NextRunAt: &next,
			Missed:   boxoffice.MissedSkip,
			LastRuns: []boxoffice.ScheduledRun{{Number: 1, Kind: work.KindJob, ID: anyID, DueAt: next, At: next}}}},
	}
	s.do("GET", "/jobs", "").wantStatus(t, http.StatusOK)
	for _, path := range []string{"/oracles/", "/workflows/", "/schedules/"} {
		s.do("GET", path+anyID, "").wantStatus(t, http.StatusOK)
		s.do("GET", path+"00000000-0000-0000-0000-000000000000", "").wantProblem(t, boxoffice.NotFound)
	}
	s.do("GET", "/jobs/"+string(plain.ID), "").wantStatus(t, http.StatusOK)
	s.do("GET", "/jobs/"+anyID, "").wantProblem(t, boxoffice.NotFound)
	if body := s.do("GET", "/schedules/"+anyID, "").body; !strings.Contains(string(body), `"<&>"`) {
		t.Errorf("the input was rewritten: %s", body)
	}
	s.work.err = errors.New("disk is gone")
	for _, path := range []string{"/jobs", "/jobs/" + string(plain.ID), "/oracles/" + anyID, "/workflows/" + anyID,
		"/schedules/" + anyID} {
		unavailable := s.do("GET", path, "")
		unavailable.wantProblem(t, boxoffice.TemporarilyUnavailable)
		if strings.Contains(string(unavailable.body), "disk") {
			t.Errorf("%s shows the cause", unavailable.body)
		}
	}
	if !strings.Contains(s.log.String(), "disk is gone") {
		t.Error("the cause is not logged")
	}
}
