package sqlite

import (
	"path/filepath"
	"strings"
	"testing"

	"boxoffice"
	"boxoffice/internal/work"
)

// TestPlans holds every list to an index that has its order: no list sorts, or
// reads a table from one end to the other.
func TestPlans(t *testing.T) {
	store, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "boxoffice.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	type list struct {
		index, query string
		args         []any
	}
	lists := []list{
		{"orders_unadmitted", selectUnadmitted, []any{20}},
		{"intents_waiting", selectWaiting, []any{1, 20}},
		{"intents_unresolved", selectUnresolved, []any{1, 20}},
		{"intents_pending", selectPending, []any{"x", "x", 1}},
		{"intents_settled", selectSettled, []any{1, 5, 20}},
		{"slots_open", selectSlots(openSlots), []any{1}},
		{"schedules_due", selectDue, []any{1, 0, "", 20}},
		{"nodes_due", selectDueNodes, []any{1, nil, 20}},
		{"nodes_due", selectDueNodes, []any{1, `["audit", "delivery"]`, 20}},
		{"PRIMARY KEY", renewRuns, []any{1, "x", `[{"work": "x", "position": 0, "attempt": 1}]`}},
		{"nodes_held", selectExpired, []any{1, 20}},
	}
	for index, query := range map[string]work.JobQuery{
		"jobs_newest":                             {},
		"jobs_newest_by_state":                    {State: boxoffice.JobQueued},
		"jobs_newest_by_state_and_template":       {State: boxoffice.JobBlocked, Template: "audit"},
		"jobs_newest_by_template":                 {Template: "research"},
		"jobs_newest_by_launch_kind":              {LaunchKind: "custom_token"},
		"jobs_newest_by_state_and_launch_kind":    {State: boxoffice.JobBlocked, LaunchKind: "custom_token"},
		"jobs_newest_by_template_and_launch_kind": {Template: "audit", LaunchKind: "custom_token"},
		"jobs_newest_by_all":                      {State: boxoffice.JobBlocked, Template: "audit", LaunchKind: "custom_token"},
	} {
		first, args := selectJobs(boxoffice.Requester{}, query)
		query.After = &work.JobCursor{CreatedAt: 1, ID: "x"}
		next, nextArgs := selectJobs(boxoffice.Requester{}, query)
		lists = append(lists, list{index, first, args}, list{index, next, nextArgs})
	}
	for _, list := range lists {
		t.Run(list.index, func(t *testing.T) {
			plan, err := collect(t.Context(), store.readers, func(from row) (step string, err error) {
				var id, parent, unused int
				err = from.Scan(&id, &parent, &unused, &step)
				return step, err
			}, "EXPLAIN QUERY PLAN "+list.query, list.args...)
			if err != nil {
				t.Fatal(err)
			}
			steps := strings.Join(plan, "; ")
			if !strings.Contains(plan[0]+" ", " "+list.index+" ") || strings.Contains(steps, "TEMP B-TREE") {
				t.Errorf("plan: %s", steps)
			}
		})
	}
}
