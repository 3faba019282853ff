package action_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"boxoffice"
	"boxoffice/internal/action"
)

// walk visits every object of a JSON tree.
func walk(node any, visit func(map[string]any)) {
	switch node := node.(type) {
	case map[string]any:
		visit(node)
		for _, child := range node {
			walk(child, visit)
		}
	case []any:
		for _, child := range node {
			walk(child, visit)
		}
	}
}

func schemaTree(t *testing.T, name string) map[string]any {
	t.Helper()
	var tree map[string]any
	if err := json.Unmarshal(action.Schemas()[name], &tree); err != nil {
		t.Fatal(err)
	}
	return tree
}

func TestSchemasAreFitToPublish(t *testing.T) {
	var names []string
	for _, policy := range catalog(t, nil).Policies() {
		names = append(names, policy.Action)
	}
	slices.Sort(names)
	if diff := cmp.Diff(names, slices.Sorted(maps.Keys(action.Schemas()))); diff != "" {
		t.Fatal(diff)
	}
	for _, name := range names {
		tree := schemaTree(t, name)
		if tree["$schema"] != "https://json-schema.org/draft/2020-12/schema" {
			t.Errorf("%s: $schema is %v", name, tree["$schema"])
		}
		walk(tree, func(node map[string]any) {
			if ref, ok := node["$ref"]; ok {
				t.Errorf("%s: refers to %v", name, ref)
			}
			// What generators of clients make of these is wrong: a member with a
			// default has to be sent, and an object without members has none.
			_, hasDefault := node["default"]
			_, hasMembers := node["properties"]
			_, tellsOthers := node["additionalProperties"]
			if hasDefault || node["type"] == "object" && !hasMembers && !tellsOthers {
				t.Errorf("%s: a generated client misreads %v", name, node)
			}
			if _, ok := node["properties"]; ok && node["type"] == "object" && node["additionalProperties"] != false {
				t.Errorf("%s: %v takes unknown members", name, node["title"])
			}
			if _, ok := node["type"].(string); ok && (node["title"] == nil || node["description"] == nil) {
				t.Errorf("%s: a place has no title or no description: %v", name, node)
			}
			if least, ok := node["minLength"]; ok && least != 1. {
				t.Errorf("%s: %v: minLength is %v; its message says that the string must not be blank", name,
					node["title"], least)
			}
			if node["type"] == "string" && node["maxLength"] == nil && node["enum"] == nil && node["pattern"] == nil {
				t.Errorf("%s: %v has no limit", name, node["title"])
			}
			if node["pattern"] != nil {
				if words, _ := node["x-message"].(string); !strings.HasPrefix(words, "must ") {
					t.Errorf("%s: %v: the pattern has no words", name, node["title"])
				}
			}
		})
	}
}

func TestSchemasHoldThePublishedLimits(t *testing.T) {
	number := func(name string, path ...string) int64 {
		var node any = schemaTree(t, name)
		for _, key := range path {
			node = node.(map[string]any)[key]
		}
		return int64(node.(float64))
	}
	limits := catalog(t, nil).Limits()
	for _, name := range []string{boxoffice.ActionScheduleCreate, boxoffice.ActionScheduleTopUp} {
		if number(name, "properties", "runs", "minimum") != limits[name].MinRuns ||
			number(name, "properties", "runs", "maximum") != limits[name].MaxRuns {
			t.Errorf("%s: runs", name)
		}
	}
	oracle := limits[boxoffice.ActionOracleRequest]
	if number(boxoffice.ActionOracleRequest, "properties", "panelSize", "minimum") != int64(oracle.MinPanelSize) ||
		number(boxoffice.ActionOracleRequest, "properties", "panelSize", "maximum") != int64(oracle.MaxPanelSize) {
		t.Error("panelSize")
	}
}

// A client can check its input with the published schema alone, embedded in an
// OpenAPI document or not.
func TestSchemasStandAlone(t *testing.T) {
	valid := map[string]string{}
	for _, example := range examples {
		valid[example.action] = example.input
	}
	components := openapi3.Schemas{}
	for name, published := range action.Schemas() {
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(published))
		if err != nil {
			t.Fatal(err)
		}
		compiler := jsonschema.NewCompiler()
		if err := compiler.AddResource("schema", document); err != nil {
			t.Fatal(err)
		}
		schema, err := compiler.Compile("schema")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		input, err := jsonschema.UnmarshalJSON(strings.NewReader(valid[name]))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(input); err != nil {
			t.Error(err)
		}
		var component openapi3.SchemaRef
		if err := json.Unmarshal(published, &component); err != nil {
			t.Fatalf("%s in OpenAPI: %v", name, err)
		}
		components[strings.ReplaceAll(name, ".", "_")] = &component
	}
	document := openapi3.T{
		OpenAPI:    "3.1.0",
		Info:       &openapi3.Info{Title: "schemas", Version: "1.0.0"},
		Paths:      openapi3.NewPaths(),
		Components: &openapi3.Components{Schemas: components},
	}
	if err := document.Validate(t.Context()); err != nil {
		t.Error(err)
	}
}
