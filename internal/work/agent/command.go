package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"boxoffice/internal/strictjson"
	"boxoffice/internal/work/workspace"
)

// CommandConfig describes an agent that is a program of this machine.
type CommandConfig struct {
	Argv      []string      // the program, looked up in PATH, and its arguments; no shell
	Timeout   time.Duration // from start to end
	Grace     time.Duration // from SIGTERM to SIGKILL; 0: 5 s
	MaxOutput int64         // bytes of standard output; 0: 1 MiB
	MaxLog    int           // bytes kept of the end of standard error; 0: 64 KiB
	MaxMemory int64         // bytes of memory that its processes hold together, looked at four times a second; 0: no limit
	Env       []string      // names of further environment variables that it is given
	Writable  []string      // further absolute paths in which it may write, such as a cache
	Hidden    []string      // absolute paths whose files it can't read, but for its workspace: the service's data and configuration
	Scratch   string        // where its home and temporary folders are made; "": the system's temporary folder
	Confined  bool          // refuse to run where the kernel can't confine it
	Log       *slog.Logger  // warned once if agents run unconfined; nil: slog.Default
}

// Command is a Runner of a program of this machine.
//
// The program runs in the workspace, in a session of its own. Its environment
// holds PATH, LANG, HOME and TMPDIR, of which the last two are empty folders
// that are removed when it ends, and the names of Config.Env; it inherits no
// other file than its three standard ones. When it ends, when its time is up or
// when the service dies, every process that it left is killed.
//
// On Linux with Landlock it can write nowhere but in the workspace, HOME,
// TMPDIR and Config.Writable, can't read Config.Hidden, can't look into or
// signal processes that are not its own, and can't gain privileges. Landlock
// does not rule over the modes, owners and times of files, over the network, or
// over what others do for the program when it asks them through a socket; run
// the service as a user of its own. Root's capabilities are given up. Elsewhere
// than on Linux with Landlock, see Confinement, none of this holds, and
// elsewhere than on Linux a process that left the agent's session is not found.
//
// What an agent leaves in the workspace is not to be trusted. Whoever runs git
// there must not use its .git: hooks, filters and commands of its configuration
// would run outside of these walls.
type Command struct {
	CommandConfig
	program string
}

// NewCommand checks the configuration and finds the program.
func NewCommand(config CommandConfig) (*Command, error) {
	switch {
	case len(config.Argv) == 0 || config.Argv[0] == "":
		return nil, errors.New("agent: command: is required")
	case config.Timeout <= 0:
		return nil, errors.New("agent: timeout: must be positive")
	case config.Grace < 0 || config.MaxOutput < 0 || config.MaxLog < 0 || config.MaxMemory < 0:
		return nil, errors.New("agent: limits must not be negative")
	}
	for _, name := range config.Env {
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			return nil, fmt.Errorf("agent: env: %q is not the name of a variable", name)
		case strings.HasPrefix(name, "BOXOFFICE_"):
			return nil, fmt.Errorf("agent: env: %s is the service's own", name)
		}
	}
	for _, path := range append(append([]string{}, config.Writable...), config.Hidden...) {
		if !filepath.IsAbs(path) {
			return nil, fmt.Errorf("agent: %q: must be an absolute path", path)
		}
	}
	program, err := exec.LookPath(config.Argv[0])
	if err == nil {
		program, err = filepath.Abs(program)
	}
	if err != nil {
		return nil, fmt.Errorf("agent: command: %w", err)
	}
	if config.Grace == 0 {
		config.Grace = 5 * time.Second
	}
	if config.MaxOutput == 0 {
		config.MaxOutput = 1 << 20
	}
	if config.MaxLog == 0 {
		config.MaxLog = 64 << 10
	}
	if config.Log == nil {
		config.Log = slog.Default()
	}
	if confinement := Confinement(); confinement == "" {
		if config.Confined {
			return nil, errors.New("agent: this system can't confine agents")
		}
		config.Log.Warn("agents run UNCONFINED: they can write wherever this service can", "command", program)
	}
	return &Command{config, program}, nil
}

// The reasons for which a run is stopped.
var (
	errTime   = &Failure{Kind: TimedOut, Retryable: true}
	errOutput = &Failure{Kind: TooMuch, Retryable: true}
)

