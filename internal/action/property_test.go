package action_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"

	"boxoffice"
	"boxoffice/internal/action"
)

// examples holds inputs of every action that are taken.
var examples = []struct{ action, input string }{
	{"job.open",
		`{"objective":"o","template":"audit","context":[{"name":"n","text":"t"}],"repoUrl":"https://git.example/a/b.git"}`},
	{"job.continue", fmt.Sprintf(`{"jobId":%q,"input":"i"}`, knownID)},
	{"launch.open", `{"objective":"o","kind":"custom_token","chainId":8453,"pairWith":"eth","name":"n","symbol":"S"}`},
	{"oracle.request", `{"question":"q","panelSize":5,"options":["a","b"],"context":"c"}`},
	{"workflow.open",
		`{"objective":"o","shape":"chain","nodes":[{"id":"a","objective":"1"},{"id":"b","objective":"2"}]}`},
	{"workflow.open",
		`{"objective":"o","shape":"dag","nodes":[{"id":"a","objective":"1","after":["b"]},{"id":"b","objective":"2","template":"audit"}]}`},
	{"schedule.create",
		`{"action":"job.open","input":{"objective":"o"},"intervalMinutes":30,"runs":1,"startAt":"2026-11-20T12:00:00+01:00"}`},
	{"schedule.create",
		`{"action":"oracle.request","input":{"question":"q","panelSize":5},"intervalMinutes":10,"runs":2}`},
	{"schedule.topup", fmt.Sprintf(`{"scheduleId":%q,"runs":3}`, knownID)},
}

// checkPrepared holds what is true of every answer of Prepare.
func checkPrepared(t interface{ Fatalf(string, ...any) }, c *action.Catalog, name string, input []byte) {
	got, err := c.Prepare(context.Background(), requester, name, input)
	if err != nil {
		p, ok := errors.AsType[*boxoffice.Problem](err)
		if !ok {
			t.Fatalf("error is %T: %v", err, err)
		}
		if p.Code != boxoffice.InvalidRequest && p.Code != boxoffice.ActionRefused {
			t.Fatalf("code is %s: %v", p.Code, errors.Unwrap(p))
		}
		if p.Code == boxoffice.InvalidRequest && (len(p.Problems) == 0 || len(p.Problems) > 20) {
			t.Fatalf("%d problems", len(p.Problems))
		}
		for _, place := range p.Problems {
			if place.Message == "" || len(place.Path) > 256 || !utf8.ValidString(place.Path+place.Message) {
				t.Fatalf("problem is %q", place)
			}
		}
		_, again := c.Prepare(context.Background(), requester, name, input)
		if diff := cmp.Diff(err.Error(), fmt.Sprint(again)); diff != "" {
			t.Fatalf("the same input is refused in another way: %s", diff)
		}
		return
	}
	again, err := c.Prepare(context.Background(), requester, name, got.Input)
	if err != nil {
		t.Fatalf("prepared input %s is refused: %v", got.Input, err)
	}
	if diff := cmp.Diff(got, again); diff != "" {
		t.Fatalf("preparing a prepared input changes it: %s", diff)
	}
	canonical, err := boxoffice.Canonical(got.Input)
	if err != nil || !bytes.Equal(canonical, got.Input) {
		t.Fatalf("prepared input %s is not canonical: %v", got.Input, err)
	}
	var tree any
	if err := json.Unmarshal(got.Input, &tree); err != nil {
		t.Fatalf("%v", err)
	}
	walkStrings(tree, func(s string) {
		if !norm.NFC.IsNormalString(s) || strings.TrimSpace(s) != s || s == "" {
			t.Fatalf("prepared string %q is not tidy", s)
		}
	})
	value, err := action.Decode(name, got.Input)
	if err != nil {
		t.Fatalf("prepared input %s does not decode: %v", got.Input, err)
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if back, err := boxoffice.Canonical(encoded); err != nil || !bytes.Equal(back, got.Input) {
		t.Fatalf("prepared input %s decodes to %s: %v", got.Input, back, err)
	}
}

func walkStrings(node any, visit func(string)) {
	switch node := node.(type) {
	case string:
		visit(node)
	case map[string]any:
		for _, child := range node {
			walkStrings(child, visit)
		}
	case []any:
		for _, child := range node {
			walkStrings(child, visit)
		}
	}
}

// prose draws strings that preparing has something to do with.
func prose() *rapid.Generator[string] {
	piece := rapid.OneOf(
		rapid.SampledFrom([]string{" ", "\n", "\u00a0", "\u2000", "\u0301", "\u0958", "\u1100\u1161\u11a8", "e\u0301",
			"\u212b", "\u200b", "<&>", "\u2028", strings.Repeat("\u0323\u0301", 20)}),
		rapid.String(),
	)
	return rapid.Map(rapid.SliceOfN(piece, 1, 6), func(pieces []string) string { return strings.Join(pieces, "") })
}

func TestPreparingIsIdempotent(t *testing.T) {
	c := catalog(t, nil)
	rapid.Check(t, func(t *rapid.T) {
		example := rapid.SampledFrom(examples).Draw(t, "example")
		var input any
		if err := json.Unmarshal([]byte(example.input), &input); err != nil {
			t.Fatal(err)
		}
		document, err := json.Marshal(vary(t, input))
		if err != nil {
			t.Fatal(err)
		}
		checkPrepared(t, c, example.action, document)
	})
}

// vary changes some free strings and drops some members of an input.
func vary(t *rapid.T, node any) any {
	switch node := node.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(node)) {
			child := node[name]
			switch {
			case rapid.IntRange(0, 9).Draw(t, "drop "+name) == 0:
				delete(node, name)
			case name == "objective" || name == "text" || name == "name" || name == "question" || name == "context":
				if _, ok := child.(string); ok {
					node[name] = prose().Draw(t, name)
					continue
				}
				node[name] = vary(t, child)
			default:
				node[name] = vary(t, child)
			}
		}
	case []any:
		for i, child := range node {
			node[i] = vary(t, child)
		}
	}
	return node
}

func FuzzPrepare(f *testing.F) {
	for _, example := range examples {
		f.Add(example.action, []byte(example.input))
	}
	f.Add("job.open", []byte(`{"objective":" e\u0301 ","objective":1e400}`))
	c := catalog(f, nil)
	f.Fuzz(func(t *testing.T, name string, input []byte) {
		if len(input) > boxoffice.MaxBodyBytes {
			return
		}
		checkPrepared(t, c, name, input)
	})
}
