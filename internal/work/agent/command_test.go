package agent_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"boxoffice"
	"boxoffice/internal/work/agent"
)

// self is the command of an agent that behaves in one of the ways of behave.
func self(args ...string) []string {
	program, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return append([]string{program, "agent"}, args...)
}

// printed is the command of an agent that prints a text.
func printed(output string) []string { return []string{"printf", "%s", output} }

// withLimits sets the limits that a test leaves out.
func withLimits(config agent.CommandConfig) agent.CommandConfig {
	config.Timeout = cmp.Or(config.Timeout, time.Minute)
	config.Grace = cmp.Or(config.Grace, 5*time.Second)
	config.MaxOutput = cmp.Or(config.MaxOutput, 1<<20)
	config.MaxLog = cmp.Or(config.MaxLog, 64<<10)
	config.Log = cmp.Or(config.Log, slog.New(slog.DiscardHandler))
	return config
}

// kind returns the kind of a failure, or "" if an error is none.
func kind(err error) agent.Kind {
	if failure, ok := errors.AsType[*agent.Failure](err); ok {
		return failure.Kind
	}
	return ""
}

func newCommand(t testing.TB, config agent.CommandConfig) *agent.Command {
	t.Helper()
	config = withLimits(config)
	if config.Scratch == "" {
		config.Scratch = t.TempDir()
	}
	command, err := agent.NewCommand(config)
	if err != nil {
		t.Fatal(err)
	}
	return command
}

func workspace(t testing.TB) string {
	t.Helper()
	folder, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

func run(t *testing.T, argv ...string) (agent.Report, error) {
	t.Helper()
	return newCommand(t, agent.CommandConfig{Argv: argv}).Run(t.Context(), workspace(t), agent.Task{})
}

func TestAnswers(t *testing.T) {
	task := agent.Task{Job: boxoffice.NewUUID(), Node: "write", Objective: "a “quoted” <objective>\n"}
	report, err := newCommand(t, agent.CommandConfig{Argv: self("answer")}).Run(t.Context(), workspace(t), task)
	if err != nil {
		t.Fatal(err)
	}
	want := agent.Report{Result: agent.Result{Outcome: agent.Done,
		Summary: fmt.Sprintf("1|%s|write|%s", task.Job, task.Objective)}}
	if diff := gocmp.Diff(want, report); diff != "" {
		t.Error(diff)
	}
}

func TestBlocked(t *testing.T) {
	report, err := run(t, printed(`{"outcome":"blocked","reason":"which chain?"}`)...)
	if err != nil || !gocmp.Equal(report.Result, agent.Result{Outcome: agent.Blocked, Reason: "which chain?"}) {
		t.Errorf("got %+v, %v", report, err)
	}
}

func TestExitCodes(t *testing.T) {
	for code, retryable := range map[int]bool{1: true, 2: true, 63: true, 64: false, 77: true, 78: false, 79: true,
		125: true, 126: false, 127: false, 128: true, 255: true} {
		script := `echo first >&2; echo last words >&2; echo '{"outcome":"done","summary":"no"}'; exit ` +
			strconv.Itoa(code)
		report, err := run(t, "sh", "-c", script)
		want := agent.Failure{Kind: agent.Exited, Code: code, Detail: "last words", Retryable: retryable}
		if failure, ok := errors.AsType[*agent.Failure](err); !ok || *failure != want || report.ExitCode != code {
			t.Fatalf("code %d: got %+v, %v", code, report, err)
		}
		if want := fmt.Sprintf("the agent ended with exit code %d: last words", code); err.Error() != want {
			t.Errorf("got %q", err)
		}
	}
}

func TestKilledBySignal(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSEGV, syscall.SIGTERM, syscall.SIGPIPE} {
		report, err := run(t, "sh", "-c", fmt.Sprintf("kill -%d $$", signal))
		failure, ok := errors.AsType[*agent.Failure](err)
		if !ok || failure.Kind != agent.Signaled || !failure.Retryable || failure.Code != int(signal) ||
			report.ExitCode != -1 {
			t.Errorf("%v: got %+v, %v", signal, report, err)
		}
	}
}

