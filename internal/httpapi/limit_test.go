package httpapi_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/httpapi"

	"pgregory.net/rapid"
)

// boundless is a rate that no test reaches.
var boundless = httpapi.Rate{PerSecond: 1e6, Burst: 1e6}

// retryAfter returns how long a 429 asks to wait.
func retryAfter(t *testing.T, header http.Header) time.Duration {
	t.Helper()
	seconds, err := strconv.Atoi(header.Get("Retry-After"))
	if err != nil || seconds < 1 {
		t.Fatalf("Retry-After is %q", header.Get("Retry-After"))
	}
	return time.Duration(seconds) * time.Second
}

func TestRatePerToken(t *testing.T) {
	s := serve(t, func(c *httpapi.Config) { c.PerToken = httpapi.Rate{PerSecond: 0.3, Burst: 3} })
	for range 3 {
		s.do("GET", "/jobs", "").wantStatus(t, http.StatusOK)
	}
	limited := s.do("GET", "/jobs", "")
	limited.wantProblem(t, boxoffice.RateLimited)
	// Another token has its own rate, and the free routes have none.
	s.do("GET", "/jobs", "", with("Authorization", "Bearer "+strings.Repeat("cd", 32))).wantStatus(t, http.StatusOK)
	s.do("GET", "/requests/capabilities", "").wantStatus(t, http.StatusOK)
	// The token counts in either case, and a request that fails for its Origin does not.
	s.do("GET", "/jobs", "", with("Authorization", "bearer "+strings.ToUpper(token))).wantProblem(t, boxoffice.RateLimited)

	wait := retryAfter(t, limited.Header)
	s.now = s.now.Add(wait - time.Second)
	s.do("GET", "/jobs", "").wantProblem(t, boxoffice.RateLimited)
	s.now = s.now.Add(time.Second)
	s.do("GET", "/jobs", "", with("Origin", "null")).wantProblem(t, boxoffice.OriginNotAllowed)
	s.do("GET", "/jobs", "").wantStatus(t, http.StatusOK)
}

// A clone counts against the rate of its token, which is its password.
func TestRateOfGit(t *testing.T) {
	served := 0
	s := serve(t, func(c *httpapi.Config) {
		c.PerToken = httpapi.Rate{PerSecond: 0.3, Burst: 3}
		c.Git = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { served++; http.Error(w, "none", http.StatusNotFound) })
	})
	const path = "/git/a.git/info/refs?service=git-upload-pack"
	basic := func(secret string) edit {
		return with("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("token:"+secret)))
	}
	s.do("GET", path, "", basic(token)).wantStatus(t, http.StatusNotFound)
	s.do("GET", path, "").wantStatus(t, http.StatusNotFound)
	s.do("GET", "/jobs", "").wantStatus(t, http.StatusOK)
	for _, limited := range []edit{basic(token), basic(strings.ToUpper(token)), with("Authorization", "Bearer "+token)} {
		retryAfter(t, s.do("GET", path, "", limited).Header)
	}
	s.do("GET", path, "", basic(strings.Repeat("cd", 32))).wantStatus(t, http.StatusNotFound)
	s.do("GET", path, "", without("Authorization")).wantStatus(t, http.StatusNotFound) // the handler asks for a password
	s.do("GET", path, "", basic("none")).wantStatus(t, http.StatusNotFound)
	if served != 5 {
		t.Errorf("%d requests were served", served)
	}
}

func TestRatePerAddressCoversEveryAddress(t *testing.T) {
	s := serve(t, func(c *httpapi.Config) { c.PerAddress = httpapi.Rate{PerSecond: 0.5, Burst: 1} })
	requests := append([]struct{ method, path string }{
		{"GET", "/openapi.json"}, {"GET", "/requests/capabilities"}, {"HEAD", "/openapi.json"}, {"DELETE", "/jobs"}, {"GET", "/nothing"},
	}, protected...)
	s.do("GET", "/openapi.json", "")
	for _, request := range requests {
		limited := s.do(request.method, request.path, "", without("Authorization"))
		limited.wantStatus(t, http.StatusTooManyRequests)
		s.now = s.now.Add(retryAfter(t, limited.Header))
		if passed := s.do(request.method, request.path, "", without("Authorization")); passed.StatusCode == http.StatusTooManyRequests {
			t.Errorf("%s %s: still limited after Retry-After", request.method, request.path)
		}
	}
}

// Whatever the two rates are, waiting as long as a 429 says is enough.
func TestRetryAfterIsTrue(t *testing.T) {
	rate := rapid.Custom(func(rt *rapid.T) httpapi.Rate {
		return httpapi.Rate{PerSecond: rapid.Float64Range(0.01, 50).Draw(rt, "perSecond"), Burst: rapid.IntRange(0, 5).Draw(rt, "burst")}
	})
	rapid.Check(t, func(rt *rapid.T) {
		now := time.Unix(1_795_000_000, 0)
		var held shelf
		door := httpapi.New(httpapi.Config{
			Work: &held, BaseURL: baseURL, PerToken: rate.Draw(rt, "token"), PerAddress: rate.Draw(rt, "address"),
			Log: discard, Now: func() time.Time { return now },
		})
		for range rapid.IntRange(1, 40).Draw(rt, "requests") {
			answer := ask(door, "192.0.2.1:1000")
			if answer.Code == http.StatusTooManyRequests {
				wait := retryAfter(t, answer.Header())
				if rapid.Bool().Draw(rt, "patient") {
					now = now.Add(wait)
					if answer := ask(door, "192.0.2.1:1000"); answer.Code != http.StatusOK {
						rt.Fatalf("answered %d after waiting %v", answer.Code, wait)
					}
				}
				continue
			}
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(rt, "pause")))
		}
	})
}

