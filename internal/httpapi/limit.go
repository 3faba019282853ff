package httpapi

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	"boxoffice"
	"boxoffice/internal/httpapi/ratelimit"

	"github.com/ethereum/go-ethereum/common/lru"
)

// Rate is how many requests one token or one address may make: Burst at once,
// and PerSecond in the long run.
type Rate struct {
	PerSecond float64
	Burst     int
}

// The rates of a service that configures none. Many requesters can share an
// address, so it gets more than a token does.
var (
	DefaultPerToken   = Rate{PerSecond: 10, Burst: 40}
	DefaultPerAddress = Rate{PerSecond: 40, Burst: 160}
)

func (r Rate) or(otherwise Rate) Rate {
	if r == (Rate{}) {
		return otherwise
	}
	return r
}

// limiterKeys bounds the memory of a limiter, to some 10 MB. When more keys than
// that are in use at once, the one that was idle longest starts anew: memory is
// held at the cost of letting requests through, never of refusing them.
const limiterKeys = 1 << 16

// A limiter holds each key to a rate with the generic cell rate algorithm: a
// key's due is the moment at which it will have used up nothing, each request
// moves it by one interval, and it may lie ahead by what the burst allows. A
// key that is due is as good as one that was never seen.
type limiter[K comparable] struct {
	interval time.Duration
	ahead    time.Duration

	mu  sync.Mutex
	due lru.BasicLRU[K, time.Time]
}

func newLimiter[K comparable](rate Rate) *limiter[K] {
	interval := max(time.Duration(float64(time.Second)/rate.PerSecond), 1)
	return &limiter[K]{
		interval: interval,
		ahead:    time.Duration(max(rate.Burst, 1)-1) * interval,
		due:      lru.NewBasicLRU[K, time.Time](limiterKeys),
	}
}

// take counts a request of key. If key has to wait first, nothing is counted
// and take returns for how long.
func (l *limiter[K]) take(key K, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	due, _ := l.due.Get(key)
	if due.Before(now) {
		due = now
	}
	if wait := due.Sub(now) - l.ahead; wait > 0 {
		return wait
	}
	l.due.Add(key, due.Add(l.interval))
	return 0
}

// wait returns how long key has to wait before its next request.
func (l *limiter[K]) wait(key K, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	due, _ := l.due.Peek(key)
	return max(due.Sub(now)-l.ahead, 0)
}

func rateLimited(wait time.Duration, of string) *boxoffice.Problem {
	return &boxoffice.Problem{
		Code:       boxoffice.RateLimited,
		Detail:     "too many requests from this " + of,
		RetryAfter: int((wait + time.Second - 1) / time.Second),
	}
}

// admitAddress counts a request of its sender's address. Whichever limit refuses
// a request, the wait it asks for is long enough for the other one too.
func (d *door) admitAddress(r *http.Request) error {
	now := d.Now()
	wait := d.addresses.take(d.sender(r), now)
	if wait == 0 {
		return nil
	}
	if token, err := bearer(r); err == nil {
		wait = max(wait, d.tokens.wait(token.Requester(), now))
	}
	return rateLimited(wait, "address")
}

// sender returns whom a request's rate counts for.
func (d *door) sender(r *http.Request) netip.Prefix { return ratelimit.SenderOf(r, d.TrustedProxies) }
