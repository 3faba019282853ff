package agent

import "time"

// order says what to start and within which walls.
type order struct {
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

// ending is how an agent ended.
type ending struct {
	Error   string `json:",omitempty"` // it did not start
	Exit    int    // its exit code
	Signal  int    `json:",omitempty"` // what killed it, if not 0
	Memory  bool   `json:",omitempty"` // it was stopped because of its memory
	Stopped bool   `json:",omitempty"` // it was told to stop before it ended
}

func (e ending) signaled() bool { return e.Signal != 0 }
