package sqlite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/store/sqlite"
	"boxoffice/internal/store/storetest"
	"boxoffice/internal/test/testdb"
	"boxoffice/internal/work"
)

func TestStore(t *testing.T) { storetest.Run(t, fresh) }

func BenchmarkStore(b *testing.B) { storetest.Benchmark(b, fresh) }

func fresh(t testing.TB) storetest.Store {
	return open(t, testdb.Path(t))
}

func open(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// TestManyOpen opens a file that does not exist many times at once, as many processes
// would, and uses it through each.
func TestManyOpen(t *testing.T) {
	const openers = 8
	path := filepath.Join(t.TempDir(), "boxoffice.db")
	lines := make([][]string, openers)
	var opening sync.WaitGroup
	for i := range openers {
		opening.Go(func() {
			store, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
			if err != nil {
				t.Error(err)
				return
			}
			defer store.Close()
			for n := range 4 {
				storetest.Purchase(t, store, uint64(i*100+n), func(line string) { lines[i] = append(lines[i], line) })
			}
		})
	}
	opening.Wait()
	last := open(t, path)
	for _, lines := range lines {
		storetest.Kept(t, last, lines)
	}
}

// TestOpenWithoutClose reads what a store wrote that is still open.
func TestOpenWithoutClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "boxoffice.db")
	first, lines := open(t, path), []string(nil)
	storetest.Purchase(t, first, 1, func(line string) { lines = append(lines, line) })
	second := open(t, path)
	storetest.Kept(t, second, lines)
	storetest.Purchase(t, second, 2, func(line string) { lines = append(lines, line) })
	storetest.Kept(t, first, lines)
}

const childVariable = "BOXOFFICE_TEST_STORE"

// TestKilled kills a writing process several times. Everything that a write confirmed
// must be in the file.
func TestKilled(t *testing.T) {
	if path := os.Getenv(childVariable); path != "" {
		writeUntilKilled(t, path)
	}
	path := filepath.Join(t.TempDir(), "boxoffice.db")
	var lines []string
	for life := range 5 {
		child := exec.Command(os.Args[0], "-test.run=^TestKilled$")
		child.Env = append(os.Environ(), childVariable+"="+path, fmt.Sprint("BOXOFFICE_TEST_LIFE=", life))
		child.Stderr = os.Stderr
		said, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		reader := bufio.NewScanner(said)
		for range 20 + 7*life {
			if !reader.Scan() {
				t.Fatal("the child ended by itself")
			}
			lines = append(lines, reader.Text())
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for reader.Scan() {
			lines = append(lines, reader.Text())
		}
		child.Wait() // it was killed
		storetest.Kept(t, open(t, path), lines)
	}
	var integrity string
	var orphans int
	db := raw(t, path)
	if err := db.QueryRow("PRAGMA integrity_check").Scan(&integrity); err != nil || integrity != "ok" {
		t.Errorf("the file: %s, %v", integrity, err)
	}
	if err := db.QueryRow("SELECT count(*) FROM pragma_foreign_key_check").Scan(&orphans); err != nil || orphans != 0 {
		t.Errorf("%d rows refer to a row that is missing, %v", orphans, err)
	}
}

func writeUntilKilled(t *testing.T, path string) {
	store := open(t, path)
	var life uint64
	fmt.Sscan(os.Getenv("BOXOFFICE_TEST_LIFE"), &life)
	for n := life << 20; ; n++ {
		storetest.Purchase(t, store, n, func(line string) { fmt.Println(line) })
	}
}

func TestOpenRefuses(t *testing.T) {
	garbage := filepath.Join(t.TempDir(), "garbage.db")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("not a database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"no path": "", "a directory": t.TempDir(), "garbage": garbage,
		"a missing directory": filepath.Join(t.TempDir(), "a", "b.db"),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := sqlite.Open(t.Context(), sqlite.Config{Path: path}); err == nil {
				t.Error("it opened")
			}
		})
	}
}

