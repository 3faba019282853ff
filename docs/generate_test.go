// Package docs_test writes the generated parts of the pages in docs from the
// code, and checks that the pages agree with it.
package docs_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the generated parts of the pages")

// A block starts with this mark and the name of what it shows, and ends with
// blockEnd. What stands between them is written by "go generate .".
const (
	blockStart = "<!-- generated: "
	blockEnd   = "<!-- /generated -->"
)

// TestGeneratedPages compares the generated pages and blocks with what the code
// says now. With -update it writes them.
func TestGeneratedPages(t *testing.T) {
	render := blocks(t)
	for _, page := range []string{"protocol.md", "decisions/README.md"} {
		compare(t, page, fill(t, page, render))
	}
	compare(t, "errors.md", errorsPage())
}

// compare checks a page, or writes it with -update.
func compare(t *testing.T, page, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, read(t, page)); diff != "" {
		t.Errorf("docs/%s differs from the code; go generate . writes it (-code +page):\n%s", page, diff)
	}
}

// fill returns the page with every block replaced by what render gives for its
// name.
func fill(t *testing.T, page string, render map[string]func() string) string {
	t.Helper()
	var out strings.Builder
	rest := read(t, page)
	for {
		before, after, found := strings.Cut(rest, blockStart)
		out.WriteString(before)
		if !found {
			return out.String()
		}
		name, after, named := strings.Cut(after, " -->\n")
		_, after, closed := strings.Cut(after, blockEnd)
		if !named || !closed || strings.Contains(name, "\n") {
			t.Fatalf("docs/%s: a generated block is not closed: %.80q", page, after)
		}
		content, known := render[name]
		if !known {
			t.Fatalf("docs/%s: no code renders the block %q", page, name)
		}
		fmt.Fprintf(&out, "%s%s -->\n%s%s", blockStart, name, content(), blockEnd)
		rest = after
	}
}

func read(t testing.TB, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
