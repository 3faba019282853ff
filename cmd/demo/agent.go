package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"boxoffice/examples"
)

// buildAgent builds the example agent, which does the demo's work, and returns
// the program. It is kept with the data, so that boxoffice serve finds it too.
func buildAgent(ctx context.Context, data string) (string, error) {
	folder := filepath.Join(data, "agent")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	source, program := filepath.Join(folder, "main.go"), filepath.Join(folder, "agent")
	if err := os.WriteFile(source, examples.AgentGo, 0o600); err != nil {
		return "", err
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", program, source)
	build.Dir = folder
	build.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	out, err := build.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("the demo builds its agent, which needs Go: %w", err)
	}
	if err != nil {
		return "", fmt.Errorf("build the example agent: %w\n%s", err, out)
	}
	return program, nil
}