// TestFile checks that the file has the configured name and that only its owner can
// read it.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "odd name?_synchronous=OFF#50%.db")
	storetest.Purchase(t, open(t, path), 1, func(string) {})
	for _, suffix := range []string{"", "-wal", "-shm", ".lock"} {
		info, err := os.Stat(path + suffix)
		if errors.Is(err, fs.ErrNotExist) {
			t.Errorf("there is no file with suffix %q", suffix)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode != 0o600 {
			t.Errorf("the file with suffix %q has mode %o", suffix, mode)
		}
	}
}

func TestPing(t *testing.T) {
	store := open(t, filepath.Join(t.TempDir(), "boxoffice.db"))
	if err := store.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if err := store.Ping(t.Context()); err == nil {
		t.Error("a closed store answers")
	}
}

// A result that an agent sends later reaches the run that waits for it, in this process
// or in another, and is never replaced.
func TestCallbacks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "boxoffice.db")
	here := sqlite.CallbackStore{Store: open(t, path), Poll: time.Millisecond}
	there := sqlite.CallbackStore{Store: open(t, path), Poll: time.Millisecond}
	if _, err := here.Put(t.Context(), "a", []byte("no run waits")); !errors.Is(err, work.ErrNotFound) {
		t.Errorf("without a task: %v", err)
	}
	for range 2 { // also by a run after a restart
		if kept, err := there.Open(t.Context(), "a", boxoffice.NewUUID(), "main"); err != nil || kept != nil {
			t.Fatal(kept, err)
		}
	}
	got := make(chan string, 1)
	go func() {
		answer, err := there.Wait(t.Context(), "a")
		if err != nil {
			t.Error(err)
		}
		got <- string(answer)
	}()
	for _, text := range []string{"first", "second"} {
		if kept, err := here.Put(t.Context(), "a", []byte(text)); err != nil || string(kept) != "first" {
			t.Errorf("kept %q, %v", kept, err)
		}
	}
	if kept, err := there.Open(t.Context(), "a", boxoffice.NewUUID(), "main"); err != nil || string(kept) != "first" {
		t.Errorf("found %q, %v", kept, err)
	}
	if answer := <-got; answer != "first" {
		t.Errorf("got %q", answer)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := here.Wait(gone, "b"); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting ended with %v", err)
	}
}

// Whoever opens a box or waits goes on while the database is away.
func TestCallbacksWithoutDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "boxoffice.db")
	callbacks := sqlite.CallbackStore{Store: open(t, path), Poll: time.Millisecond}
	if _, err := callbacks.Open(t.Context(), "a", boxoffice.NewUUID(), "main"); err != nil {
		t.Fatal(err)
	}
	db := raw(t, path)
	must(t, db, `PRAGMA busy_timeout = 10000`)
	must(t, db, `ALTER TABLE callbacks RENAME TO callbacks_away`)
	got, opened := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := callbacks.Open(t.Context(), "b", boxoffice.NewUUID(), "main")
		opened <- err
	}()
	go func() {
		answer, err := callbacks.Wait(t.Context(), "a")
		if err == nil && string(answer) != "x" {
			err = fmt.Errorf("got %q", answer)
		}
		got <- err
	}()
	for range 10 { // while the other looks
		if _, err := callbacks.Put(t.Context(), "a", []byte("x")); err == nil || errors.Is(err, work.ErrNotFound) {
			t.Errorf("kept while the table is away: %v", err)
		}
	}
	must(t, db, `ALTER TABLE callbacks_away RENAME TO callbacks`)
	if _, err := callbacks.Put(t.Context(), "a", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(<-got, <-opened); err != nil {
		t.Error(err)
	}
}

