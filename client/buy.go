package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"boxoffice"
	"boxoffice/x402"
)

// Purchase is what to buy and for how much at most.
type Purchase struct {
	// Input is what is bought, such as a boxoffice.JobOpen. Pay and Sign compare
	// nothing with a nil one.
	Input boxoffice.Input
	// RequestKey names the purchase. A caller that keeps it can buy again with it
	// after a crash, and pays once. Buy replaces an empty one by a fresh one.
	RequestKey boxoffice.UUID
	// Max is the most to pay in all, in atomic token units: see boxoffice.ParseUnits.
	// The client refuses a quote above it. A service that falsely refuses the first
	// payment because of its nonce can settle both that one and its replacement.
	Max boxoffice.Amount
	// AcceptInput compares the input that was asked for with the prepared one, which
	// the service prices and acts on. An error refuses to sign. Nil is SameInput.
	AcceptInput func(asked, prepared json.RawMessage) error
	// Confirm is called with what will be signed, after all checks. An error refuses
	// to sign. Nil confirms. It is not called for a payment that was signed before,
	// nor a second time for the same order in one call.
	Confirm func(context.Context, boxoffice.Challenge) error
}

// attempt is one attempt to pay for an order.
type attempt struct {
	Purchase
	asked        json.RawMessage // the Input; nil if there is none
	action       string          // of the Input
	capabilities boxoffice.Capabilities
	order        boxoffice.Order // as the service answered it
	// created says that the quote is new. A new quote has the terms of the
	// capabilities; an older one keeps those it was issued with (docs/protocol.md §9).
	created bool
}

func (c *Client) newAttempt(ctx context.Context, purchase Purchase) (*attempt, error) {
	a := &attempt{Purchase: purchase}
	if purchase.Input != nil {
		var err error
		a.action = purchase.Input.ActionName()
		if a.asked, err = inputJSON(purchase.Input); err != nil {
			return nil, err
		}
	}
	var err error
	a.capabilities, err = c.Capabilities(ctx)
	return a, err
}

// status is the order as the attempt knows it, to return beside an error.
func (a *attempt) status() boxoffice.Status {
	return boxoffice.Status{Status: a.order.Status, Order: a.order}
}

// Buy quotes, checks, signs, submits and waits until the order is admitted
// (docs/protocol.md §1.2). It returns the order as last seen, also beside an error.
// OutcomeOf says what the error means for the money: it is a *MismatchError or
// *ShortfallError before anything was signed, a *ResponseError of the service, a
// *PaymentError, or a *PendingError when the outcome is not known yet.
//
// Buying again with the same RequestKey and Input continues an earlier Buy that
// was interrupted.
func (c *Client) Buy(ctx context.Context, purchase Purchase) (boxoffice.Status, error) {
	if purchase.Input == nil {
		return boxoffice.Status{}, errors.New("the purchase has no input")
	}
	purchase.RequestKey = cmp.Or(purchase.RequestKey, boxoffice.NewUUID())
	a, err := c.newAttempt(ctx, purchase)
	if err != nil {
		return boxoffice.Status{}, err
	}
	if err := c.checkCapabilities(&a.capabilities); err != nil {
		return boxoffice.Status{}, err
	}
	quoted, err := c.Quote(ctx, purchase.Input, purchase.RequestKey)
	if err != nil {
		return boxoffice.Status{}, err
	}
	a.order, a.created = quoted.Order, quoted.Created
	return c.pay(ctx, a)
}

// Pay pays for an order that exists and waits, as Buy does. It compares the
// purchase's Input and RequestKey with the order unless they are empty; it always
// compares Max. Without a RequestKey it takes the order's, as the service says it. A
// vault signs for an order under one request key only, so no other one pays it again.
func (c *Client) Pay(ctx context.Context, id boxoffice.UUID, purchase Purchase) (boxoffice.Status, error) {
	a, err := c.existing(ctx, id, purchase)
	if err != nil {
		return boxoffice.Status{}, err
	}
	return c.pay(ctx, a)
}

