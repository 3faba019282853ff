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

// errNoTools is returned on a machine that cannot do or deliver the demo's work.
var errNoTools = errors.New("work needs go, to build the example agent, and git, to deliver")

// buildAgent builds the example agent, which does the demo's work, and returns the path
// of the program. It is in the data folder, so that boxoffice serve finds it too. The
// error is errNoTools if go or git is missing.
func buildAgent(ctx context.Context, data string) (string, error) {
	for _, tool := range []string{"go", "git"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("%w: %w", errNoTools, err)
		}
	}
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
	if err != nil {
		return "", fmt.Errorf("build the example agent: %w\n%s", err, out)
	}
	return program, nil
}