// A box is there until the run of its node is over; a run whose worker was lost
// or stopped is not, and finds its answer.
func TestCallbackEndsWithItsRun(t *testing.T) {
	const holder, now = "process 1", boxoffice.Timestamp(1_780_000_000_000)
	for _, test := range []struct {
		outcome work.Outcome
		stays   bool
	}{
		{work.Done, false}, {work.Blocked, false}, {work.Retry, false}, {work.Failed, false}, {"cancelled", false},
		{work.WorkerLost, true}, {work.WorkerStopped, true},
	} {
		t.Run(string(test.outcome), func(t *testing.T) {
			store := open(t, filepath.Join(t.TempDir(), "boxoffice.db"))
			callbacks := sqlite.CallbackStore{Store: store, Poll: time.Millisecond}
			var job, panel work.Opened
			for nonce, opens := range []func(work.Tx, work.Owner) error{
				func(tx work.Tx, owner work.Owner) (err error) {
					job, err = work.OpenJob(t.Context(), tx, owner, "research", "look", nil, work.Brief{}, now)
					return err
				},
				func(tx work.Tx, owner work.Owner) (err error) {
					panel, err = work.OpenOracle(t.Context(), tx, owner, boxoffice.Oracle{Question: "Is it?", PanelSize: 5}, now)
					return err
				},
			} {
				storetest.Admit(t, store, uint64(nonce), func(tx work.Tx, owner work.Owner) (work.Opened, error) {
					return job, opens(tx, owner)
				})
			}
			for _, run := range []work.Run{{Work: job.ID, Attempt: 1}, {Work: panel.ID, Position: 2, Attempt: 1}} {
				if test.outcome == work.Blocked && run.Work == panel.ID {
					continue // members are not blocked
				}
				assignment, err := storetest.Start(t.Context(), store, run, holder, now+1000, now)
				if err != nil {
					t.Fatal(err)
				}
				id := string(run.Work)
				if _, err := callbacks.Open(t.Context(), id, run.Work, assignment.Node.Label()); err != nil {
					t.Fatal(err)
				}
				if _, err := callbacks.Open(t.Context(), "other "+id, run.Work, "another"); err != nil {
					t.Fatal(err)
				}
				if test.outcome == "cancelled" {
					_, err = work.Canceller{Store: store}.Cancel(t.Context(), run.Work, now)
				} else {
					err = storetest.Finish(t.Context(), store, run, holder, work.Result{Outcome: test.outcome, Choice: "yes"}, now)
				}
				if err != nil {
					t.Fatal(err)
				}
				if _, err := callbacks.Put(t.Context(), id, []byte("x")); (err == nil) != test.stays || err != nil && !errors.Is(err, work.ErrNotFound) {
					t.Errorf("%s: %v", assignment.Node.Label(), err)
				}
				if _, err := callbacks.Put(t.Context(), "other "+id, []byte("x")); err != nil {
					t.Errorf("another node's: %v", err)
				}
			}
		})
	}
}

// A row that cannot be read, perhaps written by a newer program, delays the nodes
// that are due after it by one claim and does not keep workers from them.
func TestClaimAfterUnreadableRow(t *testing.T) {
	path := testdb.Path(t)
	store := open(t, path)
	var jobs []boxoffice.UUID
	for nonce := range uint64(2) {
		storetest.Admit(t, store, nonce, func(tx work.Tx, owner work.Owner) (work.Opened, error) {
			opened, err := work.OpenJob(t.Context(), tx, owner, "research", "look", nil, work.Brief{}, boxoffice.Timestamp(nonce))
			jobs = append(jobs, opened.ID)
			return opened, err
		})
	}
	must(t, raw(t, path), fmt.Sprintf("UPDATE jobs SET brief = '7' WHERE id = '%s'", jobs[0]))
	const now = 1000
	claim := func() ([]work.Assignment, error) {
		return store.Claim(t.Context(), work.Claim{Limit: 1}, now, func(graph work.Graph, position int) (work.Change, error) {
			return graph.Start(position, "worker", now+1, now)
		})
	}
	if claimed, err := claim(); err == nil || !strings.Contains(err.Error(), string(jobs[0])) {
		t.Errorf("claimed %v, %v", claimed, err)
	}
	if claimed, err := claim(); err != nil || len(claimed) != 1 || claimed[0].Work != jobs[1] {
		t.Errorf("claimed %v, %v", claimed, err)
	}
}
