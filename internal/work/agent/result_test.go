package agent_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"boxoffice"
	"boxoffice/internal/work/agent"
)

// roundTrip is an HTTP agent without a network.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// returned runs an agent that returns an output.
func returned(t *testing.T, folder, output string, panel *agent.Panel) (agent.Report, error) {
	t.Helper()
	client := http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(output))}, nil
	})}
	runner, err := agent.NewHTTP(agent.HTTPConfig{
		URL: "http://agent", Secret: secret(t, vectorSecret), Timeout: time.Minute, MaxOutput: 1 << 20,
		Client: &client, Now: clock,
	})
	if err != nil {
		t.Fatal(err)
	}
	return runner.Run(t.Context(), folder, agent.Task{Job: boxoffice.NewUUID(), Panel: panel})
}

func TestBadResults(t *testing.T) {
	const (
		badPath  = "/files/0/path: must be a path inside the workspace, outside .git"
		withFile = `{"outcome":"done","summary":"x","files":[{"path":"%s","text":""}]}`
	)
	long := strings.Repeat("é", 16001)
	tests := map[string]string{
		"":                      "is empty",
		"hello":                 "is not JSON: invalid character 'h' at start of value",
		`{"outcome":"done"}`:    "/summary: is required when done",
		`{"outcome":"maybe"}`:   "/outcome: must be done or blocked",
		`{"outcome":"blocked"}`: "/reason: is required when blocked",
		`{"outcome":"blocked","reason":"x","summary":"y"}`: "/summary: must be absent when blocked",
		`{"outcome":"blocked","reason":"x","choice":"y"}`:  "/choice: must be absent when blocked",
		`{"summary":"x"}`: "/outcome: is required",
		`{"outcome":"done","summary":"x","extra":1}`:    "/extra: is not a known member",
		`{"outcome":"done","summary":"x","reason":"y"}`: "/reason: must be absent when done",
		`{"outcome":"done","summary":"x","choice":"y"}`: "/choice: must be absent without a panel",
		`{"outcome":"done","summary":"\u0000"}`:         "/summary: must not contain NUL",
		`{"outcome":"done","summary":"` + long + `"}`:   "/summary: must have at most 16000 characters",
		done + " " + done:                  "has more data after its end",
		fmt.Sprintf(withFile, "../x"):      badPath,
		fmt.Sprintf(withFile, "/etc/x"):    badPath,
		fmt.Sprintf(withFile, `a\\b`):      badPath,
		fmt.Sprintf(withFile, "a/.GIT./x"): badPath, // workspace.IsGitName has tests of its own
		fmt.Sprintf(withFile, "a//b"):      badPath,
		fmt.Sprintf(withFile, "a/./b"):     badPath,
	}
	for output, detail := range tests {
		t.Run(detail, func(t *testing.T) {
			_, err := returned(t, workspace(t), output, nil)
			failure, ok := errors.AsType[*agent.Failure](err)
			want := agent.Failure{Kind: agent.BadResult, Detail: detail, Retryable: true}
			if !ok || *failure != want {
				t.Errorf("got %v, want %q", err, detail)
			}
		})
	}
}

func TestPanel(t *testing.T) {
	tests := []struct {
		options []string
		output  string
		fails   bool
	}{
		{[]string{"yes", "no"}, `{"outcome":"done","summary":"because","choice":"yes"}`, false},
		{[]string{"yes", "no"}, `{"outcome":"done","summary":"because","choice":"Yes"}`, true},
		{[]string{"yes", "no"}, `{"outcome":"done","summary":"because"}`, true},
		{nil, `{"outcome":"done","summary":"because","choice":"42 km"}`, false},
		{nil, `{"outcome":"done","summary":"because","choice":""}`, true},
		{nil, `{"outcome":"done","summary":"because","choice":" \n "}`, true},
	}
	for _, test := range tests {
		report, err := returned(t, workspace(t), test.output,
			&agent.Panel{Question: "?", Options: test.options, Size: 5})
		if (kind(err) == agent.BadResult) != test.fails || (err == nil) != (report.Result.Choice != "") {
			t.Errorf("%s: got %+v, %v", test.output, report, err)
		}
	}
}

func TestFilesOfResults(t *testing.T) {
	folder, outside := workspace(t), workspace(t)
	git := filepath.Join(folder, ".git")
	for _, err := range []error{
		os.Mkdir(git, 0o700),
		os.Symlink(git, filepath.Join(folder, "sneaky")),
		os.Symlink(outside, filepath.Join(folder, "out")),
		os.Symlink(filepath.Join(git, "config"), filepath.Join(folder, "report.md")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	give := func(path string) error {
		output := fmt.Sprintf(`{"outcome":"done","summary":"x","files":[{"path":%q,"text":"text"}]}`, path)
		_, err := returned(t, folder, output, nil)
		return err
	}
	for _, path := range []string{"report.md", "a/b/c.txt", "a/b/c.txt"} {
		if err := give(path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		info, err := os.Lstat(filepath.Join(folder, path))
		if err != nil || !info.Mode().IsRegular() || info.Size() != 4 {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	for _, path := range []string{"sneaky/config", "out/x", "a/b", "report.md/x"} {
		if err := give(path); kind(err) != agent.BadResult {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, folder := range []string{git, outside} {
		if entries, err := os.ReadDir(folder); err != nil || len(entries) > 0 {
			t.Errorf("%s holds %v, %v", folder, entries, err)
		}
	}
}

// Every output of an agent is either a result that can be stored or a failure. Nothing is written outside of the
// workspace.
func FuzzResult(f *testing.F) {
	for _, seed := range []string{
		done, blocked, `{"outcome":"done","summary":"x","choice":"yes"}`, `[]`, `null`,
		`{"outcome":"done","summary":"\ud800"}`,
		`{"outcome":"done","summary":"x","files":[{"path":"a/b","text":"c"},{"path":"a/../../b","text":"c"}]}`,
		`{"outcome":"done","summary":"x","files":[{"path":".git/config","text":"c"}]}`,
	} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, output string, panel bool) {
		above := workspace(t)
		inside := filepath.Join(above, "workspace")
		if err := os.MkdirAll(filepath.Join(inside, ".git"), 0o700); err != nil {
			t.Fatal(err)
		}
		var asked *agent.Panel
		if panel {
			asked = &agent.Panel{Options: []string{"yes", "no"}}
		}
		report, err := returned(t, inside, output, asked)
		result := report.Result
		text := result.Summary + result.Reason + result.Choice
		switch {
		case err != nil:
			if _, ok := errors.AsType[*agent.Failure](err); !ok {
				t.Error(err)
			}
		case result.Outcome == agent.Done && (result.Summary == "" || panel != (result.Choice != "")),
			result.Outcome == agent.Blocked && (result.Reason == "" || result.Choice != ""),
			result.Outcome != agent.Done && result.Outcome != agent.Blocked:
			t.Errorf("took %q", output)
		case !utf8.ValidString(text) || strings.Contains(text, "\x00"):
			t.Errorf("took the text %q", text)
		}
		for folder, most := range map[string]int{above: 1, filepath.Join(inside, ".git"): 0} {
			if entries, err := os.ReadDir(folder); err != nil || len(entries) > most {
				t.Errorf("%s holds %v, %v", folder, entries, err)
			}
		}
	})
}
