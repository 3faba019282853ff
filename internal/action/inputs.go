package action

import (
	"encoding/json"
	"fmt"

	"boxoffice"
	"boxoffice/internal/strictjson"
)

// DefaultTemplate is the template of a job or a node that names none.
const DefaultTemplate = "research"

// JobOpen is the prepared input of job.open.
type JobOpen struct {
	Objective string     `json:"objective"`
	Template  string     `json:"template"`
	Context   []Document `json:"context,omitempty"`
	RepoURL   string     `json:"repoUrl,omitempty"` // https, without credentials; empty: nowhere
}

// Document is a text that a job reads before it starts.
type Document struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// JobContinue is the prepared input of job.continue.
type JobContinue struct {
	JobID boxoffice.UUID `json:"jobId"`
	Input string         `json:"input"`
}

// OracleRequest is the prepared input of oracle.request.
type OracleRequest struct {
	Question  string   `json:"question"`
	PanelSize int      `json:"panelSize"`
	Options   []string `json:"options,omitempty"` // none: the panel answers freely
	Context   string   `json:"context,omitempty"`
}

// ScheduleCreate is the prepared input of schedule.create.
type ScheduleCreate struct {
	Action          string               `json:"action"` // job.open or oracle.request
	Input           json.RawMessage      `json:"input"`  // prepared, of that action
	IntervalMinutes int64                `json:"intervalMinutes"`
	Runs            int64                `json:"runs"`
	StartAt         *boxoffice.Timestamp `json:"startAt,omitempty"` // nil or past: on admission
	Missed          string               `json:"missed,omitempty"`  // skip, which is what empty means too, or catch_up
}

// ScheduleTopUp is the prepared input of schedule.topup.
type ScheduleTopUp struct {
	ScheduleID boxoffice.UUID `json:"scheduleId"`
	Runs       int64          `json:"runs"`
}

// Decode reads a prepared input back into the value of its action: a JobOpen,
// JobContinue, LaunchOpen, OracleRequest, WorkflowOpen, ScheduleCreate or
// ScheduleTopUp.
func Decode(action string, prepared []byte) (any, error) {
	d, ok := define(action)
	if !ok {
		return nil, fmt.Errorf("action %q is unknown", action)
	}
	value, err := d.decode(prepared)
	if err != nil {
		return nil, fmt.Errorf("prepared input of %s: %w", action, err)
	}
	return value, nil
}

func decode[T any](prepared []byte) (any, error) {
	var value T
	if err := strictjson.Decode(prepared, &value); err != nil {
		return nil, err
	}
	return value, nil
}

// finish reads a tidy input and completes it: defaults are filled in and what
// no schema can express is checked, with a *Refusal for what is refused.
func finish[T any](c *Catalog, tidied []byte) (any, error) {
	var value T
	if err := json.Unmarshal(tidied, &value); err != nil {
		return nil, fmt.Errorf("input that matches its schema: %w", err)
	}
	if incomplete, ok := any(&value).(interface{ complete(*Catalog) error }); ok {
		if err := incomplete.complete(c); err != nil {
			return nil, err
		}
	}
	return value, nil
}

func (j *JobOpen) complete(c *Catalog) error {
	if j.Template == "" {
		j.Template = DefaultTemplate
	}
	if j.RepoURL == "" || c.delivers == nil {
		return nil
	}
	if err := c.delivers(j.RepoURL); err != nil {
		return refuse(boxoffice.RefusedRepository, "%v", err)
	}
	return nil
}

// moment is a Timestamp that is sent in any form of RFC 3339.
type moment boxoffice.Timestamp

func (m *moment) UnmarshalText(text []byte) error {
	at, err := parseMoment(string(text))
	*m = moment(at)
	return err
}

func finishSchedule(c *Catalog, tidied []byte) (any, error) {
	var draft struct {
		ScheduleCreate
		StartAt *moment `json:"startAt"`
	}
	if err := json.Unmarshal(tidied, &draft); err != nil {
		return nil, fmt.Errorf("input that matches its schema: %w", err)
	}
	schedule := draft.ScheduleCreate
	schedule.StartAt = (*boxoffice.Timestamp)(draft.StartAt)

	finishRun := finish[JobOpen]
	if schedule.Action == boxoffice.ActionOracleRequest {
		finishRun = finish[OracleRequest]
	}
	run, err := finishRun(c, schedule.Input)
	if err != nil {
		return nil, err
	}
	schedule.Input = encode(run)
	return schedule, nil
}
