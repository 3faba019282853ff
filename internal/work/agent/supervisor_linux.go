package agent

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"boxoffice/internal/work/workspace"

	"golang.org/x/sys/unix"
)

// supervisorName is the name under which this program supervises one agent.
const supervisorName = "boxoffice-agent-supervisor"

// A supervisor is a process between the service and an agent. Only a process can adopt the processes that an agent
// leaves behind, however they were forked, and only another process than the service can end them after the service
// died. It is this same program, so no second binary is installed. It starts here in init, so that no main has to call
// it.
func init() {
	if len(os.Args) == 1 && os.Args[0] == supervisorName {
		supervise(os.NewFile(3, "control"), os.NewFile(4, "status"))
		syscall.Exit(0)
	}
}

const (
	memoryEvery = 250 * time.Millisecond // how often the agent's memory is measured
	killEvery   = 20 * time.Millisecond  // how often the descendants are killed until none is left
)

// supervise runs one agent until it and all its descendants have ended. It reads its startup from control, and writes
// to status how the agent ended. When control is closed, it ends the agent.
func supervise(control, status *os.File) {
	end := ending{Exit: -1}
	defer func() { json.NewEncoder(status).Encode(end) }()
	closeFilesOnExec()
	input := bufio.NewReader(control)
	document, err := input.ReadBytes('\n')
	var s startup
	if err == nil {
		err = json.Unmarshal(document, &s)
	}
	if err == nil {
		err = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	}
	if err == nil {
		err = limit(s.MaxMemory)
	}
	if err != nil {
		end.Error = fmt.Sprint("supervisor: ", err)
		return
	}
	defer workspace.Remove(s.Scratch)
	closed := make(chan struct{})
	go func() {
		io.Copy(io.Discard, input)
		close(closed)
	}()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)

	agent, err := launch(s)
	if err != nil {
		end.Error = err.Error()
		return
	}
	closeStandardFiles()
	os.WriteFile("/proc/self/oom_score_adj", []byte("0"), 0) // the agent has inherited what limit wrote

	agentEnded := make(chan syscall.WaitStatus, 1)
	allEnded := make(chan struct{})
	go reap(agent, agentEnded, allEnded)
	var (
		tick    = time.NewTicker(memoryEvery)
		grace   <-chan time.Time
		ended   bool
		killing bool
	)
	kill := func() {
		killing = true
		tick.Reset(killEvery)
		killDescendants()
	}
	stop := func() {
		end.Stopped = !ended
		for _, pid := range descendants() {
			unix.Kill(pid, unix.SIGTERM)
			unix.Kill(pid, unix.SIGCONT) // a stopped process does not handle SIGTERM
		}
		if grace == nil {
			grace = time.After(s.Grace)
		}
	}
	for {
		select {
		case <-closed:
			closed = nil
			stop()
		case <-signals:
			stop()
		case <-grace:
			kill()
		case <-tick.C:
			switch {
			case killing:
				killDescendants()
			case s.MaxMemory > 0 && memoryOfDescendants() > s.MaxMemory:
				end.Memory = true
				kill()
			}
		case state := <-agentEnded:
			ended = true
			if state.Signaled() {
				end.Signal = int(state.Signal())
			} else {
				end.Exit = state.ExitStatus()
			}
			kill()
		case <-allEnded:
			if !ended { // agentEnded is ready too
				continue
			}
			return
		}
	}
}

// launch starts the agent's program from a thread that confines itself first. The confinement holds for that thread and
// for what it starts, not for the rest of the supervisor. The thread never ends, because Pdeathsig kills the agent when
// the thread that started it ends.
func launch(s startup) (pid int, err error) {
	launched := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer func() {
			close(launched)
			select {}
		}()
		if err = confine(s.Writable, s.Hidden); err != nil {
			err = fmt.Errorf("confine: %w", err)
			return
		}
		pid, err = syscall.ForkExec(s.Program, s.Argv, &syscall.ProcAttr{
			Dir: s.Dir, Env: s.Env, Files: []uintptr{0, 1, 2},
			Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
		})
	}()
	<-launched
	return pid, err
}

// limit sets limits that the agent inherits. RLIMIT_DATA stops a process that grows faster than memoryEvery can see. It
// counts the memory that a process could write. RLIMIT_AS would also count reserved addresses, of which runtimes
// reserve far more than they use.
func limit(memory int64) error {
	os.WriteFile("/proc/self/oom_score_adj", []byte("500"), 0) // the kernel kills the agent before the service
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return err
	}
	if memory == 0 {
		return nil
	}
	most := uint64(memory) + 1<<30
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_DATA, &now); err != nil {
		return err
	}
	most = min(most, now.Max)
	return unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: most, Max: most})
}

// reap waits for every child, started or adopted, until there is none. It sends how the agent ended, and closes
// allEnded at the end.
func reap(agent int, agentEnded chan<- syscall.WaitStatus, allEnded chan<- struct{}) {
	for {
		var state syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &state, 0, nil); {
		case err == syscall.EINTR:
		case err != nil:
			close(allEnded)
			return
		case pid == agent:
			agentEnded <- state
		}
	}
}

// closeFilesOnExec makes the agent inherit no file besides its standard files, not even a file that the service itself
// inherited.
func closeFilesOnExec() {
	if unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, entry := range entries {
		var fd int
		if _, err := fmt.Sscan(entry.Name(), &fd); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

// closeStandardFiles closes the supervisor's ends of the agent's pipes. So the service sees the end of the output when
// the agent closes it.
func closeStandardFiles() {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	for fd := range 3 {
		if err == nil {
			unix.Dup3(null, fd, 0)
		} else {
			unix.Close(fd)
		}
	}
}
