package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"boxoffice"
)

// Purchase is what to buy and for how much at most.
type Purchase struct {
	Action string
	Input  json.RawMessage
	// RequestKey names the purchase. Whoever keeps it can buy again under it after a
	// crash, and pays once. Empty draws a fresh one.
	RequestKey boxoffice.UUID
	// Max is the most to pay in all, in atomic token units. A quote above it is refused.
	Max boxoffice.Amount
	// AcceptInput compares the input that was asked for with the one that the
	// service prepared, prices and will act on; an error refuses to sign. Nil is SameInput.
	AcceptInput func(asked, prepared json.RawMessage) error
	// Confirm sees what is about to be signed, after all checks; an error refuses to
	// sign. Nil confirms. It is not asked again for bytes that were signed before.
	Confirm func(context.Context, boxoffice.Challenge) error
}

func (p *Purchase) acceptInput(prepared json.RawMessage) error {
	if p.AcceptInput != nil {
		return p.AcceptInput(p.Input, prepared)
	}
	if p.Input == nil { // an order that is known by its id alone
		return nil
	}
	return SameInput(p.Input, prepared)
}

// PaymentError says that an order's payment failed, and why. Buying again under
// the same key signs again, with the same nonce, while the quote lives.
type PaymentError struct {
	Reason string
	Status boxoffice.Status
}

func (e *PaymentError) Error() string {
	return fmt.Sprintf("the payment of order %s failed: %s", e.Status.Order.ID, e.Reason)
}

// Buy quotes, checks, signs, submits and waits until the order is admitted
// (spec.md §1.7). It returns the order as last seen, also beside an error:
// a *MismatchError or *ShortfallError before anything was signed, a *ResponseError
// of the service, a *PaymentError, or a *PendingError when the outcome is not known yet.
//
// Buying again with the same RequestKey, action and input goes on where an
// earlier Buy was interrupted.
func (c *Client) Buy(ctx context.Context, purchase Purchase) (boxoffice.Status, error) {
	if purchase.RequestKey == "" {
		purchase.RequestKey = boxoffice.NewUUID()
	}
	capabilities, err := c.Capabilities(ctx)
	if err != nil {
		return boxoffice.Status{}, err
	}
	if err := c.checkCapabilities(&capabilities); err != nil {
		return boxoffice.Status{}, err
	}
	quoted, err := c.Quote(ctx, purchase.Action, purchase.Input, purchase.RequestKey)
	if err != nil {
		return boxoffice.Status{}, err
	}
	return c.pay(ctx, Intent{purchase, capabilities, quoted.Order, quoted.Created})
}

// Pay pays for an order that exists. An Action, Input or RequestKey in purchase
// that is empty is not compared; Max always is.
func (c *Client) Pay(ctx context.Context, id boxoffice.UUID, purchase Purchase) (boxoffice.Status, error) {
	capabilities, err := c.Capabilities(ctx)
	if err != nil {
		return boxoffice.Status{}, err
	}
	status, err := c.Status(ctx, id)
	if err != nil {
		return boxoffice.Status{}, err
	}
	if err := same("order/id", id, status.Order.ID); err != nil {
		return boxoffice.Status{}, err
	}
	return c.pay(ctx, Intent{purchase, capabilities, status.Order, false})
}

