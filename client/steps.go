package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"boxoffice"
	"boxoffice/x402"
)

// Capabilities reads what the service sells now and how it is paid. It needs no token.
func (c *Client) Capabilities(ctx context.Context) (boxoffice.Capabilities, error) {
	got, err := c.do(ctx, call{method: http.MethodGet, path: "/requests/capabilities", free: true})
	if err != nil {
		return boxoffice.Capabilities{}, err
	}
	capabilities, err := read[boxoffice.Capabilities](got)
	return capabilities, mismatch("capabilities", err)
}

// Quote asks for a priced order. The same action, input and request key answer
// the same order, so a quote whose answer was lost is asked for again.
func (c *Client) Quote(ctx context.Context, action string, input json.RawMessage, requestKey boxoffice.UUID) (boxoffice.QuoteResponse, error) {
	if _, err := boxoffice.Canonical(input); err != nil {
		return boxoffice.QuoteResponse{}, fmt.Errorf("input: %w", err)
	}
	body, err := json.Marshal(boxoffice.QuoteRequest{Action: action, Input: input, RequestKey: requestKey})
	if err != nil {
		return boxoffice.QuoteResponse{}, fmt.Errorf("quote: %w", err)
	}
	got, err := c.do(ctx, call{method: http.MethodPost, path: "/requests/quote", body: body, accept: []int{http.StatusCreated}})
	if err != nil {
		return boxoffice.QuoteResponse{}, err
	}
	quoted, err := read[boxoffice.QuoteResponse](got)
	return quoted, mismatch("order", err)
}

// Offer is what the service asks a wallet to sign: the challenge in the body of
// its 402, and the one in the PAYMENT-REQUIRED header, which have to agree.
type Offer struct {
	Challenge boxoffice.Challenge
	Required  x402.PaymentRequired
}

// Challenge asks how an order is paid. An order that is pending or paid answers
// its status in place of an offer: exactly one of the two is not nil. An unpaid
// order whose quote has expired is a problem with code quote_expired.
func (c *Client) Challenge(ctx context.Context, id boxoffice.UUID) (*Offer, *boxoffice.Status, error) {
	got, err := c.do(ctx, call{
		method: http.MethodPost, path: submitPath(id),
		accept: []int{http.StatusAccepted, http.StatusPaymentRequired},
	})
	if err != nil {
		return nil, nil, err
	}
	if got.status != http.StatusPaymentRequired {
		status, err := read[boxoffice.Status](got)
		return nil, &status, err
	}
	var refusal boxoffice.Problem // which has the same status as a challenge
	if err := json.Unmarshal(got.body, &refusal); err == nil && refusal.Code != "" {
		return nil, nil, &ResponseError{http.MethodPost, submitPath(id), got.status, &refusal}
	}
	challenge, err := read[boxoffice.Challenge](got)
	if err != nil {
		return nil, nil, mismatch("challenge", err)
	}
	required, err := x402.DecodeRequired(got.header.Get(x402.HeaderRequired))
	if err != nil {
		return nil, nil, &MismatchError{Field: x402.HeaderRequired, Want: "cannot be read: " + err.Error()}
	}
	return &Offer{Challenge: challenge, Required: *required}, nil, nil
}

// Submit sends a signed payment. Sending the same payment again answers what
// became of it. The order may still be pending: see [Client.Wait].
func (c *Client) Submit(ctx context.Context, id boxoffice.UUID, payment SignedPayment) (boxoffice.Status, error) {
	body, err := json.Marshal(boxoffice.Submission{QuoteSignature: payment.QuoteSignature})
	if err != nil {
		return boxoffice.Status{}, fmt.Errorf("submit: %w", err)
	}
	got, err := c.do(ctx, call{
		method: http.MethodPost, path: submitPath(id), body: body,
		payment: payment.Header,
		accept:  []int{http.StatusAccepted},
	})
	if err != nil {
		return boxoffice.Status{}, err
	}
	return read[boxoffice.Status](got)
}

// Status reads an order. It changes nothing.
func (c *Client) Status(ctx context.Context, id boxoffice.UUID) (boxoffice.Status, error) {
	status, _, err := c.status(ctx, id)
	return status, err
}

func (c *Client) status(ctx context.Context, id boxoffice.UUID) (boxoffice.Status, time.Duration, error) {
	got, err := c.do(ctx, call{method: http.MethodGet, path: "/requests/" + string(id)})
	if err != nil {
		return boxoffice.Status{}, 0, err
	}
	status, err := read[boxoffice.Status](got)
	return status, got.retryAfter, err
}

// PendingError says that a payment was sent and that its outcome is not known
// yet: ctx ended while the order was pending, or the service did not answer. What
// was paid is not lost: waiting again, or buying again under the same key, goes on.
type PendingError struct {
	Status boxoffice.Status // as last seen, which may be from before the payment
	Cause  error            // of the context, or of the last request
}

func (e *PendingError) Error() string {
	if !e.Status.Status.Pending() {
		return fmt.Sprintf("whether order %s is paid is not known yet: %v", e.Status.Order.ID, e.Cause)
	}
	return fmt.Sprintf("order %s is still %s: %v", e.Status.Order.ID, e.Status.Status, e.Cause)
}

// Unwrap returns the cause.
func (e *PendingError) Unwrap() error { return e.Cause }

// Wait reads an order until it is not pending any more, with pauses that grow
// and that follow Retry-After. When ctx ends first the error is a *PendingError.
func (c *Client) Wait(ctx context.Context, id boxoffice.UUID) (boxoffice.Status, error) {
	return c.Watch(ctx, id, nil)
}

// Watch is Wait that tells seen each time it has read the order; nil tells nobody.
func (c *Client) Watch(ctx context.Context, id boxoffice.UUID, seen func(boxoffice.Status)) (boxoffice.Status, error) {
	pause := backoff{next: c.retry.First, longest: c.retry.Longest}
	var last boxoffice.Status
	for {
		status, after, err := c.status(ctx, id)
		switch {
		case err != nil && last.Status != "" && ctx.Err() != nil:
			return last, &PendingError{last, err}
		case err != nil:
			return last, err
		}
		last = status
		if seen != nil {
			seen(status)
		}
		if !status.Status.Pending() {
			return status, nil
		}
		if err := sleep(ctx, max(pause.step(), min(after, c.retry.MaxRetryAfter))); err != nil {
			return last, &PendingError{last, err}
		}
	}
}
