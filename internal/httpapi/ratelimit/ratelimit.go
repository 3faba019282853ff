// Package ratelimit limits how many requests each sender may make.
package ratelimit

import (
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common/lru"
	"golang.org/x/time/rate"
)

// Rate is how many requests one key may make: Burst at once, and PerSecond in the
// long run. Both are above 0.
type Rate struct {
	PerSecond float64
	Burst     int
}

// maxKeys bounds the memory of a Limiter to about 15 MB. When more keys than that
// are in use at once, the one that was idle longest is forgotten and starts with a
// full burst: a flood of keys lets requests through, it never refuses others.
const maxKeys = 1 << 16

// Limiter holds each key to the same rate. It is safe for concurrent use.
type Limiter[K comparable] struct {
	rate Rate
	mu   sync.Mutex
	keys lru.BasicLRU[K, *rate.Limiter]
}

// New returns a Limiter that has seen no key yet.
func New[K comparable](r Rate) *Limiter[K] {
	return &Limiter[K]{rate: r, keys: lru.NewBasicLRU[K, *rate.Limiter](maxKeys)}
}

// Take counts a request of key and returns 0. If the key has to wait first, Take
// counts nothing and returns for how long.
func (l *Limiter[K]) Take(key K, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	limiter, known := l.keys.Get(key)
	if !known {
		limiter = rate.NewLimiter(rate.Limit(l.rate.PerSecond), l.rate.Burst)
		l.keys.Add(key, limiter)
	}
	if limiter.AllowN(now, 1) {
		return 0
	}
	return l.untilNext(limiter, now)
}

// Wait returns how long key has to wait before its next request. It counts nothing.
func (l *Limiter[K]) Wait(key K, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	limiter, known := l.keys.Peek(key)
	if !known {
		return 0
	}
	return l.untilNext(limiter, now)
}

func (l *Limiter[K]) untilNext(limiter *rate.Limiter, now time.Time) time.Duration {
	const longest = 1e9 // seconds; a Duration holds nine times as many
	seconds := (1 - limiter.TokensAt(now)) / l.rate.PerSecond
	return time.Duration(max(0, min(seconds, longest)) * float64(time.Second))
}

// RetryAfter returns a wait in whole seconds, rounded up, as the Retry-After header
// has it.
func RetryAfter(wait time.Duration) int {
	return int((wait + time.Second - 1) / time.Second)
}
