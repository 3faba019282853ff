// Package storetest is the suite that every engine of the store has to pass. It uses
// a store only through the interfaces that other packages declare, and includes
// races, faults and a model with random operations.
package storetest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"boxoffice"
	"boxoffice/internal/action"
	"boxoffice/internal/facilitator"
	"boxoffice/internal/httpapi"
	"boxoffice/internal/order"
	"boxoffice/internal/payment"
	"boxoffice/internal/payment/remote"
	"boxoffice/internal/work"
	"boxoffice/internal/work/engine"
)

// Store is everything that an engine implements.
type Store interface {
	order.Store
	order.SettlementStore
	payment.Store
	payment.PendingPayments
	payment.Costs
	httpapi.Payments
	Undecided(ctx context.Context) ([]payment.Undecided, error)
	facilitator.Store
	remote.Exposures
	payment.History
	payment.Leases
	work.Store
	engine.Store
	action.Originals
}

// Open returns an empty store that lives as long as the test.
type Open func(testing.TB) Store

// Run runs the suite against the stores that open returns.
func Run(t *testing.T, open Open) {
	subjects := []struct {
		name  string
		tests map[string]func(*testing.T, Store)
	}{
		{"Orders", orderTests}, {"Payments", paymentTests}, {"Settlement", settlementTests}, {"History", historyTests},
		{"Submissions", submissionTests}, {"PaymentList", paymentListTests}, {"Admission", admissionTests},
		{"Work", workTests}, {"Running", runningTests}, {"Schedules", scheduleTests}, {"Cancellation", cancelTests},
		{"Faults", faultTests},
	}
	for _, subject := range subjects {
		t.Run(subject.name, func(t *testing.T) {
			for name, test := range subject.tests {
				t.Run(name, func(t *testing.T) { test(t, open(t)) })
			}
		})
	}
	t.Run("Model", func(t *testing.T) { testModel(t, open(t)) })
}

// racers is how many calls of a race start at once.
const racers = 20

// create saves a new order of the owner.
func create(t testing.TB, store Store, owner boxoffice.Requester) order.Record {
	t.Helper()
	record := quoted(t, owner)
	_, created, err := store.Create(t.Context(), record)
	fatal(t, err)
	if !created {
		t.Fatal("the order was not created")
	}
	return record
}

// begin saves a new order of the owner and a payment for it.
func begin(t testing.TB, store Store, owner boxoffice.Requester, nonce uint64) (order.Record, payment.Intent) {
	t.Helper()
	record := create(t, store, owner)
	intent := paying(t, record, wallet, nonce)
	fatal(t, beginPayment(t.Context(), store, intent, nil))
	return record, intent
}

// pay saves a new order of the owner that is paid.
func pay(t testing.TB, store Store, owner boxoffice.Requester, nonce uint64) (order.Record, payment.Intent) {
	t.Helper()
	record, intent := begin(t, store, owner, nonce)
	fatal(t, settle(t.Context(), store, nil, decisions{settledBy(intent, transfer(nonce))}, now+minute))
	return record, intent
}

// admit saves a new admitted order of the owner, and the work that open creates for it.
func admit(
	t testing.TB, store Store, owner boxoffice.Requester, nonce uint64,
	open func(work.Tx, work.Owner) (work.Opened, error),
) order.Record {
	t.Helper()
	record, _ := pay(t, store, owner, nonce)
	fatal(t, store.Admit(t.Context(), admission(t, store, record, now+2*minute), func(tx work.Tx) (work.Opened, error) {
		return open(tx, work.Owner{Requester: owner, Payer: wallet, OrderID: record.ID})
	}))
	return record
}

// Admit saves a new admitted order, and the work that open creates for it. It returns
// the requester. A nonce can be used once with each store.
func Admit(
	t testing.TB, store Store, nonce uint64, open func(work.Tx, work.Owner) (work.Opened, error),
) boxoffice.Requester {
	t.Helper()
	admit(t, store, alice, nonce, open)
	return alice
}

// status reads the status of an order and its last payment.
func status(t testing.TB, store Store, record order.Record) (boxoffice.State, *payment.Intent) {
	t.Helper()
	got, err := store.Order(t.Context(), record.Requester, record.ID)
	fatal(t, err)
	return got.Status, got.Payment
}

func wantStatus(t testing.TB, store Store, record order.Record, want boxoffice.State) {
	t.Helper()
	if got, _ := status(t, store, record); got != want {
		t.Errorf("the order is %s, want %s", got, want)
	}
}

// race calls do from many goroutines at once and returns how many calls succeeded.
// The others must fail with the error lost.
func race(t testing.TB, lost error, do func(ctx context.Context, i int) error) (won int) {
	t.Helper()
	errs := make([]error, racers)
	start := make(chan struct{})
	var racing sync.WaitGroup
	for i := range racers {
		racing.Go(func() {
			<-start
			errs[i] = do(t.Context(), i)
		})
	}
	close(start)
	racing.Wait()
	for _, err := range errs {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, lost):
			t.Errorf("a racer failed: %v", err)
		}
	}
	return won
}

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantError(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
}

// same compares by value.
func same(t testing.TB, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got, comparing...); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

var comparing = []cmp.Option{
	cmp.Comparer(func(a, b boxoffice.Amount) bool { return a == b }),
	cmpopts.EquateEmpty(),
}