// Sign returns the signed payment for an order that exists, after the checks of
// Pay, and sends nothing. The vault has it before Sign returns. For an order that
// was signed before it returns the same payment while that can still settle.
// An order that is pending or paid is an error.
func (c *Client) Sign(ctx context.Context, id boxoffice.UUID, purchase Purchase) (SignedPayment, error) {
	a, err := c.existing(ctx, id, purchase)
	if err != nil {
		return SignedPayment{}, err
	}
	if err := a.checkIdentity(); err != nil {
		return SignedPayment{}, err
	}
	signed, err := c.signed(ctx, a)
	if err == nil && signed.status != nil {
		err = fmt.Errorf("order %s is %s: there is nothing to sign", id, signed.status.Status)
	}
	return signed.payment, err
}

func (c *Client) existing(ctx context.Context, id boxoffice.UUID, purchase Purchase) (*attempt, error) {
	a, err := c.newAttempt(ctx, purchase)
	if err != nil {
		return nil, err
	}
	status, err := c.Status(ctx, id)
	if err != nil {
		return nil, err
	}
	a.order = status.Order
	return a, same("order/id", id, status.Order.ID)
}

func (c *Client) pay(ctx context.Context, a *attempt) (boxoffice.Status, error) {
	if err := a.checkIdentity(); err != nil {
		return boxoffice.Status{}, err
	}
	signed, err := c.signed(ctx, a)
	switch {
	case err != nil:
		return a.status(), err
	case signed.status != nil:
		return c.settle(ctx, a, SignedPayment{})
	}
	return c.send(ctx, a, signed)
}

// send submits a payment, and another one in its place where afterConflict says so.
func (c *Client) send(ctx context.Context, a *attempt, signed signature) (boxoffice.Status, error) {
	status, err := c.submit(ctx, a, signed.payment)
	if nonceRefused(err) {
		return c.afterConflict(ctx, a, signed, err)
	}
	return status, err
}

// signature is what signed found: a payment, or the status of an order that
// needs none because it is pending or paid.
type signature struct {
	payment SignedPayment
	first   bool // the payment is the first that was ever signed with its nonce
	status  *boxoffice.Status
}

// signed returns the payment that the vault has for an order, or signs one after
// all checks.
func (c *Client) signed(ctx context.Context, a *attempt) (signature, error) {
	if a.order.Status == boxoffice.PaymentPending || a.order.Status == boxoffice.Paid {
		status := a.status()
		return signature{status: &status}, nil
	}
	if c.signer == nil {
		return signature{}, ErrNoSigner
	}
	kept, err := c.load(ctx, c.recordName("payment", a.order.RequestKey))
	if err != nil {
		return signature{}, err
	}
	if kept != nil && kept.usable(c.now().Unix()) {
		if err := kept.match(&a.order, c.signer.Address()); err != nil {
			return signature{}, err
		}
		if a.order.Status != boxoffice.PaymentFailed {
			return signature{payment: kept.payment()}, nil
		}
		if err := c.failed(ctx, a.order.RequestKey, kept.payment()); err != nil {
			return signature{}, err
		}
	}
	offer, status, err := c.challenge(ctx, a.order.ID)
	if err != nil || status != nil {
		return signature{status: status}, err
	}
	if err := c.check(ctx, offer, a); err != nil {
		return signature{}, err
	}
	if a.Confirm != nil {
		if err := a.Confirm(ctx, offer.challenge); err != nil {
			return signature{}, fmt.Errorf("%w: %w", ErrDeclined, err)
		}
	}
	return c.sign(ctx, offer, a)
}

