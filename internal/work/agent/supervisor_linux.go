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

// A supervisor is a process between the service and an agent. It is there
// because only a process can adopt what an agent leaves behind, whichever way
// that was forked, and can outlive the service for long enough to end it. It is
// the running program itself, so that there is no second binary to install, and
// it branches off here so that no main has to know.
func init() {
	if len(os.Args) == 1 && os.Args[0] == supervisorName {
		supervise(os.NewFile(3, "leash"), os.NewFile(4, "status"))
		syscall.Exit(0)
	}
}

// How often memory is looked at, and how often those that are being killed are
// looked for again.
const (
	watchEvery = 250 * time.Millisecond
	sweepEvery = 20 * time.Millisecond
)

// supervise runs one agent to its end and that of all its descendants. It reads
// its order from leash, and reports on status how the agent ended.
func supervise(leash, status *os.File) {
	end := ending{Exit: -1}
	defer func() { json.NewEncoder(status).Encode(end) }()
	keepOpenFiles()
	orders := bufio.NewReader(leash)
	document, err := orders.ReadBytes('\n')
	var o order
	if err == nil {
		err = json.Unmarshal(document, &o)
	}
	if err == nil {
		err = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	}
	if err == nil {
		err = limit(o.MaxMemory)
	}
	if err != nil {
		end.Error = fmt.Sprint("supervisor: ", err)
		return
	}
	defer workspace.Remove(o.Scratch)
	cut := make(chan struct{})
	go func() {
		io.Copy(io.Discard, orders)
		close(cut)
	}()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)

	leader, err := launch(o)
	if err != nil {
		end.Error = err.Error()
		return
	}
	forgetStandardFiles()
	os.WriteFile("/proc/self/oom_score_adj", []byte("0"), 0)

	led := make(chan syscall.WaitStatus, 1)
	gone := make(chan struct{})
	go reap(leader, led, gone)
	var (
		watch   = time.NewTicker(watchEvery)
		grace   <-chan time.Time
		ended   bool
		killing bool
	)
	kill := func() {
		killing = true
		watch.Reset(sweepEvery)
		sweep()
	}
	stop := func() {
		end.Stopped = !ended
		for _, pid := range descendants() {
			unix.Kill(pid, unix.SIGTERM)
			unix.Kill(pid, unix.SIGCONT)
		}
		if grace == nil {
			grace = time.After(o.Grace)
		}
	}
	for {
		select {
		case <-cut:
			cut = nil
			stop()
		case <-signals:
			stop()
		case <-grace:
			kill()
		case <-watch.C:
			switch {
			case killing:
				sweep()
			case o.MaxMemory > 0 && held() > o.MaxMemory:
				end.Memory = true
				kill()
			}
		case state := <-led:
			ended = true
			if state.Signaled() {
				end.Signal = int(state.Signal())
			} else {
				end.Exit = state.ExitStatus()
			}
			kill()
		case <-gone:
			if !ended {
				// Both channels were ready.
				continue
			}
			return
		}
	}
}

// launch starts the agent's program from a thread of its own, which puts up the
// walls around itself: they hold for this thread and what it starts, and not
// for the supervisor. The thread stays, for the agent is killed when it ends.
func launch(o order) (pid int, err error) {
	launched := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer func() {
			close(launched)
			select {}
		}()
		if err = confine(o.Writable, o.Hidden); err != nil {
			err = fmt.Errorf("confine: %w", err)
			return
		}
		pid, err = syscall.ForkExec(o.Program, o.Argv, &syscall.ProcAttr{
			Dir: o.Dir, Env: o.Env, Files: []uintptr{0, 1, 2},
			Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
		})
	}()
	<-launched
	return pid, err
}

// limit sets what the agent inherits. RLIMIT_DATA counts what a process could
// write, not what it has reserved, as RLIMIT_AS does: runtimes reserve far more
// than they use. It only brakes a process that grows faster than it is watched.
func limit(memory int64) error {
	os.WriteFile("/proc/self/oom_score_adj", []byte("500"), 0) // rather the agent than the service
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

// reap waits for every child, born or adopted, until there is none.
func reap(leader int, led chan<- syscall.WaitStatus, gone chan<- struct{}) {
	for {
		var state syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &state, 0, nil); {
		case err == syscall.EINTR:
		case err != nil:
			close(gone)
			return
		case pid == leader:
			led <- state
		}
	}
}

// sweep kills every descendant. They are stopped first, so that none of them
// forks while they are being counted.
func sweep() {
	stopped := map[int]bool{}
	for fresh := true; fresh; {
		fresh = false
		for _, pid := range descendants() {
			if !stopped[pid] {
				fresh, stopped[pid] = true, true
				unix.Kill(pid, unix.SIGSTOP)
			}
		}
	}
	for pid := range stopped {
		unix.Kill(pid, unix.SIGKILL)
	}
}

// keepOpenFiles leaves the agent nothing but its standard files, even of what
// the service inherited itself.
func keepOpenFiles() {
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

// forgetStandardFiles lets the service see the end of the agent's output when
// the agent closes it.
func forgetStandardFiles() {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	for fd := range 3 {
		if err == nil {
			unix.Dup3(null, fd, 0)
		} else {
			unix.Close(fd)
		}
	}
}
