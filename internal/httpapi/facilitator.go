package httpapi

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"boxoffice"
	"boxoffice/internal/facilitator"
	"boxoffice/internal/httpapi/ratelimit"
	"boxoffice/x402"
)

// FacilitatorConfig is what NewFacilitator needs.
type FacilitatorConfig struct {
	Facilitator *facilitator.Facilitator
	Token       string         // the bearer token that callers need; empty: none, everybody may call
	PerAddress  ratelimit.Rate // of the calls of one address
	// TrustedProxies are the networks of proxies whose X-Forwarded-For is believed.
	TrustedProxies []netip.Prefix

	Log *slog.Logger
	Now func() time.Time
}

// NewFacilitator returns the handler of /verify, /settle and /supported. The header
// Idempotency-Key names the caller.
//
// A decision about a payment is sent with status 200, a refusal too. A request that
// cannot be read gets 400, with a body of the same shape. 429 and 503 have Retry-After
// and say nothing about the payment.
func NewFacilitator(config FacilitatorConfig) http.Handler {
	h := &facilitatorHandler{
		FacilitatorConfig: config,
		addresses:         ratelimit.New[netip.Prefix](config.PerAddress),
		mux:               http.NewServeMux(),
	}
	h.mux.HandleFunc("GET "+x402.PathSupported, func(w http.ResponseWriter, _ *http.Request) {
		w.(*exchange).sendJSON(http.StatusOK, h.Facilitator.Supported())
	})
	h.mux.HandleFunc("POST "+x402.PathVerify, h.verify)
	h.mux.HandleFunc("POST "+x402.PathSettle, h.settle)
	return observe(config.Log, config.Now, h.serve)
}

type facilitatorHandler struct {
	FacilitatorConfig
	addresses *ratelimit.Limiter[netip.Prefix]
	mux       *http.ServeMux
}

func (h *facilitatorHandler) serve(x *exchange, r *http.Request) {
	if wait := h.addresses.Take(ratelimit.Sender(r, h.TrustedProxies), h.Now()); wait > 0 {
		x.refuse(r, rateLimited(wait, "address"))
		return
	}
	if h.Token != "" && !hasBearer(r, h.Token) {
		x.Header().Set("WWW-Authenticate", "Bearer")
		x.refuse(r, &boxoffice.Problem{
			Code: boxoffice.InvalidRequestToken, Detail: "the bearer token is missing or wrong",
		})
		return
	}
	h.mux.ServeHTTP(x, r)
}

func (h *facilitatorHandler) verify(w http.ResponseWriter, r *http.Request) {
	x := w.(*exchange)
	request, reason, message := readFacilitatorRequest(w, r)
	if reason != "" {
		x.sendJSON(http.StatusBadRequest, x402.Verification{InvalidReason: reason, InvalidMessage: message})
		return
	}
	verification, err := h.Facilitator.Verify(r.Context(), request, callerOf(r))
	if err != nil {
		x.unavailable(r, err,
			x402.Verification{InvalidReason: x402.ReasonUnexpectedVerify, InvalidMessage: unavailableMessage})
		return
	}
	x.sendJSON(http.StatusOK, verification)
}

func (h *facilitatorHandler) settle(w http.ResponseWriter, r *http.Request) {
	x := w.(*exchange)
	refusal := func(reason x402.Reason, message string) x402.Settlement {
		return x402.Settlement{ErrorReason: reason, ErrorMessage: message, Network: x402.Network(h.Facilitator.ChainID)}
	}
	request, reason, message := readFacilitatorRequest(w, r)
	if reason != "" {
		x.sendJSON(http.StatusBadRequest, refusal(reason, message))
		return
	}
	err := h.Facilitator.Settle(r.Context(), request, callerOf(r), func(outcome x402.Settlement) error {
		// The context ends when the caller closes the connection. A caller that has closed
		// it before the outcome is sent does not learn the outcome. Whether the context ends
		// afterwards does not matter: a caller may leave as soon as it has the outcome.
		if err := r.Context().Err(); err != nil {
			return err
		}
		return x.sendJSON(http.StatusOK, outcome)
	})
	if err != nil {
		x.unavailable(r, err, refusal(x402.ReasonUnexpectedSettle, unavailableMessage))
	}
}

// maxFacilitatorRequest is how many bytes a request may have.
const maxFacilitatorRequest = 64 << 10

// readFacilitatorRequest reads the body. If it is malformed, the reason is not empty. It
// reads up to the end of the body, because net/http notices that a caller has closed the
// connection only after that.
func readFacilitatorRequest(w http.ResponseWriter, r *http.Request) (
	request x402.FacilitatorRequest, reason x402.Reason, message string,
) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxFacilitatorRequest))
	if err == nil {
		err = json.Unmarshal(body, &request)
	}
	switch {
	case err != nil:
		reason, message = x402.ReasonPayload,
			"the body must be JSON with x402Version, paymentPayload and paymentRequirements"
	case request.X402Version != x402.Version:
		reason, message = x402.ReasonVersion, "x402Version must be 2"
	}
	return request, reason, message
}

func callerOf(r *http.Request) facilitator.Caller {
	return facilitator.Named(r.Header.Get("Idempotency-Key"))
}

const unavailableMessage = "a part of the service did not answer; send the same request again"

// unavailable sends 503 because the chain or the database did not answer, unless an
// outcome was sent before or the caller closed the connection.
func (x *exchange) unavailable(r *http.Request, err error, body any) {
	x.cause = err
	if x.status == 0 && r.Context().Err() == nil {
		x.sendJSON(http.StatusServiceUnavailable, body)
	}
}
