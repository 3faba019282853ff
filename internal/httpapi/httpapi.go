// Package httpapi is every HTTP interface of the service: for requesters and git
// (New), for other x402 servers that settle here (NewFacilitator) and for the
// operator (NewOperator). It limits rates, checks origins and tokens, decodes
// strictly and renders every response. It decides nothing about orders, payments or
// work, and no code behind it sees a token.
package httpapi

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"boxoffice"
	"boxoffice/internal/httpapi/ratelimit"
	"boxoffice/internal/order"
	"boxoffice/internal/work"
	"boxoffice/x402"
)

// Flow quotes, sells and reads orders. Every error is, or wraps, a
// *boxoffice.Problem; any other is a fault of the service and becomes a 500.
type Flow interface {
	Quote(ctx context.Context, requester boxoffice.Requester, request boxoffice.QuoteRequest) (
		boxoffice.QuoteResponse, error)
	Challenge(ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID) (order.SubmitResult, error)
	Pay(ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID, payment *x402.Payment,
		approval boxoffice.Signature) (boxoffice.Status, error)
	Status(ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID) (boxoffice.Status, error)
}

// Repositories serves what jobs delivered, by git's smart HTTP protocol.
type Repositories interface {
	// ServeGit serves a request below /git/{job}.git/ of the job's requester.
	ServeGit(w http.ResponseWriter, r *http.Request, job boxoffice.UUID)
}

// Config is what New needs. Every field is required that does not say otherwise.
type Config struct {
	Flow         Flow
	Work         work.Store
	BaseURL      string // the public address, without a slash at its end; only its origin passes the Origin check
	Capabilities func(context.Context) boxoffice.Capabilities
	Document     []byte // the body of GET /openapi.json

	Git       Repositories // may be nil: nothing is delivered, and /git/ does not exist
	Callbacks http.Handler // of /callbacks/{id}, which checks agents' signatures; may be nil

	PerToken   ratelimit.Rate
	PerAddress ratelimit.Rate
	// TrustedProxies are the networks of proxies whose X-Forwarded-For is believed.
	// If there are none, a request's address is that of its connection.
	TrustedProxies []netip.Prefix

	Log *slog.Logger
	Now func() time.Time
}

// New returns the handler of every route of docs/protocol.md §4, of the routes that read what
// was admitted, and of git.
//
// A request is checked in this order: the rate limit of its address, the route and
// the method, the Origin, the token, the rate limit of the token, the size of the
// body, strict decoding. The first check that fails decides the response.
func New(config Config) http.Handler {
	h := &handler{
		Config:    config,
		origin:    originOf(config.BaseURL),
		document:  newDocument(contentType, config.Document),
		addresses: ratelimit.New[netip.Prefix](config.PerAddress),
		tokens:    ratelimit.New[boxoffice.Requester](config.PerToken),
		mux:       http.NewServeMux(),
	}
	routes := map[string]methods{
		"/openapi.json":          {http.MethodGet: h.openapi, http.MethodOptions: publicOptions},
		"/requests/capabilities": {http.MethodGet: h.capabilities, http.MethodOptions: publicOptions},
		"/requests/quote":        {http.MethodPost: h.protected(h.quote)},
		"/requests/{id}/submit":  {http.MethodPost: h.protected(h.submit)},
		"/requests/{id}":         {http.MethodGet: h.protected(h.status)},
		"/jobs":                  {http.MethodGet: h.protected(h.jobs)},
		"/jobs/{id}":             {http.MethodGet: h.protected(h.job)},
		"/oracles/{id}":          {http.MethodGet: h.protected(h.oracle)},
		"/workflows/{id}":        {http.MethodGet: h.protected(h.workflow)},
		"/schedules/{id}":        {http.MethodGet: h.protected(h.schedule)},
	}
	if config.Git != nil {
		routes["/git/{repo}/info/refs"] = methods{http.MethodGet: h.git}
		routes["/git/{repo}/git-upload-pack"] = methods{http.MethodPost: h.git}
		routes["/git/{repo}/git-receive-pack"] = methods{http.MethodPost: h.git}
		h.mux.HandleFunc(gitPrefix, func(w http.ResponseWriter, r *http.Request) {
			w.(*exchange).refuse(r, errNoRepository)
		})
	}
	for path, methods := range routes {
		h.mux.HandleFunc(path, h.route(methods))
	}
	if config.Callbacks != nil {
		h.mux.Handle("/callbacks/{id}", config.Callbacks)
	}
	h.mux.HandleFunc("/", h.noRoute)
	return observe(config.Log, config.Now, h.serve)
}

type handler struct {
	Config
	origin    string
	document  document
	lastOffer atomic.Pointer[offer]
	addresses *ratelimit.Limiter[netip.Prefix]
	tokens    *ratelimit.Limiter[boxoffice.Requester]
	mux       *http.ServeMux
}

// An endpoint serves one method of one route. A response with status 0 means that it
// has written the response itself.
type endpoint func(x *exchange, r *http.Request) (response, error)

// methods are the endpoints of a route. The one for GET serves HEAD too, and every
// route answers OPTIONS.
type methods map[string]endpoint

func (h *handler) serve(x *exchange, r *http.Request) {
	if err := h.limitAddress(r); err != nil {
		x.refuse(r, err)
		return
	}
	if !cleanPath(r.URL.EscapedPath()) { // the mux would redirect
		x.refuse(r, h.notFound(x))
		return
	}
	h.mux.ServeHTTP(x, r)
}

func cleanPath(p string) bool {
	return strings.HasPrefix(p, "/") && (p == path.Clean(p) || p == path.Clean(p)+"/")
}

// route calls the endpoint of the request's method.
func (h *handler) route(endpoints methods) http.HandlerFunc {
	if get, ok := endpoints[http.MethodGet]; ok {
		endpoints[http.MethodHead] = get
	}
	if _, ok := endpoints[http.MethodOptions]; !ok {
		endpoints[http.MethodOptions] = h.options
	}
	allow := strings.Join(slices.Sorted(maps.Keys(endpoints)), ", ")
	return func(w http.ResponseWriter, r *http.Request) {
		x := w.(*exchange)
		endpoint, ok := endpoints[r.Method]
		if !ok || r.Method == http.MethodOptions {
			x.Header().Set("Allow", allow)
		}
		if !ok {
			x.refuse(r, &boxoffice.Problem{Code: boxoffice.MethodNotAllowed, Detail: "this address takes " + allow})
			return
		}
		reply, err := endpoint(x, r)
		if err != nil {
			x.refuse(r, err)
			return
		}
		if reply.status != 0 {
			x.send(reply) // an error means that the client has closed the connection
		}
	}
}

// options answers OPTIONS of a route that needs a token. A browser that asks on
// behalf of another origin's page is refused.
func (h *handler) options(_ *exchange, r *http.Request) (response, error) {
	return response{status: http.StatusNoContent}, checkOrigin(r, h.origin)
}
