package payment_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/payment"
	"boxoffice/internal/test/devchain"
)

// everyone gives the lease to each settler, as if each had lost it in its round.
type everyone struct{}

func (everyone) HoldLease(context.Context, string, string, boxoffice.Timestamp, boxoffice.Timestamp) (bool, error) {
	return true, nil
}

// Two settlers that both believe to hold the lease run their rounds at once, while
// blocks come and go and others settle. Every payment is settled once.
func TestTwoSettlers(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(s *setup) {
				s.settler.MaxBatch = 3
				s.settler.ReviewEvery = 3 * time.Second
				s.settler.BumpAfter = 6 * time.Second
			})
			w.config.Rounds.Leases = everyone{}
			w.restart()
			config := w.config
			config.Decider = payment.NewDecider(w.config.DeciderConfig)
			settlers := []*payment.Settler{w.settler, payment.NewSettler(config)}
			random := rand.New(rand.NewPCG(seed, 5))
			for step := range uint64(40) {
				intent := w.pay(random.IntN(5), step)
				var rounds sync.WaitGroup
				for _, settler := range settlers {
					rounds.Go(func() { _ = settler.Round(t.Context()) })
				}
				rounds.Wait()
				w.advance(time.Second)
				switch random.IntN(6) {
				case 0:
					_, _ = w.trySettle(devchain.PayerKey(), intent.Permit)
				case 1:
					w.dev.DropPending()
				case 2:
					if depth := 1 + random.Uint64N(2); depth < w.dev.Head().Number.Uint64() {
						w.reorg(depth)
					}
				default:
					w.mine()
				}
			}
			w.mine()
			w.finish()
			w.finish()
			w.audit()
			if paid := w.paid(); paid != len(w.orders) {
				t.Errorf("%d of %d orders are paid", paid, len(w.orders))
			}
		})
	}
}

// A settler does nothing while another one has the lease, and goes on when that
// one's lease has expired.
func TestLeaseOfAnother(t *testing.T) {
	w := newWorld(t)
	name := fmt.Sprintf("settler/%d/%s", w.config.ChainID, w.wallet.Address())
	_, err := w.store.HoldLease(t.Context(), name, "another", boxoffice.At(w.now()), boxoffice.At(w.now().Add(time.Minute)))
	w.must(err)
	w.pay(1, 1)
	w.round()
	if open := len(w.slots()); open != 0 {
		t.Errorf("%d slots were opened without the lease", open)
	}
	w.advance(time.Minute)
	w.round()
	if open := len(w.slots()); open != 1 {
		t.Errorf("%d slots are open after the lease expired", open)
	}
}
