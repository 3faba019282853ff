package httpapi

import (
	"errors"
	"io"
	"net/http"
	"strings"

	"boxoffice"
	"boxoffice/internal/strictjson"
)

// A call is a request that passed the door of a protected route.
type call struct {
	*http.Request
	reply     http.Header // of the answer, whatever it will be
	requester boxoffice.Requester
	body      []byte // at most boxoffice.MaxBodyBytes; empty if none was sent
}

// protected guards an endpoint with the checks of spec.md §5 and §8.
func (d *door) protected(next func(call) (answer, error)) endpoint {
	return func(x *exchange, r *http.Request) (answer, error) {
		if err := d.checkOrigin(r); err != nil {
			return answer{}, err
		}
		token, err := bearer(r)
		if err != nil {
			x.Header().Set("WWW-Authenticate", challengeOf(err))
			return answer{}, err
		}
		requester := token.Requester()
		x.requester = requester.String()[:8]
		if wait := d.tokens.take(requester, d.Now()); wait > 0 {
			return answer{}, rateLimited(max(wait, d.addresses.wait(d.sender(r), d.Now())), "token")
		}
		body, err := readBody(x.ResponseWriter, r)
		if err != nil {
			return answer{}, err
		}
		return next(call{r, x.Header(), requester, body})
	}
}

// git counts a request against the rate of its token. Whether the token is one,
// and whose job it is, the handler decides: git's clients want to be asked for a
// password in their own way.
func (d *door) git(w http.ResponseWriter, r *http.Request) {
	x := w.(*exchange)
	token, err := bearer(r)
	if _, password, basic := r.BasicAuth(); basic {
		token, err = boxoffice.ParseToken(password)
	}
	if err == nil {
		requester := token.Requester()
		x.requester = requester.String()[:8]
		if wait := d.tokens.take(requester, d.Now()); wait > 0 {
			d.refuse(x, r, rateLimited(max(wait, d.addresses.wait(d.sender(r), d.Now())), "token"))
			return
		}
	}
	d.Git.ServeHTTP(w, r)
}

// checkOrigin refuses what a browser sends from a page of another origin, or of
// none (spec.md §5.7). There is no cross-origin access to grant: no answer of a
// protected route carries a CORS header.
func (d *door) checkOrigin(r *http.Request) error {
	for _, origin := range r.Header.Values("Origin") {
		if origin != d.origin || origin == "" {
			return &boxoffice.Problem{Code: boxoffice.OriginNotAllowed,
				Detail: "the Origin header differs from the origin of this service"}
		}
	}
	return nil
}

// bearer returns the request token. Its error is a *boxoffice.Problem.
func bearer(r *http.Request) (boxoffice.Token, error) {
	headers := r.Header.Values("Authorization")
	if len(headers) == 0 || len(headers) == 1 && strings.TrimSpace(headers[0]) == "" {
		return boxoffice.Token{}, &boxoffice.Problem{Code: boxoffice.RequestTokenRequired,
			Detail: "send Authorization: Bearer and a random token of 64 hex characters that you keep"}
	}
	scheme, credentials, _ := strings.Cut(headers[0], " ")
	token, err := boxoffice.ParseToken(strings.Trim(credentials, " "))
	if err != nil || len(headers) > 1 || !strings.EqualFold(scheme, "Bearer") {
		return boxoffice.Token{}, &boxoffice.Problem{Code: boxoffice.InvalidRequestToken,
			Detail: "the Authorization header must be Bearer and a token of 64 hex characters"}
	}
	return token, nil
}

// challengeOf returns the WWW-Authenticate header for an error of bearer (RFC 6750 §3).
func challengeOf(err error) string {
	if problem, ok := errors.AsType[*boxoffice.Problem](err); ok && problem.Code == boxoffice.InvalidRequestToken {
		return `Bearer error="invalid_token"`
	}
	return "Bearer"
}

var errBodyTooLarge = &boxoffice.Problem{Code: boxoffice.BodyTooLarge, Detail: "the body exceeds 16 KiB"}

// readBody returns the body. An announced length is refused before anything is
// read, so that a client which waits for 100 Continue sends nothing in vain.
// Its declared type is not looked at: what curl and fetch send by default is
// no JSON type, and what was sent has to be JSON all the same.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength > boxoffice.MaxBodyBytes {
		return nil, errBodyTooLarge
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, boxoffice.MaxBodyBytes))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, errBodyTooLarge
	}
	if err != nil {
		return nil, &boxoffice.Problem{Code: boxoffice.InvalidRequest, Detail: "the body ended before its end", Cause: err}
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
func (c call) decode(v any) error {
	err := strictjson.Decode(c.body, v)
	if field, ok := errors.AsType[*strictjson.Error](err); ok {
		return invalid(field.Pointer, field.Message)
	}
	return err
}

// id returns the path parameter {id}.
func (c call) id() (boxoffice.UUID, error) {
	id, err := boxoffice.ParseUUID(c.PathValue("id"))
	if err != nil {
		return "", invalid("{id}", err.Error())
	}
	return id, nil
}

// invalid returns a 400 for one place of the request. The place is a JSON
// Pointer into the body, {name} for a path parameter, ?name for a query
// parameter, or the name of a header.
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
