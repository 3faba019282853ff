package agent_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"boxoffice/internal/work/agent"
)

// unconfined reports whether the kernel has no Landlock. It checks that the service then warns, and refuses an agent
// that has to be confined.
func unconfined(t *testing.T) bool {
	t.Helper()
	var log bytes.Buffer
	newCommand(t, agent.CommandConfig{Argv: self("unread"), Log: slog.New(slog.NewTextHandler(&log, nil))})
	_, err := agent.NewCommand(withLimits(agent.CommandConfig{Argv: self("unread"), Confined: true}))
	bare := agent.Confinement() == ""
	if warned := strings.Contains(log.String(), "UNCONFINED"); warned != bare || (err != nil) != bare {
		t.Errorf("confinement %q: logged %q, %v", agent.Confinement(), log.String(), err)
	}
	if bare {
		t.Log("THIS KERNEL HAS NO LANDLOCK: that agents are confined was not tested")
	}
	return bare
}

func TestConfinement(t *testing.T) {
	if unconfined(t) {
		return
	}
	outside, inside := workspace(t), workspace(t)
	existing := filepath.Join(outside, "existing")
	if err := os.WriteFile(existing, []byte("untouched"), 0o600); err != nil {
		t.Fatal(err)
	}
	command := newCommand(t, agent.CommandConfig{Argv: self("escape", outside, strconv.Itoa(os.Getpid()))})
	report, err := command.Run(t.Context(), inside, agent.Task{})
	if err != nil {
		t.Fatal(err)
	}
	if report.Result.Summary != "\n." {
		t.Errorf("the agent could %s", report.Result.Summary)
	}
	entries, err := os.ReadDir(outside)
	if text, _ := os.ReadFile(existing); err != nil || len(entries) != 1 || string(text) != "untouched" {
		t.Errorf("outside there are %v, %q, %v", entries, text, err)
	}
}

func TestMayWrite(t *testing.T) {
	cache, inside := workspace(t), workspace(t)
	script := `set -e
		mkdir a b; echo x > a/x; mv a/x b/x; ln b/x hard; ln -s b soft; echo y > soft/y; rm -r a
		echo x > "$HOME/x"; echo x > "$TMPDIR/x"; echo x > /dev/null; echo x > ` + cache + `/x
		git init -q .; git -c user.name=a -c user.email=a@b add .; git -c user.name=a -c user.email=a@b commit -qm one; git gc -q
		echo '{"outcome":"done","summary":"fine"}'`
	command := newCommand(t,
		agent.CommandConfig{Argv: []string{"sh", "-c", script}, Writable: []string{cache, "/no/such/folder"}})
	report, err := command.Run(t.Context(), inside, agent.Task{})
	if err != nil || report.Result.Summary != "fine" {
		t.Errorf("got %+v, %v: %s", report, err, report.Log)
	}
}

func TestHidden(t *testing.T) {
	if unconfined(t) {
		return
	}
	data := workspace(t)
	write := func(path string) string {
		path = filepath.Join(data, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	database, key, beside := write("service/database"), write("key"), write("beside/x")
	inside := filepath.Dir(write("service/jobs/1/x"))
	another := write("service/jobs/2/x")
	link := filepath.Join(data, "link")
	if err := os.Symlink(filepath.Join(data, "service"), link); err != nil {
		t.Fatal(err)
	}
	command := newCommand(t, agent.CommandConfig{
		Argv: self("read", database, key, filepath.Join(link, "database"), another, beside,
			filepath.Join(inside, "x")),
		Hidden: []string{filepath.Join(data, "service"), key, filepath.Join(data, "nothing")},
	})
	report, err := command.Run(t.Context(), inside, agent.Task{})
	if err != nil || report.Result.Summary != "denied denied denied denied text text" {
		t.Errorf("got %+v, %v", report, err)
	}
}

func TestInheritsNoFile(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	file, err := os.Create(secret)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	inheritable, err := syscall.Dup(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(inheritable)
	report, err := run(t, self("files")...)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(report.Result.Summary, secret) ||
		bytes.Count([]byte(report.Result.Summary), []byte("pipe:")) != 3 {
		t.Error(report.Result.Summary)
	}
}

func TestCancelKillsDescendants(t *testing.T) {
	if got := runCancelled(t, 4, 10*time.Millisecond, "family", "stay"); !errors.Is(got.err, context.Canceled) {
		t.Error(got.err)
	}
}

func TestEndKillsDescendants(t *testing.T) {
	g := gather(t)
	outcomes := goRun(t.Context(), newCommand(t, agent.CommandConfig{Argv: self("family", g.path, "leave")}),
		workspace(t))
	ended := g.attended(4)
	if got := <-outcomes; got.err != nil || got.report.Result.Summary != "gone" {
		t.Errorf("got %+v", got)
	}
	ended()
}

// A process that forks and exits all the time, so that its id is gone before it can be killed, is killed too.
func TestForkingProcessIsKilled(t *testing.T) {
	command := newCommand(t, agent.CommandConfig{
		Argv:    []string{"sh", "-c", `hop() { hop & }; hop; echo '{"outcome":"done","summary":"hopping"}'`},
		Timeout: 20 * time.Second,
	})
	report, err := command.Run(t.Context(), workspace(t), agent.Task{})
	if err != nil || report.Result.Summary != "hopping" {
		t.Errorf("got %+v, %v", report, err)
	}
}

// If the service is killed, every process of its agents ends.
func TestServiceKilled(t *testing.T) {
	g := gather(t)
	scratch := t.TempDir()
	service := exec.Command(self()[0], "agent", "service", g.path, workspace(t))
	service.Env = append(os.Environ(), "TMPDIR="+scratch)
	// A supervisor inherits what the service inherited. So when the supervisor ends, this pipe closes.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	service.ExtraFiles = []*os.File{w, w, w}
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	ended := g.attended(4)
	if err := service.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	service.Wait()
	ended()
	r.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Errorf("the supervisor did not end: %v", err)
	}
	if entries, err := os.ReadDir(scratch); err != nil || len(entries) > 0 {
		t.Errorf("left %v, %v", entries, err)
	}
}

func TestMemory(t *testing.T) {
	tests := map[string]struct {
		script string
		most   int64
	}{
		"one process":  {`x=$(head -c 200000000 /dev/zero | tr '\0' x); tail -f /dev/null; :`, 100 << 20},
		"many of them": {`for i in 1 2 3 4; do (x=$(head -c 50000000 /dev/zero | tr '\0' x); tail -f /dev/null; :) & done; wait`, 120 << 20},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			command := newCommand(t, agent.CommandConfig{Argv: []string{"sh", "-c", test.script}, MaxMemory: test.most})
			_, err := command.Run(t.Context(), workspace(t), agent.Task{})
			if kind(err) != agent.OutOfMemory {
				t.Error(err)
			}
		})
	}
}

// A process that asks for too much memory at once does not get it.
func TestMemoryLimitOfOneProcess(t *testing.T) {
	command := newCommand(t, agent.CommandConfig{
		Argv:      []string{"sh", "-c", `printf '{"outcome":"done","summary":"%s"}' "$(ulimit -d) $(ulimit -c)"`},
		MaxMemory: 1 << 30,
	})
	report, err := command.Run(t.Context(), workspace(t), agent.Task{})
	if err != nil || report.Result.Summary != "2097152 0" {
		t.Errorf("got %+v, %v", report, err)
	}
}
