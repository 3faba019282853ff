// Package api holds the OpenAPI 3.1.0 document of the service and completes it with the
// actions that a running service sells.
package api

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"boxoffice"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

//go:embed openapi.yaml
var routes []byte

//go:embed components.yaml
var shared []byte

//go:embed schemas.yaml
var orderSchemas []byte

//go:embed work.yaml
var workSchemas []byte

//go:embed examples.yaml
var purchase []byte

// Options are the parts of the document that differ between services.
type Options struct {
	BaseURL     string // the only server, without a slash at its end
	ServiceName string // the title, and in the domain of quote approvals
	Policies    []boxoffice.Policy
	Limits      map[string]boxoffice.ActionLimits // by action; absent is none
	// the input schema of every action, which refers to nothing outside itself
	Schemas map[string]json.RawMessage
}

// PaidAction is an element of x-paid-actions: how the action is sold, and the
// JSON Schema of its input (docs/protocol.md §2.1).
type PaidAction struct {
	boxoffice.PaidAction
	Input json.RawMessage `json:"input"`
}

// Document returns the document as JSON with its members in the order of the source. It
// fails if there are no actions, or if an action has no schema.
func Document(o Options) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(routes, &root); err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	document := root.Content[0]
	components := member(document, "components")
	if err := extend(components, shared); err != nil {
		return nil, fmt.Errorf("components.yaml: %w", err)
	}
	schemas := addMapping(components, "schemas")
	err := cmp.Or(
		extend(schemas, orderSchemas), extend(schemas, workSchemas),
		extend(addMapping(components, "examples"), purchase),
	)
	if err != nil {
		return nil, fmt.Errorf("schemas.yaml, work.yaml, examples.yaml: %w", err)
	}
	if err := o.complete(document, schemas); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := write(jsontext.NewEncoder(&out), document); err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	return out.Bytes(), nil
}

// complete adds the parts that depend on the service.
func (o Options) complete(document, schemas *yaml.Node) error {
	if len(o.Policies) == 0 {
		return errors.New("there are no actions")
	}
	actions, requests := []PaidAction{}, []map[string]any{}
	for _, policy := range o.Policies {
		schema, ok := o.Schemas[policy.Action]
		if !ok {
			return fmt.Errorf("action %s has no input schema", policy.Action)
		}
		name := inputName(policy.Action)
		if err := extendWith(schemas, map[string]any{name: schema}); err != nil {
			return fmt.Errorf("input schema of %s: %w", policy.Action, err)
		}
		actions = append(actions, PaidAction{boxoffice.NewPaidAction(policy, o.Limits[policy.Action]), schema})
		requests = append(requests, map[string]any{
			"title":    policy.Action,
			"required": []string{"action", "input"},
			"properties": map[string]any{
				"action": map[string]any{"const": policy.Action},
				"input":  map[string]any{"$ref": "#/components/schemas/" + name},
			},
		})
	}
	if err := extendWith(member(schemas, "QuoteRequest"), map[string]any{"oneOf": requests}); err != nil {
		return err
	}
	member(document, "info", "title").SetString(o.ServiceName)
	return cmp.Or(
		replace(member(document, "servers"), []any{map[string]any{"url": o.BaseURL, "description": o.ServiceName}}),
		replace(member(document, "x-paid-actions"), actions),
	)
}

// inputName names the schema of an action's input: JobOpenInput for job.open.
func inputName(action string) string {
	var name strings.Builder
	for word := range strings.FieldsFuncSeq(action, func(r rune) bool { return r == '.' || r == '_' || r == '-' }) {
		name.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return name.String() + "Input"
}
