package boxoffice

import (
	"encoding/json"
	"fmt"
)

// Input is what a paid action is asked to do: one of the types of this file.
// Members that are left out get the defaults of the service, which answers with
// the input in its prepared form.
type Input interface {
	// ActionName returns the name of the action, such as job.open.
	ActionName() string
}

// JobOpen is the input of job.open.
type JobOpen struct {
	Objective string     `json:"objective"`
	Template  string     `json:"template,omitempty"` // empty: DefaultTemplate
	Context   []Document `json:"context,omitempty"`
	RepoURL   string     `json:"repoUrl,omitempty"` // https, without credentials; empty: the service keeps the result
}

// DefaultTemplate is the template of a job or a workflow node that names none.
const DefaultTemplate = "research"

// Document is a text that a job reads before it starts.
type Document struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// JobContinue is the input of job.continue: what a blocked or completed job is told.
type JobContinue struct {
	JobID UUID   `json:"jobId"`
	Input string `json:"input"`
}

// LaunchOpen is the input of launch.open. Capabilities list the chains, their
// kinds and their pairings.
type LaunchOpen struct {
	Objective string `json:"objective"`
	Kind      string `json:"kind"` // LaunchCustomToken or one of the others
	ChainID   uint64 `json:"chainId"`
	PairWith  string `json:"pairWith,omitempty"`
	Name      string `json:"name,omitempty"`
	Symbol    string `json:"symbol,omitempty"`
}

// OracleRequest is the input of oracle.request.
type OracleRequest struct {
	Question  string   `json:"question"`
	PanelSize int      `json:"panelSize"`
	Options   []string `json:"options,omitempty"` // none: the panel answers in its own words
	Context   string   `json:"context,omitempty"`
}

// WorkflowOpen is the input of workflow.open. The ids of its nodes differ, and no
// node waits for itself, directly or through others. The nodes of a chain form
// one line, in any order; a chain whose nodes have no After is in the order given.
type WorkflowOpen struct {
	Objective string         `json:"objective"`
	Shape     string         `json:"shape"` // ShapeChain or ShapeDAG
	Nodes     []WorkflowNode `json:"nodes"`
}

// ScheduleCreate is the input of schedule.create. NewScheduleCreate makes one
// from the typed input of its runs.
type ScheduleCreate struct {
	Action          string          `json:"action"` // job.open or oracle.request
	Input           json.RawMessage `json:"input"`  // of that action
	IntervalMinutes int64           `json:"intervalMinutes"`
	Runs            int64           `json:"runs"`
	StartAt         *Timestamp      `json:"startAt,omitempty"` // nil or past: on admission
	Missed          string          `json:"missed,omitempty"`  // MissedSkip, which is the default, or MissedCatchUp
}

// NewScheduleCreate returns the input that buys runs of a JobOpen or an
// OracleRequest, one in every interval.
func NewScheduleCreate(run Input, intervalMinutes, runs int64) (ScheduleCreate, error) {
	document, err := json.Marshal(run)
	if err != nil {
		return ScheduleCreate{}, fmt.Errorf("input of the runs: %w", err)
	}
	return ScheduleCreate{
		Action:          run.ActionName(),
		Input:           document,
		IntervalMinutes: intervalMinutes,
		Runs:            runs,
	}, nil
}

// ScheduleTopUp is the input of schedule.topup.
type ScheduleTopUp struct {
	ScheduleID UUID  `json:"scheduleId"`
	Runs       int64 `json:"runs"`
}

// RawInput is the input of any action as JSON that the caller has already.
type RawInput struct {
	Action string
	JSON   json.RawMessage
}

// MarshalJSON returns the JSON as it is.
func (in RawInput) MarshalJSON() ([]byte, error) { return in.JSON.MarshalJSON() }

// ActionName implements Input.
func (JobOpen) ActionName() string { return ActionJobOpen }

// ActionName implements Input.
func (JobContinue) ActionName() string { return ActionJobContinue }

// ActionName implements Input.
func (LaunchOpen) ActionName() string { return ActionLaunchOpen }

// ActionName implements Input.
func (OracleRequest) ActionName() string { return ActionOracleRequest }

// ActionName implements Input.
func (WorkflowOpen) ActionName() string { return ActionWorkflowOpen }

// ActionName implements Input.
func (ScheduleCreate) ActionName() string { return ActionScheduleCreate }

// ActionName implements Input.
func (ScheduleTopUp) ActionName() string { return ActionScheduleTopUp }

// ActionName implements Input.
func (in RawInput) ActionName() string { return in.Action }
