package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"boxoffice"
	"boxoffice/internal/httpapi/ratelimit"
)

// protected returns an endpoint that calls next with the requester of the token
// (docs/protocol.md §5) and with the body (§8).
func (h *handler) protected(next func(request) (response, error)) endpoint {
	return func(x *exchange, r *http.Request) (response, error) {
		if err := checkOrigin(r, h.origin); err != nil {
			return response{}, err
		}
		token, err := bearerToken(r)
		if err != nil {
			x.Header().Set("WWW-Authenticate", wwwAuthenticate(err))
			return response{}, err
		}
		requester, err := h.admit(x, r, token)
		if err != nil {
			return response{}, err
		}
		body, err := readBody(x.ResponseWriter, r)
		if err != nil {
			return response{}, err
		}
		return next(request{r, x.Header(), requester, body})
	}
}

// admit counts a request of a token and returns its requester. No code behind it
// sees the token.
func (h *handler) admit(x *exchange, r *http.Request, token boxoffice.Token) (boxoffice.Requester, error) {
	requester := token.Requester()
	x.requester = requester.String()[:8]
	now := h.Now()
	if wait := h.tokens.Take(requester, now); wait > 0 {
		// The wait must be long enough for the limit of the address too.
		return requester, rateLimited(max(wait, h.addresses.Wait(ratelimit.Sender(r, h.TrustedProxies), now)), "token")
	}
	return requester, nil
}

// limitAddress counts a request of its sender's address.
func (h *handler) limitAddress(r *http.Request) error {
	now := h.Now()
	wait := h.addresses.Take(ratelimit.Sender(r, h.TrustedProxies), now)
	if wait == 0 {
		return nil
	}
	if token, err := gitToken(r); err == nil { // the wait must be long enough for the limit of the token too
		wait = max(wait, h.tokens.Wait(token.Requester(), now))
	}
	return rateLimited(wait, "address")
}

func rateLimited(wait time.Duration, of string) *boxoffice.Problem {
	return &boxoffice.Problem{
		Code:       boxoffice.RateLimited,
		Detail:     "too many requests from this " + of,
		RetryAfter: ratelimit.RetryAfter(wait),
	}
}

// checkOrigin refuses a request that a browser sends for a page of another origin
// than own, or of none (docs/protocol.md §5.3). No cross-origin access is granted: no response
// of a protected route carries a CORS header. If own is empty, every browser is refused.
func checkOrigin(r *http.Request, own string) error {
	for _, origin := range r.Header.Values("Origin") {
		if origin != own || origin == "" {
			return &boxoffice.Problem{Code: boxoffice.OriginNotAllowed,
				Detail: "the Origin header differs from the origin of this service"}
		}
	}
	return nil
}

// originOf returns the origin of an address as a browser writes it (RFC 6454 §6.2),
// or "" if it has none.
func originOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return ""
	}
	host := strings.ToLower(u.Host)
	switch u.Scheme {
	case "http":
		host = strings.TrimSuffix(host, ":80")
	case "https":
		host = strings.TrimSuffix(host, ":443")
	}
	return u.Scheme + "://" + host
}

// bearerToken returns the request token. Its error is a *boxoffice.Problem.
func bearerToken(r *http.Request) (boxoffice.Token, error) {
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

// gitToken returns the request token, which git sends as the password of HTTP Basic
// with any user name. A Bearer token is accepted too.
func gitToken(r *http.Request) (boxoffice.Token, error) {
	if _, password, basic := r.BasicAuth(); basic && len(r.Header.Values("Authorization")) == 1 {
		return boxoffice.ParseToken(password)
	}
	return bearerToken(r)
}

// wwwAuthenticate returns the WWW-Authenticate header for an error of bearerToken
// (RFC 6750 §3).
func wwwAuthenticate(err error) string {
	if problem, ok := errors.AsType[*boxoffice.Problem](err); ok && problem.Code == boxoffice.InvalidRequestToken {
		return `Bearer error="invalid_token"`
	}
	return "Bearer"
}

// hasBearer reports whether the request carries a token that the operator gave to
// its callers. The comparison takes the same time for every wrong token.
func hasBearer(r *http.Request, token string) bool {
	given, want := sha256.Sum256([]byte(r.Header.Get("Authorization"))), sha256.Sum256([]byte("Bearer "+token))
	return subtle.ConstantTimeCompare(given[:], want[:]) == 1
}
