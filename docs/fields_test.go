package docs_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"boxoffice"
	"boxoffice/api"
	"boxoffice/internal/action"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"go.yaml.in/yaml/v3"
)

// blocks returns what renders each generated block, by the name of the block.
func blocks(t *testing.T) map[string]func() string {
	document := contract(t)
	purchase := newPurchase(t, document)
	all := map[string]func() string{
		"scalars":   func() string { return scalarTable(document) },
		"actions":   actionsTable,
		"decisions": func() string { return decisionsList(t) },
		"codes":     codesTable,
		"reasons":   reasonsTable,
		"refusals":  refusalsTable,
	}
	schemas := at(document, "components", "schemas")
	for i := 0; i < len(schemas.Content); i += 2 {
		all["fields "+schemas.Content[i].Value] = func() string { return fieldTable(schemas.Content[i+1], document) }
	}
	for _, name := range boxoffice.Actions() {
		all["input "+name] = func() string { return fieldTable(inputSchema(t, name), document) }
	}
	for name, example := range purchase.examples() {
		all["example "+name] = example
	}
	return all
}

// exampleURL is the base URL of the service in the examples.
const (
	exampleURL     = "https://tickets.example"
	exampleService = "Tickets"
)

// contract returns the OpenAPI document. It is read as YAML, which keeps the
// order of its members.
func contract(t *testing.T) *yaml.Node {
	t.Helper()
	catalog, err := action.New(action.Config{
		Payment: boxoffice.Payment{
			Network: "eip155:31337", Asset: common.Address{1}, Amount: x402.NewUint256(1), PayTo: common.Address{2},
		},
		Originals: struct{ action.Originals }{},
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := api.Document(api.Options{
		BaseURL: exampleURL, ServiceName: exampleService,
		Policies: catalog.Policies(), Limits: catalog.Limits(), Schemas: action.Schemas(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return parseYAML(t, text)
}

// inputSchema returns the schema of an action's input as it is written, since a
// published one has lost the order of its members.
func inputSchema(t *testing.T, name string) *yaml.Node {
	t.Helper()
	text, err := os.ReadFile("../internal/action/schemas/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	return parseYAML(t, text)
}

func parseYAML(t *testing.T, text []byte) *yaml.Node {
	t.Helper()
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	return root.Content[0]
}

// at returns the member that the path names, nil if there is none.
func at(node *yaml.Node, path ...string) *yaml.Node {
	for _, name := range path {
		var found *yaml.Node
		for i := 0; node != nil && i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == name {
				found = node.Content[i+1]
			}
		}
		node = found
	}
	return node
}

func value(node *yaml.Node, name string) string {
	if found := at(node, name); found != nil {
		return found.Value
	}
	return ""
}

// scalars are the schemas of single values, in the order of §1.5, with the
// names that the tables use for them.
var scalars = [][2]string{
	{"Uuid", "UUID"}, {"UuidInAnyCase", "UUID in any case"}, {"Hash", "hash"}, {"Address", "address"},
	{"TransactionHash", "transaction hash"}, {"Amount", "amount"}, {"Network", "network"},
	{"Timestamp", "timestamp"}, {"TimestampOrNull", "timestamp or null"}, {"ActionName", "action name"},
}

// sections says where this page describes a schema that is an object.
var sections = map[string]string{
	"Policy": "§2.1", "PolicyPayment": "§2.2", "QuotePayment": "§2.2", "Quote": "§2.4", "Order": "§2.5",
	"PaymentStatus": "§2.6", "Admission": "§2.6", "Requirements": "§2.7", "Job": "§2.9",
	"Delivery": "§2.9", "FailedDelivery": "§2.9", "Node": "§2.11",
}

func scalarTable(document *yaml.Node) string {
	rows := "| Name | Pattern | Meaning |\n|---|---|---|\n"
	for _, scalar := range scalars {
		schema := at(document, "components", "schemas", scalar[0])
		text := value(schema, "description")
		if most := value(schema, "maxLength"); most != "" {
			text += " At most " + most + " characters."
		}
		rows += fmt.Sprintf("| %s | %s | %s |\n", scalar[1], cell("`"+value(schema, "pattern")+"`"), cell(text))
	}
	return rows
}

func actionsTable() string {
	rows := "| Action | Version | Quote lifetime | Limits | Priced |\n|---|---|---|---|---|\n"
	catalog, err := action.New(action.Config{
		Payment:   boxoffice.Payment{Network: "eip155:1", Amount: x402.NewUint256(1)},
		Originals: struct{ action.Originals }{},
	})
	if err != nil {
		return err.Error()
	}
	for _, policy := range catalog.Policies() {
		sold := boxoffice.NewPaidAction(policy, catalog.Limits()[policy.Action])
		priced := "once"
		if sold.PricedPer != "" {
			priced = "per " + sold.PricedPer
		}
		rows += fmt.Sprintf("| `%s` | `%s` | %d s | %s | %s |\n",
			sold.Action, sold.Version, sold.QuoteTTLSeconds, limits(sold.Limits), priced)
	}
	return rows
}

func limits(l boxoffice.ActionLimits) string {
	var list []string
	for _, limit := range []struct {
		name  string
		value int64
	}{
		{"minPanelSize", int64(l.MinPanelSize)}, {"maxPanelSize", int64(l.MaxPanelSize)},
		{"minRuns", l.MinRuns}, {"maxRuns", l.MaxRuns},
		{"minOracleIntervalMinutes", l.MinOracleIntervalMinutes}, {"minJobIntervalMinutes", l.MinJobIntervalMinutes},
	} {
		if limit.value != 0 {
			list = append(list, fmt.Sprintf("`%s` %d", limit.name, limit.value))
		}
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// fieldTable lists the members of an object, those of objects within it too.
func fieldTable(schema, document *yaml.Node) string {
	rows := "| Field | Type | Required | Meaning |\n|---|---|---|---|\n"
	for _, row := range fields("", schema, document) {
		rows += "| " + strings.Join(row[:], " | ") + " |\n"
	}
	return rows
}

func fields(prefix string, schema, document *yaml.Node) (rows [][4]string) {
	required := map[string]bool{}
	if names := at(schema, "required"); names != nil {
		for _, name := range names.Content {
			required[name.Value] = true
		}
	}
	properties := at(schema, "properties")
	for i := 0; properties != nil && i+1 < len(properties.Content); i += 2 {
		name, property := properties.Content[i].Value, properties.Content[i+1]
		needed := "no"
		if required[name] {
			needed = "yes"
		}
		path := prefix + name
		rows = append(rows, [4]string{path, cell(typeOf(property, document)), needed, cell(meaning(property, document))})
		inner, suffix := property, "."
		if items := at(property, "items"); items != nil {
			inner, suffix = items, "[]."
		}
		if more := at(property, "additionalProperties"); more != nil && more.Kind == yaml.MappingNode {
			inner, suffix = more, ".{name}."
		}
		if described(inner) == "" && scalarName(inner) == "" {
			rows = append(rows, fields(path+suffix, resolve(inner, document), document)...)
		}
	}
	return rows
}

// resolve follows a reference into the document, and takes the object out of an
// "object or null".
func resolve(schema, document *yaml.Node) *yaml.Node {
	if options := at(schema, "oneOf"); options != nil {
		schema = options.Content[0]
	}
	if name := referred(schema); name != "" {
		return at(document, "components", "schemas", name)
	}
	return schema
}

func referred(schema *yaml.Node) string {
	return strings.TrimPrefix(value(schema, "$ref"), "#/components/schemas/")
}

func scalarName(schema *yaml.Node) string {
	for _, scalar := range scalars {
		if scalar[0] == referred(schema) {
			return scalar[1]
		}
	}
	return ""
}

// described returns the section that describes what a schema refers to.
func described(schema *yaml.Node) string {
	if options := at(schema, "oneOf"); options != nil {
		schema = options.Content[0]
	}
	return sections[referred(schema)]
}

// typeOf says in words what values a schema takes.
func typeOf(schema, document *yaml.Node) string {
	if name := scalarName(schema); name != "" {
		return name
	}
	if options := at(schema, "oneOf"); options != nil {
		var words []string
		for _, option := range options.Content {
			words = append(words, typeOf(option, document))
		}
		return strings.Join(words, " or ")
	}
	if section := described(schema); section != "" {
		return "object (" + section + ")"
	}
	if name := referred(schema); name != "" {
		return typeOf(at(document, "components", "schemas", name), document)
	}
	if constant := at(schema, "const"); constant != nil {
		return "the constant `" + constant.Value + "`"
	}
	if options := at(schema, "enum"); options != nil {
		var words []string
		for _, option := range options.Content {
			words = append(words, "`"+option.Value+"`")
		}
		return "one of " + strings.Join(words, ", ")
	}
	switch kind := kindOf(schema); kind {
	case "array":
		return "array" + bounds(schema, "minItems", "maxItems", " items") + " of " + typeOf(at(schema, "items"), document)
	case "":
		return "any JSON"
	default:
		return kind + details(schema)
	}
}

func kindOf(schema *yaml.Node) string {
	kind := at(schema, "type")
	if kind == nil || kind.Kind == yaml.ScalarNode {
		return value(schema, "type")
	}
	return kind.Content[0].Value + " or " + kind.Content[1].Value
}

// details are the bounds and the form of a string or a number.
func details(schema *yaml.Node) string {
	text := bounds(schema, "minimum", "maximum", "") + bounds(schema, "minLength", "maxLength", " characters")
	switch {
	case value(schema, "format") == "uuid":
		return text + ", a UUID"
	case value(schema, "format") == "date-time":
		return text + ", RFC 3339"
	case value(schema, "pattern") != "":
		return text + ", `" + value(schema, "pattern") + "`"
	case value(schema, "format") == "uri":
		return text + ", a URL"
	}
	return text
}

func bounds(schema *yaml.Node, least, most, unit string) string {
	low, high := value(schema, least), value(schema, most)
	switch {
	case low != "" && high != "":
		return ", " + low + " to " + high + unit
	case low == "1" && unit == " items":
		return ", at least one,"
	case low == "1" && unit == " characters":
		return ", not empty"
	case low != "":
		return ", at least " + low + unit
	case high != "":
		return ", at most " + high + unit
	}
	return ""
}

// meaning returns the description of a property, or that of the object that it
// refers to, with its default.
func meaning(schema, document *yaml.Node) string {
	text := value(schema, "description")
	if text == "" && scalarName(schema) == "" {
		text = value(resolve(schema, document), "description")
	}
	if otherwise := value(schema, "default"); otherwise != "" {
		text += " Default: " + otherwise + "."
	}
	return text
}

// cell makes text fit for a cell of a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}

// TestTypesInWords holds the words of the tables to a few schemas.
func TestTypesInWords(t *testing.T) {
	document := contract(t)
	for schema, want := range map[string]string{
		`{type: [string, "null"]}`:                                      "string or null",
		`{type: integer, minimum: 0, maximum: 255}`:                     "integer, 0 to 255",
		`{type: array, maxItems: 3, items: {type: string}}`:             "array, at most 3 items of string",
		`{$ref: "#/components/schemas/Uuid"}`:                           "UUID",
		`{oneOf: [{$ref: "#/components/schemas/Quote"}, {type: null}]}`: "object (§2.4) or null",
		`{enum: [a, b]}`: "one of `a`, `b`",
		`{const: 2}`:     "the constant `2`",
		`{}`:             "any JSON",
	} {
		if got := typeOf(parseYAML(t, []byte(schema)), document); got != want {
			t.Errorf("%s is %s, want %s", schema, strconv.Quote(got), strconv.Quote(want))
		}
	}
}
