package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
)

var linters = filepath.Join("interop", "openapi")

// lint checks the OpenAPI document of the demo with both linters. Errors fail, and Spectral's warnings too.
func lint(ctx context.Context, d *demo) (rows []row, err error) {
	document := filepath.Join(d.folder, "openapi.json")
	if err := download(ctx, d.BaseURL+"/openapi.json", document); err != nil {
		return nil, err
	}
	for _, linter := range []struct {
		name, binary string
		args         []string
	}{
		{"@redocly/cli", "redocly", []string{"--config", "redocly.yaml"}},
		{"@stoplight/spectral-cli", "spectral", []string{"--ruleset", "spectral.yaml", "--fail-severity", "warn"}},
	} {
		program, err := filepath.Abs(filepath.Join(linters, "node_modules", ".bin", linter.binary))
		if err != nil {
			return nil, err
		}
		c := exec.CommandContext(ctx, program, append([]string{"lint", document}, linter.args...)...)
		c.Dir = linters
		c.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
		if out, err := c.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", linter.name, err, out)
		}
		name, err := named(linters, linter.name)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row{name, "passes its recommended OpenAPI rules"})
	}
	return rows, nil
}

// download saves a public document.
func download(ctx context.Context, url, path string) error {
	body, err := get(ctx, url, "")
	if err != nil {
		return err
	}
	return os.WriteFile(path, body, 0o600)
}

// get sends a GET, with the request token unless that is "", and returns the body of a 200.
func get(ctx context.Context, url, token string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", url, answer.Status)
	}
	return io.ReadAll(answer.Body)
}
