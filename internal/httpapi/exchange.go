package httpapi

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"boxoffice"
)

// An exchange is one request and its response: it writes the response and remembers
// what the log will say. It keeps no header and no body, which may hold secrets.
type exchange struct {
	http.ResponseWriter
	id        string // in X-Request-Id
	started   time.Time
	status    int // 0 until the response is sent
	bytes     int
	requester string         // the first 8 hex digits of the Requester
	code      boxoffice.Code // of the error that was sent
	cause     error          // of that error; for the log alone
	stack     []byte         // of a panic
}

// observe returns a handler that gives every request an id, logs it, and sends 500
// when next panics.
func observe(log *slog.Logger, now func() time.Time, next func(x *exchange, r *http.Request)) http.Handler {
	return drainBody(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var id [8]byte
		rand.Read(id[:])
		x := &exchange{ResponseWriter: w, id: hex.EncodeToString(id[:]), started: now()}
		x.Header().Set("X-Content-Type-Options", "nosniff")
		x.Header().Set("X-Request-Id", x.id)
		defer func() { x.log(r, log, now().Sub(x.started)) }()
		defer x.recover(r)
		next(x, r)
	}))
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// unavailableAfter is the Retry-After of a 503, in seconds, if the endpoint does not
// say how long a part of the service is unavailable.
const unavailableAfter = "5"

func (x *exchange) WriteHeader(status int) {
	if status == http.StatusServiceUnavailable && x.Header().Get("Retry-After") == "" {
		x.Header().Set("Retry-After", unavailableAfter)
	}
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

// recover sends 500 after a panic. If the response has begun, it closes the
// connection instead, so that no client takes a part of a response for the whole.
func (x *exchange) recover(r *http.Request) {
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
		x.refuse(r, x.cause)
	}
}

// log writes one record for the request. It names the route and never the address or
// a header, since those may hold secrets.
func (x *exchange) log(r *http.Request, log *slog.Logger, duration time.Duration) {
	level := slog.LevelInfo
	attrs := []slog.Attr{
		slog.String("id", x.id),
		slog.String("method", r.Method),
		slog.String("route", r.Pattern),
		slog.Int("status", x.status),
		slog.Int("bytes", x.bytes),
		slog.Duration("duration", duration),
	}
	if x.requester != "" {
		attrs = append(attrs, slog.String("requester", x.requester))
	}
	if x.code != "" {
		attrs = append(attrs, slog.String("code", string(x.code)))
	}
	if x.cause != nil {
		attrs = append(attrs, slog.Any("err", x.cause))
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
	log.LogAttrs(r.Context(), level, "request", attrs...)
}
