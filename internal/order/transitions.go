package order

import (
	"context"
	"fmt"

	"boxoffice"
	"boxoffice/internal/crash"
	"boxoffice/internal/payment"
)

// This file decides every state change of an order. A Store only executes it.
//
//	      quoted ─────────────▶ expired      derived from the clock when an order is read, never written
//	        │ Begin
//	        ▼        withPayment: its payment failed
//	payment_pending ─────────────▶ payment_failed
//	    │     ▲                      │     │
//	    │     └──────────────────────┘     │ withPayment: another transaction settled it
//	    │       Begin, with another payment│
//	    │ withPayment: its payment settled │
//	    ▼                                  │
//	  paid ◀───────────────────────────────┘
//	    │ Admit
//	    ▼
//	 admitted                                stored as paid with AdmittedAt
//
// A paid order stays paid: if a reorganisation removes its payment afterwards, only
// the intent changes.

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

// takesPayment reports whether another payment may be accepted for an order: it has
// none that is pending or settled.
func (r *Record) takesPayment() bool {
	return r.Status == boxoffice.Quoted || r.Status == boxoffice.PaymentFailed
}

// Begin returns the change of an order that takes a payment when its new intent is
// saved.
func Begin(record *Record, intent *payment.Intent) Change {
	return Change{record.ID, record.stage(), Stage{Status: statusWith(intent.Progress), IntentID: &intent.ID}}
}

// withPayment returns the change of an order that follows from a change of its last
// payment. changes is false if the order stays as it is, or if there is none: a
// submission pays for no order.
func withPayment(
	orderID boxoffice.UUID, paid payment.Change, at boxoffice.Timestamp,
) (change Change, changes bool) {
	change = Change{
		OrderID: orderID,
		From:    Stage{Status: statusWith(paid.From), IntentID: &paid.IntentID},
		To:      Stage{Status: statusWith(paid.To), IntentID: &paid.IntentID},
	}
	if change.To.Status == boxoffice.Paid {
		change.To.PaidAt = &at
	}
	return change, orderID != "" && change.From.Status != change.To.Status
}

// statusWith returns the status of an order whose last payment is as given.
func statusWith(last payment.Progress) boxoffice.State {
	switch {
	case last.Evidence != nil: // settled, or was settled before a reorganisation
		return boxoffice.Paid
	case last.State == payment.Failed:
		return boxoffice.PaymentFailed
	}
	return boxoffice.PaymentPending
}

// Admit returns the change of a paid order when it is admitted.
func Admit(record *Record, at boxoffice.Timestamp) Change {
	to := record.stage()
	to.AdmittedAt = &at
	return Change{record.ID, record.stage(), to}
}

// Settlement saves the decisions of settlers together with the changes of orders that
// follow from them. It implements payment.Decisions.
type Settlement struct {
	Store   SettlementStore
	Decided func() // called after decisions were saved; may be nil
}

var _ payment.Decisions = Settlement{}

// SettlementStore executes the changes of a Settlement.
type SettlementStore interface {
	// SaveChanges executes all changes in one transaction, and closes the slot if one
	// is named. It changes nothing and returns payment.ErrStale if a row is not as
	// its change needs it or if the slot would still carry an intent, and
	// payment.ErrCredited if the evidence of an intent has settled another intent.
	SaveChanges(ctx context.Context, changes Changes) error
}

// Changes are the conditional writes of one call of SaveChanges.
type Changes struct {
	Intents   []payment.Change
	Orders    []Change
	CloseSlot *boxoffice.UUID
	At        boxoffice.Timestamp
}

// SaveDecisions implements payment.Decisions. After a crash before Decided is called,
// Flow.Run or the facilitator finds the decisions by polling.
func (s Settlement) SaveDecisions(
	ctx context.Context, slotID *boxoffice.UUID, decisions []payment.Decision, at boxoffice.Timestamp,
) error {
	changes, err := changesBy(decisions, slotID, at)
	if err != nil {
		return err
	}
	if err := s.Store.SaveChanges(ctx, changes); err != nil {
		return err
	}
	crash.At(crash.DecisionsSaved)
	if s.Decided != nil {
		s.Decided()
	}
	crash.At(crash.DecisionsAnnounced)
	return nil
}

// changesBy returns the conditional writes for the decisions of a settler.
func changesBy(decisions []payment.Decision, slotID *boxoffice.UUID, at boxoffice.Timestamp) (Changes, error) {
	changes := Changes{CloseSlot: slotID, At: at}
	for _, decision := range decisions {
		paid, err := decision.Change()
		if err != nil {
			return Changes{}, err
		}
		if slot := paid.From.SlotID; slot != nil && (slotID == nil || *slotID != *slot) {
			return Changes{}, fmt.Errorf("order: intent %s is decided, but its slot is not closed", paid.IntentID)
		}
		changes.Intents = append(changes.Intents, paid)
		if order, changed := withPayment(decision.Intent.OrderID, paid, at); changed {
			changes.Orders = append(changes.Orders, order)
		}
	}
	return changes, nil
}
