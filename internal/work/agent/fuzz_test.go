package agent_test

import (
	"errors"
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

// roundTrip is an agent that needs no network.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Whatever an agent answers is an answer that can be stored or a failure, and
// nothing is written beside the workspace.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		done, blocked, `{"outcome":"done","summary":"x","choice":"yes"}`, `[]`, `null`, `{"outcome":"done","summary":"\ud800"}`,
		`{"outcome":"done","summary":"x","files":[{"path":"a/b","text":"c"},{"path":"a/../../b","text":"c"}]}`,
		`{"outcome":"done","summary":"x","files":[{"path":".git/config","text":"c"}]}`,
	} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	key, err := agent.ParseSecret(vectorSecret)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, output string, panel bool) {
		runner, err := agent.NewHTTP(agent.HTTPConfig{URL: "http://agent", Secret: key, Timeout: time.Minute, Client: &http.Client{
			Transport: roundTrip(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(output))}, nil
			}),
		}})
		if err != nil {
			t.Fatal(err)
		}
		above := workspace(t)
		inside := filepath.Join(above, "workspace")
		if err := os.MkdirAll(filepath.Join(inside, ".git"), 0o700); err != nil {
			t.Fatal(err)
		}
		task := agent.Task{Job: boxoffice.NewUUID()}
		if panel {
			task.Panel = &agent.Panel{Options: []string{"yes", "no"}}
		}
		report, err := runner.Run(t.Context(), inside, task)
		answer := report.Answer
		text := answer.Summary + answer.Reason + answer.Choice
		switch {
		case err != nil:
			if _, ok := errors.AsType[*agent.Failure](err); !ok {
				t.Error(err)
			}
		case answer.Outcome == agent.Done && (answer.Summary == "" || panel != (answer.Choice != "")),
			answer.Outcome == agent.Blocked && (answer.Reason == "" || answer.Choice != ""),
			answer.Outcome != agent.Done && answer.Outcome != agent.Blocked:
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
