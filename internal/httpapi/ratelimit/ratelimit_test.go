package ratelimit_test

import (
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"boxoffice/internal/httpapi/ratelimit"

	"pgregory.net/rapid"
)

var started = time.Unix(1_795_000_000, 0)

func drawRate(rt *rapid.T, name string) ratelimit.Rate {
	return ratelimit.Rate{
		PerSecond: rapid.Float64Range(0.01, 50).Draw(rt, name+" per second"),
		Burst:     rapid.IntRange(1, 10).Draw(rt, name+" burst"),
	}
}

// In the long run no key gets more than its burst and its rate, and a key that waits
// as long as Retry-After says is served.
func TestRateHolds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rate := drawRate(rt, "rate")
		limiter := ratelimit.New[string](rate)
		now, passed := started, 0
		for range rapid.IntRange(1, 60).Draw(rt, "requests") {
			wait := limiter.Take("key", now)
			if wait == 0 {
				passed++
			} else if rapid.Bool().Draw(rt, "patient") {
				now = now.Add(time.Duration(ratelimit.RetryAfter(wait)) * time.Second)
				if left := limiter.Wait("key", now); left != 0 {
					rt.Fatalf("Wait is %v after Retry-After", left)
				}
				if limiter.Take("key", now) != 0 {
					rt.Fatalf("refused after Retry-After, the wait was %v", wait)
				}
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

// A refused request counts nothing: the next one has to wait no longer for it.
func TestRefusedRequestsCountNothing(t *testing.T) {
	limiter := ratelimit.New[int](ratelimit.Rate{PerSecond: 0.5, Burst: 1})
	limiter.Take(1, started)
	for range 10 {
		if wait := limiter.Take(1, started); wait != 2*time.Second {
			t.Errorf("the wait is %v", wait)
		}
	}
	if limiter.Take(2, started) != 0 {
		t.Error("another key has to wait")
	}
}

// However many keys there are, memory is bounded and no new key is refused.
func TestManyKeys(t *testing.T) {
	const most = 1 << 16
	limiter := ratelimit.New[int](ratelimit.Rate{PerSecond: 1e-6, Burst: 1})
	for key := range most + 1 {
		if limiter.Take(key, started) != 0 {
			t.Fatalf("key %d is refused", key)
		}
	}
	if limiter.Take(most, started) == 0 {
		t.Error("the last key is forgotten")
	}
	if limiter.Take(0, started) != 0 {
		t.Error("the first key is kept beyond the bound")
	}
}

func TestSender(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	for name, test := range map[string]struct {
		remote    string
		forwarded []string
		want      string // "" is the zero Prefix
	}{
		"IPv4":            {remote: "192.0.2.1:1", want: "192.0.2.1/32"},
		"IPv6":            {remote: "[2001:db8:0:1::ffff]:1", want: "2001:db8:0:1::/64"},
		"IPv4 in IPv6":    {remote: "[::ffff:192.0.2.1]:1", want: "192.0.2.1/32"},
		"with a zone":     {remote: "[fe80::1%eth0]:1", want: "fe80::/64"},
		"no address":      {remote: "@"},
		"empty":           {remote: ""},
		"untrusted proxy": {remote: "192.0.2.1:1", forwarded: []string{"198.51.100.1"}, want: "192.0.2.1/32"},
		"trusted proxy":   {remote: "10.0.0.1:1", forwarded: []string{"198.51.100.1"}, want: "198.51.100.1/32"},
		"with a port":     {remote: "10.0.0.2:1", forwarded: []string{"198.51.100.1:77"}, want: "198.51.100.1/32"},
		"the client wrote the 1st": {remote: "10.0.0.1:1", forwarded: []string{"1.1.1.1, 198.51.100.1"},
			want: "198.51.100.1/32"},
		"in a header of its own": {remote: "10.0.0.1:1", forwarded: []string{"2.2.2.2", "198.51.100.1"},
			want: "198.51.100.1/32"},
		"two trusted proxies": {remote: "[::1]:1", forwarded: []string{" 198.51.100.1, 10.9.9.9"},
			want: "198.51.100.1/32"},
		"not an address": {remote: "10.0.0.1:1",
			forwarded: []string{"198.51.100.1, unknown"}, want: "10.0.0.1/32"},
		"IPv6 in brackets": {remote: "10.0.0.1:1", forwarded: []string{"[2001:db8::1]"}, want: "2001:db8::/64"},
		"in brackets with a port": {remote: "10.0.0.1:1",
			forwarded: []string{"[2001:db8::2]:4"}, want: "2001:db8::/64"},
	} {
		t.Run(name, func(t *testing.T) {
			request := httptest.NewRequest("GET", "/", nil)
			request.RemoteAddr = test.remote
			for _, hops := range test.forwarded {
				request.Header.Add("X-Forwarded-For", hops)
			}
			var want netip.Prefix
			if test.want != "" {
				want = netip.MustParsePrefix(test.want)
			}
			if got := ratelimit.Sender(request, proxies); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}
