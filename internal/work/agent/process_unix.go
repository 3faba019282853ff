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

// Confinement names what confines agents on this machine. It is empty if nothing does.
func Confinement() string { return "" }

// pipeTime is how long the processes that an agent left behind may hold its pipes open.
const pipeTime = 10 * time.Second

// process is a started agent. Only Linux lets a process adopt what its descendants leave behind. Elsewhere, a process
// that left the agent's process group runs on, and so does the agent if the service dies. Its memory is not limited.
type process struct {
	stdin          io.WriteCloser
	stdout, stderr io.ReadCloser

	command  *exec.Cmd
	grace    time.Duration
	stopping sync.Once
	stopped  chan struct{}
	lateKill *time.Timer
}

func start(s startup) (*process, error) {
	p := &process{
		command: &exec.Cmd{
			Path: s.Program, Args: s.Argv, Env: s.Env, Dir: s.Dir, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
		},
		grace: s.Grace, stopped: make(chan struct{}),
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
		p.lateKill = time.AfterFunc(p.grace, func() { p.signal(syscall.SIGKILL) })
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
		p.lateKill.Stop()
	default:
	}
	p.signal(syscall.SIGKILL)
	time.AfterFunc(pipeTime, func() {
		p.stdout.Close()
		p.stderr.Close()
	})
	if status := state.Sys().(syscall.WaitStatus); status.Signaled() {
		end.Signal = int(status.Signal())
	}
	return end, nil
}
