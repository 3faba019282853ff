// Command modulepath gives the project another module path. It rewrites the go.mod
// files, the imports and package paths in Go files, and the imports of the Go
// programs in Markdown files, in the current directory and below it.
//
//	go run ./internal/test/modulepath example.com/boxoffice
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

func main() {
	if len(os.Args) != 2 || strings.ContainsAny(os.Args[1], " \"\n") {
		fmt.Fprintln(os.Stderr, "usage: go run ./internal/test/modulepath MODULE-PATH")
		os.Exit(2)
	}
	if err := rewrite(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "modulepath:", err)
		os.Exit(1)
	}
}

func rewrite(to string) error {
	module, err := os.ReadFile("go.mod")
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(module), "\n")
	from := regexp.QuoteMeta(strings.TrimPrefix(first, "module "))
	patterns := map[string]*regexp.Regexp{
		".mod": regexp.MustCompile(`(?m)^((?:module |replace |require |\t)?)` + from + `(/\S*| |$)`),
		// An import has a line of its own. Other strings are paths of packages only if
		// they begin with one of the root's folders: git branches begin with the name too.
		".go": regexp.MustCompile(`(?m)(^\t"|^import "|")` + from +
			`("$|/(?:api|client|cmd|contracts|docs|examples|internal|interop|x402)\b)`),
		".md": regexp.MustCompile(`(?m)(^\t")` + from + `("$|/[\w/]+"$)`),
	}
	return filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); name == ".git" || name == "node_modules" {
				return filepath.SkipDir
			}
			return nil
		}
		pattern := patterns[filepath.Ext(path)]
		if pattern == nil {
			return nil
		}
		before, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		after := pattern.ReplaceAll(before, []byte("${1}"+to+"${2}"))
		return os.WriteFile(path, after, 0o644)
	})
}
