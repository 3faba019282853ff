package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"boxoffice/internal/work/workspace"
)

// HTTPConfig describes an agent that is reached over HTTP.
type HTTPConfig struct {
	URL           string
	Secret        Secret
	Timeout       time.Duration // from the task to its result, whether that is the response or sent later
	MaxOutput     int64         // bytes of the result
	Callback      string        // the URL of callbacks without the id: "https://host/callbacks"; "": no callbacks
	CallbackStore CallbackStore // keeps results that are sent later; required with Callback
	Client        *http.Client  // nil: one with the standard library's transport
	Now           func() time.Time
}

// HTTP is a Runner of an agent that is reached over HTTP. It posts the task as a Standard Webhook. The same task always
// has the same webhook-id, so that an agent can return the result that it has already.
//
// The agent responds 200 with a result, or 202 and sends the result later to the task's callback. It has no access to
// the workspace: the result's files are what it makes. If the service ends while a run waits, the run is lost. When the
// task is run again and the CallbackStore has its result, the agent is not asked.
type HTTP struct{ HTTPConfig }

// NewHTTP checks the configuration.
func NewHTTP(config HTTPConfig) (*HTTP, error) {
	switch target, err := url.Parse(config.URL); {
	case err != nil || target.Host == "" || target.Scheme != "https" && target.Scheme != "http":
		return nil, errors.New("agent: url: must be an absolute http or https URL")
	case len(config.Secret.key) == 0:
		return nil, errors.New("agent: secret: is required")
	case config.Timeout <= 0 || config.MaxOutput <= 0:
		return nil, errors.New("agent: timeout and limits must be positive")
	case config.Callback != "" && config.CallbackStore == nil:
		return nil, errors.New("agent: callbacks need a store")
	}
	client := http.Client{Transport: http.DefaultTransport}
	if config.Client != nil {
		client = *config.Client
	}
	// A redirect could send a signed task to another host than the operator's.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	config.Client = &client
	return &HTTP{config}, nil
}

// Run implements Runner.
func (h *HTTP) Run(ctx context.Context, dir string, task Task) (Report, error) {
	report := Report{ExitCode: -1}
	task.Callback = ""
	document, err := task.encode()
	if err != nil {
		return report, err
	}
	id := h.Secret.messageID(document)
	if h.Callback != "" {
		task.Callback = strings.TrimSuffix(h.Callback, "/") + "/" + id
		if document, err = task.encode(); err != nil {
			return report, err
		}
	}
	if err := workspace.Check(dir); err != nil {
		return report, fmt.Errorf("agent: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, h.Timeout, errTime)
	defer cancel()
	var result []byte
	if h.Callback != "" {
		result, err = h.CallbackStore.Open(ctx, id, task.Job, task.Node)
	}
	if err == nil && result == nil {
		result, err = h.ask(ctx, id, document)
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		if _, ok := errors.AsType[*Failure](err); !ok {
			err = fmt.Errorf("agent: %w", err)
		}
		return report, err
	}
	report.Result, err = accept(dir, result, task.Panel)
	return report, err
}

// ask posts a task and returns its result. It waits for a result that is sent later.
func (h *HTTP) ask(ctx context.Context, id string, document []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL, bytes.NewReader(document))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "boxoffice")
	h.Secret.Sign(request.Header, id, h.Now(), document)
	response, err := h.Client.Do(request)
	if err != nil {
		return nil, &Failure{Kind: Unreachable, Detail: withoutURL(err), Retryable: true}
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode == http.StatusOK:
		result, complete, err := readMost(response.Body, h.MaxOutput)
		switch {
		case !complete:
			detail := fmt.Sprintf("more than %d bytes", h.MaxOutput)
			return nil, &Failure{Kind: TooMuchOutput, Detail: detail, Retryable: true}
		case err != nil:
			return nil, &Failure{Kind: Unreachable, Detail: withoutURL(err), Retryable: true}
		}
		return result, nil
	case response.StatusCode == http.StatusAccepted && h.Callback != "":
		response.Body.Close() // the result may take hours
		return h.CallbackStore.Wait(ctx, id)
	default:
		return nil, h.badStatus(response)
	}
}

// badStatus makes a failure from a response that has no result.
func (h *HTTP) badStatus(response *http.Response) *Failure {
	text, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10))
	first, _, _ := strings.Cut(strings.TrimSpace(strings.ToValidUTF8(string(text), "�")), "\n")
	failure := &Failure{Kind: BadStatus, Code: response.StatusCode, Detail: lastLine(first)}
	switch code := response.StatusCode; {
	case code == http.StatusRequestTimeout, code == http.StatusConflict, code == http.StatusTooEarly,
		code == http.StatusTooManyRequests, code >= 500 && code != http.StatusNotImplemented:
		failure.Retryable = true
		failure.RetryAfter = h.retryAfter(response.Header.Get("Retry-After"))
	case code == http.StatusAccepted:
		failure.Detail = "callbacks are not configured"
	}
	return failure
}

// retryAfter reads the seconds or the date of a Retry-After header (RFC 9110 §10.2.3), at most a day.
func (h *HTTP) retryAfter(value string) time.Duration {
	const most = 24 * time.Hour
	if seconds, err := strconv.ParseUint(value, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, most)
	}
	if date, err := http.ParseTime(value); err == nil {
		return min(max(date.Sub(h.Now()), 0), most)
	}
	return 0
}

// withoutURL returns the text of an error without the agent's URL, which may hold a key.
func withoutURL(err error) string {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err
	}
	return lastLine(err.Error())
}
