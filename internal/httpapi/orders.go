package httpapi

import (
	"cmp"
	"errors"
	"net/http"

	"boxoffice"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common/hexutil"
)

// quote serves POST /requests/quote (docs/protocol.md §4.3).
func (h *handler) quote(r request) (response, error) {
	var body boxoffice.QuoteRequest
	if err := r.decode(&body); err != nil {
		return response{}, err
	}
	quoted, err := h.Flow.Quote(r.Context(), r.requester, body)
	if err != nil {
		return response{}, err
	}
	status := http.StatusOK
	if quoted.Created {
		status = http.StatusCreated
		r.reply.Set("Location", h.BaseURL+"/requests/"+string(quoted.Order.ID))
	}
	return render(status, quoted)
}

// status serves GET /requests/{id} (docs/protocol.md §4.5).
func (h *handler) status(r request) (response, error) {
	id, err := r.id()
	if err != nil {
		return response{}, err
	}
	status, err := h.Flow.Status(r.Context(), r.requester, id)
	if err != nil {
		return response{}, err
	}
	return render(http.StatusOK, status)
}

// submit serves POST /requests/{id}/submit (docs/protocol.md §4.4): it takes a payment if there
// is a PAYMENT-SIGNATURE header, even an empty one, and else sends the challenge.
func (h *handler) submit(r request) (response, error) {
	id, err := r.id()
	if err != nil {
		return response{}, err
	}
	if headers := r.Header.Values(x402.HeaderSignature); len(headers) > 0 {
		return h.pay(r, id, headers)
	}
	if len(r.body) > 0 {
		var empty struct{}
		if err := r.decode(&empty); err != nil {
			return response{}, withoutPayment(err)
		}
	}
	offer, err := h.Flow.Challenge(r.Context(), r.requester, id)
	switch {
	case err != nil:
		return response{}, err
	case offer.Challenge != nil:
		return r.challenge(offer.Challenge)
	default:
		return r.outcome(*offer.Status)
	}
}

// withoutPayment adds a hint for a client whose PAYMENT-SIGNATURE header was lost on
// its way, for example in a proxy.
func withoutPayment(err error) error {
	if problem, ok := errors.AsType[*boxoffice.Problem](err); ok {
		problem.Detail += "; without a " + x402.HeaderSignature + " header the body must be empty or {}"
	}
	return err
}

func (r request) challenge(offer *boxoffice.Challenge) (response, error) {
	header, err := x402.EncodeHeader(x402.PaymentRequired{
		X402Version: offer.X402Version,
		Error:       x402.HeaderSignature + " header is required",
		Resource:    &offer.Resource,
		Accepts:     offer.Accepts,
	})
	if err != nil {
		return response{}, err
	}
	r.reply.Set(x402.HeaderRequired, header)
	return render(http.StatusPaymentRequired, offer)
}

func (h *handler) pay(r request, id boxoffice.UUID, headers []string) (response, error) {
	if len(headers) > 1 {
		return response{}, invalidShape(&x402.ShapeError{Path: x402.HeaderSignature, Message: "must be sent once"})
	}
	payment, err := x402.ParsePayment(headers[0])
	if shape, ok := errors.AsType[*x402.ShapeError](err); ok {
		return response{}, invalidShape(shape)
	}
	if err != nil {
		return response{}, err
	}
	var submission boxoffice.Submission
	if len(r.body) == 0 {
		return response{}, invalid("/quoteSignature", "is required beside "+x402.HeaderSignature)
	}
	if err := r.decode(&submission); err != nil {
		return response{}, err
	}
	status, err := h.Flow.Pay(r.Context(), r.requester, id, payment, submission.QuoteSignature)
	if err != nil {
		return response{}, cmp.Or(r.rejected(payment, err), err)
	}
	return r.outcome(status)
}

func invalidShape(shape *x402.ShapeError) *boxoffice.Problem {
	return &boxoffice.Problem{
		Code:     boxoffice.InvalidPaymentShape,
		Detail:   shape.Error(),
		Problems: []boxoffice.FieldProblem{{Path: shape.Pointer, Message: shape.Message}},
	}
}

// pollAfter is the Retry-After of a pending order, in seconds.
const pollAfter = "1"

// outcome renders the status after a submit: 202 while it can change without a
// further request.
func (r request) outcome(status boxoffice.Status) (response, error) {
	code := http.StatusOK
	if status.Status.Pending() {
		code = http.StatusAccepted
		r.reply.Set("Retry-After", pollAfter)
	}
	if settled := settlement(status.Payment); settled != nil {
		if err := r.setPaymentResponse(settled); err != nil {
			return response{}, err
		}
	}
	return render(code, status)
}

// rejected adds the PAYMENT-RESPONSE header of a payment that was verified and
// rejected.
func (r request) rejected(payment *x402.Payment, err error) error {
	problem, ok := errors.AsType[*boxoffice.Problem](err)
	if !ok || problem.Code != boxoffice.PaymentRejected {
		return nil
	}
	payer := payment.Payload.Payload.Authorization.From
	rejection := &x402.Settlement{ErrorReason: x402.Reason(problem.Reason), Payer: hexutil.Encode(payer[:])}
	if _, err := x402.ChainID(payment.Accepted.Network); err == nil { // the client may have sent any string
		rejection.Network = payment.Accepted.Network
	}
	return r.setPaymentResponse(rejection)
}

func (r request) setPaymentResponse(settled *x402.Settlement) error {
	header, err := x402.EncodeHeader(settled)
	if err == nil {
		r.reply.Set(x402.HeaderResponse, header)
	}
	return err
}

// settlement returns the PAYMENT-RESPONSE of a payment that settled or failed, nil for
// any other.
func settlement(payment *boxoffice.PaymentStatus) *x402.Settlement {
	if payment == nil || payment.Status == boxoffice.PaymentStatusPending {
		return nil
	}
	settled := &x402.Settlement{
		Success:     payment.Status == boxoffice.PaymentStatusSettled,
		ErrorReason: x402.Reason(payment.Reason),
		Payer:       hexutil.Encode(payment.Payer[:]),
		Network:     payment.Network,
	}
	if payment.TransactionHash != nil {
		settled.Transaction = payment.TransactionHash.Hex()
	}
	if settled.Success {
		settled.Amount = payment.Amount.String()
	}
	return settled
}
