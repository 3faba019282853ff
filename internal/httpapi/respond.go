package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"boxoffice"
)

// A response is what an endpoint returns when it does not return an error. Headers
// that only some responses have are set on the exchange.
type response struct {
	status int
	body   []byte // JSON, unless a Content-Type is set; empty for 204 and 304
}

const contentType = "application/json"

// render returns a response whose body is v. HTML is not escaped, so that a prepared
// input inside v keeps its bytes.
func render(status int, v any) (response, error) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return response{}, fmt.Errorf("encode the response: %w", err)
	}
	return response{status, body.Bytes()}, nil
}

// send writes a response. Its error means that the client has closed the connection.
func (x *exchange) send(a response) error {
	header := x.Header()
	if header.Get("Cache-Control") == "" {
		header.Set("Cache-Control", "no-store")
	}
	if len(a.body) > 0 {
		if header.Get("Content-Type") == "" {
			header.Set("Content-Type", contentType)
		}
		header.Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	x.WriteHeader(a.status)
	_, err := x.Write(a.body)
	return err
}

// sendJSON renders and sends v, and flushes, so that an error says that the client
// has closed the connection.
func (x *exchange) sendJSON(status int, v any) error {
	rendered, err := render(status, v)
	if err != nil {
		return err
	}
	err = x.send(rendered)
	if flushed := http.NewResponseController(x).Flush(); !errors.Is(flushed, http.ErrNotSupported) {
		err = errors.Join(err, flushed)
	}
	return err
}

// refuse sends an error: a *boxoffice.Problem with the status of its code, any other
// error as 500. The cause of an error is logged and not sent.
func (x *exchange) refuse(r *http.Request, err error) {
	problem, ok := errors.AsType[*boxoffice.Problem](err)
	switch {
	case ok:
		x.cause = problem.Cause
	case r.Context().Err() != nil && errors.Is(err, context.Canceled):
		problem = &boxoffice.Problem{Code: boxoffice.TemporarilyUnavailable, Detail: "the client closed the request"}
		x.cause = err
	default:
		problem = &boxoffice.Problem{Code: boxoffice.Internal, Detail: "the service failed at request " + x.id}
		x.cause = err
	}
	x.code = problem.Code
	info := problem.Code.Info()
	if problem.RetryAfter > 0 {
		x.Header().Set("Retry-After", strconv.Itoa(problem.RetryAfter))
	}
	if strings.HasPrefix(r.URL.Path, gitPrefix) { // git shows text to its user, and no JSON
		x.Header().Set("Content-Type", "text/plain; charset=utf-8")
		x.send(response{info.Status, []byte(problem.Detail + "\n")})
		return
	}
	rendered, err := render(info.Status, problem)
	if err != nil { // a Problem holds nothing but strings
		panic(err)
	}
	x.send(rendered)
}
