// Package judge asks the operator's judge of inputs over HTTP before an action is priced.
//
// The service posts {"action": …, "input": …}. The judge answers 200 with {"input": …}, the same input or a changed
// one, or with {"refused": "why"}. After any other answer, or no answer in time, the service quotes nothing.
package judge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
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
	if transport, ok := errors.AsType[*url.Error](err); ok {
		err = transport.Err // without the URL, which may hold a key
	}
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
	var a answer
	if err := strictjson.Decode(document, &a); err != nil {
		return nil, fmt.Errorf("judge answered %w", err)
	}
	switch {
	case a.Refused != "":
		return nil, &action.Refusal{Detail: a.Refused}
	case a.Input == nil:
		return nil, errors.New("judge answered neither input nor refused")
	}
	return a.Input, nil
}
