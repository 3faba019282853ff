//go:build unix && !linux

package agent

import (
	"errors"
	"io"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Confinement names what confines agents on this machine, "" if nothing does.
func Confinement() string { return "" }

// lost is how long what an agent left behind may keep its pipes.
const lost = 10 * time.Second

// process is a started agent. Without Linux there is nobody to adopt what it
// leaves behind: what left its process group, and what it started if the
// service dies, lives on, and its memory is not limited.
type process struct {
	stdin          io.WriteCloser
	stdout, stderr io.ReadCloser

	command  *exec.Cmd
	grace    time.Duration
	stopping sync.Once
	stopped  chan struct{}
	killing  *time.Timer
}

func start(o order) (*process, error) {
	p := &process{
		command: &exec.Cmd{Path: o.Program, Args: o.Argv, Env: o.Env, Dir: o.Dir, SysProcAttr: &syscall.SysProcAttr{Setsid: true}},
		grace:   o.Grace, stopped: make(chan struct{}),
	}
	var errs [3]error
	p.stdin, errs[0] = p.command.StdinPipe()
	p.stdout, errs[1] = p.command.StdoutPipe()
	p.stderr, errs[2] = p.command.StderrPipe()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return p, p.command.Start()
}

func (p *process) stop() {
	p.stopping.Do(func() {
		close(p.stopped)
		p.signal(syscall.SIGTERM)
		p.killing = time.AfterFunc(p.grace, func() { p.signal(syscall.SIGKILL) })
	})
}

func (p *process) signal(signal syscall.Signal) { syscall.Kill(-p.command.Process.Pid, signal) }

func (p *process) wait() (ending, error) {
	state, err := p.command.Process.Wait()
	if err != nil {
		return ending{}, err
	}
	end := ending{Exit: state.ExitCode()}
	select {
	case <-p.stopped:
		end.Stopped = true
		p.killing.Stop()
	default:
	}
	p.signal(syscall.SIGKILL)
	// What left the group may hold the pipes open.
	time.AfterFunc(lost, func() {
		p.stdout.Close()
		p.stderr.Close()
	})
	if status := state.Sys().(syscall.WaitStatus); status.Signaled() {
		end.Signal = int(status.Signal())
	}
	return end, nil
}
