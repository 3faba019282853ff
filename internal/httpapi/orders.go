package httpapi

import (
	"cmp"
	"errors"
	"net/http"

	"boxoffice"
	"boxoffice/x402"
)

// quote answers POST /requests/quote (spec.md §4.3).
func (d *door) quote(c call) (answer, error) {
	var request boxoffice.QuoteRequest
	if err := c.decode(&request); err != nil {
		return answer{}, err
	}
	response, err := d.Flow.Quote(c.Context(), c.requester, request)
	if err != nil {
		return answer{}, err
	}
	status := http.StatusOK
	if response.Created {
		status = http.StatusCreated
		c.reply.Set("Location", d.BaseURL+"/requests/"+string(response.Order.ID))
	}
	return render(status, response)
}

// status answers GET /requests/{id} (spec.md §4.5).
func (d *door) status(c call) (answer, error) {
	id, err := c.id()
	if err != nil {
		return answer{}, err
	}
	status, err := d.Flow.Status(c.Context(), c.requester, id)
	if err != nil {
		return answer{}, err
	}
	return render(http.StatusOK, status)
}

// submit answers POST /requests/{id}/submit (spec.md §4.4): a payment if a
// PAYMENT-SIGNATURE header is there, even an empty one, else the challenge.
func (d *door) submit(c call) (answer, error) {
	id, err := c.id()
	if err != nil {
		return answer{}, err
	}
	if headers := c.Header.Values(x402.HeaderSignature); len(headers) > 0 {
		return d.pay(c, id, headers)
	}
	if len(c.body) > 0 {
		var empty struct{}
		if err := c.decode(&empty); err != nil {
			return answer{}, withoutPayment(err)
		}
	}
	offer, err := d.Flow.Challenge(c.Context(), c.requester, id)
	switch {
	case err != nil:
		return answer{}, err
	case offer.Challenge != nil:
		return c.challenge(offer.Challenge)
	default:
		return c.outcome(*offer.Status)
	}
}

// withoutPayment tells a client whose payment got lost on its way what to look for.
func withoutPayment(err error) error {
	if problem, ok := errors.AsType[*boxoffice.Problem](err); ok {
		problem.Detail += "; without a " + x402.HeaderSignature + " header the body must be empty or {}"
	}
	return err
}

func (c call) challenge(offer *boxoffice.Challenge) (answer, error) {
	header, err := x402.EncodeHeader(x402.PaymentRequired{
		X402Version: offer.X402Version,
		Error:       x402.HeaderSignature + " header is required",
		Resource:    &offer.Resource,
		Accepts:     offer.Accepts,
	})
	if err != nil {
		return answer{}, err
	}
	c.reply.Set(x402.HeaderRequired, header)
	return render(http.StatusPaymentRequired, offer)
}

func (d *door) pay(c call, id boxoffice.UUID, headers []string) (answer, error) {
	if len(headers) > 1 {
		return answer{}, invalidShape(&x402.ShapeError{Path: x402.HeaderSignature, Message: "must be sent once"})
	}
	payment, err := x402.ParsePayment(headers[0])
	if shape, ok := errors.AsType[*x402.ShapeError](err); ok {
		return answer{}, invalidShape(shape)
	}
	if err != nil {
		return answer{}, err
	}
	var submission boxoffice.Submission
	if len(c.body) == 0 {
		return answer{}, invalid("/quoteSignature", "is required beside "+x402.HeaderSignature)
	}
	if err := c.decode(&submission); err != nil {
		return answer{}, err
	}
	status, err := d.Flow.Pay(c.Context(), c.requester, id, payment, submission.QuoteSignature)
	if err != nil {
		return answer{}, cmp.Or(c.rejected(payment, err), err)
	}
	return c.outcome(status)
}

func invalidShape(shape *x402.ShapeError) *boxoffice.Problem {
	return &boxoffice.Problem{
		Code:     boxoffice.InvalidPaymentShape,
		Detail:   shape.Error(),
		Problems: []boxoffice.FieldProblem{{Path: shape.Pointer, Message: shape.Message}},
	}
}

// pollAfter is when to poll a pending order, in seconds.
const pollAfter = "1"

// outcome renders what a submit came to: 202 while time alone may change it.
func (c call) outcome(status boxoffice.Status) (answer, error) {
	code := http.StatusOK
	if status.Status.Pending() {
		code = http.StatusAccepted
		c.reply.Set("Retry-After", pollAfter)
	}
	if response := settlement(status.Payment); response != nil {
		if err := c.settled(response); err != nil {
			return answer{}, err
		}
	}
	return render(code, status)
}

// rejected tells x402 clients of a payment that was verified and rejected. Its
// error is that of telling them.
func (c call) rejected(payment *x402.Payment, err error) error {
	problem, ok := errors.AsType[*boxoffice.Problem](err)
	if !ok || problem.Code != boxoffice.PaymentRejected {
		return nil
	}
	response := &x402.SettleResponse{ErrorReason: problem.Reason, Payer: &payment.Payload.Payload.Authorization.From}
	if _, err := x402.ChainID(payment.Accepted.Network); err == nil { // any string can come here
		response.Network = payment.Accepted.Network
	}
	return c.settled(response)
}

func (c call) settled(response *x402.SettleResponse) error {
	header, err := x402.EncodeHeader(response)
	if err == nil {
		c.reply.Set(x402.HeaderResponse, header)
	}
	return err
}

// settlement is what x402 clients read of a payment that settled or failed; nil
// for any other.
func settlement(payment *boxoffice.PaymentStatus) *x402.SettleResponse {
	if payment == nil || payment.Status == boxoffice.PaymentStatusPending {
		return nil
	}
	response := &x402.SettleResponse{
		Success:     payment.Status == boxoffice.PaymentStatusSettled,
		ErrorReason: payment.Reason,
		Payer:       &payment.Payer,
		Network:     payment.Network,
	}
	if payment.TransactionHash != nil {
		response.Transaction = payment.TransactionHash.Hex()
	}
	if response.Success {
		response.Amount = &payment.Amount
	}
	return response
}
