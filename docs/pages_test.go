package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// files calls check with every file of the project that has one of the
// endings. The path is relative to the root.
func files(t *testing.T, endings []string, check func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() {
			if name == "node_modules" || name == ".git" {
				return filepath.SkipDir
			}
			return nil
		}
		if slices.Contains(endings, filepath.Ext(path)) {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			check(strings.TrimPrefix(filepath.ToSlash(path), "../"), string(text))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```")
	heading = regexp.MustCompile(`(?m)^#{1,6} (.+)$`)
	span    = regexp.MustCompile("`[^`\n]*`")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	number  = regexp.MustCompile(`(?m)^#{2,3} ([0-9]+(?:\.[0-9]+)*) `)
	cited   = regexp.MustCompile(`§([0-9]+(?:\.[0-9]+)*)`)
	// citation is one reference to the protocol: "docs/protocol.md §2.3", also
	// followed by "and §5", "to §6" or ", §7".
	citation = regexp.MustCompile(`docs/protocol\.md §[0-9.]*[0-9](?:(?:,| and| to|, and) §[0-9.]*[0-9])*`)
)

// TestLinks: every relative link of a page leads to a file that is there, and
// to a heading of it if the link names one.
func TestLinks(t *testing.T) {
	files(t, []string{".md"}, func(page, text string) {
		for _, match := range link.FindAllStringSubmatch(prose(text), -1) {
			target, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			file := filepath.Join("..", page)
			if target != "" {
				file = filepath.Join(filepath.Dir(file), target)
			}
			info, err := os.Stat(file)
			if err != nil {
				t.Errorf("%s links to %s, which is not there", page, match[1])
				continue
			}
			if anchor != "" && !info.IsDir() && !slices.Contains(anchors(read(t, file)), anchor) {
				t.Errorf("%s links to %s, and there is no such heading", page, match[1])
			}
		}
	})
}

// prose returns a page without its code.
func prose(text string) string { return span.ReplaceAllString(fence.ReplaceAllString(text, ""), "") }

// anchors returns the names under which headings can be linked to.
func anchors(text string) (names []string) {
	for _, match := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		names = append(names, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, match[1]))
	}
	return names
}

// TestCitations: every section of the protocol that something refers to is
// there.
func TestCitations(t *testing.T) {
	protocol := read(t, "protocol.md")
	known := map[string]bool{}
	for _, match := range number.FindAllStringSubmatch(protocol, -1) {
		if known[match[1]] {
			t.Errorf("docs/protocol.md has two sections %s", match[1])
		}
		known[match[1]] = true
	}
	check := func(where, text string) {
		for _, match := range cited.FindAllStringSubmatch(text, -1) {
			if !known[match[1]] {
				t.Errorf("%s refers to section %s of docs/protocol.md, which is not there", where, match[1])
			}
		}
	}
	check("docs/protocol.md", regexp.MustCompile(`RFC [0-9]+ §[0-9.]+`).ReplaceAllString(protocol, ""))
	total := 0
	files(t, []string{".go", ".md", ".yaml", ".json", ".mjs", ".ts", ".sql", ".toml"}, func(path, text string) {
		for _, match := range citation.FindAllString(text, -1) {
			check(path, match)
			total++
		}
	})
	if total == 0 {
		t.Error("nothing refers to docs/protocol.md")
	}
}

// TestWidths: lines of pages and comments have at most 120 columns. Tables and
// code blocks of pages are as wide as they have to be.
func TestWidths(t *testing.T) {
	const columns = 120
	check := func(path, text string, counts func(line string) bool) {
		for i, line := range strings.Split(text, "\n") {
			if counts(line) && utf8.RuneCountInString(line) > columns {
				t.Errorf("%s:%d has more than %d columns", path, i+1, columns)
			}
		}
	}
	files(t, []string{".md"}, func(path, text string) {
		text = fence.ReplaceAllStringFunc(text, func(block string) string {
			return strings.Repeat("\n", strings.Count(block, "\n"))
		})
		check(path, text, func(line string) bool { return !strings.HasPrefix(strings.TrimSpace(line), "|") })
	})
	files(t, []string{".go"}, func(path, text string) {
		check(path, text, func(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "//") })
	})
}
