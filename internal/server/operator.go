package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"boxoffice"
	"boxoffice/internal/payment"
	"boxoffice/internal/work"
)

// readiness is the answer of /readyz: each part and what is wrong with it.
type readiness struct {
	Ready bool              `json:"ready"`
	Parts map[string]string `json:"parts"`
}

// Payments is the answer of the operator's /payments.
type Payments struct {
	Totals   payment.PaymentTotals  `json:"totals"`
	Payments []payment.PaymentEntry `json:"payments"`
}

// operatorHandler answers an operator: /healthz says that the process runs,
// /readyz whether every part does its work, /payments what became of each
// payment and what settling has cost. /work/{id}/cancel ends what is done for
// a job, an oracle or a workflow, and stops a schedule.
func (s *Server) operatorHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ready := s.readiness(r.Context())
		status := http.StatusOK
		if !ready.Ready {
			status = http.StatusServiceUnavailable
		}
		answer(w, status, ready)
	})
	mux.HandleFunc("GET /payments", func(w http.ResponseWriter, r *http.Request) {
		query, err := paymentQuery(r.URL.Query())
		if err != nil {
			answer(w, http.StatusBadRequest, boxoffice.Problem{Code: boxoffice.InvalidRequest, Detail: err.Error()})
			return
		}
		var listed Payments
		if listed.Totals, err = s.store.PaymentTotals(r.Context()); err == nil {
			listed.Payments, err = s.store.Payments(r.Context(), query)
		}
		if err != nil {
			s.Log.ErrorContext(r.Context(), "payments cannot be listed", "err", err)
			answer(w, http.StatusServiceUnavailable, boxoffice.Problem{Code: boxoffice.TemporarilyUnavailable, Detail: "the store does not answer"})
			return
		}
		answer(w, http.StatusOK, listed)
	})
	mux.HandleFunc("POST /work/{id}/cancel", s.cancel)
	return mux
}

// WorkEnded is the error code of a cancellation that comes too late.
const WorkEnded boxoffice.Code = "work_ended"

// cancel answers the operator's POST /work/{id}/cancel. A page that a browser on
// the operator's machine shows must not reach it, and browsers say so in Origin.
func (s *Server) cancel(w http.ResponseWriter, r *http.Request) {
	refuse := func(status int, code boxoffice.Code, detail string) {
		answer(w, status, boxoffice.Problem{Code: code, Detail: detail})
	}
	if r.Header.Get("Origin") != "" {
		refuse(http.StatusForbidden, boxoffice.OriginNotAllowed, "browsers are not served here")
		return
	}
	id, err := boxoffice.ParseUUID(r.PathValue("id"))
	if err != nil {
		refuse(http.StatusBadRequest, boxoffice.InvalidRequest, "the id "+err.Error())
		return
	}
	cancelled, err := s.store.Cancel(r.Context(), id, boxoffice.At(s.Now()))
	switch {
	case errors.Is(err, work.ErrNotFound):
		refuse(http.StatusNotFound, boxoffice.NotFound, "there is no such job, workflow, oracle or schedule")
	case errors.Is(err, work.ErrEnded):
		refuse(http.StatusConflict, WorkEnded, "there is nothing left to cancel: it is "+cancelled.State)
	case err != nil:
		s.Log.ErrorContext(r.Context(), "work cannot be cancelled", "work", id, "err", err)
		refuse(http.StatusServiceUnavailable, boxoffice.TemporarilyUnavailable, "the store does not answer")
	default:
		s.Log.InfoContext(r.Context(), "work was cancelled by the operator", "work", cancelled.ID, "kind", cancelled.Kind)
		answer(w, http.StatusOK, cancelled)
	}
}

func paymentQuery(values url.Values) (payment.PaymentQuery, error) {
	query := payment.PaymentQuery{State: payment.State(values.Get("state")), Limit: 50}
	switch query.State {
	case "", payment.Waiting, payment.Sent, payment.Settled, payment.Failed:
	default:
		return query, errors.New("state must be waiting, sent, settled or failed")
	}
	if text := values.Get("limit"); text != "" {
		limit, err := strconv.Atoi(text)
		if err != nil || limit < 1 || limit > 1000 {
			return query, errors.New("limit must be between 1 and 1000")
		}
		query.Limit = limit
	}
	return query, nil
}

func (s *Server) readiness(ctx context.Context) readiness {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	ready := readiness{Ready: true, Parts: map[string]string{}}
	for part, err := range map[string]error{
		"store":   s.store.Ping(ctx),
		"chain":   s.chainHealth(),
		"settler": s.settler.Health(),
	} {
		ready.Parts[part] = "ok"
		if err != nil {
			ready.Ready, ready.Parts[part] = false, err.Error()
		}
	}
	return ready
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body) // the client has gone if this fails
}
