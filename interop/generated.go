package main

import (
	"context"
	"fmt"
	"path/filepath"
)

var generated = filepath.Join("interop", "generated")

// generate has a client generated from the document that the demo serves. Its
// program, which is held to the generated types, buys a job and reads it.
func generate(ctx context.Context, d *demo) ([]row, error) {
	if err := fetch(ctx, d.BaseURL+"/openapi.json", filepath.Join(generated, "openapi.json")); err != nil {
		return nil, err
	}
	for _, script := range []string{"generate", "build"} {
		if err := npm(ctx, generated, "run", script); err != nil {
			return nil, err
		}
	}
	if err := (purchase{program: "client.js", folder: generated, maxAmount: price, result: admitted}).check(ctx, d); err != nil {
		return nil, fmt.Errorf("the generated client: %w", err)
	}
	name := ""
	for _, tool := range []string{"openapi-typescript", "openapi-fetch"} {
		version, err := pinned(generated, tool)
		if err != nil {
			return nil, err
		}
		name += ", " + tool + " " + version
	}
	return []row{{name[2:], "the generated client type-checks strictly and does quote, challenge, payment, status and jobs: " + string(admitted)}}, nil
}
