package action

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/unicode/norm"

	"boxoffice"
	"boxoffice/internal/strictjson"
)

//go:embed schemas/*.json
var schemaFiles embed.FS

// maxProblems is how many places of an input one answer lists at most.
const maxProblems = 20

// Schemas returns the JSON Schema (2020-12) of every action's input by the action's name. A schema has no references,
// so it can be embedded anywhere in an OpenAPI 3.1 document.
func Schemas() map[string]json.RawMessage { return maps.Clone(schemas().published) }

// schemaSet is the embedded schemas, compiled from what is published.
type schemaSet struct {
	published map[string]json.RawMessage
	compiled  map[string]*jsonschema.Schema
	messages  map[string]string // by pattern: the message for a string that does not match it
}

// schemas reads the embedded files once. It panics if one does not compile, because they are part of the program.
var schemas = sync.OnceValue(func() schemaSet {
	set := schemaSet{
		published: map[string]json.RawMessage{},
		compiled:  map[string]*jsonschema.Schema{},
		messages:  map[string]string{},
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	for name, check := range formats {
		compiler.RegisterFormat(&jsonschema.Format{Name: name, Validate: check})
	}
	for _, d := range definitions {
		document := set.bundle(readSchema(d.action + ".json"))
		url := "boxoffice:" + d.action
		if err := compiler.AddResource(url, document); err != nil {
			panic(fmt.Sprintf("schema of %s: %v", d.action, err))
		}
		set.compiled[d.action] = compiler.MustCompile(url)
		set.published[d.action] = encode(document)
	}
	return set
})

// formats are the checks of the schemas' formats. The strings of format uuid and uri have patterns, which check them.
var formats = map[string]func(any) error{
	"uuid": func(any) error { return nil },
	"uri":  func(any) error { return nil },
	"date-time": func(v any) error {
		text, ok := v.(string)
		if !ok {
			return nil
		}
		_, err := parseMoment(text)
		return err
	},
}

func readSchema(name string) any {
	file, err := schemaFiles.ReadFile("schemas/" + name)
	if err != nil {
		panic(err)
	}
	return parse(file)
}

// bundle replaces every reference to another file by that file's schema, and collects the messages of patterns.
func (s schemaSet) bundle(node any) any {
	switch node := node.(type) {
	case map[string]any:
		if name, ok := node["$ref"].(string); ok {
			referred := readSchema(name).(map[string]any)
			delete(referred, "$schema")
			return s.bundle(referred)
		}
		for name, child := range node {
			node[name] = s.bundle(child)
		}
		if pattern, ok := node["pattern"].(string); ok {
			s.messages[pattern], _ = node["x-message"].(string)
		}
	case []any:
		for i, child := range node {
			node[i] = s.bundle(child)
		}
	}
	return node
}

// tidy checks an input against the schema of its action twice: as it was sent, and with its strings trimmed and in NFC.
// It returns the second form. Its errors are *boxoffice.Problem.
func tidy(action string, input []byte) ([]byte, error) {
	canonical, err := strictjson.Canonical(input)
	if err != nil {
		if place, ok := errors.AsType[*strictjson.Error](err); ok {
			tokens := strings.Split(place.Pointer, "/")
			return nil, invalid(action, fieldProblem(tokens[1:], place.Message))
		}
		return nil, invalid(action, fieldProblem(nil, "is not JSON"))
	}
	tree := parse(canonical)
	found := violations(action, tree, nil)
	tree = tidyStrings(tree)
	if found = violations(action, tree, found); len(found) > 0 {
		return nil, invalid(action, found...)
	}
	return encode(tree), nil
}

// tidyStrings puts every string into NFC and trims it. NFC also breaks up a run of more than 30 combining marks (UAX
// #15, Stream-Safe Text). A string of a fixed form, such as an id, stays as it is, because its pattern allows nothing
// that would change.
func tidyStrings(node any) any {
	switch node := node.(type) {
	case string:
		return strings.TrimSpace(norm.NFC.String(node))
	case map[string]any:
		for name, child := range node {
			node[name] = tidyStrings(child)
		}
	case []any:
		for i, child := range node {
			node[i] = tidyStrings(child)
		}
	}
	return node
}

// parseMoment reads an RFC 3339 date and time and cuts it to milliseconds. It accepts the years that a
// boxoffice.Timestamp can write.
func parseMoment(text string) (boxoffice.Timestamp, error) {
	var moment time.Time
	if err := moment.UnmarshalText([]byte(text)); err != nil {
		return 0, errors.New("is not RFC 3339")
	}
	if year := moment.UTC().Year(); year < 1970 || year > 9999 {
		return 0, errors.New("is not of the years 1970 to 9999")
	}
	return boxoffice.At(moment), nil
}

// violations adds to found the places where a document breaks the schema of an action's input.
func violations(action string, document any, found []boxoffice.FieldProblem) []boxoffice.FieldProblem {
	err := schemas().compiled[action].Validate(document)
	if err == nil {
		return found
	}
	if root, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		return leaves(root, found)
	}
	return append(found, fieldProblem(nil, "could not be checked"))
}

