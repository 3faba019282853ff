package main

import (
	"context"
	"fmt"
	"path/filepath"
)

var generated = filepath.Join("interop", "generated")

// generate generates a TypeScript client from the OpenAPI document of the demo. A program that uses it, checked against
// its types, buys a job and reads it.
func generate(ctx context.Context, d *demo) ([]row, error) {
	if err := download(ctx, d.BaseURL+"/openapi.json", filepath.Join(generated, "openapi.json")); err != nil {
		return nil, err
	}
	for _, script := range []string{"generate", "build"} {
		if err := npm(ctx, generated, "run", script); err != nil {
			return nil, err
		}
	}
	p := purchase{program: []string{"node", filepath.Join(generated, "build", "client.js")}}
	if err := p.run(ctx, d); err != nil {
		return nil, fmt.Errorf("the generated client: %w", err)
	}
	name, err := named(generated, "openapi-typescript", "openapi-fetch")
	if err != nil {
		return nil, err
	}
	return []row{{name, "a program with the generated types compiles in strict mode, gets a quote and a challenge, " +
		"pays, and reads the order and its job: " + admitted}}, nil
}
