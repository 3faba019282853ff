package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
)

var linters = filepath.Join("interop", "openapi")

// lint fetches the document that the demo serves and has both linters read it.
// What they call an error fails, and for Spectral a warning too.
func lint(ctx context.Context, d *demo) (rows []row, err error) {
	document := filepath.Join(d.folder, "openapi.json")
	if err := fetch(ctx, d.BaseURL+"/openapi.json", document); err != nil {
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
		version, err := pinned(linters, linter.name)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row{linter.name + " " + version, "passes its recommended OpenAPI rules"})
	}
	return rows, nil
}

func fetch(ctx context.Context, url, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, answer.Status)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := io.Copy(file, answer.Body); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}

// pinned returns the version of a package that the folder's package.json names.
func pinned(folder, name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(folder, "package.json"))
	if err != nil {
		return "", err
	}
	var manifest struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		return "", err
	}
	version, found := manifest.Dependencies[name]
	if !found {
		return "", fmt.Errorf("%s/package.json does not name %s", folder, name)
	}
	return version, nil
}
