package delivery

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"boxoffice/internal/work"
)

func failuref(format string, args ...any) error {
	return &work.Failure{Text: fmt.Sprintf(format, args...)}
}

// failed turns the error of a command into a work.Failure, unless the caller gave
// the command up.
func failed(ctx context.Context, err error) error {
	if command, ok := errors.AsType[*commandError](err); ok && ctx.Err() == nil {
		return &work.Failure{Text: command.Error()}
	}
	return err
}

// A commandError says which command failed, how, and what it said last.
type commandError struct {
	command, said string // scrubbed
	code          int    // -1 if it did not exit by itself
	cause         error
}

func (e *commandError) Error() string {
	text := e.command + ": " + e.cause.Error()
	if e.said != "" {
		text += ": " + e.said
	}
	return text
}

func (e *commandError) Unwrap() error { return e.cause }

// A call is how one git command is run.
type call struct {
	dir       string   // of work; empty: a folder with nothing in it to find
	repo      string   // GIT_DIR; empty: the command names its own
	protocols string   // the transports it may use, as GIT_ALLOW_PROTOCOL; empty: none
	env       []string // further variables
	stdin     io.Reader
	stdout    io.Writer // nil: returned, up to maxStdout
	maxFile   int64     // the largest file that it may write; 0: any
}

const (
	maxStdout = 64 << 10
	maxStderr = 8 << 10
	maxText   = 2 << 10 // of what is quoted from stderr
)

// guards are the settings that hold whatever a repository's configuration says.
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
		"GIT_ALLOW_PROTOCOL="+orDefault(c.protocols, "none"), "GIT_PROTOCOL_FROM_USER=0",
		"GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1", "GIT_OPTIONAL_LOCKS=0", "GIT_ADVICE=0",
		"GIT_CEILING_DIRECTORIES="+g.config.Dir,
	)
	if c.repo != "" {
		env = append(env, "GIT_DIR="+c.repo)
	}
	return append(env, c.env...)
}

// git runs a git command and returns what it printed, without the newline at
// its end. Its error is a *commandError, or that of the context.
func (g *Git) git(ctx context.Context, c call, args ...string) (string, error) {
	argv := []string{g.program}
	for _, setting := range guards {
		argv = append(argv, "-c", setting)
	}
	argv = append(argv, args...)
	if c.maxFile > 0 { // in blocks of 512 bytes, as POSIX has it
		argv = append([]string{"/bin/sh", "-c", `ulimit -f "$0" 2>/dev/null; exec "$@"`, strconv.FormatInt(c.maxFile/512+1, 10)}, argv...)
	}
	if c.dir == "" {
		c.dir = g.unfinished()
	}
	return g.run(ctx, argv, "git "+strings.Join(args, " "), g.environment(c), c)
}

// run runs a program in a process group of its own, which ends whole with it.
func (g *Git) run(ctx context.Context, argv []string, shown string, env []string, c call) (string, error) {
	limited, cancel := context.WithTimeout(ctx, g.config.Timeout)
	defer cancel()
	program := exec.CommandContext(limited, argv[0], argv[1:]...)
	program.Dir, program.Env, program.Stdin = c.dir, env, c.stdin
	said, printed := &tail{limit: maxStderr}, &bytes.Buffer{}
	program.Stderr, program.Stdout = said, c.stdout
	if c.stdout == nil {
		program.Stdout = &limitedWriter{printed, maxStdout}
	}
	program.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	program.Cancel = func() error { return syscall.Kill(-program.Process.Pid, syscall.SIGKILL) }
	program.WaitDelay = 2 * time.Second

	err := program.Run()
	if program.Process != nil {
		syscall.Kill(-program.Process.Pid, syscall.SIGKILL) // whatever it started and left
	}
	switch {
	case err == nil:
		return strings.TrimSuffix(printed.String(), "\n"), nil
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s: %w", g.scrub(shown), ctx.Err())
	case limited.Err() != nil:
		err = fmt.Errorf("given up after %s", g.config.Timeout)
	}
	fault := &commandError{command: g.scrub(shown), said: g.scrub(said.String()), code: -1, cause: err}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		fault.code = exit.ExitCode()
	}
	return "", fault
}

var (
	userinfo = regexp.MustCompile(`://[^/@\s]*@`)
	bearing  = regexp.MustCompile(`(?i)\b(?:basic|bearer|token) [a-z0-9+/=_.~-]{8,}|\b(?:gh[a-z]_|github_pat_|glpat-)\w+`)
	redacted = "[redacted]"
)

// scrub makes what a program said fit to be shown: no secrets, no folders of
// ours, no control characters, and of a long text the end.
func (g *Git) scrub(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	for _, secret := range g.secrets {
		if len(secret) >= 4 {
			text = strings.ReplaceAll(text, secret, redacted)
		}
	}
	text = strings.ReplaceAll(text, g.config.Dir+"/", "")
	text = userinfo.ReplaceAllString(text, "://")
	text = bearing.ReplaceAllString(text, redacted)
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' || unicode.Is(unicode.Cf, r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > maxText {
		text = "…" + strings.ToValidUTF8(text[len(text)-maxText:], "")
	}
	return strings.TrimSpace(text)
}

func (c Credential) basic() string {
	return base64.StdEncoding.EncodeToString([]byte(c.Username + ":" + c.Password))
}

// A tail keeps the end of what is written to it, from the start of a line: a
// secret that is cut in two would not be known any more.
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

// A limitedWriter fails once more is written than it takes, which ends the
// program that writes.
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
