// Package order takes an order from its quote through its payment to its admission,
// the opening of the work that was bought.
// Flow answers requesters and admits paid orders. Settlement saves what a settler
// decided about payments. transitions.go decides every state change of an order, and
// docs/states.md has them as a table.
package order

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"boxoffice"
	"boxoffice/internal/action"
	"boxoffice/internal/payment"
	"boxoffice/internal/strictjson"
	"boxoffice/x402"
)

// Config is what a Flow needs.
type Config struct {
	Store    Store
	Actions  *action.Catalog
	Verifier Verifier

	BaseURL     string // without a trailing slash
	ServiceName string // in the domain of quote approvals
	ChainID     uint64
	Token       x402.Extra // the extra of a challenge: transfer method, and name and version of the token
	MaxTimeout  time.Duration

	Wait     time.Duration // how long a submit waits for its outcome before it answers that it is pending
	Accepted func()        // called after an intent was saved, to wake the settler
	Now      func() time.Time
	Log      *slog.Logger
}

// Verifier checks a payment and the approval of its quote. A payment that fails
// a check is a *payment.Rejection.
type Verifier interface {
	Verify(
		ctx context.Context, demand payment.Demand, paid *x402.Payment, approval boxoffice.Signature,
	) (payment.Verified, error)
}

// Flow is the paid request flow. Every error of its methods is a
// *boxoffice.Problem.
type Flow struct {
	Config
	changed notifier      // of the submits that wait for an outcome
	paid    chan struct{} // has a value when there may be an order to admit
}

// New returns a Flow. Paid orders are admitted while its Run runs.
func New(c Config) *Flow {
	return &Flow{Config: c, paid: make(chan struct{}, 1)}
}

// SubmitResult is what a submit without a payment returns: a challenge if the order
// can be paid, else its status. Exactly one is set.
type SubmitResult struct {
	Challenge *boxoffice.Challenge
	Status    *boxoffice.Status
}

// Quote validates an input, prices it and saves the order (docs/protocol.md §4.3).
// The same requestKey and input return the same order, also after prices changed.
func (f *Flow) Quote(
	ctx context.Context, requester boxoffice.Requester, request boxoffice.QuoteRequest,
) (boxoffice.QuoteResponse, error) {
	submitted, err := submittedHash(request)
	if err != nil {
		return boxoffice.QuoteResponse{}, err
	}
	saved, err := f.Store.OrderByKey(ctx, requester, request.RequestKey)
	if errors.Is(err, ErrNotFound) {
		return f.newQuote(ctx, requester, request, submitted)
	}
	if err != nil {
		return boxoffice.QuoteResponse{}, unavailable(err)
	}
	return f.quoteResponse(saved, false, submitted)
}

func (f *Flow) newQuote(
	ctx context.Context, requester boxoffice.Requester, request boxoffice.QuoteRequest, submitted boxoffice.Hash,
) (boxoffice.QuoteResponse, error) {
	prepared, err := f.Actions.Prepare(ctx, requester, request.Action, request.Input)
	if err != nil {
		return boxoffice.QuoteResponse{}, problem(err)
	}
	record, err := f.newRecord(requester, request, prepared)
	if err != nil {
		return boxoffice.QuoteResponse{}, err
	}
	record.SubmittedHash = submitted
	saved, created, err := f.Store.Create(ctx, record)
	if err != nil {
		return boxoffice.QuoteResponse{}, unavailable(err)
	}
	return f.quoteResponse(saved, created, submitted)
}

// quoteResponse returns the response with a saved order. It fails if the order was
// quoted for another action or input.
func (f *Flow) quoteResponse(saved Record, created bool, submitted boxoffice.Hash) (boxoffice.QuoteResponse, error) {
	if saved.SubmittedHash != submitted {
		return boxoffice.QuoteResponse{}, &boxoffice.Problem{
			Code:   boxoffice.RequestKeyConflict,
			Detail: "this requestKey names order " + string(saved.ID) + ", which has another action or input",
		}
	}
	return boxoffice.QuoteResponse{Created: created, Order: f.status(saved).Order}, nil
}

// submittedHash identifies the action and input of a request, before the input is prepared.
func submittedHash(request boxoffice.QuoteRequest) (boxoffice.Hash, error) {
	document, err := json.Marshal(struct {
		Action string          `json:"action"`
		Input  json.RawMessage `json:"input"`
	}{request.Action, request.Input})
	if err != nil {
		return boxoffice.Hash{}, &boxoffice.Problem{
			Code: boxoffice.InvalidRequest, Detail: "input is not JSON", Cause: err,
		}
	}
	hash, err := boxoffice.HashJSON(document)
	if fault, ok := errors.AsType[*strictjson.Error](err); ok {
		return boxoffice.Hash{}, &boxoffice.Problem{
			Code:     boxoffice.InvalidRequest,
			Problems: []boxoffice.FieldProblem{{Path: fault.Pointer, Message: fault.Message}},
		}
	}
	return hash, err
}

