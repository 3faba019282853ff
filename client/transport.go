package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"boxoffice"
	"boxoffice/x402"
)

const maxAnswerBytes = 8 << 20

// A call is a request that can be repeated without effect.
type call struct {
	method, path string
	query        url.Values
	payment      string // PAYMENT-SIGNATURE
	body         []byte // JSON; nil sends none
	free         bool   // needs no token
	accept       []int  // HTTP statuses besides 200 that are not errors
}

type answer struct {
	status     int
	header     http.Header
	body       []byte
	retryAfter time.Duration // 0 if there was no such header
	// unsure says, beside an error, that the service may have carried out the request:
	// an attempt of it ended without an answer, or with one that the service did not
	// write.
	unsure bool
}

// do sends a request, repeats it while that can help, and returns an answer that
// the call accepts. Every other answer is a *ResponseError.
func (c *Client) do(ctx context.Context, call call) (answer, error) {
	pause := backoff{next: c.retry.First, longest: c.retry.Longest}
	unsure := false
	for attempt := 1; ; attempt++ {
		got, err := c.once(ctx, call)
		if err == nil && (got.status == http.StatusOK || slices.Contains(call.accept, got.status)) {
			return got, nil
		}
		again := err != nil || transient(got.status)
		if err == nil {
			problem, written := readProblem(got)
			err = &ResponseError{call.method, call.path, got.status, problem}
			unsure = unsure || !written
		} else {
			unsure = true
		}
		wait := max(pause.step(), got.retryAfter)
		if !again || attempt >= c.retry.Attempts || got.retryAfter > c.retry.MaxRetryAfter {
			return answer{unsure: unsure}, err
		}
		switch interrupted := sleep(ctx, wait); {
		case interrupted == nil:
		case errors.Is(err, interrupted):
			return answer{unsure: unsure}, err
		default:
			return answer{unsure: unsure}, errors.Join(interrupted, err)
		}
	}
}

func transient(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

func (c *Client) once(ctx context.Context, call call) (answer, error) {
	if err := ctx.Err(); err != nil {
		return answer{}, err
	}
	target := c.base + call.path
	if len(call.query) > 0 {
		target += "?" + call.query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, call.method, target, bytes.NewReader(call.body))
	if err != nil {
		return answer{}, err
	}
	if call.payment != "" {
		request.Header.Set(x402.HeaderSignature, call.payment)
	}
	request.Header.Set("Accept", "application/json")
	if call.body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if !call.free {
		request.Header.Set("Authorization", "Bearer "+c.token.Reveal())
	}
	response, err := c.http.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes+1))
	switch {
	case err != nil:
		return answer{}, fmt.Errorf("%s %s: read the answer: %w", call.method, call.path, err)
	case len(body) > maxAnswerBytes:
		return answer{}, fmt.Errorf("%s %s: the answer is longer than %d bytes", call.method, call.path, maxAnswerBytes)
	}
	return answer{
		status:     response.StatusCode,
		header:     response.Header,
		body:       body,
		retryAfter: retryAfter(response.Header, c.now()),
	}, nil
}

// retryAfter reads both forms of the header, seconds and a date (RFC 9110 §10.2.3).
func retryAfter(header http.Header, now time.Time) time.Duration {
	value := header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if date, err := http.ParseTime(value); err == nil {
		return max(date.Sub(now), 0)
	}
	return 0
}

// readProblem reads the error body, and reports whether there was one. An answer
// without one, such as that of a proxy, becomes the problem that has its status.
func readProblem(got answer) (*boxoffice.Problem, bool) {
	problem := new(boxoffice.Problem)
	err := json.Unmarshal(got.body, problem)
	written := err == nil && problem.Code != ""
	if !written {
		problem = &boxoffice.Problem{
			Code:   codeOf(got.status),
			Detail: http.StatusText(got.status) + " without an error body",
		}
	}
	problem.RetryAfter = int(got.retryAfter / time.Second)
	return problem, written
}

func codeOf(status int) boxoffice.Code {
	if codes := boxoffice.CodesOf(status); len(codes) > 0 {
		return codes[0].Code
	}
	if status >= 500 {
		return boxoffice.TemporarilyUnavailable
	}
	return boxoffice.InvalidRequest
}

// read decodes an answer. It ignores members that this client does not know.
func read[T any](got answer) (value T, err error) {
	if err := json.Unmarshal(got.body, &value); err != nil {
		return value, fmt.Errorf("the service's answer (%d) cannot be read as %T: %w", got.status, value, err)
	}
	return value, nil
}

// backoff chooses pauses that double, each with a random part so that clients
// do not repeat their requests at the same moment.
type backoff struct{ next, longest time.Duration }

func (b *backoff) step() time.Duration {
	pause := b.next/2 + rand.N(b.next/2+1)
	b.next = min(2*b.next, b.longest)
	return pause
}

// sleep waits. It returns an error at once if ctx ends before the pause does.
func sleep(ctx context.Context, pause time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < pause {
		return context.DeadlineExceeded
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
