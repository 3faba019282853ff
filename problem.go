package boxoffice

import "net/http"

//go:generate go test -run ^TestGeneratedPages$ ./docs -update

// Code names an error of the service. The table below gives each its HTTP
// status and whether asking again can help; docs/errors.md is generated from it.
type Code string

// The error codes (docs/protocol.md §7).
const (
	InvalidRequest         Code = "invalid_request"
	InvalidPaymentShape    Code = "invalid_payment_shape"
	RequestTokenRequired   Code = "request_token_required"
	InvalidRequestToken    Code = "invalid_request_token"
	PaymentRejected        Code = "payment_rejected"
	OriginNotAllowed       Code = "origin_not_allowed"
	NotFound               Code = "not_found"
	OrderNotFound          Code = "order_not_found"
	MethodNotAllowed       Code = "method_not_allowed"
	RequestKeyConflict     Code = "request_key_conflict"
	PaymentConflict        Code = "payment_conflict"
	QuoteExpired           Code = "quote_expired"
	BodyTooLarge           Code = "body_too_large"
	ActionRefused          Code = "action_refused"
	RateLimited            Code = "rate_limited"
	TemporarilyUnavailable Code = "temporarily_unavailable"
	Internal               Code = "internal"
)

// Retry says whether the same request can succeed later.
type Retry string

// What to do after an error.
const (
	RetryNever  Retry = "no"    // the request has to change
	RetryLater  Retry = "later" // the same request, after Retry-After where it is sent
	RetryNewKey Retry = "new"   // with a new quote, under a new requestKey
)

// CodeInfo is the row of a Code in the table of errors.
type CodeInfo struct {
	Code   Code
	Status int // HTTP
	Title  string
	Retry  Retry
}

// Codes returns the table of errors, in the order of their statuses.
func Codes() []CodeInfo {
	return []CodeInfo{
		{InvalidRequest, http.StatusBadRequest,
			"The request does not have the documented form; problems names the places.", RetryNever},
		{InvalidPaymentShape, http.StatusBadRequest,
			"PAYMENT-SIGNATURE is not an x402 version 2 payload in its strict form; detail names the field.",
			RetryNever},
		{RequestTokenRequired, http.StatusUnauthorized,
			"The route needs a request token: Authorization: Bearer and 64 hex characters.", RetryNever},
		{InvalidRequestToken, http.StatusUnauthorized,
			"The Authorization header is not Bearer and a token of 64 hex characters.", RetryNever},
		{PaymentRejected, http.StatusPaymentRequired,
			"The payment or the quote approval was checked and rejected; reason says why. Nothing was charged.",
			RetryNever},
		{OriginNotAllowed, http.StatusForbidden,
			"The Origin header of a browser differs from the origin of the service.", RetryNever},
		{NotFound, http.StatusNotFound,
			"There is nothing at this address, or it belongs to another token.", RetryNever},
		{OrderNotFound, http.StatusNotFound, "There is no such order, or it belongs to another token.", RetryNever},
		{MethodNotAllowed, http.StatusMethodNotAllowed,
			"The address does not take this method; Allow lists those it takes.", RetryNever},
		{RequestKeyConflict, http.StatusConflict,
			"The requestKey belongs to an order with another action or input.", RetryNewKey},
		{PaymentConflict, http.StatusConflict,
			"The order has another payment, or the permit pays for another order; read the order first.", RetryLater},
		{QuoteExpired, http.StatusGone,
			"The quote expired before it was paid; ask for a new one before signing.", RetryNewKey},
		{BodyTooLarge, http.StatusRequestEntityTooLarge, "The body has more than 16 KiB.", RetryNever},
		{ActionRefused, http.StatusUnprocessableEntity,
			"The action does not take this input. Nothing was charged.", RetryNever},
		{RateLimited, http.StatusTooManyRequests,
			"Too many requests; Retry-After says how many seconds to wait.", RetryLater},
		{Internal, http.StatusInternalServerError, "The service has a bug; what was saved is kept.", RetryLater},
		{TemporarilyUnavailable, http.StatusServiceUnavailable,
			"A part of the service does not answer; what was saved is kept.", RetryLater},
	}
}

// Info returns the row of c, or that of Internal if c is not in the table.
func (c Code) Info() CodeInfo {
	internal := CodeInfo{}
	for _, info := range Codes() {
		switch info.Code {
		case c:
			return info
		case Internal:
			internal = info
		}
	}
	return internal
}

// CodesOf returns the rows of the codes that are answered with an HTTP status,
// in the order of the table; none if no error has that status.
func CodesOf(status int) []CodeInfo {
	var rows []CodeInfo
	for _, info := range Codes() {
		if info.Status == status {
			rows = append(rows, info)
		}
	}
	return rows
}

// Problem is the body of every error answer (docs/protocol.md §7), and the error that
// the service's own packages return to have it answered.
type Problem struct {
	Code     Code           `json:"error"`
	Detail   string         `json:"detail,omitempty"`
	Reason   string         `json:"reason,omitempty"`
	Problems []FieldProblem `json:"problems,omitempty"`

	// RetryAfter is the Retry-After header in seconds; 0 sends none.
	RetryAfter int `json:"-"`
	// Cause is logged by the service and never answered.
	Cause error `json:"-"`
}

// FieldProblem says what is wrong with one place of the body.
type FieldProblem struct {
	Path    string `json:"path"` // JSON Pointer (RFC 6901) into the body, or {id}, ?parameter or the name of a header
	Message string `json:"message"`
}

func (p *Problem) Error() string {
	text := string(p.Code)
	for _, part := range []string{p.Reason, p.Detail} {
		if part != "" {
			text += ": " + part
		}
	}
	for _, field := range p.Problems {
		text += "; " + field.Path + " " + field.Message
	}
	return text
}

// Unwrap returns the cause.
func (p *Problem) Unwrap() error { return p.Cause }
