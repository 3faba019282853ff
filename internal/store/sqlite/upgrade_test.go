package sqlite_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"boxoffice"
	"boxoffice/internal/work"

	"github.com/pressly/goose/v3"
)

// Work that was paid for before any was run is run after the upgrade.
func TestWorkOfOldDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "boxoffice.db")
	old := raw(t, path)
	migrations, err := goose.NewProvider(goose.DialectSQLite3, old, os.DirFS("migrations"), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := migrations.UpTo(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	seed(t, old)
	const job, graph, oracle = boxoffice.UUID("00000000-0000-7000-8000-000000000011"), boxoffice.UUID("00000000-0000-7000-8000-000000000012"),
		boxoffice.UUID("00000000-0000-7000-8000-000000000013")
	for _, row := range [][4]string{
		{string(job), "audit", "look", `{}`},
		{string(graph), "shape:dag", "all", `{"nodes":[{"id":"a","objective":"first","template":"research"},
			{"id":"b","objective":"second","template":"audit","after":["a"]},{"id":"c","objective":"third","template":"research","after":[]}]}`},
	} {
		must(t, old, fmt.Sprintf(`INSERT INTO jobs (id, requester, payer, order_id, state, template, objective, brief, created_at, updated_at)
			VALUES ('%s', %s, %s, %s, 'queued', '%s', '%s', '%s', 1, 1)`, row[0], hex32, hex20, id1, row[1], row[2], row[3]))
	}
	must(t, old, fmt.Sprintf(`INSERT INTO oracles (id, requester, payer, order_id, state, question, panel_size, context, created_at, updated_at)
		VALUES ('%s', %s, %s, %s, 'queued', 'Is it?', 5, '', 1, 1)`, oracle, hex32, hex20, id1))
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}

	store := open(t, path)
	const now = boxoffice.Timestamp(1_780_000_000_000)
	if n, err := store.Requeue(t.Context(), now, now, 100); err != nil || n != 1+2+5 {
		t.Errorf("%d runs were queued, %v", n, err)
	}
	run := func(of boxoffice.UUID, position int, want boxoffice.Node) {
		t.Helper()
		run := work.Run{Work: of, Position: position, Attempt: 1}
		assignment, err := store.Claim(t.Context(), run, "p", now+1000, now, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := assignment.Node; got.ID != want.ID || got.Template != want.Template || !slices.Equal(got.After, want.After) {
			t.Errorf("%+v", got)
		}
		result := work.Result{Verdict: work.Done, Summary: "s", Choice: "yes"}
		if assignment.Node.Kind == work.NodeDelivery {
			result.Delivery = &boxoffice.Delivery{Failure: "no host"}
		}
		if err := store.Finish(t.Context(), run, "p", result, now); err != nil {
			t.Fatal(err)
		}
	}
	delivery := boxoffice.Node{ID: "delivery"}
	run(job, 0, boxoffice.Node{ID: "main", Template: "audit"})
	run(job, 1, delivery)
	run(graph, 0, boxoffice.Node{ID: "a", Template: "research"})
	run(graph, 1, boxoffice.Node{ID: "b", Template: "audit", After: []string{"a"}})
	run(graph, 2, boxoffice.Node{ID: "c", Template: "research"})
	run(graph, 3, delivery)
	for member := range 5 {
		run(oracle, member, boxoffice.Node{ID: "member"})
	}
	var open int
	if err := raw(t, path).QueryRow(`SELECT (SELECT count(*) FROM jobs WHERE state <> 'completed') + (SELECT count(*) FROM oracles WHERE state <> 'completed')`).Scan(&open); err != nil || open != 0 {
		t.Errorf("%d are not completed, %v", open, err)
	}
}
