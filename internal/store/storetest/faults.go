package storetest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/hexutil"

	"boxoffice"
	"boxoffice/internal/order"
	"boxoffice/internal/payment"
	"boxoffice/internal/work"
)

var faultTests = map[string]func(*testing.T, Store){
	"CancelledBefore": func(t *testing.T, store Store) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		paid, intent := pay(t, store, alice, 1)
		for name, call := range map[string]func() error{
			"Create": func() error { _, _, err := store.Create(ctx, quoted(t, alice)); return err },
			"Order":  func() error { _, err := store.Order(ctx, alice, paid.ID); return err },
			"Begin":  func() error { return beginPayment(ctx, store, paying(t, paid, wallet, 2), nil) },
			"Admit":  func() error { return store.Admit(ctx, admission(t, store, paid, now), openJob(t, alice, paid.ID)) },
			"Settle": func() error { return settle(ctx, store, nil, decisions{failed(intent, true)}, now) },
			"Lease":  func() error { _, err := store.HoldLease(ctx, "settler", "a", now, now+minute); return err },
			"Slots":  func() error { _, err := store.Slots(ctx, chainID); return err },
			"Jobs":   func() error { _, err := store.Jobs(ctx, alice, work.JobQuery{Limit: 1}); return err },
		} {
			t.Run(name, func(t *testing.T) { wantError(t, call(), context.Canceled) })
		}
	},

	"SecretsStayOutOfErrors": func(t *testing.T, store Store) {
		record := create(t, store, alice)
		intent := paying(t, record, wallet, 1)
		intent.Payload = append([]byte("5ec4e7"), intent.Payload...) // not JSON
		err := beginPayment(t.Context(), store, intent, nil)
		if err == nil {
			t.Fatal("a payload that is not JSON was saved")
		}
		for _, secret := range []string{"5ec4e7", hexutil.Encode(intent.Permit.Signature), alice.String()} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the error holds %q", secret)
			}
		}
		wantStatus(t, store, record, boxoffice.Quoted)
	},

	// The context is cancelled while work is opened: nothing of it is saved, and the
	// order can be admitted afterwards.
	"CancelledInAdmit": func(t *testing.T, store Store) {
		record, _ := pay(t, store, alice, 1)
		ctx, cancel := context.WithCancel(t.Context())
		err := store.Admit(ctx, admission(t, store, record, now), func(tx work.Tx) (work.Opened, error) {
			opened, err := openJob(t, alice, record.ID)(tx)
			cancel()
			return opened, err
		})
		wantError(t, err, context.Canceled)
		jobs, err := store.Jobs(t.Context(), alice, work.JobQuery{Limit: 10})
		fatal(t, err)
		same(t, jobs, []work.Job(nil))
		fatal(t, store.Admit(t.Context(), admission(t, store, record, now), openJob(t, alice, record.ID)))
	},

	// The context ends at any moment: a write is saved completely or not at all, and
	// completely if it returned no error.
	"CancelledAnywhere": func(t *testing.T, store Store) {
		for i := range uint64(100) {
			step := time.Duration(i) * 10 * time.Microsecond
			record := create(t, store, alice)
			intent := paying(t, record, wallet, i)
			write := func(name string, do func(context.Context) error, done func(order.Record) bool) (kept bool) {
				ctx, cancel := context.WithTimeout(t.Context(), step)
				defer cancel()
				err := do(ctx)
				got, readErr := store.Order(t.Context(), alice, record.ID)
				fatal(t, readErr)
				kept = done(got)
				if err == nil && !kept || err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("%s: kept %t, error %v", name, kept, err)
				}
				return kept
			}
			begin := func(ctx context.Context) error { return beginPayment(ctx, store, intent, nil) }
			begun := write("begin", begin, func(got order.Record) bool {
				return got.Status == boxoffice.PaymentPending && got.Payment.ID == intent.ID
			})
			if !begun {
				fatal(t, begin(t.Context()))
			}
			slot := carrying(i, intent)
			send := func(ctx context.Context) error { return openSlot(ctx, store, slot) }
			opened := write("open slot", send, func(got order.Record) bool {
				slots, err := store.Slots(t.Context(), chainID)
				fatal(t, err)
				half := len(slots) > 0 && (len(slots[0].Txs) != 1 || len(slots[0].Intents) != 1)
				if half || (len(slots) == 1) != (got.Payment.State == payment.Sent) {
					t.Fatalf("half a slot: %v", slots)
				}
				return len(slots) == 1
			})
			if !opened {
				fatal(t, send(t.Context()))
			}
			settle := func(ctx context.Context) error {
				return settle(ctx, store, &slot.ID, decisions{settledBy(sent(intent, slot), transfer(i))}, now)
			}
			if !write("settle", settle, func(got order.Record) bool {
				slots, err := store.Slots(t.Context(), chainID)
				fatal(t, err)
				paid := got.Status == boxoffice.Paid
				if paid != (got.Payment.State == payment.Settled) || paid != (len(slots) == 0) {
					t.Fatalf("half settled: order %s, payment %s, %d slots", got.Status, got.Payment.State, len(slots))
				}
				return paid
			}) {
				fatal(t, settle(t.Context()))
			}
			open := openJob(t, alice, record.ID)
			admit := func(ctx context.Context) error {
				return store.Admit(ctx, admission(t, store, record, now), open)
			}
			if !write("admit", admit, func(got order.Record) bool {
				jobs, err := store.Jobs(t.Context(), alice, work.JobQuery{Limit: 1000})
				fatal(t, err)
				if opened := len(jobs) == int(i)+1; opened != (got.Admission != nil) {
					t.Fatalf("half admitted: %d jobs, admission %v", len(jobs), got.Admission)
				}
				return got.Admission != nil
			}) {
				fatal(t, admit(t.Context()))
			}
		}
	},
}