// In the long run no key gets more than its rate and its burst.
func TestRateHolds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		now := time.Unix(1_795_000_000, 0)
		started := now
		rate := httpapi.Rate{PerSecond: rapid.Float64Range(0.1, 20).Draw(rt, "perSecond"), Burst: rapid.IntRange(1, 10).Draw(rt, "burst")}
		var held shelf
		door := httpapi.New(httpapi.Config{Work: &held, BaseURL: baseURL, PerAddress: rate, PerToken: boundless,
			Log: discard, Now: func() time.Time { return now }})
		passed := 0
		for range 60 {
			if ask(door, "192.0.2.1:1000").Code == http.StatusOK {
				passed++
			}
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(rt, "pause")))
		}
		most := float64(rate.Burst) + now.Sub(started).Seconds()*rate.PerSecond
		if float64(passed) > most+1e-6 {
			rt.Fatalf("%d requests passed, at most %f should", passed, most)
		}
	})
}

// TestSender finds out whom requests count for by using up a burst of one.
func TestSender(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	for name, test := range map[string]struct {
		first, second   string
		forwarded       []string // on the first request
		forwardedSecond []string
		same            bool
	}{
		"same address":           {first: "192.0.2.1:1", second: "192.0.2.1:2", same: true},
		"other address":          {first: "192.0.2.1:1", second: "192.0.2.2:1"},
		"same /64":               {first: "[2001:db8::1]:1", second: "[2001:db8::ffff]:1", same: true},
		"other /64":              {first: "[2001:db8::1]:1", second: "[2001:db8:0:1::1]:1"},
		"mapped":                 {first: "[::ffff:192.0.2.1]:1", second: "192.0.2.1:1", same: true},
		"mapped, others":         {first: "[::ffff:192.0.2.1]:1", second: "[::ffff:192.0.2.2]:1"},
		"with a zone":            {first: "[fe80::1%eth0]:1", second: "[fe80::1%eth1]:1", same: true},
		"no address":             {first: "@", second: "", same: true},
		"untrusted forwarder":    {first: "192.0.2.1:1", forwarded: []string{"198.51.100.1"}, second: "192.0.2.1:1", forwardedSecond: []string{"198.51.100.2"}, same: true},
		"trusted forwarder":      {first: "10.0.0.1:1", forwarded: []string{"198.51.100.1"}, second: "10.0.0.2:1", forwardedSecond: []string{"198.51.100.1:77"}, same: true},
		"trusted, others":        {first: "10.0.0.1:1", forwarded: []string{"198.51.100.1"}, second: "10.0.0.1:1", forwardedSecond: []string{"198.51.100.2"}},
		"what the client wrote":  {first: "10.0.0.1:1", forwarded: []string{"1.1.1.1, 198.51.100.1"}, second: "10.0.0.1:1", forwardedSecond: []string{"2.2.2.2", "198.51.100.1"}, same: true},
		"two trusted forwarders": {first: "10.0.0.1:1", forwarded: []string{"198.51.100.1, 10.9.9.9"}, second: "[::1]:1", forwardedSecond: []string{" 198.51.100.1"}, same: true},
		"not an address":         {first: "10.0.0.1:1", forwarded: []string{"198.51.100.1, unknown"}, second: "10.0.0.1:1", same: true},
		"IPv6 in brackets":       {first: "10.0.0.1:1", forwarded: []string{"[2001:db8::1]"}, second: "10.0.0.1:1", forwardedSecond: []string{"[2001:db8::2]:4"}, same: true},
	} {
		t.Run(name, func(t *testing.T) {
			var held shelf
			door := httpapi.New(httpapi.Config{Work: &held, BaseURL: baseURL, PerAddress: httpapi.Rate{PerSecond: 1e-6, Burst: 1},
				TrustedProxies: proxies, Log: discard})
			if answer := ask(door, test.first, test.forwarded...); answer.Code != http.StatusOK {
				t.Fatalf("answered %d", answer.Code)
			}
			if limited := ask(door, test.second, test.forwardedSecond...).Code == http.StatusTooManyRequests; limited != test.same {
				t.Errorf("limited: %v, want %v", limited, test.same)
			}
		})
	}
}

// However many addresses there are, memory is bounded and nobody new is refused.
func TestManyAddresses(t *testing.T) {
	var held shelf
	door := httpapi.New(httpapi.Config{Work: &held, BaseURL: baseURL, PerAddress: httpapi.Rate{PerSecond: 1e-6, Burst: 1},
		PerToken: boundless, Log: discard})
	for n := range 1<<16 + 1 {
		address := fmt.Sprintf("10.%d.%d.%d:1", n>>16, n>>8&0xff, n&0xff)
		if code := ask(door, address).Code; code != http.StatusOK {
			t.Fatalf("%s answered %d", address, code)
		}
	}
	if code := ask(door, "10.1.0.0:1").Code; code != http.StatusTooManyRequests {
		t.Errorf("the last address is forgotten: %d", code)
	}
	if code := ask(door, "10.0.0.0:1").Code; code != http.StatusOK {
		t.Errorf("the first address is kept beyond the bound: %d", code)
	}
}

// ask asks for the jobs from an address.
func ask(door http.Handler, remote string, forwarded ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequest("GET", "/jobs", nil)
	request.RemoteAddr = remote
	request.Header.Set("Authorization", "Bearer "+token)
	for _, hops := range forwarded {
		request.Header.Add("X-Forwarded-For", hops)
	}
	recorder := httptest.NewRecorder()
	door.ServeHTTP(recorder, request)
	return recorder
}
