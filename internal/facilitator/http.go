package facilitator

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"sync"

	"boxoffice/internal/httpapi/ratelimit"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common/lru"
	"golang.org/x/time/rate"
)

// DoorConfig is what a Handler needs beside a Facilitator.
type DoorConfig struct {
	Token     string  // the bearer token of those who may submit; empty: everybody
	PerSecond float64 // calls of one client address in the long run; IPv6 by /64
	Burst     int     // calls at once
	// TrustedProxies are the addresses whose X-Forwarded-For is believed.
	TrustedProxies []netip.Prefix
}

// maxRequest is how many bytes a request may have.
const maxRequest = 64 << 10

// clientsKept is how many client addresses are counted at once.
const clientsKept = 10_000

type door struct {
	*Facilitator
	DoorConfig
	mu      sync.Mutex
	clients lru.BasicLRU[netip.Prefix, *rate.Limiter]
}

// Handler returns the HTTP of a facilitator. A call's Idempotency-Key names its
// caller.
//
// What is decided about a payment is answered 200, also a no. A request that
// cannot be read is 400, with the same shape. 429 and 503 have Retry-After, and
// say nothing of the payment.
func (f *Facilitator) Handler(c DoorConfig) http.Handler {
	d := &door{Facilitator: f, DoorConfig: c, clients: lru.NewBasicLRU[netip.Prefix, *rate.Limiter](clientsKept)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+x402.PathSupported, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, f.Supported())
	})
	mux.HandleFunc("POST "+x402.PathVerify, func(w http.ResponseWriter, r *http.Request) {
		serve(w, r, func(ctx context.Context, request x402.FacilitatorRequest, caller Caller, tell func(x402.Verification) error) error {
			verification, err := f.Verify(ctx, request, caller)
			if err != nil {
				return err
			}
			return tell(verification)
		}, func(reason x402.Reason, message string) x402.Verification {
			return x402.Verification{InvalidReason: reason, InvalidMessage: message}
		}, x402.ReasonUnexpectedVerify, f)
	})
	mux.HandleFunc("POST "+x402.PathSettle, func(w http.ResponseWriter, r *http.Request) {
		serve(w, r, f.Settle, func(reason x402.Reason, message string) x402.Settlement {
			return x402.Settlement{ErrorReason: reason, ErrorMessage: message, Network: x402.Network(f.ChainID)}
		}, x402.ReasonUnexpectedSettle, f)
	})
	return d.guard(mux)
}

// serve reads a request and has do answer it, once. What do itself could not
// answer is answered here.
func serve[T any](w http.ResponseWriter, r *http.Request, do func(context.Context, x402.FacilitatorRequest, Caller, func(T) error) error,
	no func(x402.Reason, string) T, unexpected x402.Reason, f *Facilitator) {
	var request x402.FacilitatorRequest
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(&request)
	switch {
	case err != nil:
		answer(w, http.StatusBadRequest, no(x402.ReasonPayload, "the body must be JSON with x402Version, paymentPayload and paymentRequirements"))
		return
	case request.X402Version != x402.Version:
		answer(w, http.StatusBadRequest, no(x402.ReasonVersion, "x402Version must be 2"))
		return
	}
	told := false
	err = do(r.Context(), request, Named(r.Header.Get("Idempotency-Key")), func(outcome T) error {
		// The context ends with the caller's connection: a caller that has gone is not
		// told. What it says afterwards counts for nothing, since a caller may go as
		// soon as it has the answer.
		if err := r.Context().Err(); err != nil {
			return err
		}
		told = true
		return answer(w, http.StatusOK, outcome)
	})
	if err == nil || r.Context().Err() != nil {
		return
	}
	f.Log.WarnContext(r.Context(), "facilitator: a call failed", "path", r.URL.Path, "err", err)
	if !told {
		w.Header().Set("Retry-After", "2")
		answer(w, http.StatusServiceUnavailable, no(unexpected, "a part of the service did not answer; send the same request again"))
	}
}

// guard lets pass who has the token and does not ask too often.
func (d *door) guard(next http.Handler) http.Handler {
	type refusal struct {
		Error string `json:"error"`
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reservation := d.limiter(ratelimit.SenderOf(r, d.TrustedProxies)).ReserveN(d.Now(), 1)
		if wait := reservation.DelayFrom(d.Now()); wait > 0 {
			reservation.CancelAt(d.Now())
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
			answer(w, http.StatusTooManyRequests, refusal{"too many requests from this address"})
			return
		}
		if d.Token != "" && !same(r.Header.Get("Authorization"), "Bearer "+d.Token) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			answer(w, http.StatusUnauthorized, refusal{"the bearer token is missing or wrong"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

func same(given, wanted string) bool {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(wanted))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

func (d *door) limiter(client netip.Prefix) *rate.Limiter {
	d.mu.Lock()
	defer d.mu.Unlock()
	limiter, known := d.clients.Get(client)
	if !known {
		limiter = rate.NewLimiter(rate.Limit(d.PerSecond), d.Burst)
		d.clients.Add(client, limiter)
	}
	return limiter
}

// answer writes an answer out. Its error means that the caller has gone.
func answer(w http.ResponseWriter, status int, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)+1))
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, err = w.Write(append(text, '\n'))
	if flushed := http.NewResponseController(w).Flush(); !errors.Is(flushed, http.ErrNotSupported) {
		err = errors.Join(err, flushed)
	}
	return err
}