func TestNeverEnds(t *testing.T) {
	command := newCommand(t, agent.CommandConfig{Argv: self("forever"), Timeout: 200 * time.Millisecond})
	report, err := command.Run(t.Context(), workspace(t), agent.Task{})
	if kind(err) != agent.TimedOut || report.ExitCode != -1 {
		t.Errorf("got %+v, %v", report, err)
	}
}

func TestPrintsGigabyte(t *testing.T) {
	for _, then := range []string{"end", "stay"} {
		report, err := run(t, self("flood", then)...)
		if kind(err) != agent.TooMuchOutput || report.Result.Outcome != "" {
			t.Errorf("%s: got %+v, %v", then, report, err)
		}
	}
}

func TestLargeTaskUnread(t *testing.T) {
	task := agent.Task{Objective: strings.Repeat("large ", 1<<20)}
	report, err := newCommand(t, agent.CommandConfig{Argv: self("unread")}).Run(t.Context(), workspace(t), task)
	if err != nil || report.Result.Summary != "done" {
		t.Errorf("got %+v, %v", report, err)
	}
}

func TestLog(t *testing.T) {
	command := newCommand(t, agent.CommandConfig{Argv: self("babble"), MaxLog: 1000})
	report, err := command.Run(t.Context(), workspace(t), agent.Task{})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(report.Log), "\n"), "\n")
	if !strings.HasPrefix(lines[0], "[the first ") || len(report.Log) > 1500 {
		t.Errorf("got %q", report.Log)
	}
	for i, line := range lines[1:] {
		if want := fmt.Sprintf("line %d�� of what happened", 20000-len(lines)+1+i); line != want {
			t.Errorf("got %q, want %q", line, want)
		}
	}
}

