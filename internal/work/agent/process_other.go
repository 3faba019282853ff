//go:build !unix

package agent

import (
	"errors"
	"io"
)

// Confinement names what confines agents on this machine. It is empty if nothing does.
func Confinement() string { return "" }

type process struct {
	stdin          io.WriteCloser
	stdout, stderr io.ReadCloser
}

func start(startup) (*process, error) {
	return nil, errors.New("agents that are programs need Unix; give the agent's url instead")
}

func (p *process) stop() {}

func (p *process) wait() (ending, error) { return ending{}, nil }
