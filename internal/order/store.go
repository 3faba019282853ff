package order

import (
	"context"
	"errors"

	"boxoffice"
	"boxoffice/internal/payment"
	"boxoffice/internal/work"
	"boxoffice/x402"
)

// Record is an order as it is stored: the part that the requester sees, and what the
// service needs to accept its payment and to admit it.
type Record struct {
	boxoffice.Order // Status is the stored one: never expired
	Requester       boxoffice.Requester
	SubmittedHash   boxoffice.Hash    // SHA-256 of the canonical input as it was submitted
	Requirements    x402.Requirements // frozen when the quote was saved
	Payment         *payment.Intent   // the last one; nil before the first
	Admission       *Admission        // nil until admitted
}

// Admission is what the admission of an order created.
type Admission struct {
	AdmittedAt boxoffice.Timestamp
	Opened     work.Opened
}

// Errors of a Store that are outcomes.
var (
	ErrNotFound    = errors.New("order: no such order")
	ErrPermitTaken = errors.New("order: the permit belongs to another order or to a submission")
	ErrStale       = payment.ErrStale
)

// Store saves orders. Every method is one transaction. An error that is not one of
// the above means that the store did not answer.
type Store interface {
	// Create saves a quoted order, unless the requester has one with the same
	// requestKey. It returns the saved order, and whether it was created now.
	Create(ctx context.Context, record Record) (saved Record, created bool, err error)
	// Order returns a requester's order, or ErrNotFound.
	Order(ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID) (Record, error)
	// OrderByKey returns a requester's order by its requestKey, or ErrNotFound.
	OrderByKey(ctx context.Context, requester boxoffice.Requester, requestKey boxoffice.UUID) (Record, error)
	// BeginPayment saves an intent and executes the change of its order. It returns
	// ErrStale if the order is not as the change needs it, and ErrPermitTaken if
	// the permit's chain, owner and nonce belong to another order or to a submission.
	BeginPayment(ctx context.Context, intent payment.Intent, change Change) error
	// Unadmitted returns the paid orders that are not admitted, oldest first.
	Unadmitted(ctx context.Context, limit int) ([]Record, error)
	// Admit executes the change of a paid order and calls open, which saves the work
	// in the same transaction. If the order is not as the change needs it, Admit does
	// not call open and returns ErrStale.
	Admit(ctx context.Context, change Change, open func(work.Tx) (work.Opened, error)) error
}
