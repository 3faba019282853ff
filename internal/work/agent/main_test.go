package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"boxoffice/internal/work/agent"
)

// The tests' agents are this binary with the argument "agent".
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "agent" {
		behave(os.Args[2], os.Args[3:])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// behave does what one of the tests' agents does.
func behave(how string, args []string) {
	switch how {
	case "answer":
		var task agent.Task
		if err := json.NewDecoder(os.Stdin).Decode(&task); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		answer(strings.Join([]string{fmt.Sprint(task.V), string(task.Job), task.Node, task.Objective}, "|"))
	case "unread": // answers without looking at its task
		answer("done")
	case "forever":
		forever()
	case "stubborn": // connects, and ignores signals
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		attend(args[0])
		forever()
	case "polite": // connects, and ends when asked to
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		attend(args[0])
		fmt.Fprintln(os.Stderr, <-asked)
		os.Exit(0)
	case "family": // has a child, one in a session of its own, and one that its own parent left
		spawn(&syscall.SysProcAttr{}, "stubborn", args[0])
		spawn(&syscall.SysProcAttr{Setsid: true}, "stubborn", args[0])
		spawn(&syscall.SysProcAttr{Setsid: true}, "orphan", args[0])
		if args[1] == "stay" {
			behave("stubborn", args[:1])
		}
		attend(args[0]).Read(make([]byte, 1)) // until all have connected
		answer("gone")
	case "orphan":
		spawn(&syscall.SysProcAttr{Setsid: true}, "stubborn", args[0])
	case "flood":
		block := bytes.Repeat([]byte("x"), 1<<20)
		for range 1 << 10 {
			if _, err := os.Stdout.Write(block); err != nil {
				break
			}
		}
		if args[0] == "stay" {
			forever()
		}
	case "quiet": // closes its output and runs on for a while
		os.Stdout.Close()
		attend(args[0])
		io.ReadAll(os.Stdin)
	case "babble":
		for i := range 20000 {
			fmt.Fprintf(os.Stderr, "line %d\x00\xff of what happened\n", i)
		}
		answer("done")
	case "environment":
		answer(strings.Join(os.Environ(), "\n"))
	case "files":
		var links []string
		entries, _ := os.ReadDir("/proc/self/fd")
		for _, entry := range entries {
			link, _ := os.Readlink("/proc/self/fd/" + entry.Name())
			links = append(links, link)
		}
		answer(strings.Join(links, "\n") + "\n.")
	case "shut": // removes its own permissions
		os.MkdirAll(filepath.Join(os.Getenv("HOME"), "a", "b"), 0o700)
		os.Chmod(filepath.Join(os.Getenv("HOME"), "a"), 0)
		answer(os.Getenv("HOME"))
	case "escape":
		answer(strings.Join(escape(args[0], args[1]), "\n") + "\n.")
	case "read":
		var texts []string
		for _, path := range args {
			text, err := os.ReadFile(path)
			if err != nil {
				text = []byte("denied")
			}
			texts = append(texts, string(text))
		}
		answer(strings.Join(texts, " "))
	case "service": // is the service: runs an agent that stays
		command, err := agent.NewCommand(withLimits(agent.CommandConfig{
			Argv: self("family", args[0], "stay"), Timeout: time.Hour, Grace: time.Millisecond,
		}))
		if err != nil {
			panic(err)
		}
		workspace, _ := filepath.EvalSymlinks(args[1])
		command.Run(context.Background(), workspace, agent.Task{})
	default:
		panic(how)
	}
}

func answer(summary string) {
	json.NewEncoder(os.Stdout).Encode(agent.Result{Outcome: agent.Done, Summary: summary})
}

// attend connects to a socket. The connection stays open until this process ends.
func attend(socket string) net.Conn {
	connection, err := net.Dial("unix", socket)
	if err != nil {
		panic(err)
	}
	attended = append(attended, connection)
	fmt.Fprintln(connection, os.Getpid())
	return connection
}

var attended []net.Conn

func forever() {
	for {
		time.Sleep(time.Hour)
	}
}

func spawn(attributes *syscall.SysProcAttr, args ...string) {
	child := exec.Command(os.Args[0], append([]string{"agent"}, args...)...)
	child.SysProcAttr = attributes
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	if err := child.Start(); err != nil {
		panic(err)
	}
}

// escape tries to do harm outside of the workspace. It returns what succeeded.
func escape(outside, service string) (done []string) {
	existing := filepath.Join(outside, "existing")
	pid, _ := strconv.Atoi(service)
	attempts := map[string]func() error{
		"create":   func() error { return os.WriteFile(filepath.Join(outside, "new"), nil, 0o600) },
		"replace":  func() error { return os.WriteFile(existing, []byte("x"), 0o600) },
		"append":   func() error { _, err := os.OpenFile(existing, os.O_APPEND|os.O_WRONLY, 0); return err },
		"truncate": func() error { return os.Truncate(existing, 0) },
		"remove":   func() error { return os.Remove(existing) },
		"mkdir":    func() error { return os.Mkdir(filepath.Join(outside, "folder"), 0o700) },
		"symlink":  func() error { return os.Symlink("/", filepath.Join(outside, "link")) },
		"rename":   func() error { return os.Rename(existing, "mine") },
		"link":     func() error { return os.Link(existing, "mine") },
		"through a link": func() error {
			os.Symlink(outside, "way-out")
			return os.WriteFile("way-out/new", nil, 0o600)
		},
		"through ..":          func() error { return os.WriteFile("../new", nil, 0o600) },
		"signal the service":  func() error { return syscall.Kill(pid, syscall.SIGCONT) },
		"signal its parent":   func() error { return syscall.Kill(os.Getppid(), syscall.SIGCONT) },
		"service environment": func() error { _, err := os.ReadFile("/proc/" + service + "/environ"); return err },
		"service memory":      func() error { _, err := os.Open("/proc/" + service + "/mem"); return err },
		"service files":       func() error { _, err := os.Readlink("/proc/" + service + "/fd/0"); return err },
	}
	for name, attempt := range attempts {
		if attempt() == nil {
			done = append(done, name)
		}
	}
	return done
}
