package httpapi_test

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/httpapi"
	"boxoffice/internal/httpapi/ratelimit"
	"boxoffice/internal/work"

	"pgregory.net/rapid"
)

// unlimited is a rate that no test reaches.
var unlimited = ratelimit.Rate{PerSecond: 1e6, Burst: 1e6}

// retryAfter returns the Retry-After of a 429.
func retryAfter(t *testing.T, header http.Header) time.Duration {
	t.Helper()
	seconds, err := strconv.Atoi(header.Get("Retry-After"))
	if err != nil || seconds < 1 {
		t.Fatalf("Retry-After is %q", header.Get("Retry-After"))
	}
	return time.Duration(seconds) * time.Second
}

func TestRatePerToken(t *testing.T) {
	s := serve(t, func(c *httpapi.Config) { c.PerToken = ratelimit.Rate{PerSecond: 0.3, Burst: 3} })
	for range 3 {
		s.do("GET", "/jobs", "").wantStatus(t, http.StatusOK)
	}
	limited := s.do("GET", "/jobs", "")
	limited.wantProblem(t, boxoffice.RateLimited)
	// Another token has its own rate. Public routes have no rate of a token.
	s.do("GET", "/jobs", "", with("Authorization", "Bearer "+strings.Repeat("cd", 32))).wantStatus(t, http.StatusOK)
	s.do("GET", "/requests/capabilities", "").wantStatus(t, http.StatusOK)
	// The case of the token does not matter. A request with a wrong Origin is not counted.
	s.do("GET", "/jobs", "", with("Authorization", "bearer "+strings.ToUpper(token))).
		wantProblem(t, boxoffice.RateLimited)

	wait := retryAfter(t, limited.Header)
	s.now = s.now.Add(wait - time.Second)
	s.do("GET", "/jobs", "").wantProblem(t, boxoffice.RateLimited)
	s.now = s.now.Add(time.Second)
	s.do("GET", "/jobs", "", with("Origin", "null")).wantProblem(t, boxoffice.OriginNotAllowed)
	s.do("GET", "/jobs", "").wantStatus(t, http.StatusOK)
}

// A request of git counts for the token in its password.
func TestRateOfGit(t *testing.T) {
	served := 0
	s := serve(t, func(c *httpapi.Config) {
		c.PerToken = ratelimit.Rate{PerSecond: 0.3, Burst: 3}
		c.Git = repositories(func(w http.ResponseWriter) { served++; http.Error(w, "none", http.StatusNotFound) })
	})
	s.work.listed = []work.Job{job(0)}
	s.work.listed[0].ID = anyID
	const path = "/git/" + anyID + ".git/info/refs?service=git-upload-pack"
	basic := func(secret string) edit {
		return with("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("token:"+secret)))
	}
	s.do("GET", path, "", basic(token)).wantStatus(t, http.StatusNotFound)
	s.do("GET", path, "").wantStatus(t, http.StatusNotFound)
	s.do("GET", "/jobs", "").wantStatus(t, http.StatusOK)
	for _, limited := range []edit{
		basic(token), basic(strings.ToUpper(token)), with("Authorization", "Bearer "+token),
	} {
		retryAfter(t, s.do("GET", path, "", limited).Header)
	}
	s.do("GET", path, "", basic(strings.Repeat("cd", 32))).wantStatus(t, http.StatusNotFound)
	s.do("GET", path, "", without("Authorization")).wantStatus(t, http.StatusUnauthorized) // git asks for a password
	s.do("GET", path, "", basic("none")).wantStatus(t, http.StatusUnauthorized)
	if served != 3 {
		t.Errorf("%d requests were served", served)
	}
}

// repositories serves every request of git.
type repositories func(http.ResponseWriter)

func (f repositories) ServeGit(w http.ResponseWriter, _ *http.Request, _ boxoffice.UUID) { f(w) }

func TestRatePerAddressCoversEveryAddress(t *testing.T) {
	s := serve(t, func(c *httpapi.Config) { c.PerAddress = ratelimit.Rate{PerSecond: 0.5, Burst: 1} })
	requests := append([]struct{ method, path string }{
		{"GET", "/openapi.json"}, {"GET", "/requests/capabilities"}, {"HEAD", "/openapi.json"}, {"DELETE", "/jobs"},
		{"GET", "/nothing"},
	}, protected...)
	s.do("GET", "/openapi.json", "")
	for _, request := range requests {
		limited := s.do(request.method, request.path, "", without("Authorization"))
		limited.wantStatus(t, http.StatusTooManyRequests)
		s.now = s.now.Add(retryAfter(t, limited.Header))
		if passed := s.do(request.method, request.path, "",
			without("Authorization")); passed.StatusCode == http.StatusTooManyRequests {
			t.Errorf("%s %s: still limited after Retry-After", request.method, request.path)
		}
	}
}

// After Retry-After a request is served, whatever the two rates are.
func TestRetryAfterIsTrue(t *testing.T) {
	rate := rapid.Custom(func(rt *rapid.T) ratelimit.Rate {
		return ratelimit.Rate{PerSecond: rapid.Float64Range(0.01, 50).Draw(rt, "perSecond"),
			Burst: rapid.IntRange(1, 5).Draw(rt, "burst")}
	})
	rapid.Check(t, func(rt *rapid.T) {
		now := time.Unix(1_795_000_000, 0)
		var held storedWork
		handler := httpapi.New(httpapi.Config{
			Work: &held, BaseURL: baseURL, PerToken: rate.Draw(rt, "token"), PerAddress: rate.Draw(rt, "address"),
			Log: discard, Now: func() time.Time { return now },
		})
		for range rapid.IntRange(1, 40).Draw(rt, "requests") {
			answer := ask(handler, "192.0.2.1:1000")
			if answer.Code == http.StatusTooManyRequests {
				wait := retryAfter(t, answer.Header())
				if rapid.Bool().Draw(rt, "patient") {
					now = now.Add(wait)
					if answer := ask(handler, "192.0.2.1:1000"); answer.Code != http.StatusOK {
						rt.Fatalf("answered %d after waiting %v", answer.Code, wait)
					}
				}
				continue
			}
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(rt, "pause")))
		}
	})
}

// ask sends GET /jobs from an address.
func ask(handler http.Handler, remote string, forwarded ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequest("GET", "/jobs", nil)
	request.RemoteAddr = remote
	request.Header.Set("Authorization", "Bearer "+token)
	for _, hops := range forwarded {
		request.Header.Add("X-Forwarded-For", hops)
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder
}
