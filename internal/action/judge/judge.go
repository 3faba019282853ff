// Package judge asks an operator's program, over HTTP, what it thinks of an
// action's input before the action is priced.
//
// The service posts {"action": …, "input": …}. The program answers 200 with
// {"input": …}, the same or a changed one, or with {"refused": "why"}. Anything
// else, or no answer in time, means that it is away: nothing is quoted.
package judge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"boxoffice"
	"boxoffice/internal/action"
	"boxoffice/internal/strictjson"
)

// HTTP is a judge that is asked over HTTP.
type HTTP struct {
	URL     string
	Timeout time.Duration
}

type question struct {
	Action string          `json:"action"`
	Input  json.RawMessage `json:"input"`
}

type answer struct {
	Input   json.RawMessage `json:"input,omitempty"`
	Refused string          `json:"refused,omitempty"`
}

// Judge implements action.Judge.
func (h HTTP) Judge(ctx context.Context, name string, input json.RawMessage) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	body, err := json.Marshal(question{name, input})
	if err != nil {
		return nil, fmt.Errorf("judge: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("judge: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("judge: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("judge answered %s", response.Status)
	}
	document, err := io.ReadAll(io.LimitReader(response.Body, boxoffice.MaxBodyBytes+1))
	if err != nil {
		return nil, fmt.Errorf("judge: %w", err)
	}
	var verdict answer
	if err := strictjson.Decode(document, &verdict); err != nil {
		return nil, fmt.Errorf("judge answered %w", err)
	}
	switch {
	case verdict.Refused != "":
		return nil, &action.Refusal{Detail: verdict.Refused}
	case verdict.Input == nil:
		return nil, fmt.Errorf("judge answered neither input nor refused")
	}
	return verdict.Input, nil
}
