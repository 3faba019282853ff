package agent_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"boxoffice"
	"boxoffice/internal/work/agent"
)

// self is the command of an agent of behave.
func self(args ...string) []string {
	program, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return append([]string{program, "agent"}, args...)
}

// printed is the command of an agent that answers with a text as it is.
func printed(output string) []string { return []string{"printf", "%s", output} }

func newCommand(t *testing.T, config agent.CommandConfig) *agent.Command {
	t.Helper()
	if config.Timeout == 0 {
		config.Timeout = time.Minute
	}
	if config.Scratch == "" {
		config.Scratch = t.TempDir()
	}
	command, err := agent.NewCommand(config)
	if err != nil {
		t.Fatal(err)
	}
	return command
}

func workspace(t *testing.T) string {
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
	want := agent.Report{Answer: agent.Answer{Outcome: agent.Done, Summary: fmt.Sprintf("1|%s|write|%s", task.Job, task.Objective)}}
	if diff := cmp.Diff(want, report); diff != "" {
		t.Error(diff)
	}
}

func TestBlocked(t *testing.T) {
	report, err := run(t, printed(`{"outcome":"blocked","reason":"which chain?"}`)...)
	if err != nil || !cmp.Equal(report.Answer, agent.Answer{Outcome: agent.Blocked, Reason: "which chain?"}) {
		t.Errorf("got %+v, %v", report, err)
	}
}

func TestNoAnswer(t *testing.T) {
	tests := map[string]string{
		"":                      "is empty",
		"hello":                 "is not JSON: invalid character 'h' at start of value",
		`{"outcome":"done"}`:    "/summary: is required when done",
		`{"outcome":"maybe"}`:   "/outcome: must be done or blocked",
		`{"outcome":"blocked"}`: "/reason: is required when blocked",
		`{"summary":"x"}`:       "/outcome: is required",
		`{"outcome":"done","summary":"x","extra":1}`:                                                   "/extra: is not a known member",
		`{"outcome":"done","summary":"x","reason":"y"}`:                                                "/reason: must be absent when done",
		`{"outcome":"done","summary":"x","choice":"y"}`:                                                "/choice: must be absent without a panel",
		`{"outcome":"done","summary":"\u0000"}`:                                                        "/summary: must not contain NUL",
		`{"outcome":"done","summary":"` + strings.Repeat("é", 16001) + `"}`:                            "/summary: must have at most 16000 characters",
		`{"outcome":"done","summary":"x"} {"outcome":"done","summary":"x"}`:                            "has more data after its end",
		`{"outcome":"done","summary":"x","files":[{"path":"../x","text":""}]}`:                         "/files/0/path: must be a path inside the workspace, outside .git",
		`{"outcome":"done","summary":"x","files":[{"path":"a/.GIT/x","text":""}]}`:                     "/files/0/path: must be a path inside the workspace, outside .git",
		`{"outcome":"done","summary":"x","files":[{"path":"/etc/x","text":""}]}`:                       "/files/0/path: must be a path inside the workspace, outside .git",
		`{"outcome":"done","summary":"x","files":[{"path":"git~1/x","text":""}]}`:                      "/files/0/path: must be a path inside the workspace, outside .git",
		`{"outcome":"done","summary":"x","files":[{"path":".git./x","text":""}]}`:                      "/files/0/path: must be a path inside the workspace, outside .git",
		"{\"outcome\":\"done\",\"summary\":\"x\",\"files\":[{\"path\":\".g\u200cit\",\"text\":\"\"}]}": "/files/0/path: must be a path inside the workspace, outside .git",
	}
	for output, detail := range tests {
		t.Run(detail, func(t *testing.T) {
			_, err := run(t, printed(output)...)
			failure, ok := errors.AsType[*agent.Failure](err)
			if !ok || !errors.Is(err, agent.ErrAnswer) || !failure.Retryable || failure.Detail != detail {
				t.Errorf("got %v, want %q", err, detail)
			}
		})
	}
}

