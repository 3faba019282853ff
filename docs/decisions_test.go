package docs_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A decision is a page of docs/decisions.
type decision struct{ file, title, date, status string }

var decisionHead = regexp.MustCompile(`^# (.+)\n\n- Date: (\d{4}-\d{2}-\d{2})\n- Status: (.+)\n\n## Context\n`)

// decisions reads the head of every page of docs/decisions.
func decisions(t *testing.T) (list []decision) {
	t.Helper()
	pages, err := filepath.Glob("decisions/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if filepath.Base(page) == "README.md" {
			continue
		}
		head := decisionHead.FindStringSubmatch(read(t, page))
		if head == nil {
			t.Errorf("docs/%s does not start with a title, - Date:, - Status: and ## Context", page)
			continue
		}
		list = append(list, decision{filepath.Base(page), head[1], head[2], head[3]})
	}
	return list
}

func decisionsList(t *testing.T) string {
	rows := "| Decision | Date | Status |\n|---|---|---|\n"
	for _, d := range decisions(t) {
		rows += fmt.Sprintf("| [%s](%s) | %s | %s |\n", d.title, d.file, d.date, d.status)
	}
	return rows
}

// TestDecisions: every decision has its four parts, a known status, and a file
// that is named after its title.
func TestDecisions(t *testing.T) {
	words := regexp.MustCompile(`[^a-z0-9]+`)
	for _, d := range decisions(t) {
		text := read(t, "decisions/"+d.file)
		for _, part := range []string{"Context", "Decision", "Alternatives", "Consequences"} {
			if !strings.Contains(text, "\n## "+part+"\n") {
				t.Errorf("docs/decisions/%s has no part %q", d.file, part)
			}
		}
		if d.status != "accepted" && !strings.HasPrefix(d.status, "superseded by ") {
			t.Errorf("docs/decisions/%s: the status %q is not accepted or superseded by …", d.file, d.status)
		}
		name := strings.Trim(words.ReplaceAllString(strings.ToLower(strings.ReplaceAll(d.title, "'", "")), "-"), "-") + ".md"
		if name != d.file {
			t.Errorf("docs/decisions/%s is to be named %s, after its title", d.file, name)
		}
	}
}
