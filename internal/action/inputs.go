package action

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"boxoffice"
	"boxoffice/internal/strictjson"
)

// Decode reads a prepared input back into the type of its action, such as boxoffice.JobOpen.
func Decode(action string, prepared []byte) (boxoffice.Input, error) {
	d, ok := define(action)
	if !ok {
		return nil, fmt.Errorf("action %q is unknown", action)
	}
	value, err := d.decode(prepared)
	if err == nil && !complete(value) {
		err = errors.New("a default is not filled in")
	}
	if err != nil {
		return nil, fmt.Errorf("prepared input of %s: %w", action, err)
	}
	return value, nil
}

// complete reports whether the defaults are filled in, as in every prepared input.
func complete(input boxoffice.Input) bool {
	switch in := input.(type) {
	case boxoffice.JobOpen:
		return in.Template != ""
	case boxoffice.WorkflowOpen:
		incomplete := func(n boxoffice.WorkflowNode) bool { return n.Template == "" || n.After == nil }
		return !slices.ContainsFunc(in.Nodes, incomplete)
	}
	return true
}

func decode[T boxoffice.Input](prepared []byte) (boxoffice.Input, error) {
	var value T
	if err := strictjson.Decode(prepared, &value); err != nil {
		return nil, err
	}
	return value, nil
}

// finisher returns a function that reads a tidy input of type T and completes it. If complete is not nil, it fills in
// defaults and checks what a schema cannot express. If it refuses the input, it returns a *Refusal.
func finisher[T boxoffice.Input](complete func(*Catalog, *T) error) func(*Catalog, []byte) (boxoffice.Input, error) {
	return func(c *Catalog, tidied []byte) (boxoffice.Input, error) {
		var value T
		if err := json.Unmarshal(tidied, &value); err != nil {
			return nil, fmt.Errorf("input that matches its schema: %w", err)
		}
		if complete != nil {
			if err := complete(c, &value); err != nil {
				return nil, err
			}
		}
		return value, nil
	}
}

func completeJob(c *Catalog, j *boxoffice.JobOpen) error {
	if j.Template == "" {
		j.Template = boxoffice.DefaultTemplate
	}
	if j.RepoURL == "" || c.delivers == nil {
		return nil
	}
	if err := c.delivers(j.RepoURL); err != nil {
		return refuse(boxoffice.RefusedRepository, "%v", err)
	}
	return nil
}

// moment is a Timestamp in any form of RFC 3339.
type moment boxoffice.Timestamp

func (m *moment) UnmarshalText(text []byte) error {
	at, err := parseMoment(string(text))
	*m = moment(at)
	return err
}

func finishSchedule(c *Catalog, tidied []byte) (boxoffice.Input, error) {
	var draft struct {
		boxoffice.ScheduleCreate
		StartAt *moment `json:"startAt"`
	}
	if err := json.Unmarshal(tidied, &draft); err != nil {
		return nil, fmt.Errorf("input that matches its schema: %w", err)
	}
	schedule := draft.ScheduleCreate
	schedule.StartAt = (*boxoffice.Timestamp)(draft.StartAt)

	finishRun := finisher(completeJob)
	if schedule.Action == boxoffice.ActionOracleRequest {
		finishRun = finisher[boxoffice.OracleRequest](nil)
	}
	run, err := finishRun(c, schedule.Input)
	if err != nil {
		return nil, err
	}
	schedule.Input = encode(run)
	return schedule, nil
}