// Run implements Runner.
func (c *Command) Run(ctx context.Context, dir string, task Task) (Report, error) {
	report := Report{ExitCode: -1}
	document, err := task.encode()
	if err != nil {
		return report, err
	}
	if err := realFolder(dir); err != nil {
		return report, err
	}
	scratch, err := os.MkdirTemp(c.Scratch, "boxoffice-agent-")
	if err == nil {
		scratch, err = filepath.Abs(scratch)
	}
	if err != nil {
		return report, fmt.Errorf("agent: scratch: %w", err)
	}
	defer workspace.Remove(scratch)
	order, err := c.order(dir, scratch)
	if err != nil {
		return report, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, errTime)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	agent, err := start(order)
	if err != nil {
		return report, fmt.Errorf("agent: %w", err)
	}
	ended := context.AfterFunc(ctx, agent.stop)
	defer ended()

	go feed(agent.stdin, document)
	log := &tail{most: c.MaxLog}
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		defer agent.stderr.Close()
		io.Copy(log, agent.stderr)
	}()
	output := make(chan []byte, 1)
	go func() {
		// Closing at once is what stops a program that writes without end.
		defer agent.stdout.Close()
		document, complete, _ := readMost(agent.stdout, c.MaxOutput)
		if !complete {
			stop(errOutput)
		}
		output <- document
	}()

	end, err := agent.wait()
	agent.stdin.Close()
	document = <-output
	<-logged
	report.Log = log.text()
	if err != nil {
		return report, fmt.Errorf("agent: %w", err)
	}
	if !end.signaled() && end.Error == "" {
		report.ExitCode = end.Exit
	}
	if err := c.judge(ctx, end, report.Log); err != nil {
		return report, err
	}
	report.Answer, err = accept(dir, document, task.Panel)
	return report, err
}

// judge turns the way in which an agent ended into an error, or into none.
func (c *Command) judge(ctx context.Context, end ending, log []byte) error {
	last := line(string(bytes.TrimSpace(log)))
	if end.Memory {
		return &Failure{Kind: OutOfMemory, Detail: fmt.Sprintf("more than %d bytes", c.MaxMemory)}
	}
	if cause := context.Cause(ctx); cause != nil {
		failure, ok := errors.AsType[*Failure](cause)
		if !ok {
			return fmt.Errorf("agent: %w", cause)
		}
		// An agent that ended well before the end reached it did answer.
		if failure.Kind != TimedOut || end.Stopped || end.signaled() || end.Exit != 0 {
			explained := *failure
			if explained.Detail = last; failure.Kind == TooMuch {
				explained.Detail = fmt.Sprintf("more than %d bytes", c.MaxOutput)
			}
			return &explained
		}
	}
	switch {
	case end.Error != "":
		return &Failure{Kind: NotStarted, Detail: end.Error}
	case end.signaled():
		signal := syscall.Signal(end.Signal)
		return &Failure{Kind: Signaled, Code: end.Signal, Detail: join(signal.String(), last), Retryable: true}
	case end.Exit != 0:
		return &Failure{Kind: Exited, Code: end.Exit, Detail: last, Retryable: !hopeless[end.Exit]}
	}
	return nil
}

func join(a, b string) string {
	if b == "" {
		return a
	}
	return a + ": " + b
}

// accept reads an answer and writes its files.
func accept(workspace string, document []byte, panel *Panel) (Answer, error) {
	answer, err := decodeAnswer(document, panel)
	if err != nil {
		detail := err.Error()
		if field, ok := errors.AsType[*strictjson.Error](err); ok {
			detail = join(field.Pointer, field.Message)
			if field.Pointer == "" {
				detail = field.Message
			}
		}
		return Answer{}, &Failure{Kind: BadAnswer, Detail: detail, Retryable: true}
	}
	if err := write(workspace, answer.Files); err != nil {
		return Answer{}, err
	}
	answer.Files = nil
	return answer, nil
}

// feed gives the task to an agent, which need not read it.
func feed(stdin io.WriteCloser, document []byte) {
	stdin.Write(append(document, '\n'))
	stdin.Close()
}

// environment is all that an agent knows of the service's.
func (c *Command) environment(scratch string) []string {
	path, ok := os.LookupEnv("PATH")
	if !ok {
		path = "/usr/local/bin:/usr/bin:/bin"
	}
	lang, ok := os.LookupEnv("LANG")
	if !ok {
		lang = "C.UTF-8"
	}
	env := []string{"PATH=" + path, "LANG=" + lang,
		"HOME=" + filepath.Join(scratch, "home"), "TMPDIR=" + filepath.Join(scratch, "tmp")}
	for _, name := range c.Env {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

func (c *Command) order(workspace, scratch string) (order, error) {
	for _, name := range []string{"home", "tmp"} {
		if err := os.Mkdir(filepath.Join(scratch, name), 0o700); err != nil {
			return order{}, fmt.Errorf("agent: scratch: %w", err)
		}
	}
	return order{
		Program: c.program, Argv: c.Argv, Env: c.environment(scratch), Dir: workspace, Scratch: scratch,
		Grace: c.Grace, MaxMemory: c.MaxMemory,
		Writable: append([]string{workspace, scratch}, c.Writable...), Hidden: c.Hidden,
	}, nil
}

// realFolder refuses a workspace that a link leads to: writing is allowed below
// it, so it must be what it is called.
func realFolder(path string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("agent: workspace: %w", err)
	}
	if info, err := os.Stat(real); err != nil || !info.IsDir() || !filepath.IsAbs(path) {
		return errors.New("agent: workspace: must be the absolute path of a folder")
	}
	if real != filepath.Clean(path) {
		return errors.New("agent: workspace: must not be reached through a link")
	}
	return nil
}
