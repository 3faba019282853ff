package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"boxoffice"
	"boxoffice/internal/order"
	"boxoffice/internal/payment"
)

// Purchase does all writes of one order, from quoted to admitted, with the n-th permit
// of a wallet. After each write that returned without an error it calls saved with a
// line that names the step.
func Purchase(t testing.TB, store Store, n uint64, saved func(line string)) {
	t.Helper()
	var (
		record = quoted(t, alice)
		intent = paying(t, record, wallet, n)
		slot   = carrying(n, intent)
		paid   = order.Stage{Status: boxoffice.Paid, IntentID: &intent.ID, PaidAt: pointer(now)}
	)
	admission := order.Change{OrderID: record.ID, From: paid, To: paid}
	admission.To.AdmittedAt = pointer(now)
	for i, write := range []func() error{
		func() error { _, _, err := store.Create(t.Context(), record); return err },
		func() error { return beginPayment(t.Context(), store, intent, nil) },
		func() error { return openSlot(t.Context(), store, slot) },
		func() error {
			return settle(t.Context(), store, &slot.ID, decisions{settledBy(sent(intent, slot), transfer(n))}, now)
		},
		func() error {
			return store.Admit(t.Context(), admission, openJob(t, alice, record.ID))
		},
	} {
		fatal(t, write())
		saved(string(record.ID) + " " + steps[i])
	}
}

// steps are the steps of a Purchase, in their order.
var steps = []string{"quoted", "waiting", "sent", "paid", "admitted"}

// Kept checks that the store has every step that a Purchase called saved for, also if
// its process was killed.
func Kept(t testing.TB, store Store, lines []string) {
	t.Helper()
	for _, line := range lines {
		id, said, _ := strings.Cut(line, " ")
		record, err := store.Order(t.Context(), alice, boxoffice.UUID(id))
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if found := step(record); slices.Index(steps, found) < slices.Index(steps, said) {
			t.Errorf("%s: the order is %s", line, found)
		}
		if record.Admission != nil {
			if _, err := store.Job(t.Context(), alice, record.Admission.Opened.ID); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
	}
}

func step(record order.Record) string {
	switch {
	case record.Admission != nil:
		return "admitted"
	case record.Payment == nil:
		return "quoted"
	case record.Payment.State == payment.Settled && record.Status == boxoffice.Paid:
		return "paid"
	}
	return fmt.Sprint(record.Payment.State)
}
