package delivery

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"boxoffice/internal/work"
)

func failuref(format string, args ...any) error {
	return &work.Failure{Text: fmt.Sprintf(format, args...)}
}

// failed turns the error of a command into a *work.Failure. If ctx ended, the error stays what it is.
func failed(ctx context.Context, err error) error {
	if command, ok := errors.AsType[*commandError](err); ok && ctx.Err() == nil {
		return &work.Failure{Text: command.Error()}
	}
	return err
}

// A commandError says which command failed, how, and what it wrote to standard error last.
type commandError struct {
	command, stderr string // scrubbed
	code            int    // the exit code; -1 if the command was killed or did not start
	cause           error
}

func (e *commandError) Error() string {
	text := e.command + ": " + e.cause.Error()
	if e.stderr != "" {
		text += ": " + e.stderr
	}
	return text
}

func (e *commandError) Unwrap() error { return e.cause }

// A call says how one command is run.
type call struct {
	dir       string    // the working directory; empty: a folder that is not in a repository
	repo      string    // GIT_DIR; empty: an argument names the repository
	protocols string    // GIT_ALLOW_PROTOCOL, the transports that git may use; empty: none
	env       []string  // further variables
	stdin     io.Reader // nil: empty
	stdout    io.Writer // nil: the output is returned, and at most maxStdout bytes are allowed
	maxFile   int64     // bytes of the largest file that the command may write; 0: no limit
}

const (
	maxStdout = 64 << 10
	maxStderr = 8 << 10
)

// guards are settings that override the configuration of a repository.
var guards = []string{
	"core.hooksPath=/dev/null",
	"core.fsmonitor=false",
	"core.askPass=",
	"core.fsync=objects,derived-metadata,reference",
	"credential.helper=",
	"fetch.recurseSubmodules=false",
	"gc.auto=0",
	"http.followRedirects=false",
	"http.sslVerify=true",
	"maintenance.auto=false",
	"protocol.ext.allow=never",
	"safe.directory=*",
	"submodule.recurse=false",
	"transfer.fsckObjects=true",
	"transfer.bundleURI=false",
}

func (g *Git) environment(c call) []string {
	env := append([]string{"PATH=" + os.Getenv("PATH")}, g.config.Env...)
	env = append(env,
		"HOME=/nonexistent", "XDG_CONFIG_HOME=/nonexistent", "LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=", "SSH_ASKPASS=", "GIT_SSH_COMMAND=false",
		"GIT_ALLOW_PROTOCOL="+cmp.Or(c.protocols, "none"), "GIT_PROTOCOL_FROM_USER=0",
		"GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1", "GIT_OPTIONAL_LOCKS=0", "GIT_ADVICE=0",
		"GIT_CEILING_DIRECTORIES="+g.Dir(),
	)
	if c.repo != "" {
		env = append(env, "GIT_DIR="+c.repo)
	}
	return append(env, c.env...)
}

// git runs git and returns what it printed, without the newline at the end. Its error is a *commandError, or wraps that
// of ctx.
func (g *Git) git(ctx context.Context, c call, args ...string) (string, error) {
	argv := []string{g.program}
	for _, setting := range guards {
		argv = append(argv, "-c", setting)
	}
	argv = append(argv, args...)
	if c.maxFile > 0 { // POSIX's ulimit counts blocks of 512 bytes
		blocks := strconv.FormatInt(c.maxFile/512+1, 10)
		argv = append([]string{"/bin/sh", "-c", `ulimit -f "$0" 2>/dev/null; exec "$@"`, blocks}, argv...)
	}
	if c.dir == "" {
		c.dir = g.Temporary()
	}
	return g.run(ctx, argv, "git "+strings.Join(args, " "), g.environment(c), c)
}

// run runs a program in a process group of its own and kills the whole group when the program ends. In errors the
// program is called shown.
func (g *Git) run(ctx context.Context, argv []string, shown string, env []string, c call) (string, error) {
	limited, cancel := context.WithTimeout(ctx, g.config.Timeout)
	defer cancel()
	program := exec.CommandContext(limited, argv[0], argv[1:]...)
	program.Dir, program.Env, program.Stdin = c.dir, env, c.stdin
	stderr, printed := &tail{limit: maxStderr}, &bytes.Buffer{}
	program.Stderr, program.Stdout = stderr, c.stdout
	if c.stdout == nil {
		program.Stdout = &limitedWriter{printed, maxStdout}
	}
	program.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	program.Cancel = func() error { return syscall.Kill(-program.Process.Pid, syscall.SIGKILL) }
	program.WaitDelay = 2 * time.Second

	err := program.Run()
	if program.Process != nil {
		syscall.Kill(-program.Process.Pid, syscall.SIGKILL) // what it started and did not end
	}
	switch {
	case err == nil:
		return strings.TrimSuffix(printed.String(), "\n"), nil
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s: %w", g.scrub(shown), ctx.Err())
	case limited.Err() != nil:
		err = fmt.Errorf("given up after %s", g.config.Timeout)
	}
	fault := &commandError{command: g.scrub(shown), stderr: g.scrub(stderr.String()), code: -1, cause: err}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		fault.code = exit.ExitCode()
	}
	return "", fault
}

// A tail keeps the end of what is written to it, from the start of a line. If it cut a line, scrub would not recognise
// a secret of which half is missing.
type tail struct {
	limit int
	kept  []byte
	cut   bool
}

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - t.limit; over > 0 {
		t.kept, t.cut = append(t.kept[:0], t.kept[over:]...), true
	}
	return len(p), nil
}

func (t *tail) String() string {
	if !t.cut {
		return string(t.kept)
	}
	_, rest, _ := bytes.Cut(t.kept, []byte("\n"))
	return string(rest)
}

var errTooLong = errors.New("it printed too much")

// A limitedWriter returns an error once more than left bytes are written. The error ends the program that writes.
type limitedWriter struct {
	io.Writer
	left int64
}

func (w *limitedWriter) Write(p []byte) (int, error) {
	if w.left -= int64(len(p)); w.left < 0 {
		return 0, errTooLong
	}
	return w.Writer.Write(p)
}
