package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"boxoffice"
	"boxoffice/internal/payment"
	"boxoffice/internal/work"
)

// Payments lists what became of payments.
type Payments interface {
	PaymentTotals(ctx context.Context) (payment.PaymentTotals, error)
	Payments(ctx context.Context, query payment.PaymentQuery) ([]payment.PaymentEntry, error)
}

// Canceller ends work that an operator does not want to be done.
type Canceller interface {
	// Cancel returns work.ErrNotFound if there is no such work, and work.ErrEnded with
	// its state if it has ended already.
	Cancel(ctx context.Context, id boxoffice.UUID, now boxoffice.Timestamp) (work.Cancelled, error)
}

// OperatorConfig is what NewOperator needs.
type OperatorConfig struct {
	Payments Payments
	Work     Canceller
	// Health checks one part of the service each: nil if the part works, else why not.
	Health map[string]func(context.Context) error

	Log *slog.Logger
	Now func() time.Time
}

// NewOperator returns the handler of the operator's routes, whose address has to be
// private: they need no token.
//
//	GET  /healthz           whether the process runs
//	GET  /readyz            whether every part of the service works
//	GET  /payments          what became of each payment, and what settling has cost
//	POST /work/{id}/cancel  ends the work on a job, an oracle or a workflow, or stops a schedule
func NewOperator(config OperatorConfig) http.Handler {
	h := &operatorHandler{config}
	mux := http.NewServeMux()
	for pattern, endpoint := range map[string]func(r *http.Request) (int, any, error){
		"GET /healthz": func(*http.Request) (int, any, error) {
			return http.StatusOK, map[string]string{"status": "ok"}, nil
		},
		"GET /readyz":            h.readyz,
		"GET /payments":          h.payments,
		"POST /work/{id}/cancel": h.cancel,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			x := w.(*exchange)
			status, body, err := endpoint(r)
			if err != nil {
				x.refuse(r, err)
				return
			}
			x.sendJSON(status, body)
		})
	}
	return observe(slog.New(quiet{config.Log.Handler()}), config.Now,
		func(x *exchange, r *http.Request) { mux.ServeHTTP(x, r) })
}

// quiet drops the records of requests that succeed: probes send one every few seconds.
type quiet struct{ slog.Handler }

func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return level > slog.LevelInfo && q.Handler.Enabled(ctx, level)
}

type operatorHandler struct{ OperatorConfig }

// Readiness is the body of GET /readyz.
type Readiness struct {
	Ready bool              `json:"ready"`
	Parts map[string]string `json:"parts"` // "ok", or why the part does not work
}

// readyTimeout bounds the check of all parts together.
const readyTimeout = 2 * time.Second

func (h *operatorHandler) readyz(r *http.Request) (int, any, error) {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	status, body := http.StatusOK, Readiness{Ready: true, Parts: map[string]string{}}
	for part, check := range h.Health {
		body.Parts[part] = "ok"
		if err := check(ctx); err != nil {
			status, body.Ready, body.Parts[part] = http.StatusServiceUnavailable, false, err.Error()
		}
	}
	return status, body, nil
}

// PaymentList is the body of GET /payments.
type PaymentList struct {
	Totals   payment.PaymentTotals  `json:"totals"`
	Payments []payment.PaymentEntry `json:"payments"` // newest first
}

func (h *operatorHandler) payments(r *http.Request) (int, any, error) {
	query, err := paymentQuery(r.URL.Query())
	if err != nil {
		return 0, nil, err
	}
	var list PaymentList
	if list.Totals, err = h.Payments.PaymentTotals(r.Context()); err == nil {
		list.Payments, err = h.Payments.Payments(r.Context(), query)
	}
	if err != nil {
		return 0, nil, storeError(err, nil)
	}
	return http.StatusOK, list, nil
}

// The limits of GET /payments.
const (
	DefaultPayments = 50 // if the request has no limit
	MaxPayments     = 1000
)

func paymentQuery(values url.Values) (payment.PaymentQuery, error) {
	query := payment.PaymentQuery{State: payment.State(values.Get("state")), Limit: DefaultPayments}
	switch query.State {
	case "", payment.Waiting, payment.Sent, payment.Settled, payment.Failed:
	default:
		return query, invalid("?state", "must be waiting, sent, settled or failed")
	}
	if text := values.Get("limit"); text != "" {
		limit, err := strconv.Atoi(text)
		if err != nil || limit < 1 || limit > MaxPayments {
			return query, invalid("?limit", "must be between 1 and "+strconv.Itoa(MaxPayments))
		}
		query.Limit = limit
	}
	return query, nil
}

// cancel refuses requests of browsers, which say so in Origin: no page that a browser
// on the operator's machine shows can cancel work.
func (h *operatorHandler) cancel(r *http.Request) (int, any, error) {
	if err := checkOrigin(r, ""); err != nil {
		return 0, nil, err
	}
	id, err := boxoffice.ParseUUID(r.PathValue("id"))
	if err != nil {
		return 0, nil, invalid("{id}", err.Error())
	}
	cancelled, err := h.Work.Cancel(r.Context(), id, boxoffice.At(h.Now()))
	switch {
	case errors.Is(err, work.ErrEnded):
		return http.StatusConflict,
			&boxoffice.Problem{Code: WorkEnded, Detail: "it is " + cancelled.State + ": nothing is left to cancel"}, nil
	case err != nil:
		return 0, nil, storeError(err, errNothingToCancel)
	}
	h.Log.InfoContext(r.Context(), "work cancelled by the operator", "work", cancelled.ID, "kind", cancelled.Kind)
	return http.StatusOK, cancelled, nil
}

// WorkEnded is the error code of a cancellation that comes too late. Requesters never
// get it, so it is not in the table of codes.
const WorkEnded boxoffice.Code = "work_ended"

var errNothingToCancel = &boxoffice.Problem{Code: boxoffice.NotFound,
	Detail: "there is no such job, workflow, oracle or schedule"}
