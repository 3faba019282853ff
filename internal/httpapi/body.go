package httpapi

import (
	"errors"
	"io"
	"net/http"
	"strings"

	"boxoffice"
	"boxoffice/internal/strictjson"
)

// A request is one that passed every check of a protected route.
type request struct {
	*http.Request
	reply     http.Header // of the response, whatever it will be
	requester boxoffice.Requester
	body      []byte // at most boxoffice.MaxBodyBytes; empty if none was sent
}

var errBodyTooLarge = &boxoffice.Problem{Code: boxoffice.BodyTooLarge, Detail: "the body exceeds 16 KiB"}

// readBody returns the body. A Content-Length above the limit is refused before
// anything is read, so that a client that waits for 100 Continue sends nothing in
// vain. The Content-Type is not checked: curl and fetch send no JSON type by default,
// and the body has to be JSON all the same.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength > boxoffice.MaxBodyBytes {
		return nil, errBodyTooLarge
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, boxoffice.MaxBodyBytes))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, errBodyTooLarge
	}
	if err != nil {
		return nil, &boxoffice.Problem{Code: boxoffice.InvalidRequest, Detail: "the body is incomplete", Cause: err}
	}
	if len(body) == 0 {
		return nil, nil
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return nil, invalid("Content-Encoding", "must be absent: send the JSON itself")
	}
	return body, nil
}

// decode reads the body strictly into v.
func (r request) decode(v any) error {
	err := strictjson.Decode(r.body, v)
	if field, ok := errors.AsType[*strictjson.Error](err); ok {
		return invalid(field.Pointer, field.Message)
	}
	return err
}

// id returns the path parameter {id}.
func (r request) id() (boxoffice.UUID, error) {
	id, err := boxoffice.ParseUUID(r.PathValue("id"))
	if err != nil {
		return "", invalid("{id}", err.Error())
	}
	return id, nil
}

// invalid returns a 400 that names one place of the request. The place is a JSON
// Pointer into the body, {name} for a path parameter, ?name for a query parameter, or
// the name of a header.
func invalid(place, message string) *boxoffice.Problem {
	subject := place
	if place == "" {
		subject = "the body"
	}
	return &boxoffice.Problem{
		Code:     boxoffice.InvalidRequest,
		Detail:   subject + " " + message,
		Problems: []boxoffice.FieldProblem{{Path: place, Message: message}},
	}
}
