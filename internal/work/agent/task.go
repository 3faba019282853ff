// Package agent runs the operator's program, the agent, for one node of work.
//
// The agent gets a Task and returns a Result, both as JSON. A Command is a program of this machine: it reads the task
// from its standard input and writes the result to its standard output. What it writes to standard error is kept as
// the node's log. An HTTP agent gets the task as a request and returns the result in the response or later.
//
// The outcome of a result is done or blocked. Everything else is a *Failure.
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
)

// Version is the version of the contract with agents, the member "v" of every task. A task of the same version may get
// further members, and agents ignore members that they do not know.
const Version = 1

// Task says what an agent has to do. Members that do not apply are absent.
type Task struct {
	V            int                  `json:"v"`        // Version; the runner sets it
	Job          boxoffice.UUID       `json:"job"`      // or the oracle
	Node         string               `json:"node"`     // the name of the node within the job
	Template     string               `json:"template"` // research, audit, …
	Objective    string               `json:"objective"`
	LaunchKind   string               `json:"launchKind,omitempty"`
	Context      []boxoffice.Document `json:"context,omitempty"`
	RepoURL      string               `json:"repoUrl,omitempty"` // the requester's repository; the service delivers to it
	ChainID      uint64               `json:"chainId,omitempty"`
	PairWith     string               `json:"pairWith,omitempty"`
	Name         string               `json:"name,omitempty"`
	Symbol       string               `json:"symbol,omitempty"`
	Predecessors []Predecessor        `json:"predecessors,omitempty"` // the nodes that this one comes after
	Inputs       []string             `json:"inputs,omitempty"`       // the requester's inputs, oldest first
	Panel        *Panel               `json:"panel,omitempty"`        // oracles only
	Failures     int                  `json:"failures,omitempty"`     // how often the agent has failed at this task
	Callback     string               `json:"callback,omitempty"`     // for a later result of an HTTP agent; the runner sets it
}

// Predecessor is an earlier node and its result.
type Predecessor struct {
	Node    string `json:"node"`
	Summary string `json:"summary"`
}

// Panel is the question of an oracle to one member of its panel.
type Panel struct {
	Question string   `json:"question"`
	Options  []string `json:"options,omitempty"` // the possible choices; empty: any text
	Context  string   `json:"context,omitempty"`
	Member   int      `json:"member"` // from 0; the replacement of a member has an index of its own
	Size     int      `json:"size"`
}

// Outcome says whether an agent did its task.
type Outcome string

// The outcomes of a result. A run that ends otherwise is a failure.
const (
	Done    Outcome = "done"
	Blocked Outcome = "blocked" // the agent needs an input of the requester
)

// Result is what an agent returns.
type Result struct {
	Outcome Outcome `json:"outcome"`
	Summary string  `json:"summary,omitempty"` // required if done; at most MaxSummary characters
	Reason  string  `json:"reason,omitempty"`  // required if blocked; the requester reads it; at most MaxReason characters
	Choice  string  `json:"choice,omitempty"`  // required if done by a member of a panel; at most MaxChoice characters
	Files   []File  `json:"files,omitempty"`   // written into the workspace; HTTP agents have no other access to it
}

// File is a text file of a result.
type File struct {
	Path string `json:"path"` // relative to the workspace, with slashes
	Text string `json:"text"`
}

// The most characters that the members of a result may have.
const (
	MaxSummary = 16000
	MaxReason  = 2000
	MaxChoice  = 2000
)

// Report is what a run brought. A Runner returns it beside a Failure too.
type Report struct {
	Result   Result
	Log      []byte // the end of what the agent wrote to standard error: UTF-8 without NUL
	ExitCode int    // of a command that exited; otherwise -1
}

// Runner runs an agent once. If the agent failed, the error is a *Failure. If ctx ended, it wraps the error of ctx. Any
// other error is a fault of this service. When Run returns, no process of the agent is running.
//
// The workspace is the absolute path of a folder. Nodes of one job that run at the same time share it
// (docs/decisions/the-nodes-of-a-job-share-one-workspace.md).
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

// accept reads a result and writes its files into the workspace. It returns the result without its files.
func accept(workspace string, document []byte, panel *Panel) (Result, error) {
	result, err := decodeResult(document, panel)
	if err != nil {
		return Result{}, &Failure{Kind: BadResult, Detail: err.Error(), Retryable: true}
	}
	if err := write(workspace, result.Files); err != nil {
		return Result{}, err
	}
	result.Files = nil
	return result, nil
}

// decodeResult reads a result to a task with the given panel, or without a panel if it is nil.
func decodeResult(document []byte, panel *Panel) (Result, error) {
	var r Result
	if err := strictjson.Decode(document, &r); err != nil {
		return Result{}, err
	}
	return r, r.check(panel)
}

// check checks a result against the contract. A result holds no NUL, because texts of databases do not.
func (r Result) check(panel *Panel) error {
	bounded := []struct {
		pointer, text string
		most          int
	}{{"/summary", r.Summary, MaxSummary}, {"/reason", r.Reason, MaxReason}, {"/choice", r.Choice, MaxChoice}}
	for _, member := range bounded {
		switch {
		case utf8.RuneCountInString(member.text) > member.most:
			return refuse(member.pointer, fmt.Sprintf("must have at most %d characters", member.most))
		case strings.ContainsRune(member.text, 0):
			return refuse(member.pointer, "must not contain NUL")
		}
	}
	switch r.Outcome {
	case Done:
		switch {
		case strings.TrimSpace(r.Summary) == "":
			return refuse("/summary", "is required when done")
		case r.Reason != "":
			return refuse("/reason", "must be absent when done")
		case panel == nil && r.Choice != "":
			return refuse("/choice", "must be absent without a panel")
		case panel != nil && strings.TrimSpace(r.Choice) == "":
			return refuse("/choice", "is required of a panel's member")
		case panel != nil && len(panel.Options) > 0 && !slices.Contains(panel.Options, r.Choice):
			return refuse("/choice", "must be one of the options")
		}
	case Blocked:
		switch {
		case strings.TrimSpace(r.Reason) == "":
			return refuse("/reason", "is required when blocked")
		case r.Summary != "":
			return refuse("/summary", "must be absent when blocked")
		case r.Choice != "":
			return refuse("/choice", "must be absent when blocked")
		}
	default:
		return refuse("/outcome", "must be done or blocked")
	}
	for i, file := range r.Files {
		if !file.valid() {
			return refuse(fmt.Sprint("/files/", i, "/path"), "must be a path inside the workspace, outside .git")
		}
	}
	return nil
}

func refuse(pointer, message string) error {
	return &strictjson.Error{Pointer: pointer, Message: message}
}