func TestPanel(t *testing.T) {
	tests := []struct {
		options []string
		output  string
		fails   bool
	}{
		{[]string{"yes", "no"}, `{"outcome":"done","summary":"because","choice":"yes"}`, false},
		{[]string{"yes", "no"}, `{"outcome":"done","summary":"because","choice":"Yes"}`, true},
		{[]string{"yes", "no"}, `{"outcome":"done","summary":"because"}`, true},
		{nil, `{"outcome":"done","summary":"because","choice":"42 km"}`, false},
		{nil, `{"outcome":"done","summary":"because","choice":""}`, true},
		{nil, `{"outcome":"done","summary":"because","choice":" \n "}`, true},
	}
	for _, test := range tests {
		command := newCommand(t, agent.CommandConfig{Argv: printed(test.output)})
		report, err := command.Run(t.Context(), workspace(t), agent.Task{Panel: &agent.Panel{Question: "?", Options: test.options, Size: 5}})
		if errors.Is(err, agent.ErrAnswer) != test.fails || (err == nil) != (report.Answer.Choice != "") {
			t.Errorf("%s: got %+v, %v", test.output, report, err)
		}
	}
}

func TestFilesOfAnswer(t *testing.T) {
	folder, outside := workspace(t), workspace(t)
	git := filepath.Join(folder, ".git")
	for _, err := range []error{
		os.Mkdir(git, 0o700),
		os.Symlink(git, filepath.Join(folder, "sneaky")),
		os.Symlink(outside, filepath.Join(folder, "out")),
		os.Symlink(filepath.Join(git, "config"), filepath.Join(folder, "report.md")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	give := func(path string) error {
		output := fmt.Sprintf(`{"outcome":"done","summary":"x","files":[{"path":%q,"text":"text"}]}`, path)
		_, err := newCommand(t, agent.CommandConfig{Argv: printed(output)}).Run(t.Context(), folder, agent.Task{})
		return err
	}
	for _, path := range []string{"report.md", "a/b/c.txt", "a/b/c.txt"} {
		if err := give(path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if info, err := os.Lstat(filepath.Join(folder, path)); err != nil || !info.Mode().IsRegular() || info.Size() != 4 {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	for _, path := range []string{"sneaky/config", "out/x", "a/b", "report.md/x"} {
		if err := give(path); !errors.Is(err, agent.ErrAnswer) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, folder := range []string{git, outside} {
		if entries, err := os.ReadDir(folder); err != nil || len(entries) > 0 {
			t.Errorf("%s holds %v, %v", folder, entries, err)
		}
	}
}

func TestEveryExitCode(t *testing.T) {
	hopeless := []int{64, 78, 126, 127}
	for code := 1; code < 256; code++ {
		if testing.Short() && code%16 != 0 {
			continue
		}
		report, err := run(t, "sh", "-c", `echo first >&2; echo last words >&2; echo '{"outcome":"done","summary":"no"}'; exit `+strconv.Itoa(code))
		failure, ok := errors.AsType[*agent.Failure](err)
		if !ok || !errors.Is(err, agent.ErrExit) || failure.Code != code || report.ExitCode != code || failure.Detail != "last words" {
			t.Fatalf("code %d: got %+v, %v", code, report, err)
		}
		if failure.Retryable == slices.Contains(hopeless, code) {
			t.Errorf("code %d: retryable is %v", code, failure.Retryable)
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
		if !ok || !errors.Is(err, agent.ErrSignal) || failure.Code != int(signal) || report.ExitCode != -1 {
			t.Errorf("%v: got %+v, %v", signal, report, err)
		}
	}
}

func TestNeverEnds(t *testing.T) {
	command := newCommand(t, agent.CommandConfig{Argv: self("forever"), Timeout: 200 * time.Millisecond})
	report, err := command.Run(t.Context(), workspace(t), agent.Task{})
	if !errors.Is(err, agent.ErrTimeout) || !agent.Retryable(err) || report.ExitCode != -1 {
		t.Errorf("got %+v, %v", report, err)
	}
}

func TestPrintsGigabyte(t *testing.T) {
	for _, then := range []string{"end", "stay"} {
		report, err := run(t, self("flood", then)...)
		if !errors.Is(err, agent.ErrOutput) || report.Answer.Outcome != "" {
			t.Errorf("%s: got %+v, %v", then, report, err)
		}
	}
}

func TestLargeTaskUnread(t *testing.T) {
	task := agent.Task{Objective: strings.Repeat("large ", 1<<20)}
	report, err := newCommand(t, agent.CommandConfig{Argv: self("unread")}).Run(t.Context(), workspace(t), task)
	if err != nil || report.Answer.Summary != "done" {
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
	if _, err := agent.NewCommand(agent.CommandConfig{Argv: []string{"no-such-program-here"}, Timeout: 1}); !errors.Is(err, exec.ErrNotFound) {
		t.Error(err)
	}
	program := filepath.Join(t.TempDir(), "agent")
	if err := os.WriteFile(program, []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := run(t, program)
	if !errors.Is(err, agent.ErrStart) || agent.Retryable(err) {
		t.Error(err)
	}
}

func TestWorkspaceMustBeReal(t *testing.T) {
	folder := workspace(t)
	link := filepath.Join(folder, "link")
	if err := os.Symlink("/", link); err != nil {
		t.Fatal(err)
	}
	command := newCommand(t, agent.CommandConfig{Argv: self("unread")})
	for _, path := range []string{link, "", "relative", filepath.Join(folder, "none"), self()[0]} {
		_, err := command.Run(t.Context(), path, agent.Task{})
		if _, ok := errors.AsType[*agent.Failure](err); err == nil || ok {
			t.Errorf("%q: %v", path, err)
		}
	}
}

func TestConfiguration(t *testing.T) {
	for _, config := range []agent.CommandConfig{
		{Timeout: 1}, {Argv: []string{""}, Timeout: 1}, {Argv: self()}, {Argv: self(), Timeout: 1, MaxOutput: -1},
		{Argv: self(), Timeout: 1, Env: []string{"BOXOFFICE_SETTLEMENT_KEY"}}, {Argv: self(), Timeout: 1, Env: []string{"A=B"}},
		{Argv: self(), Timeout: 1, Writable: []string{"cache"}}, {Argv: self(), Timeout: 1, Hidden: []string{"."}},
	} {
		if _, err := agent.NewCommand(config); err == nil {
			t.Errorf("%+v is taken", config)
		}
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("BOXOFFICE_SETTLEMENT_KEY", "0xsecret")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("MODEL_KEY", "for the agent")
	t.Setenv("LANG", "C.UTF-8")
	scratch := t.TempDir()
	command := newCommand(t, agent.CommandConfig{Argv: self("environment"), Env: []string{"MODEL_KEY", "NOT_SET"}, Scratch: scratch})
	report, err := command.Run(t.Context(), workspace(t), agent.Task{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for variable := range strings.SplitSeq(report.Answer.Summary, "\n") {
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
	if diff := cmp.Diff(want, got); diff != "" {
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
	if _, err := os.Stat(report.Answer.Summary); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// A gathering is where the tests' agents say that they are there, and where
// their end is seen.
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

// attended waits for n processes and returns a function that waits for the end
// of all of them.
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

func TestGraceIsGiven(t *testing.T) {
	g := gather(t)
	ctx, cancel := context.WithCancel(t.Context())
	outcomes := goRun(ctx, newCommand(t, agent.CommandConfig{Argv: self("polite", g.path), Grace: time.Hour}), workspace(t))
	ended := g.attended(1)
	cancel()
	got := <-outcomes
	if !errors.Is(got.err, context.Canceled) || got.report.ExitCode != 0 || string(got.report.Log) != "terminated\n" {
		t.Errorf("got %+v", got)
	}
	ended()
}

func TestClosesItsOutput(t *testing.T) {
	g := gather(t)
	outcomes := goRun(t.Context(), newCommand(t, agent.CommandConfig{Argv: self("quiet", g.path)}), workspace(t))
	g.attended(1)
	if got := <-outcomes; !errors.Is(got.err, agent.ErrAnswer) || got.report.ExitCode != 0 {
		t.Errorf("got %+v", got)
	}
}
