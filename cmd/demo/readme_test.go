package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// The walk-through of the README works when it is pasted: its commands are run
// as they stand there, against a demo on other ports, and each order that they
// make is admitted.
func TestReadme(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"bash", "curl", "openssl"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatal(err)
			}
			t.Skipf("LEFT OUT: the walk-through of the README needs %s", tool)
		}
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	for _, section := range []string{"## Buy with the command line", "## Buy with Go", "## Buy with curl"} {
		_, rest, found := strings.Cut(string(readme), section)
		_, rest, opened := strings.Cut(rest, "```sh\n")
		commands, _, closed := strings.Cut(rest, "```")
		if !found || !opened || !closed {
			t.Fatalf("the README has no commands under %q", section)
		}
		script.WriteString(commands)
	}
	r := start(t)
	text := script.String()
	for readmes, ours := range map[string]string{
		"http://127.0.0.1:8545": r.RPCURL,
		"127.0.0.1:8402":        strings.TrimPrefix(r.BaseURL, "http://"),
	} {
		text = strings.ReplaceAll(text, readmes, ours)
	}
	// A person answers the question of buy; so does this test.
	text = regexp.MustCompile(`(?m)^(go run \./cmd/boxoffice buy .*)$`).ReplaceAllString(text, "echo yes | $1")

	home := t.TempDir()
	shell := exec.CommandContext(t.Context(), "bash", "-eu", "-o", "pipefail", "-c", text)
	shell.Dir = "../.."
	shell.Env = append(os.Environ(), "XDG_CONFIG_HOME="+home, "BOXOFFICE_URL="+r.BaseURL)
	defer func() {
		for _, left := range []string{"../../order.json", "../../payment.curl"} {
			os.Remove(left)
		}
	}()
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for want, times := range map[string]int{
		`Status +admitted`: 1, `"status":"admitted","order"`: 2, `402 Payment Required`: 1,
		`(?m)^job \S+ is completed$`: 1,
	} {
		if got := len(regexp.MustCompile(want).FindAll(out, -1)); got != times {
			t.Errorf("%q stands %d times, want %d, in\n%s", want, got, times, out)
		}
	}
	r.end(t, os.Interrupt)
}

// The README shows the program of examples/go as it is.
func TestReadmeShowsTheGoProgram(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("../../examples/go/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "```go\n"+string(program)+"```\n") {
		t.Error("the Go program in README.md is not examples/go/main.go: copy it")
	}
}