// submit sends a payment that the vault has, and waits for its outcome.
func (c *Client) submit(ctx context.Context, a *attempt, payment SignedPayment) (boxoffice.Status, error) {
	status, err := c.Submit(ctx, payment)
	switch {
	case is[*PendingError](err):
		return a.status(), &PendingError{a.status(), errors.Unwrap(err)}
	case err == nil && status.Status.Pending():
		return c.settle(ctx, a, payment)
	case err == nil:
		return c.outcome(ctx, a, payment, status)
	case problemOf(err).Code == boxoffice.PaymentRejected && !nonceRefused(err):
		err = errors.Join(err, c.failed(ctx, a.order.RequestKey, payment))
	}
	return a.status(), err
}

// problemOf returns the problem in an error, or an empty one.
func problemOf(err error) *boxoffice.Problem {
	if problem, ok := errors.AsType[*boxoffice.Problem](err); ok {
		return problem
	}
	return new(boxoffice.Problem)
}

// nonceRefused reports that the service refused a payment because of another
// one: of this order, or of another order with the same nonce.
func nonceRefused(err error) bool {
	problem := problemOf(err)
	return problem.Code == boxoffice.PaymentConflict ||
		problem.Code == boxoffice.PaymentRejected && problem.Reason == string(x402.ReasonNonceSpent)
}

// afterConflict decides what to do when the service refused a payment with err
// because of another one. Another process may have paid for the order: then this
// call waits for it. If the service never took a payment for the order, another
// order has the nonce, and the order is paid with a new nonce where that cannot
// pay twice. A *PendingError says that the service may have taken the payment at an
// earlier attempt: then nothing else is signed.
func (c *Client) afterConflict(
	ctx context.Context, a *attempt, refused signature, err error,
) (boxoffice.Status, error) {
	status, readErr := c.Status(ctx, a.order.ID)
	switch {
	case readErr != nil || status.Order.ID != a.order.ID:
		return a.status(), err
	case status.Status.Pending() || status.Status == boxoffice.Admitted:
		return c.settle(ctx, a, SignedPayment{})
	case is[*PendingError](err):
		return a.status(), err
	case status.Status == boxoffice.Quoted:
		other, replaceErr := c.replace(ctx, a, refused)
		if replaceErr != nil { // %v: OutcomeOf has to see the refusal alone, because a payment was signed
			return a.status(), fmt.Errorf("%w; no other payment was signed: %v", err, replaceErr)
		}
		if other != refused.payment {
			return c.send(ctx, a, signature{payment: other})
		}
	}
	if problemOf(err).Code == boxoffice.PaymentRejected {
		err = errors.Join(err, c.failed(ctx, a.order.RequestKey, refused.payment))
	}
	return a.status(), err
}

// settle waits for the outcome of a payment that was sent. Whatever keeps the
// service from telling it, the outcome is not known until then.
func (c *Client) settle(ctx context.Context, a *attempt, payment SignedPayment) (boxoffice.Status, error) {
	status, err := c.Wait(ctx, a.order.ID)
	switch {
	case is[*PendingError](err):
		return status, err
	case err != nil:
		return a.status(), &PendingError{a.status(), err}
	}
	return c.outcome(ctx, a, payment, status)
}

func (c *Client) outcome(
	ctx context.Context, a *attempt, payment SignedPayment, status boxoffice.Status,
) (boxoffice.Status, error) {
	if status.Order.ID != a.order.ID {
		err := fmt.Errorf("the service answered order %s when asked for %s", status.Order.ID, a.order.ID)
		return a.status(), &PendingError{a.status(), err}
	}
	switch status.Status {
	case boxoffice.Admitted: // with a transaction and an admission, which callers read
		if err := status.Validate(); err != nil {
			return a.status(), &PendingError{a.status(), fmt.Errorf("the service's answer contradicts itself: %w", err)}
		}
		return status, nil
	case boxoffice.PaymentFailed:
		return status, errors.Join(&PaymentError{status}, c.failed(ctx, a.order.RequestKey, payment))
	}
	return status, &PendingError{status, fmt.Errorf("the service says %s after the payment was sent", status.Status)}
}
