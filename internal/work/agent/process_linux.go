package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// process is a started agent with its supervisor.
type process struct {
	stdin          io.WriteCloser
	stdout, stderr io.ReadCloser

	supervisor *exec.Cmd
	control    *os.File // the agent may run while this is open
	status     *os.File
	grace      time.Duration
	stopping   sync.Once
	lateKill   *time.Timer
}

// supervisorTime is how much longer than the grace a supervisor may take to end.
const supervisorTime = 10 * time.Second

// start starts an agent under a supervisor, which is this program under another name, see supervise. A pipe connects
// this process with the supervisor. The kernel closes it when this process dies in any way, and then the supervisor
// ends the agent.
func start(s startup) (*process, error) {
	var files []*os.File
	fail := func(err error) (*process, error) {
		for _, file := range files {
			file.Close()
		}
		return nil, err
	}
	for range 5 {
		r, w, err := os.Pipe()
		if err != nil {
			return fail(err)
		}
		files = append(files, r, w)
	}
	document, err := json.Marshal(s)
	if err != nil {
		return fail(err)
	}
	stdin, stdout, stderr, control, status := files[0:2], files[2:4], files[4:6], files[6:8], files[8:10]
	supervisor := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{supervisorName}, Env: s.Env, Dir: "/",
		Stdin: stdin[0], Stdout: stdout[1], Stderr: stderr[1], ExtraFiles: []*os.File{control[0], status[1]},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := supervisor.Start(); err != nil {
		return fail(err)
	}
	for _, theirs := range []*os.File{stdin[0], stdout[1], stderr[1], control[0], status[1]} {
		theirs.Close()
	}
	p := &process{
		stdin: stdin[1], stdout: stdout[0], stderr: stderr[0],
		supervisor: supervisor, control: control[1], status: status[0], grace: s.Grace,
	}
	p.control.Write(append(document, '\n')) // if this fails the supervisor is gone, and wait returns an error
	return p, nil
}

// stop ends the agent: it gets SIGTERM, and SIGKILL after the grace.
func (p *process) stop() {
	p.stopping.Do(func() {
		p.control.Close()
		p.lateKill = time.AfterFunc(p.grace+supervisorTime, p.killSupervisor)
	})
}

// killSupervisor ends a supervisor that does not end, because a process of the agent's cannot be killed.
func (p *process) killSupervisor() {
	p.supervisor.Process.Kill()
	p.stdout.Close()
	p.stderr.Close()
	p.status.Close()
}

// wait waits until every process of the agent has ended, and returns how the agent ended.
func (p *process) wait() (ending, error) {
	var end ending
	document, err := io.ReadAll(p.status)
	if err == nil {
		err = json.Unmarshal(document, &end)
	}
	waiting := p.supervisor.Wait()
	p.stop()
	p.lateKill.Stop()
	p.status.Close()
	if err != nil {
		// The supervisor died, so processes of the agent may run on and hold the pipes open.
		p.stdout.Close()
		p.stderr.Close()
		return ending{}, fmt.Errorf("the supervisor was lost: %w", errors.Join(waiting, err))
	}
	return end, nil
}