func (c *Client) pay(ctx context.Context, intent Intent) (boxoffice.Status, error) {
	order := &intent.Order
	if err := intent.checkIdentity(order); err != nil {
		return boxoffice.Status{}, err
	}
	shown := boxoffice.Status{Status: order.Status, Order: *order}
	if order.Status == boxoffice.PaymentPending || order.Status == boxoffice.Paid {
		return c.settle(ctx, &intent, SignedPayment{})
	}
	if c.signer == nil {
		return shown, ErrNoSigner
	}
	kept, err := c.load(ctx, c.recordName(order.RequestKey))
	if err != nil {
		return shown, err
	}
	if kept != nil && kept.usable(c.now().Unix()) {
		if err := kept.match(order, c.signer.Address()); err != nil {
			return shown, err
		}
		if order.Status != boxoffice.PaymentFailed {
			return c.submit(ctx, &intent, kept.signed())
		}
		if err := c.failed(ctx, order.RequestKey, kept.signed()); err != nil {
			return shown, err
		}
	}
	offer, status, err := c.Challenge(ctx, order.ID)
	switch {
	case err != nil:
		return shown, err
	case status != nil:
		return c.settle(ctx, &intent, SignedPayment{})
	}
	if err := c.Check(ctx, offer, intent); err != nil {
		return shown, err
	}
	if intent.Confirm != nil {
		if err := intent.Confirm(ctx, offer.Challenge); err != nil {
			return shown, fmt.Errorf("not confirmed: %w", err)
		}
	}
	payment, err := c.sign(ctx, offer, &intent)
	if err != nil {
		return shown, err
	}
	return c.submit(ctx, &intent, payment)
}

// submit sends a payment that the vault has, and waits for what becomes of it.
func (c *Client) submit(ctx context.Context, intent *Intent, payment SignedPayment) (boxoffice.Status, error) {
	shown := boxoffice.Status{Status: intent.Order.Status, Order: intent.Order}
	status, err := c.Submit(ctx, intent.Order.ID, payment)
	problem, _ := errors.AsType[*boxoffice.Problem](err)
	switch {
	case unanswered(err):
		return shown, &PendingError{shown, err}
	case err == nil && !status.Status.Pending():
		return c.outcome(ctx, intent, payment, status)
	case err == nil:
		return c.settle(ctx, intent, payment)
	case problem != nil && problem.Code == boxoffice.PaymentRejected:
		err = errors.Join(err, c.failed(ctx, intent.Order.RequestKey, payment))
	case problem != nil && problem.Code == boxoffice.PaymentConflict:
		// Another process may have paid for the order meanwhile.
		if status, readErr := c.Status(ctx, intent.Order.ID); readErr == nil && (status.Status.Pending() || status.Status == boxoffice.Admitted) {
			return c.settle(ctx, intent, SignedPayment{})
		}
	}
	return shown, err
}

// unanswered reports that the service did not say what became of a request.
func unanswered(err error) bool {
	problem, _ := errors.AsType[*boxoffice.Problem](err)
	return err != nil && (problem == nil || problem.Code.Info().Status >= 500)
}

func limited(err error) bool {
	problem, _ := errors.AsType[*boxoffice.Problem](err)
	return problem != nil && problem.Code == boxoffice.RateLimited
}

// settle waits for what becomes of a payment that was sent. Until the service
// says it, the outcome is not known, whatever keeps it from saying so.
func (c *Client) settle(ctx context.Context, intent *Intent, payment SignedPayment) (boxoffice.Status, error) {
	status, err := c.Wait(ctx, intent.Order.ID)
	if _, pending := errors.AsType[*PendingError](err); !pending && (unanswered(err) || limited(err)) {
		status = boxoffice.Status{Status: intent.Order.Status, Order: intent.Order}
		err = &PendingError{status, err}
	}
	if err != nil {
		return status, err
	}
	return c.outcome(ctx, intent, payment, status)
}

func (c *Client) outcome(ctx context.Context, intent *Intent, payment SignedPayment, status boxoffice.Status) (boxoffice.Status, error) {
	if status.Order.ID != intent.Order.ID {
		return status, fmt.Errorf("the service answered order %s when asked for %s", status.Order.ID, intent.Order.ID)
	}
	switch status.Status {
	case boxoffice.Admitted:
		return status, nil
	case boxoffice.PaymentFailed:
		failure := &PaymentError{Status: status, Reason: "for a reason that the service does not tell"}
		if status.Payment != nil && status.Payment.Reason != "" {
			failure.Reason = status.Payment.Reason
		}
		return status, errors.Join(failure, c.failed(ctx, intent.Order.RequestKey, payment))
	}
	return status, fmt.Errorf("order %s is %s after its payment was sent", intent.Order.ID, status.Status)
}
