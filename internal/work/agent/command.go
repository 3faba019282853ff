package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"boxoffice/internal/work/workspace"
)

// CommandConfig describes an agent that is a program of this machine.
type CommandConfig struct {
	Argv      []string      // the program, looked up in PATH, and its arguments; no shell reads them
	Timeout   time.Duration // from start to end
	Grace     time.Duration // from SIGTERM to SIGKILL
	MaxOutput int64         // bytes of standard output
	MaxLog    int           // bytes that are kept of the end of standard error
	MaxMemory int64         // bytes of memory that its processes hold together; 0: no limit
	Env       []string      // names of further environment variables that it gets
	Writable  []string      // further absolute paths in which it may write, such as a cache
	Hidden    []string      // absolute paths whose files it must not read: the service's data and configuration
	Scratch   string        // where its home and temporary folders are created; "": the system's temporary folder
	Confined  bool          // refuse to run where the kernel cannot confine it
	Log       *slog.Logger  // gets one warning if agents run unconfined
}

// Command is a Runner of a program of this machine.
//
// The program runs in the workspace, in a session of its own. Its environment holds PATH, LANG, HOME, TMPDIR and the
// variables that CommandConfig.Env names. HOME and TMPDIR are empty folders, which are removed when it ends. It
// inherits no file except its three standard ones. When it ends, when its time is up or when the service dies, every
// process that it left is killed.
//
// On Linux with Landlock it can write only in the workspace, HOME, TMPDIR and CommandConfig.Writable. It cannot read
// CommandConfig.Hidden, except for its workspace. It cannot inspect or signal processes other than its own, and cannot
// gain privileges. Root's capabilities are given up. Landlock does not control modes, owners and times of files, the
// network, and what other processes do when the program asks them through a socket. So run the service as a user of
// its own. On other systems nothing of this holds, see Confinement, and a process that left the agent's session is not
// killed.
//
// Do not trust what an agent leaves in the workspace. Git must not use the .git in it, because git would run hooks,
// filters and commands of its configuration without confinement.
type Command struct {
	CommandConfig
	program string
}

// NewCommand checks the configuration and finds the program.
func NewCommand(config CommandConfig) (*Command, error) {
	switch {
	case len(config.Argv) == 0 || config.Argv[0] == "":
		return nil, errors.New("agent: command: is required")
	case config.Timeout <= 0 || config.Grace <= 0 || config.MaxOutput <= 0 || config.MaxLog <= 0:
		return nil, errors.New("agent: timeout and limits must be positive")
	case config.MaxMemory < 0:
		return nil, errors.New("agent: the limit of memory must not be negative")
	}
	for _, name := range config.Env {
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			return nil, fmt.Errorf("agent: env: %q is not the name of a variable", name)
		case strings.HasPrefix(name, "BOXOFFICE_"):
			return nil, fmt.Errorf("agent: env: %s is the service's own", name)
		}
	}
	for _, path := range slices.Concat(config.Writable, config.Hidden) {
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
	if Confinement() == "" {
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
	errOutput = &Failure{Kind: TooMuchOutput, Retryable: true}
)

// Run implements Runner.
func (c *Command) Run(ctx context.Context, dir string, task Task) (Report, error) {
	report := Report{ExitCode: -1}
	document, err := task.encode()
	if err != nil {
		return report, err
	}
	if err := workspace.Check(dir); err != nil {
		return report, fmt.Errorf("agent: %w", err)
	}
	scratch, err := os.MkdirTemp(c.Scratch, "boxoffice-agent-")
	if err == nil {
		scratch, err = filepath.Abs(scratch)
	}
	if err != nil {
		return report, fmt.Errorf("agent: scratch: %w", err)
	}
	defer workspace.Remove(scratch)
	startup, err := c.startup(dir, scratch)
	if err != nil {
		return report, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, errTime)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	agent, err := start(startup)
	if err != nil {
		return report, fmt.Errorf("agent: %w", err)
	}
	ended := context.AfterFunc(ctx, agent.stop)
	defer ended()

	go func() {
		agent.stdin.Write(append(document, '\n')) // an agent may end without reading its task
		agent.stdin.Close()
	}()
	log := &tail{most: c.MaxLog}
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		defer agent.stderr.Close()
		io.Copy(log, agent.stderr)
	}()
	output := make(chan []byte, 1)
	go func() {
		defer agent.stdout.Close() // at once, so that a program which writes without end gets an error
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
	if err := c.failure(ctx, end, report.Log); err != nil {
		return report, err
	}
	report.Result, err = accept(dir, document, task.Panel)
	return report, err
}

// failure returns the error of a run from the way in which the agent ended. It returns nil if the agent exited with 0
// in time.
func (c *Command) failure(ctx context.Context, end ending, log []byte) error {
	last := lastLine(string(log))
	if end.Memory {
		return &Failure{Kind: OutOfMemory, Detail: fmt.Sprintf("more than %d bytes", c.MaxMemory)}
	}
	if cause := context.Cause(ctx); cause != nil {
		failure, ok := errors.AsType[*Failure](cause)
		if !ok {
			return fmt.Errorf("agent: %w", cause)
		}
		// An agent that exited with 0 before the signal reached it has done its work.
		if failure.Kind != TimedOut || end.Stopped || end.signaled() || end.Exit != 0 {
			explained := *failure
			if explained.Detail = last; failure.Kind == TooMuchOutput {
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
		return &Failure{Kind: Exited, Code: end.Exit, Detail: last, Retryable: !finalExitCodes[end.Exit]}
	}
	return nil
}

// environment returns the environment of the agent.
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

func (c *Command) startup(dir, scratch string) (startup, error) {
	for _, name := range []string{"home", "tmp"} {
		if err := os.Mkdir(filepath.Join(scratch, name), 0o700); err != nil {
			return startup{}, fmt.Errorf("agent: scratch: %w", err)
		}
	}
	return startup{
		Program: c.program, Argv: c.Argv, Env: c.environment(scratch), Dir: dir, Scratch: scratch,
		Grace: c.Grace, MaxMemory: c.MaxMemory,
		Writable: append([]string{dir, scratch}, c.Writable...), Hidden: c.Hidden,
	}, nil
}
