package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"reflect"
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

// Quote asks for a priced order. The same input and request key answer the same
// order, so a quote whose answer was lost can be asked for again.
func (c *Client) Quote(
	ctx context.Context, input boxoffice.Input, requestKey boxoffice.UUID,
) (boxoffice.QuoteResponse, error) {
	document, err := inputJSON(input)
	if err != nil {
		return boxoffice.QuoteResponse{}, err
	}
	body, err := json.Marshal(boxoffice.QuoteRequest{
		Action: input.ActionName(), Input: document, RequestKey: requestKey,
	})
	if err != nil {
		return boxoffice.QuoteResponse{}, fmt.Errorf("quote: %w", err)
	}
	got, err := c.do(ctx, call{
		method: http.MethodPost, path: "/requests/quote", body: body, accept: []int{http.StatusCreated},
	})
	if err != nil {
		return boxoffice.QuoteResponse{}, err
	}
	quoted, err := read[boxoffice.QuoteResponse](got)
	return quoted, mismatch("order", err)
}

func inputJSON(input boxoffice.Input) (json.RawMessage, error) {
	document, err := json.Marshal(input)
	if err == nil {
		_, err = boxoffice.Canonical(document)
	}
	if err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	return document, nil
}

// offer is what the service asks a wallet to sign: the challenge in the body of
// its 402, and the one in the PAYMENT-REQUIRED header, which have to agree.
type offer struct {
	challenge boxoffice.Challenge
	required  x402.PaymentRequired
}

// challenge asks how an order is paid. For an order that is pending or paid it
// returns the status in place of an offer: exactly one of the two is not nil. An
// unpaid order whose quote has expired is a problem with the code quote_expired.
func (c *Client) challenge(ctx context.Context, id boxoffice.UUID) (*offer, *boxoffice.Status, error) {
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
	return &offer{challenge, *required}, nil, nil
}

// Submit sends a signed payment. Sending the same payment again answers what
// became of it. The order may still be pending: see [Client.Wait]. The error is a
// *PendingError if the service may have taken the payment.
func (c *Client) Submit(ctx context.Context, payment SignedPayment) (boxoffice.Status, error) {
	body, err := json.Marshal(boxoffice.Submission{QuoteSignature: payment.QuoteSignature})
	if err != nil {
		return boxoffice.Status{}, fmt.Errorf("submit: %w", err)
	}
	got, err := c.do(ctx, call{
		method: http.MethodPost, path: submitPath(payment.OrderID), body: body,
		payment: payment.Header,
		accept:  []int{http.StatusAccepted},
	})
	pending := got.unsure || unanswered(err)
	var status boxoffice.Status
	if err == nil {
		status, err = read[boxoffice.Status](got)
		pending = err != nil
	}
	if pending {
		err = &PendingError{boxoffice.Status{Order: boxoffice.Order{ID: payment.OrderID}}, err}
	}
	return status, err
}

// unanswered reports that the service did not say what became of a request.
func unanswered(err error) bool {
	problem := problemOf(err)
	return err != nil && (problem.Code == boxoffice.RateLimited || problem.Code.Info().Status >= 500)
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

// Wait reads an order until it is not pending any more, and returns it as last
// read. When ctx ends first the error is a *PendingError.
func (c *Client) Wait(ctx context.Context, id boxoffice.UUID) (last boxoffice.Status, err error) {
	for last, err = range c.Watch(ctx, id) {
	}
	return last, err
}

// Watch reads an order until it is not pending any more, with pauses that grow
// and that follow Retry-After, and yields it each time it has changed. It ends
// with the first error, beside the order as last read. When ctx ends after the
// first reading the error is a *PendingError.
func (c *Client) Watch(ctx context.Context, id boxoffice.UUID) iter.Seq2[boxoffice.Status, error] {
	return func(yield func(boxoffice.Status, error) bool) {
		pause := backoff{next: c.retry.First, longest: c.retry.Longest}
		var last boxoffice.Status
		for {
			status, after, err := c.status(ctx, id)
			if err == nil {
				if !reflect.DeepEqual(status, last) && !yield(status, nil) || !status.Status.Pending() {
					return
				}
				last = status
				err = sleep(ctx, max(pause.step(), min(after, c.retry.MaxRetryAfter)))
			}
			if err != nil {
				if last.Status != "" && (ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded)) {
					err = &PendingError{last, err}
				}
				yield(last, err)
				return
			}
		}
	}
}
