package order

import (
	"context"
	"fmt"

	"boxoffice"
	"boxoffice/internal/payment"
)

// This file decides every state change of an order. A Store only executes it.
//
//	      quoted ─────────────▶ expired      derived from the clock when an order is read, never written
//	        │ Begin
//	        ▼        settle: its payment failed
//	payment_pending ─────────────▶ payment_failed
//	    │     ▲                      │     │
//	    │     └──────────────────────┘     │ settle: another transaction settled the failed payment
//	    │       Begin, with another payment│
//	    │ settle: its payment settled      │
//	    ▼                                  │
//	  paid ◀───────────────────────────────┘
//	    │ Admit
//	    ▼
//	 admitted                                paid, with AdmittedAt
//
// A paid order stays paid: what a reorganisation does to its payment afterwards
// changes the intent and not the order.

// Stage is the part of an order that changes.
type Stage struct {
	Status     boxoffice.State // never expired
	IntentID   *boxoffice.UUID // the last payment; nil before the first
	PaidAt     *boxoffice.Timestamp
	AdmittedAt *boxoffice.Timestamp
}

// Change is one conditional write: the stage of an order becomes To where it
// still is From.
type Change struct {
	OrderID  boxoffice.UUID
	From, To Stage
}

func (r *Record) stage() Stage {
	stage := Stage{Status: r.Status, PaidAt: r.PaidAt}
	if r.Payment != nil {
		stage.IntentID = &r.Payment.ID
	}
	if r.Admission != nil {
		stage.AdmittedAt = &r.Admission.AdmittedAt
	}
	return stage
}

// takesPayment reports whether an order has no payment that is pending or settled.
func (r *Record) takesPayment() bool {
	return r.Status == boxoffice.Quoted || r.Status == boxoffice.PaymentFailed
}

// Begin returns what a verified payment changes of an order that takes one.
func Begin(record *Record, intent *payment.Intent) Change {
	return Change{record.ID, record.stage(), Stage{Status: statusWith(intent.Progress), IntentID: &intent.ID}}
}

// settle returns what a change of an order's last payment changes of the order,
// false if nothing. A submission pays for no order.
func settle(orderID boxoffice.UUID, moved payment.Change, at boxoffice.Timestamp) (change Change, moves bool) {
	change = Change{
		OrderID: orderID,
		From:    Stage{Status: statusWith(moved.From), IntentID: &moved.IntentID},
		To:      Stage{Status: statusWith(moved.To), IntentID: &moved.IntentID},
	}
	if change.To.Status == boxoffice.Paid {
		change.To.PaidAt = &at
	}
	return change, orderID != "" && change.From.Status != change.To.Status
}

// statusWith returns the status of an order with its last payment.
func statusWith(last payment.Progress) boxoffice.State {
	switch {
	case last.Evidence != nil: // settled, or was settled before a reorganisation
		return boxoffice.Paid
	case last.State == payment.Failed:
		return boxoffice.PaymentFailed
	}
	return boxoffice.PaymentPending
}

// Admit returns what its admission changes of a paid order.
func Admit(record *Record, at boxoffice.Timestamp) Change {
	to := record.stage()
	to.AdmittedAt = &at
	return Change{record.ID, record.stage(), to}
}

// Settlement saves what settlers decide, with what that means for orders. It
// implements payment.Recorder.
type Settlement struct{ Store SettlementStore }

var _ payment.Recorder = Settlement{}

// SettlementStore executes what a Settlement decided.
type SettlementStore interface {
	// Settle executes all changes in one transaction, and closes the slot if one
	// is named. It returns payment.ErrStale and changes nothing if a row is not as
	// its change needs it or if the slot still carries an intent, and
	// payment.ErrCredited if the evidence of an intent is that of another.
	Settle(ctx context.Context, changes Changes) error
}

// Changes are the conditional writes of one settlement.
type Changes struct {
	Intents   []payment.Change
	Orders    []Change
	CloseSlot *boxoffice.UUID
	At        boxoffice.Timestamp
}

// Record implements payment.Recorder.
func (s Settlement) Record(
	ctx context.Context, slotID *boxoffice.UUID, decisions []payment.Decision, at boxoffice.Timestamp,
) error {
	changes, err := settlement(slotID, decisions, at)
	if err != nil {
		return err
	}
	return s.Store.Settle(ctx, changes)
}

// settlement returns the conditional writes for the decisions of a settler.
func settlement(slotID *boxoffice.UUID, decisions []payment.Decision, at boxoffice.Timestamp) (Changes, error) {
	changes := Changes{CloseSlot: slotID, At: at}
	for _, decision := range decisions {
		moved, err := decision.Change()
		if err != nil {
			return Changes{}, err
		}
		if carrier := moved.From.SlotID; carrier != nil && (slotID == nil || *slotID != *carrier) {
			return Changes{}, fmt.Errorf("order: intent %s is decided, but its slot is not closed", moved.IntentID)
		}
		changes.Intents = append(changes.Intents, moved)
		if change, moves := settle(decision.Intent.OrderID, moved, at); moves {
			changes.Orders = append(changes.Orders, change)
		}
	}
	return changes, nil
}
