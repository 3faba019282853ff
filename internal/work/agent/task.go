// Package agent runs the operator's program, the agent, for one node of work.
//
// The agent is given a Task and answers with an Answer, both JSON. A Command is
// a program of this machine: the task comes on its standard input, the answer
// goes to its standard output, what it writes to standard error is kept as the
// node's log. An HTTP agent is posted the task and answers at once or later.
//
// An answer is done or blocked. Everything else is a *Failure.
package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"boxoffice"
	"boxoffice/internal/strictjson"
	"boxoffice/internal/work"
)

// Version is the version of the contract, the member "v" of every task. A
// member may be added to a task within a version; agents ignore what they do
// not know.
const Version = 1

// Task is what an agent is told. Members that do not apply are absent.
type Task struct {
	V            int             `json:"v"`        // Version; set by the runner
	Job          boxoffice.UUID  `json:"job"`      // or the oracle
	Node         string          `json:"node"`     // names the node within the job
	Template     string          `json:"template"` // research, audit, …
	Objective    string          `json:"objective"`
	LaunchKind   string          `json:"launchKind,omitempty"`
	Context      []work.Document `json:"context,omitempty"`
	RepoURL      string          `json:"repoUrl,omitempty"` // where the requester wants it delivered; delivering is not the agent's task
	ChainID      uint64          `json:"chainId,omitempty"`
	PairWith     string          `json:"pairWith,omitempty"`
	Name         string          `json:"name,omitempty"`
	Symbol       string          `json:"symbol,omitempty"`
	Predecessors []Result        `json:"predecessors,omitempty"` // of the nodes that this one comes after
	Answers      []string        `json:"answers,omitempty"`      // the requester's, oldest first
	Panel        *Panel          `json:"panel,omitempty"`        // oracles only
	Attempt      int             `json:"attempt,omitempty"`      // from 1; one more after each failure of the agent, the same after a restart of ours
	Callback     string          `json:"callback,omitempty"`     // where an HTTP agent may answer later; set by the runner
}

// Result is what a node before this one came to.
type Result struct {
	Node    string `json:"node"`
	Summary string `json:"summary"`
}

// Panel is the question of an oracle to one member of its panel.
type Panel struct {
	Question string   `json:"question"`
	Options  []string `json:"options,omitempty"` // the choice has to be one of them; none: any text
	Context  string   `json:"context,omitempty"`
	Member   int      `json:"member"` // from 0; a replaced member has an index of its own
	Size     int      `json:"size"`
}

// Outcome is what an agent says that it came to.
type Outcome string

// The outcomes. Anything else is a failure.
const (
	Done    Outcome = "done"
	Blocked Outcome = "blocked" // the requester has to be asked
)

// Answer is what an agent answers.
type Answer struct {
	Outcome Outcome `json:"outcome"`
	Summary string  `json:"summary,omitempty"` // required when done, and at most MaxSummary characters
	Reason  string  `json:"reason,omitempty"`  // required when blocked, for the requester, at most MaxReason characters
	Choice  string  `json:"choice,omitempty"`  // required of a panel's member that is done, at most MaxChoice characters
	Files   []File  `json:"files,omitempty"`   // written into the workspace; for agents that have no hands there
}

// File is a text that an answer brings.
type File struct {
	Path string `json:"path"` // relative to the workspace, with slashes
	Text string `json:"text"`
}

// What an answer's members may hold, in characters.
const (
	MaxSummary = 16000
	MaxReason  = 2000
	MaxChoice  = 2000
)

// Report is what is known of a run. It is returned beside a Failure too.
type Report struct {
	Answer   Answer
	Log      []byte // the end of what the agent wrote to standard error: UTF-8 without NUL
	ExitCode int    // of a command that ended by itself; else -1
}

// Runner runs an agent once. Its error is a *Failure if the agent failed, wraps
// the context's if that ended, and is anything else if the fault is ours. When
// it returns, nothing that the agent started is left running.
//
// The workspace is the absolute path of a folder. Nodes of one job that run at
// once share it (docs/decisions/the-nodes-of-a-job-share-one-workspace.md).
type Runner interface {
	Run(ctx context.Context, workspace string, task Task) (Report, error)
}

// encode returns the JSON of a task.
func (t Task) encode() ([]byte, error) {
	t.V = Version
	document, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("agent: encode the task: %w", err)
	}
	return document, nil
}

// decodeAnswer reads an answer to a task of the given panel, or of none.
func decodeAnswer(document []byte, panel *Panel) (Answer, error) {
	var a Answer
	if err := strictjson.Decode(document, &a); err != nil {
		return Answer{}, err
	}
	return a, a.check(panel)
}

// check holds an answer against the contract. A database's text has no NUL, so
// an answer has none.
func (a Answer) check(panel *Panel) error {
	bounded := []struct {
		pointer, text string
		most          int
	}{{"/summary", a.Summary, MaxSummary}, {"/reason", a.Reason, MaxReason}, {"/choice", a.Choice, MaxChoice}}
	for _, member := range bounded {
		switch {
		case utf8.RuneCountInString(member.text) > member.most:
			return refuse(member.pointer, fmt.Sprintf("must have at most %d characters", member.most))
		case strings.ContainsRune(member.text, 0):
			return refuse(member.pointer, "must not contain NUL")
		}
	}
	switch a.Outcome {
	case Done:
		switch {
		case strings.TrimSpace(a.Summary) == "":
			return refuse("/summary", "is required when done")
		case a.Reason != "":
			return refuse("/reason", "must be absent when done")
		case panel == nil && a.Choice != "":
			return refuse("/choice", "must be absent without a panel")
		case panel != nil && strings.TrimSpace(a.Choice) == "":
			return refuse("/choice", "is required of a panel's member")
		case panel != nil && len(panel.Options) > 0 && !slices.Contains(panel.Options, a.Choice):
			return refuse("/choice", "must be one of the options")
		}
	case Blocked:
		switch {
		case strings.TrimSpace(a.Reason) == "":
			return refuse("/reason", "is required when blocked")
		case a.Summary != "":
			return refuse("/summary", "must be absent when blocked")
		case a.Choice != "":
			return refuse("/choice", "must be absent when blocked")
		}
	default:
		return refuse("/outcome", "must be done or blocked")
	}
	for i, file := range a.Files {
		if !file.plain() {
			return refuse(fmt.Sprint("/files/", i, "/path"), "must be a path inside the workspace, outside .git")
		}
	}
	return nil
}

func refuse(pointer, message string) error {
	return &strictjson.Error{Pointer: pointer, Message: message}
}
