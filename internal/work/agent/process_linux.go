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

// process is a started agent, held through its supervisor.
type process struct {
	stdin          io.WriteCloser
	stdout, stderr io.ReadCloser

	supervisor *exec.Cmd
	leash      *os.File // while it is open the agent may run
	status     *os.File
	grace      time.Duration
	stopping   sync.Once
	backstop   *time.Timer
}

// lost is how much longer than the grace a supervisor may take to end.
const lost = 10 * time.Second

// start starts an agent under a supervisor: this same program under another
// name, see supervise. The leash between them is a pipe that the kernel closes
// when this process dies, however it dies; then the supervisor ends the agent.
func start(o order) (*process, error) {
	var files []*os.File
	abandon := func(err error) (*process, error) {
		for _, file := range files {
			file.Close()
		}
		return nil, err
	}
	for range 5 {
		r, w, err := os.Pipe()
		if err != nil {
			return abandon(err)
		}
		files = append(files, r, w)
	}
	document, err := json.Marshal(o)
	if err != nil {
		return abandon(err)
	}
	stdin, stdout, stderr, leash, status := files[0:2], files[2:4], files[4:6], files[6:8], files[8:10]
	supervisor := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{supervisorName}, Env: o.Env, Dir: "/",
		Stdin: stdin[0], Stdout: stdout[1], Stderr: stderr[1], ExtraFiles: []*os.File{leash[0], status[1]},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := supervisor.Start(); err != nil {
		return abandon(err)
	}
	for _, theirs := range []*os.File{stdin[0], stdout[1], stderr[1], leash[0], status[1]} {
		theirs.Close()
	}
	p := &process{stdin: stdin[1], stdout: stdout[0], stderr: stderr[0], supervisor: supervisor, leash: leash[1], status: status[0], grace: o.Grace}
	// If this fails the supervisor is gone, which wait tells.
	p.leash.Write(append(document, '\n'))
	return p, nil
}

// stop ends the agent: SIGTERM, and SIGKILL after the grace.
func (p *process) stop() {
	p.stopping.Do(func() {
		p.leash.Close()
		p.backstop = time.AfterFunc(p.grace+lost, p.abandon)
	})
}

// abandon gives up a supervisor that does not end, because something of the
// agent's can't be killed.
func (p *process) abandon() {
	p.supervisor.Process.Kill()
	p.stdout.Close()
	p.stderr.Close()
	p.status.Close()
}

// wait returns how the agent ended, once every process of it has.
func (p *process) wait() (ending, error) {
	var end ending
	document, err := io.ReadAll(p.status)
	if err == nil {
		err = json.Unmarshal(document, &end)
	}
	waiting := p.supervisor.Wait()
	p.stop()
	p.backstop.Stop()
	p.status.Close()
	if err != nil {
		// Nobody is left to end what the agent has started.
		p.stdout.Close()
		p.stderr.Close()
		return ending{}, fmt.Errorf("the supervisor was lost: %w", errors.Join(waiting, err))
	}
	return end, nil
}