// newRecord returns a new order for a prepared input. It saves nothing.
func (f *Flow) newRecord(
	requester boxoffice.Requester, request boxoffice.QuoteRequest, prepared action.Prepared,
) (Record, error) {
	now := f.Now()
	terms := prepared.Policy.Payment
	terms.Scheme, terms.Amount = x402.SchemeExact, prepared.Amount
	inputHash, err := boxoffice.HashJSON(prepared.Input)
	if err != nil {
		return Record{}, err
	}
	quote := boxoffice.Quote{
		V:             boxoffice.QuoteVersion,
		ID:            boxoffice.NewUUID(),
		Action:        request.Action,
		PolicyVersion: prepared.Policy.Version,
		InputHash:     inputHash,
		IssuedAt:      now.Unix(),
		ExpiresAt:     now.Unix() + prepared.Policy.QuoteTTLSeconds,
		Payment:       terms,
		UnitAmount:    prepared.UnitAmount,
		Runs:          prepared.Runs,
		Payer:         prepared.Payer,
		Terms:         boxoffice.AdmissionTerms(),
	}
	if quote.QuoteHash, err = quote.Seal(); err != nil {
		return Record{}, err
	}
	extra := f.Token
	return Record{
		Order: boxoffice.Order{
			ID: boxoffice.NewUUID(), RequestKey: request.RequestKey, Status: boxoffice.Quoted,
			Quote: quote, InputJSON: string(prepared.Input), CreatedAt: boxoffice.At(now),
		},
		Requester: requester,
		Requirements: x402.Requirements{
			Scheme: terms.Scheme, Network: terms.Network, Asset: terms.Asset, Amount: terms.Amount, PayTo: terms.PayTo,
			MaxTimeoutSeconds: int64(f.MaxTimeout.Seconds()), Extra: &extra,
		},
	}, nil
}

// Status returns the status of an order (docs/protocol.md §4.5). It only reads the store.
func (f *Flow) Status(ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID) (boxoffice.Status, error) {
	record, err := f.load(ctx, requester, id)
	if err != nil {
		return boxoffice.Status{}, err
	}
	return f.status(record), nil
}

// Challenge returns the response to a submit without a payment (docs/protocol.md §4.4,
// mode 1).
func (f *Flow) Challenge(
	ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID,
) (SubmitResult, error) {
	record, err := f.load(ctx, requester, id)
	if err != nil {
		return SubmitResult{}, err
	}
	if !record.takesPayment() {
		status := f.status(record)
		return SubmitResult{Status: &status}, nil
	}
	if err := f.mustBePayable(record); err != nil {
		return SubmitResult{}, err
	}
	challenge := f.challenge(record)
	return SubmitResult{Challenge: &challenge}, nil
}

func (f *Flow) load(ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID) (Record, error) {
	record, err := f.Store.Order(ctx, requester, id)
	if errors.Is(err, ErrNotFound) {
		return Record{}, &boxoffice.Problem{Code: boxoffice.OrderNotFound}
	}
	if err != nil {
		return Record{}, unavailable(err)
	}
	return record, nil
}

// mustBePayable returns why the order must not be paid any more: its quote expired,
// or the service cannot do the action now.
func (f *Flow) mustBePayable(record Record) error {
	if record.Quote.Live(f.Now().Unix()) {
		return f.Actions.StillTakes(record.Quote.Action, []byte(record.InputJSON))
	}
	return &boxoffice.Problem{
		Code: boxoffice.QuoteExpired,
		Detail: "the quote expired at " + time.Unix(record.Quote.ExpiresAt, 0).UTC().Format(time.RFC3339) +
			"; ask for a new one before signing",
	}
}

func (f *Flow) challenge(record Record) boxoffice.Challenge {
	url := f.BaseURL + "/requests/" + string(record.ID) + "/submit"
	return boxoffice.Challenge{
		X402Version: x402.Version,
		Resource: x402.Resource{
			URL: url, MimeType: "application/json",
			Description: "Admission of " + record.Quote.Action + " to " + f.ServiceName,
		},
		Accepts:            []x402.Requirements{record.Requirements},
		Quote:              record.Quote,
		RequesterScopeHash: record.Requester.ScopeHash(f.BaseURL),
		ResourceURL:        url,
		Input:              json.RawMessage(record.InputJSON),
	}
}

// unavailable returns the problem of a store or a chain that did not answer.
func unavailable(err error) error {
	return &boxoffice.Problem{
		Code: boxoffice.TemporarilyUnavailable, RetryAfter: 2, Cause: err,
		Detail: "a part of the service did not answer; nothing that was saved is lost",
	}
}

// problem returns a *boxoffice.Problem as it is, and unavailable for any other error.
func problem(err error) error {
	if _, ok := errors.AsType[*boxoffice.Problem](err); ok {
		return err
	}
	return unavailable(err)
}
