package agent

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// descendants returns the ids of all processes below this one, from /proc.
func descendants() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := map[int][]int{}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if parent, ok := parentOf(pid); ok {
			children[parent] = append(children[parent], pid)
		}
	}
	list := children[os.Getpid()]
	for i := 0; i < len(list); i++ {
		list = append(list, children[list[i]]...)
	}
	return list
}

// parentOf reads the fourth field of /proc/PID/stat. The second field is a name in parentheses that may hold any
// characters, so the fields are counted from the last closing parenthesis.
func parentOf(pid int) (int, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	return parent, err == nil
}

// memoryOfDescendants returns how many bytes of memory the descendants hold that belong to no file: resident less
// shared of /proc/PID/statm.
func memoryOfDescendants() (sum int64) {
	for _, pid := range descendants() {
		statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if err != nil {
			continue
		}
		var size, resident, shared int64
		if _, err := fmt.Sscan(string(statm), &size, &resident, &shared); err == nil {
			sum += resident - shared
		}
	}
	return sum * int64(os.Getpagesize())
}

// killDescendants kills every descendant. It stops them first, so that none of them forks while they are counted.
func killDescendants() {
	stopped := map[int]bool{}
	for found := true; found; {
		found = false
		for _, pid := range descendants() {
			if !stopped[pid] {
				found, stopped[pid] = true, true
				unix.Kill(pid, unix.SIGSTOP)
			}
		}
	}
	for pid := range stopped {
		unix.Kill(pid, unix.SIGKILL)
	}
}
