package agent_test

import (
	"testing"

	"boxoffice/internal/work/agent"
)

// BenchmarkRun measures what a run costs besides the agent's own work: start, confinement, result and clean-up of an
// agent that prints its result at once.
func BenchmarkRun(b *testing.B) {
	command := newCommand(b, agent.CommandConfig{Argv: printed(done), Hidden: []string{b.TempDir()}})
	folder := workspace(b)
	for b.Loop() {
		if _, err := command.Run(b.Context(), folder, agent.Task{}); err != nil {
			b.Fatal(err)
		}
	}
}
