package agent

import "time"

// startup says which program to start, and what it may use.
type startup struct {
	Program   string
	Argv      []string
	Env       []string
	Dir       string
	Scratch   string // removed at the end
	Grace     time.Duration
	MaxMemory int64
	Writable  []string
	Hidden    []string
}

// ending says how an agent's program ended.
type ending struct {
	Error   string `json:",omitempty"` // why it did not start
	Exit    int    // its exit code
	Signal  int    `json:",omitempty"` // the signal that killed it, or 0
	Memory  bool   `json:",omitempty"` // it was killed because it held too much memory
	Stopped bool   `json:",omitempty"` // it was told to stop before it ended
}

func (e ending) signaled() bool { return e.Signal != 0 }