func TestNotStarted(t *testing.T) {
	if _, err := agent.NewCommand(withLimits(agent.CommandConfig{Argv: []string{"no-such-program-here"}})); !errors.Is(err, exec.ErrNotFound) {
		t.Error(err)
	}
	program := filepath.Join(t.TempDir(), "agent")
	if err := os.WriteFile(program, []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := run(t, program)
	if kind(err) != agent.NotStarted {
		t.Error(err)
	}
}

func TestWorkspaceMustNotBeALink(t *testing.T) {
	link := filepath.Join(workspace(t), "link")
	if err := os.Symlink("/", link); err != nil {
		t.Fatal(err)
	}
	_, err := newCommand(t, agent.CommandConfig{Argv: self("unread")}).Run(t.Context(), link, agent.Task{})
	if err == nil || kind(err) != "" {
		t.Error(err)
	}
}

func TestConfiguration(t *testing.T) {
	for name, change := range map[string]func(*agent.CommandConfig){
		"no program":         func(c *agent.CommandConfig) { c.Argv = []string{""} },
		"no command":         func(c *agent.CommandConfig) { c.Argv = nil },
		"no timeout":         func(c *agent.CommandConfig) { c.Timeout = 0 },
		"no grace":           func(c *agent.CommandConfig) { c.Grace = 0 },
		"negative output":    func(c *agent.CommandConfig) { c.MaxOutput = -1 },
		"no log":             func(c *agent.CommandConfig) { c.MaxLog = 0 },
		"negative memory":    func(c *agent.CommandConfig) { c.MaxMemory = -1 },
		"a variable of ours": func(c *agent.CommandConfig) { c.Env = []string{"BOXOFFICE_SETTLEMENT_KEY"} },
		"no variable":        func(c *agent.CommandConfig) { c.Env = []string{"A=B"} },
		"relative writable":  func(c *agent.CommandConfig) { c.Writable = []string{"cache"} },
		"relative hidden":    func(c *agent.CommandConfig) { c.Hidden = []string{"."} },
	} {
		config := withLimits(agent.CommandConfig{Argv: self()})
		change(&config)
		if _, err := agent.NewCommand(config); err == nil {
			t.Errorf("%s: is accepted", name)
		}
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("BOXOFFICE_SETTLEMENT_KEY", "0xsecret")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("MODEL_KEY", "for the agent")
	t.Setenv("LANG", "C.UTF-8")
	scratch := t.TempDir()
	command := newCommand(t,
		agent.CommandConfig{Argv: self("environment"), Env: []string{"MODEL_KEY", "NOT_SET"}, Scratch: scratch})
	report, err := command.Run(t.Context(), workspace(t), agent.Task{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for variable := range strings.SplitSeq(report.Result.Summary, "\n") {
		name, value, _ := strings.Cut(variable, "=")
		got[name] = value
	}
	for _, name := range []string{"HOME", "TMPDIR"} {
		if !strings.HasPrefix(got[name], scratch+"/") {
			t.Errorf("%s is %q", name, got[name])
		}
		delete(got, name)
	}
	want := map[string]string{"PATH": os.Getenv("PATH"), "LANG": "C.UTF-8", "MODEL_KEY": "for the agent"}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if entries, err := os.ReadDir(scratch); err != nil || len(entries) > 0 {
		t.Errorf("left %v, %v", entries, err)
	}
}

func TestScratchIsRemoved(t *testing.T) {
	report, err := run(t, self("shut")...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(report.Result.Summary); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// A gathering is a socket to which the processes of the tests' agents connect. When a process ends, its connection
// closes.
type gathering struct {
	t        *testing.T
	listener *net.UnixListener
	path     string
}

func gather(t *testing.T) gathering {
	t.Helper()
	folder, err := os.MkdirTemp("", "gathering") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	path := filepath.Join(folder, "socket")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return gathering{t, listener, path}
}

// attended waits until n processes have connected. It returns a function that waits until all of them have ended.
func (g gathering) attended(n int) (ended func()) {
	g.t.Helper()
	var connections []net.Conn
	for range n {
		g.listener.SetDeadline(time.Now().Add(time.Minute))
		connection, err := g.listener.Accept()
		if err != nil {
			g.t.Fatal(err)
		}
		g.t.Cleanup(func() { connection.Close() })
		connections = append(connections, connection)
	}
	for _, connection := range connections {
		connection.Write([]byte("."))
	}
	return func() {
		g.t.Helper()
		for _, connection := range connections {
			connection.SetDeadline(time.Now().Add(20 * time.Second))
			lines := bufio.NewScanner(connection)
			lines.Scan()
			if pid := lines.Text(); lines.Scan() || lines.Err() != nil && !errors.Is(lines.Err(), syscall.ECONNRESET) {
				g.t.Errorf("process %s is left: %v", pid, lines.Err())
			}
		}
	}
}

type outcome struct {
	report agent.Report
	err    error
}

func goRun(ctx context.Context, command *agent.Command, workspace string) <-chan outcome {
	outcomes := make(chan outcome, 1)
	go func() {
		report, err := command.Run(ctx, workspace, agent.Task{})
		outcomes <- outcome{report, err}
	}()
	return outcomes
}

// runCancelled runs an agent of n processes and cancels the run when all of them have started. It returns when all of
// them have ended.
func runCancelled(t *testing.T, n int, grace time.Duration, how string, args ...string) outcome {
	t.Helper()
	g := gather(t)
	ctx, cancel := context.WithCancel(t.Context())
	argv := self(append([]string{how, g.path}, args...)...)
	outcomes := goRun(ctx, newCommand(t, agent.CommandConfig{Argv: argv, Grace: grace}), workspace(t))
	ended := g.attended(n)
	cancel()
	got := <-outcomes
	ended()
	return got
}

func TestGraceIsGiven(t *testing.T) {
	got := runCancelled(t, 1, time.Hour, "polite")
	if !errors.Is(got.err, context.Canceled) || got.report.ExitCode != 0 || string(got.report.Log) != "terminated\n" {
		t.Errorf("got %+v", got)
	}
}

func TestClosesItsOutput(t *testing.T) {
	g := gather(t)
	outcomes := goRun(t.Context(), newCommand(t, agent.CommandConfig{Argv: self("quiet", g.path)}), workspace(t))
	g.attended(1)
	if got := <-outcomes; kind(got.err) != agent.BadResult || got.report.ExitCode != 0 {
		t.Errorf("got %+v", got)
	}
}
