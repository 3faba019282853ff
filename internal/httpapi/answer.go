package httpapi

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"boxoffice"
)

// An answer is what an endpoint answers when it refuses nothing. Headers beside
// those that every answer has are set on the exchange.
type answer struct {
	status int
	body   []byte // JSON, unless a Content-Type is set; empty for 204 and 304
}

const contentType = "application/json"

// render returns an answer whose body is v. A prepared input inside v keeps
// its bytes, so HTML is not escaped.
func render(status int, v any) (answer, error) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return answer{}, fmt.Errorf("encode the answer: %w", err)
	}
	return answer{status, body.Bytes()}, nil
}

// An exchange is a request's way through the door: it writes the answer and
// remembers what the log will say. It never keeps a header or a body.
type exchange struct {
	http.ResponseWriter
	id        string // in X-Request-Id
	started   time.Time
	status    int // 0 until the answer is sent
	bytes     int
	requester string         // the first 8 hex digits of the Requester
	code      boxoffice.Code // of the error answered
	cause     error          // of that error; for the log alone
	stack     []byte         // of a panic
}

func newExchange(w http.ResponseWriter, now time.Time) *exchange {
	var id [8]byte
	rand.Read(id[:])
	x := &exchange{ResponseWriter: w, id: hex.EncodeToString(id[:]), started: now}
	x.Header().Set("X-Content-Type-Options", "nosniff")
	x.Header().Set("X-Request-Id", x.id)
	return x
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

func (x *exchange) WriteHeader(status int) {
	x.status = status
	x.ResponseWriter.WriteHeader(status)
}

func (x *exchange) Write(data []byte) (int, error) {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	n, err := x.ResponseWriter.Write(data)
	x.bytes += n
	return n, err
}

func (x *exchange) send(a answer) {
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
	x.Write(a.body) // a client that left is told nothing
}

// unavailableAfter is when to come back, in seconds, if a part of the service
// is away and its error does not say for how long.
const unavailableAfter = 5

// refuse answers an error as the table of problem.go has it.
func (d *door) refuse(x *exchange, r *http.Request, err error) {
	problem, ok := errors.AsType[*boxoffice.Problem](err)
	switch {
	case ok:
		x.cause = problem.Cause
	case r.Context().Err() != nil && errors.Is(err, context.Canceled):
		problem = &boxoffice.Problem{Code: boxoffice.TemporarilyUnavailable, Detail: "the request was given up"}
		x.cause = err
	default:
		problem = &boxoffice.Problem{Code: boxoffice.Internal, Detail: "request " + x.id + " met a fault of this service"}
		x.cause = err
	}
	x.code = problem.Code
	info := problem.Code.Info()
	answer, err := render(info.Status, problem)
	if err != nil { // a Problem holds strings alone
		panic(err)
	}
	retryAfter := problem.RetryAfter
	if retryAfter == 0 && info.Status == http.StatusServiceUnavailable {
		retryAfter = unavailableAfter
	}
	if retryAfter > 0 {
		x.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
	x.send(answer)
}

// recover answers a panic with 500, unless an answer was begun: that one is
// broken off, so that nobody takes it for whole.
func (d *door) recover(x *exchange, r *http.Request) {
	switch fault := recover(); {
	case fault == nil:
	case fault == http.ErrAbortHandler:
		panic(fault)
	default:
		x.stack = debug.Stack()
		x.code, x.cause = boxoffice.Internal, fmt.Errorf("panic: %v", fault)
		if x.status != 0 {
			panic(http.ErrAbortHandler)
		}
		d.refuse(x, r, x.cause)
	}
}

// log writes one record a request: its route and never its address or headers,
// since those may hold secrets.
func (d *door) log(x *exchange, r *http.Request) {
	level := slog.LevelInfo
	attrs := []slog.Attr{
		slog.String("id", x.id),
		slog.String("method", r.Method),
		slog.String("route", r.Pattern),
		slog.Int("status", x.status),
		slog.Int("bytes", x.bytes),
		slog.Duration("duration", d.Now().Sub(x.started)),
	}
	if x.requester != "" {
		attrs = append(attrs, slog.String("requester", x.requester))
	}
	if x.code != "" {
		attrs = append(attrs, slog.String("error", string(x.code)))
	}
	if x.cause != nil {
		attrs = append(attrs, slog.Any("cause", x.cause))
		if r.Context().Err() == nil {
			level = slog.LevelWarn
		}
	}
	if x.status >= http.StatusInternalServerError && x.status != http.StatusServiceUnavailable {
		level = slog.LevelError
	}
	if x.stack != nil {
		attrs = append(attrs, slog.String("stack", string(x.stack)))
	}
	d.Log.LogAttrs(r.Context(), level, "request", attrs...)
}
