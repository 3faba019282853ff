package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// npm runs a command of npm in a folder. Its output goes to standard error.
func npm(ctx context.Context, folder string, args ...string) error {
	c := exec.CommandContext(ctx, "npm", append([]string{"--silent"}, args...)...)
	c.Dir, c.Stdout, c.Stderr = folder, os.Stderr, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("npm %s in %s: %w", args[0], folder, err)
	}
	return nil
}

// named returns the names of packages with the versions that a folder pins.
func named(folder string, packages ...string) (string, error) {
	names := make([]string, len(packages))
	for i, name := range packages {
		version, err := pinned(folder, name)
		if err != nil {
			return "", err
		}
		names[i] = name + " " + version
	}
	return strings.Join(names, ", "), nil
}

// pinned returns the version of a package in the folder's package.json.
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
