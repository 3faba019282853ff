package storetest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"boxoffice"
	"boxoffice/internal/order"
	"boxoffice/internal/payment"
	"boxoffice/internal/work"
)

var admissionTests = map[string]func(*testing.T, Store){
	"Admit": func(t *testing.T, store Store) {
		record, _ := pay(t, store, alice, 1)
		at := now + 5*minute
		opened := work.Opened{Kind: work.KindWorkflow, ID: boxoffice.NewUUID(), JobID: boxoffice.NewUUID()}
		fatal(t, store.Admit(t.Context(), admission(t, store, record, at), func(tx work.Tx) (work.Opened, error) {
			carrier := job(alice, record.ID)
			carrier.ID = opened.JobID
			return opened, tx.InsertJob(t.Context(), carrier)
		}))
		got, err := store.Order(t.Context(), alice, record.ID)
		fatal(t, err)
		same(t, got.Admission, &order.Admission{AdmittedAt: at, Opened: opened})
		same(t, got.Status, boxoffice.Paid)
		_, err = store.Job(t.Context(), alice, opened.JobID)
		fatal(t, err)
	},

	// An order whose payment a reorganisation removed is still admitted: it is paid.
	"AdmitUndone": func(t *testing.T, store Store) {
		record, intent := begin(t, store, alice, 1)
		settled := settledBy(intent, transfer(1))
		fatal(t, settle(t.Context(), store, nil, decisions{settled}, now))
		fatal(t, settle(t.Context(), store, nil, decisions{undo(after(settled))}, now))
		unadmitted, err := store.Unadmitted(t.Context(), 10)
		fatal(t, err)
		if len(unadmitted) != 1 || unadmitted[0].ID != record.ID {
			t.Fatalf("%d orders to admit", len(unadmitted))
		}
		opened := job(alice, record.ID)
		result := work.Opened{Kind: work.KindJob, ID: opened.ID}
		fatal(t, store.Admit(t.Context(), order.Admit(&unadmitted[0], now), func(tx work.Tx) (work.Opened, error) {
			return result, tx.InsertJob(t.Context(), opened)
		}))
		got, err := store.Order(t.Context(), alice, record.ID)
		fatal(t, err)
		same(t, got.Admission, &order.Admission{AdmittedAt: now, Opened: result})
		same(t, got.Payment.State, payment.Waiting)
	},

	"AdmitOnce": func(t *testing.T, store Store) {
		record, _ := pay(t, store, alice, 1)
		var calls atomic.Int32
		if won := race(t, order.ErrStale, func(ctx context.Context, i int) error {
			return store.Admit(ctx, admission(t, store, record, now), func(tx work.Tx) (work.Opened, error) {
				calls.Add(1)
				opened := job(alice, record.ID)
				return work.Opened{Kind: work.KindJob, ID: opened.ID}, tx.InsertJob(ctx, opened)
			})
		}); won != 1 {
			t.Errorf("the order was admitted %d times", won)
		}
		jobs, err := store.Jobs(t.Context(), alice, work.JobQuery{Limit: 100})
		fatal(t, err)
		if len(jobs) != 1 || calls.Load() != 1 {
			t.Errorf("%d jobs were opened in %d calls", len(jobs), calls.Load())
		}
	},

	"AdmitStale": func(t *testing.T, store Store) {
		never := func(work.Tx) (work.Opened, error) {
			t.Error("work was opened")
			return work.Opened{}, nil
		}
		wantError(t, store.Admit(t.Context(), admission(t, store, quoted(t, alice), now), never), order.ErrStale)
		wantError(t, store.Admit(t.Context(), admission(t, store, create(t, store, alice), now), never), order.ErrStale)
		pending, intent := begin(t, store, alice, 1)
		wantError(t, store.Admit(t.Context(), admission(t, store, pending, now), never), order.ErrStale)
		fatal(t, settle(t.Context(), store, nil, decisions{failed(intent, false)}, now))
		wantError(t, store.Admit(t.Context(), admission(t, store, pending, now), never), order.ErrStale)
	},

	"OpenFails": func(t *testing.T, store Store) {
		record, _ := pay(t, store, alice, 1)
		broken := errors.New("broken")
		opened := job(alice, record.ID)
		for range 2 {
			wantError(t, store.Admit(t.Context(), admission(t, store, record, now), func(tx work.Tx) (work.Opened, error) {
				fatal(t, tx.InsertJob(t.Context(), opened))
				return work.Opened{}, broken
			}), broken)
		}
		_, err := store.Job(t.Context(), alice, opened.ID)
		wantError(t, err, work.ErrNotFound)
		unadmitted, err := store.Unadmitted(t.Context(), 10)
		fatal(t, err)
		if len(unadmitted) != 1 {
			t.Errorf("%d orders are unadmitted", len(unadmitted))
		}
	},

	"OpenPanics": func(t *testing.T, store Store) {
		record, _ := pay(t, store, alice, 1)
		func() {
			defer func() { recover() }()
			store.Admit(t.Context(), admission(t, store, record, now), func(work.Tx) (work.Opened, error) { panic("broken") })
		}()
		fatal(t, store.Admit(t.Context(), admission(t, store, record, now), openJob(t, alice, record.ID)))
	},

	"Unadmitted": func(t *testing.T, store Store) {
		var want []order.Record
		for i := range uint64(4) {
			record, intent := begin(t, store, alice, i)
			at := now - boxoffice.Timestamp(i)*minute
			fatal(t, settle(t.Context(), store, nil, decisions{settledBy(intent, transfer(i))}, at))
			want = append([]order.Record{record}, want...) // the oldest payment first
		}
		create(t, store, alice)
		begin(t, store, alice, 10)
		fatal(t, store.Admit(t.Context(), admission(t, store, want[1], now), openJob(t, alice, want[1].ID)))
		want = append(want[:1], want[2:]...)

		for _, limit := range []int{2, 10} {
			got, err := store.Unadmitted(t.Context(), limit)
			fatal(t, err)
			if len(got) != min(limit, len(want)) {
				t.Fatalf("%d orders of %d", len(got), limit)
			}
			for i, record := range got {
				whole, err := store.Order(t.Context(), alice, want[i].ID)
				fatal(t, err)
				same(t, record, whole)
			}
		}
	},
}

// openJob returns an open that creates one job.
func openJob(t testing.TB, owner boxoffice.Requester, orderID boxoffice.UUID) func(work.Tx) (work.Opened, error) {
	return func(tx work.Tx) (work.Opened, error) {
		opened := job(owner, orderID)
		return work.Opened{Kind: work.KindJob, ID: opened.ID}, tx.InsertJob(t.Context(), opened)
	}
}
