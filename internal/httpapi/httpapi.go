// Package httpapi is the service's door: routes, limits, origins and tokens,
// strict decoding, and the rendering of every answer. It decides nothing about
// orders or work.
package httpapi

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"boxoffice"
	"boxoffice/internal/order"
	"boxoffice/internal/work"
	"boxoffice/x402"
)

// Flow is what the door does with orders. Every error is, or wraps, a
// *boxoffice.Problem; any other is a fault of the service and answers 500.
type Flow interface {
	Quote(ctx context.Context, requester boxoffice.Requester, request boxoffice.QuoteRequest) (boxoffice.QuoteResponse, error)
	Challenge(ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID) (order.Answer, error)
	Pay(ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID, payment *x402.Payment, approval boxoffice.Signature) (boxoffice.Status, error)
	Status(ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID) (boxoffice.Status, error)
}

// Config is what New needs. Every field without a default is required.
type Config struct {
	Flow         Flow
	Work         work.Store
	BaseURL      string // the public address, without a slash at its end; only its origin passes the Origin check
	Capabilities func(context.Context) boxoffice.Capabilities
	Document     []byte // what GET /openapi.json answers

	Git       http.Handler // of /git/, which checks the token itself; nil: there is none
	Callbacks http.Handler // of /callbacks/{id}, where agents elsewhere answer; nil: there are none

	PerToken   Rate // the zero Rate is DefaultPerToken
	PerAddress Rate // the zero Rate is DefaultPerAddress
	// TrustedProxies are the addresses whose X-Forwarded-For is believed. With
	// none, a requester's address is that of its connection.
	TrustedProxies []netip.Prefix

	Log *slog.Logger
	Now func() time.Time // nil is time.Now
}

// New returns the handler of every route of spec.md §4 and of the routes that
// read what was admitted.
//
// A request passes, in this order: the rate limit of its address, the route and
// its method, the Origin check, the token, the rate limit of the token, the
// limit of the body, strict decoding. The first that fails answers.
func New(config Config) http.Handler {
	if config.Now == nil {
		config.Now = time.Now
	}
	d := &door{
		Config:    config,
		origin:    originOf(config.BaseURL),
		document:  newDocument(contentType, config.Document),
		addresses: newLimiter[netip.Prefix](config.PerAddress.or(DefaultPerAddress)),
		tokens:    newLimiter[boxoffice.Requester](config.PerToken.or(DefaultPerToken)),
		mux:       http.NewServeMux(),
	}
	for path, methods := range map[string]methods{
		"/openapi.json":          {http.MethodGet: d.openapi, http.MethodOptions: freeOptions},
		"/requests/capabilities": {http.MethodGet: d.capabilities, http.MethodOptions: freeOptions},
		"/requests/quote":        {http.MethodPost: d.protected(d.quote)},
		"/requests/{id}/submit":  {http.MethodPost: d.protected(d.submit)},
		"/requests/{id}":         {http.MethodGet: d.protected(d.status)},
		"/jobs":                  {http.MethodGet: d.protected(d.jobs)},
		"/jobs/{id}":             {http.MethodGet: d.protected(d.job)},
		"/oracles/{id}":          {http.MethodGet: d.protected(d.oracle)},
		"/workflows/{id}":        {http.MethodGet: d.protected(d.workflow)},
		"/schedules/{id}":        {http.MethodGet: d.protected(d.schedule)},
	} {
		d.mux.HandleFunc(path, d.route(methods))
	}
	if config.Git != nil {
		d.mux.HandleFunc("/git/", d.git)
	}
	if config.Callbacks != nil { // the operator's own agents, whose signature it checks
		d.mux.Handle("/callbacks/{id}", config.Callbacks)
	}
	d.mux.HandleFunc("/", d.elsewhere)
	return Linger(d)
}

type door struct {
	Config
	origin    string
	document  document
	lastSold  atomic.Pointer[sold]
	addresses *limiter[netip.Prefix]
	tokens    *limiter[boxoffice.Requester]
	mux       *http.ServeMux
}

// An endpoint answers a request that came to its route with its method.
type endpoint func(x *exchange, r *http.Request) (answer, error)

// methods are the endpoints of a path. One for GET answers HEAD too, and OPTIONS
// is answered everywhere.
type methods map[string]endpoint

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := newExchange(w, d.Now())
	defer d.log(x, r)
	defer d.recover(x, r)
	if err := d.admitAddress(r); err != nil {
		d.refuse(x, r, err)
		return
	}
	if !cleanPath(r.URL.EscapedPath()) { // the mux would redirect
		d.refuse(x, r, d.notFound(x))
		return
	}
	d.mux.ServeHTTP(x, r)
}

func cleanPath(p string) bool {
	return strings.HasPrefix(p, "/") && (p == path.Clean(p) || p == path.Clean(p)+"/")
}

// route answers with the endpoint of the request's method.
func (d *door) route(endpoints methods) http.HandlerFunc {
	if get, ok := endpoints[http.MethodGet]; ok {
		endpoints[http.MethodHead] = get
	}
	if _, ok := endpoints[http.MethodOptions]; !ok {
		endpoints[http.MethodOptions] = d.options
	}
	allow := strings.Join(slices.Sorted(maps.Keys(endpoints)), ", ")
	return func(w http.ResponseWriter, r *http.Request) {
		x := w.(*exchange)
		endpoint, ok := endpoints[r.Method]
		if !ok || r.Method == http.MethodOptions {
			x.Header().Set("Allow", allow)
		}
		if !ok {
			d.refuse(x, r, &boxoffice.Problem{Code: boxoffice.MethodNotAllowed, Detail: "this address takes " + allow})
			return
		}
		answer, err := endpoint(x, r)
		if err != nil {
			d.refuse(x, r, err)
			return
		}
		x.send(answer)
	}
}

// options answers OPTIONS where a token is needed: a browser that asks for a page
// of another origin hears no.
func (d *door) options(_ *exchange, r *http.Request) (answer, error) {
	return answer{status: http.StatusNoContent}, d.checkOrigin(r)
}

// originOf returns the origin of an address as a browser writes it (RFC 6454
// §6.2), or "" if it has none.
func originOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return ""
	}
	host := strings.ToLower(u.Host)
	switch u.Scheme {
	case "http":
		host = strings.TrimSuffix(host, ":80")
	case "https":
		host = strings.TrimSuffix(host, ":443")
	}
	return u.Scheme + "://" + host
}
