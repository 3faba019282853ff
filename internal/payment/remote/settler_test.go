package remote_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/payment"
	"boxoffice/internal/payment/remote"
	"boxoffice/x402"
)

// Without an RPC node, a payment whose call was lost stays waiting after its deadline,
// because the facilitator may have sent it. That the store fails then changes nothing.
func TestLostCallIsNotForgotten(t *testing.T) {
	w := &lostCall{clock: time.Unix(1000, 0)}
	s := remote.NewSettler(remote.SettlerConfig{
		ChainID: 1, Store: w, Decisions: w, Exposures: w, MaxInFlight: 1,
		Client: facilitator(t, func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == x402.PathSettle {
				panic(http.ErrAbortHandler)
			}
		}),
		Rounds: payment.LoopConfig{Leases: w, Now: w.now, Log: slog.New(slog.NewTextHandler(w, nil))},
	})
	for ; ; time.Sleep(time.Millisecond) {
		if err := s.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.mu.Lock()
		decided := w.decided
		_, later, failed := strings.Cut(w.log.String(), "the store did not answer")
		if failed {
			w.clock = time.Unix(2000, 0) // the deadline has passed
		}
		w.mu.Unlock()
		if decided != nil {
			t.Fatalf("it was decided as %s", decided[0].Outcome)
		}
		if strings.Contains(later, "may have settled") {
			return
		}
	}
}

// lostCall is a store with one payment. It fails from the second call on.
type lostCall struct {
	mu      sync.Mutex
	clock   time.Time
	calls   int
	decided []payment.Decision
	log     strings.Builder
}

func (w *lostCall) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clock
}

func (w *lostCall) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(line)
}

func (w *lostCall) Waiting(context.Context, uint64, int) ([]payment.Intent, error) {
	waiting := intent
	waiting.State, waiting.Permit.Deadline = payment.Waiting, x402.NewUint256(1500)
	return []payment.Intent{waiting}, nil
}

func (w *lostCall) MarkExposed(context.Context, boxoffice.UUID) (before bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls++; w.calls > 1 {
		return false, errors.New("the store is away")
	}
	return false, nil
}

func (w *lostCall) ClearExposed(context.Context, boxoffice.UUID) error { return nil }

func (w *lostCall) SaveDecisions(
	_ context.Context, _ *boxoffice.UUID, decisions []payment.Decision, _ boxoffice.Timestamp,
) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.decided = decisions
	return nil
}

func (w *lostCall) HoldLease(context.Context, string, string, boxoffice.Timestamp, boxoffice.Timestamp) (bool, error) {
	return true, nil
}