func leaves(e *jsonschema.ValidationError, found []boxoffice.FieldProblem) []boxoffice.FieldProblem {
	for _, cause := range e.Causes {
		found = leaves(cause, found)
	}
	if len(e.Causes) > 0 {
		return found
	}
	at := e.InstanceLocation
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing {
			found = append(found, fieldProblem(append(slices.Clone(at), escape(name)), "is required"))
		}
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			found = append(found, fieldProblem(append(slices.Clone(at), escape(name)), "is not a known member"))
		}
	default:
		found = append(found, fieldProblem(at, message(e.ErrorKind)))
	}
	return found
}

// message says what a place must be. It repeats the schema and never the requester's text.
func message(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		words := map[string]string{
			"string": "a string", "integer": "an integer", "array": "an array", "object": "an object",
		}
		return "must be " + words[k.Want[0]]
	case *kind.Enum:
		var names []string
		for _, value := range k.Want {
			names = append(names, fmt.Sprint(value))
		}
		return "must be one of " + strings.Join(names, ", ")
	case *kind.MinLength:
		return "must not be blank"
	case *kind.MaxLength:
		return fmt.Sprintf("must have at most %d characters", k.Want)
	case *kind.MinItems:
		return fmt.Sprintf("must have at least %s", items(k.Want))
	case *kind.MaxItems:
		return fmt.Sprintf("must have at most %s", items(k.Want))
	case *kind.UniqueItems:
		return fmt.Sprintf("must not repeat an item: those at %d and %d are the same", k.Duplicates[0], k.Duplicates[1])
	case *kind.Minimum:
		return "must be at least " + k.Want.RatString()
	case *kind.Maximum:
		return "must be at most " + k.Want.RatString()
	case *kind.Pattern:
		return schemas().messages[k.Want]
	case *kind.Format:
		return "must be an RFC 3339 time of the years 1970 to 9999, like 2026-11-20T12:00:00.000Z"
	default:
		return "does not match the schema"
	}
}

func items(n int) string {
	if n == 1 {
		return "1 item"
	}
	return fmt.Sprintf("%d items", n)
}

// A longer name or pointer may hold any text of the requester's, so it is not repeated.
const (
	maxNameBytes    = 64
	maxPointerBytes = 256
)

// fieldProblem returns the problem of a place in the input, named by the escaped tokens of its JSON Pointer. If the
// place has a name that is too long, it returns the problem of the place above.
func fieldProblem(tokens []string, message string) boxoffice.FieldProblem {
	path := "/input"
	for _, token := range tokens {
		if len(token) > maxNameBytes || len(path)+1+len(token) > maxPointerBytes {
			return boxoffice.FieldProblem{Path: path, Message: "holds a long-named member: it " + message}
		}
		path += "/" + token
	}
	return boxoffice.FieldProblem{Path: path, Message: message}
}

func escape(name string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(name) }

// invalid returns the problem of an input that does not match its schema, with one entry for each place, in the order
// of their paths, and at most maxProblems of them.
func invalid(action string, problems ...boxoffice.FieldProblem) *boxoffice.Problem {
	slices.SortStableFunc(problems, func(a, b boxoffice.FieldProblem) int { return cmp.Compare(a.Path, b.Path) })
	problems = slices.CompactFunc(problems, func(a, b boxoffice.FieldProblem) bool { return a.Path == b.Path })
	problems = problems[:min(len(problems), maxProblems)]
	return &boxoffice.Problem{
		Code:     boxoffice.InvalidRequest,
		Detail:   "the input does not match the schema of " + action,
		Problems: problems,
	}
}

// parse reads a document that is JSON. Numbers become json.Number.
func parse(document []byte) any {
	tree, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		panic(fmt.Sprintf("canonical JSON does not parse: %v", err))
	}
	return tree
}

// encode writes a value that always has a JSON form.
func encode(v any) []byte {
	document, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err))
	}
	return document
}
