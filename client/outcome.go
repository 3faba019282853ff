package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"

	"boxoffice"

	"github.com/ethereum/go-ethereum/common"
)

// Outcome is what an error of this package means for the requester's money.
type Outcome int

// The outcomes of a call.
const (
	// Succeeded: there is no error. After Buy and Pay the order is admitted.
	Succeeded Outcome = iota
	// NotSigned: the client refused before it signed anything.
	NotSigned
	// NotPaid: the payment was rejected or failed, or the quote expired unpaid.
	NotPaid
	// Unknown: a payment was sent, and its outcome is not known: it is pending, an
	// answer was lost, or something between client and service answered instead. Call
	// again with the same request key.
	Unknown
	// Unavailable: the service or the chain did not answer, or answered 429 or 503.
	// This call sent no payment.
	Unavailable
	// Refused: the service refused the request. This call paid nothing.
	Refused
	// Failed: the wallet, the vault or this program failed. This call sent no payment.
	Failed
)

func (o Outcome) String() string {
	return [...]string{"succeeded", "not signed", "not paid", "unknown", "unavailable", "refused", "failed"}[o]
}

// OutcomeOf returns the outcome of a call that ended with err. It speaks of that
// call alone: an earlier call for the same order may have paid.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return Succeeded
	}
	if is[*PendingError](err) {
		return Unknown
	}
	if is[*PaymentError](err) {
		return NotPaid
	}
	if is[*MismatchError](err) || is[*ShortfallError](err) ||
		errors.Is(err, ErrNonceSpent) || errors.Is(err, ErrDeclined) || errors.Is(err, ErrNoSigner) {
		return NotSigned
	}
	if problem, ok := errors.AsType[*boxoffice.Problem](err); ok {
		switch problem.Code {
		case boxoffice.PaymentRejected, boxoffice.QuoteExpired:
			return NotPaid
		case boxoffice.RateLimited, boxoffice.TemporarilyUnavailable, boxoffice.Internal:
			return Unavailable
		}
		return Refused
	}
	if is[*url.Error](err) || is[*net.OpError](err) || errors.Is(err, context.DeadlineExceeded) {
		return Unavailable
	}
	return Failed
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// Errors before anything is signed.
var (
	// ErrNoSigner says that the client has no wallet to sign with.
	ErrNoSigner = errors.New("the client has no signer")
	// ErrDeclined says that Purchase.Confirm or Purchase.AcceptInput returned an error.
	ErrDeclined = errors.New("not confirmed")
	// ErrNonceSpent says that a payment was signed for the order before, and that
	// its Permit2 nonce is spent on the chain although the service does not count
	// the order as paid. The client signs no other nonce, because that payment may
	// have moved the money. Ask the operator, or buy with a new request key.
	ErrNonceSpent = errors.New("refused to sign: the order's Permit2 nonce is spent already")
)

// MismatchError says that the service offers something else than what was asked
// for, or contradicts itself. Nothing was signed.
type MismatchError struct {
	Field string // resource and JSON Pointer: order/quote/payment/payTo
	Want  string
	Got   string // may be empty: Want is then the whole sentence after the field
}

func (e *MismatchError) Error() string {
	if e.Got == "" {
		return "refused to sign: " + e.Field + " " + e.Want
	}
	return "refused to sign: " + e.Field + " is " + e.Got + ", want " + e.Want
}

// ShortfallError says that the payer cannot pay. Nothing was signed.
type ShortfallError struct {
	What       string // "balance", or "Permit2 allowance": see [Approve]
	Payer      common.Address
	Token      common.Address
	Need, Have *big.Int // atomic token units
}

func (e *ShortfallError) Error() string {
	return fmt.Sprintf("refused to sign: the %s of %s for token %s is %s, the price is %s",
		e.What, e.Payer, e.Token, e.Have, e.Need)
}

// PaymentError says that an order's payment failed, and why. Buying again with
// the same request key signs again, with the same nonce, while the quote lives.
type PaymentError struct{ Status boxoffice.Status }

// Reason returns one of boxoffice.Reasons, or "" if the service does not say why.
func (e *PaymentError) Reason() string {
	if e.Status.Payment == nil {
		return ""
	}
	return e.Status.Payment.Reason
}

func (e *PaymentError) Error() string {
	reason := cmp.Or(e.Reason(), "the service gives no reason")
	return fmt.Sprintf("the payment of order %s failed: %s", e.Status.Order.ID, reason)
}

// PendingError says that a payment was sent and that its outcome is not known
// yet: ctx ended while the order was pending, or the service did not answer each
// request with the payment.
// Waiting again, or buying again with the same request key, continues.
type PendingError struct {
	Status boxoffice.Status // as last read, which may be from before the payment
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

// ResponseError is an answer that is not the expected one. errors.As finds the
// [*boxoffice.Problem] in it.
type ResponseError struct {
	Method, Path string
	Status       int // HTTP
	Problem      *boxoffice.Problem
}

func (e *ResponseError) Error() string {
	return fmt.Sprintf("%s %s: %d %v", e.Method, e.Path, e.Status, e.Problem)
}

// Unwrap returns the problem.
func (e *ResponseError) Unwrap() error { return e.Problem }
