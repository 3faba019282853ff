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
)

// HTTPConfig describes an agent that is reached over HTTP.
type HTTPConfig struct {
	URL       string
	Secret    Secret
	Timeout   time.Duration // from the task to its answer, at once or later
	MaxOutput int64         // bytes of the answer; 0: 1 MiB
	Callback  string        // the absolute URL in front of a callback's id, "https://host/callbacks"; "": answers come at once
	Mailbox   Mailbox       // where callbacks arrive; required with Callback
	Client    *http.Client  // nil: one of its own
	Now       func() time.Time
}

// HTTP is a Runner of an agent elsewhere. The task is posted as a Standard
// Webhook whose webhook-id is the same for the same task, so that an agent that
// is asked again after a failure of ours can answer what it answered.
//
// The agent answers 200 with an Answer, or 202 and sends it later to the task's
// callback. It has no hands in the workspace: what it makes comes as the
// answer's files. A run that was waiting when the service ended is lost with
// it; running the task again asks nobody if the Mailbox kept the answer.
type HTTP struct{ HTTPConfig }

// NewHTTP checks the configuration.
func NewHTTP(config HTTPConfig) (*HTTP, error) {
	switch target, err := url.Parse(config.URL); {
	case err != nil || target.Host == "" || target.Scheme != "https" && target.Scheme != "http":
		return nil, errors.New("agent: url: must be an absolute http or https URL")
	case len(config.Secret.key) == 0:
		return nil, errors.New("agent: secret: is required")
	case config.Timeout <= 0:
		return nil, errors.New("agent: timeout: must be positive")
	case config.Callback != "" && config.Mailbox == nil:
		return nil, errors.New("agent: callbacks need a mailbox")
	}
	if config.MaxOutput == 0 {
		config.MaxOutput = 1 << 20
	}
	client := http.Client{Transport: http.DefaultTransport}
	if config.Client != nil {
		client = *config.Client
	}
	// A signed task goes where the operator said, and nowhere else.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	config.Client = &client
	if config.Now == nil {
		config.Now = time.Now
	}
	return &HTTP{config}, nil
}

// Run implements Runner.
func (h *HTTP) Run(ctx context.Context, workspace string, task Task) (Report, error) {
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
	if err := realFolder(workspace); err != nil {
		return report, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, h.Timeout, errTime)
	defer cancel()
	var answer []byte
	if h.Callback != "" {
		answer, err = h.Mailbox.Open(ctx, id, task.Job, task.Node)
	}
	if err == nil && answer == nil {
		answer, err = h.ask(ctx, id, document)
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
	report.Answer, err = accept(workspace, answer, task.Panel)
	return report, err
}

// ask posts a task and returns its answer, whenever it comes.
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
		return nil, &Failure{Kind: Unreachable, Detail: unreachable(err), Retryable: true}
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode == http.StatusOK:
		answer, complete, err := readMost(response.Body, h.MaxOutput)
		switch {
		case !complete:
			return nil, &Failure{Kind: TooMuch, Detail: fmt.Sprintf("more than %d bytes", h.MaxOutput), Retryable: true}
		case err != nil:
			return nil, &Failure{Kind: Unreachable, Detail: unreachable(err), Retryable: true}
		}
		return answer, nil
	case response.StatusCode == http.StatusAccepted && h.Callback != "":
		response.Body.Close() // it may be hours until the answer
		return h.Mailbox.Wait(ctx, id)
	default:
		return nil, h.refused(response)
	}
}

// refused turns a response that is no answer into a failure.
func (h *HTTP) refused(response *http.Response) *Failure {
	text, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10))
	first, _, _ := strings.Cut(strings.TrimSpace(strings.ToValidUTF8(string(text), "�")), "\n")
	failure := &Failure{Kind: BadStatus, Code: response.StatusCode, Detail: line(first)}
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

// retryAfter reads the seconds or the date of a Retry-After header (RFC 9110
// §10.2.3), at most a day.
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

// unreachable leaves the URL out of an error: it may hold a key.
func unreachable(err error) string {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err
	}
	return line(err.Error())
}
