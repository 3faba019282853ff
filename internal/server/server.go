// Package server makes the parts of the service from a configuration, connects them
// and runs them. It decides nothing itself.
package server

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"boxoffice"
	"boxoffice/api"
	"boxoffice/internal/action"
	"boxoffice/internal/action/judge"
	"boxoffice/internal/httpapi"
	"boxoffice/internal/httpapi/ratelimit"
	"boxoffice/internal/order"
	"boxoffice/internal/payment"
	"boxoffice/internal/payment/evm"
	"boxoffice/internal/store/sqlite"
	"boxoffice/internal/work"
	"boxoffice/internal/work/delivery"
)

// Options is what New needs beside the configuration.
type Options struct {
	Config
	Key      *ecdsa.PrivateKey // pays the gas of settlements
	Log      *slog.Logger
	Listener net.Listener     // nil: listens on Config.Listen
	Now      func() time.Time // nil: time.Now
	// LeaveUnfollowed starts the service although payments of another configuration
	// are not decided and will not be followed.
	LeaveUnfollowed bool
}

// Server is the whole service in one process.
type Server struct {
	Options
	store    *sqlite.Store
	chain    *evm.Chain
	flow     *order.Flow
	settler  settlement
	work     *works
	launches *launchChains
	handler  http.Handler
	operator net.Listener
	checked  atomic.Pointer[error] // the result of the last check of the chain; nil before the first check
	ready    chan struct{}         // closed when the chain is known to be the configured one
}

// New opens the database and the listeners. It does not need the RPC node to answer;
// Run waits for it.
func New(ctx context.Context, options Options) (*Server, error) {
	return start(ctx, options, (*Server).open)
}

func start(ctx context.Context, options Options, open func(*Server, context.Context) error) (*Server, error) {
	if options.Now == nil {
		options.Now = time.Now
	}
	s := &Server{Options: options, ready: make(chan struct{})}
	if err := open(s, ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Server) open(ctx context.Context) (err error) {
	if s.store, err = sqlite.Open(ctx, sqlite.Config{Path: s.Store.Path}); err != nil {
		return err
	}
	if err := s.checkFollowed(ctx); err != nil {
		return err
	}
	if err := s.dialChain(ctx, s.Payment.Asset); err != nil {
		return err
	}
	s.launches = newLaunchChains(s.Launches, s.Log)
	catalog, err := s.catalog()
	if err != nil {
		return err
	}
	s.flow = order.New(order.Config{
		Store:   s.store,
		Actions: catalog,
		Verifier: payment.NewVerifier(payment.VerifierConfig{
			Standings: s.standings(), Pending: s.store, KeysOnly: s.chain == nil, Now: s.Now,
			Ready: func() error { return s.settler.Ready() },
		}),
		BaseURL: s.BaseURL, ServiceName: s.ServiceName, ChainID: s.Chain.ID,
		Token:      s.token(),
		MaxTimeout: time.Duration(s.Payment.MaxTimeout),
		Wait:       time.Duration(s.SubmitWait),
		Accepted:   func() { s.settler.Wake() },
		Now:        s.Now, Log: s.Log,
	})
	s.openSettlement(s.flow.Decided)
	if s.work, err = openWork(s.Options, s.store); err != nil {
		return err
	}
	if err := s.openHTTP(catalog); err != nil {
		return err
	}
	return s.listen(s.Listen)
}

// listen opens the listeners for requesters and for the operator.
func (s *Server) listen(address string) (err error) {
	if s.Listener == nil {
		if s.Listener, err = net.Listen("tcp", address); err != nil {
			return err
		}
	}
	if s.OperatorListen != "" {
		s.operator, err = net.Listen("tcp", s.OperatorListen)
	}
	return err
}

func (s *Server) catalog() (*action.Catalog, error) {
	hosts, err := delivery.NewHosts(s.Delivery.AllowedHosts)
	if err != nil {
		return nil, err
	}
	config := action.Config{
		Payment: s.paymentTerms(), Prices: s.Payment.Prices, Launches: s.Launches.terms(), Live: s.launches.Live,
		Delivers: hosts.Check, Originals: s.store,
	}
	if s.Judge.URL != "" {
		config.Judge = judge.HTTP{URL: s.Judge.URL, Timeout: time.Duration(s.Judge.Timeout)}
	}
	return action.New(config)
}

// openHTTP makes the handler of the requesters' routes.
func (s *Server) openHTTP(catalog *action.Catalog) error {
	document, err := api.Document(api.Options{
		BaseURL: s.BaseURL, ServiceName: s.ServiceName,
		Policies: catalog.Policies(), Limits: catalog.Limits(), Schemas: action.Schemas(),
	})
	if err != nil {
		return err
	}
	capabilities := s.capabilities(catalog)
	s.handler = httpapi.New(httpapi.Config{
		Flow: s.flow, Work: s.store, Git: s.work.git, Callbacks: s.work.callbacks,
		BaseURL: s.BaseURL, Document: document,
		Capabilities: func(context.Context) boxoffice.Capabilities {
			current := capabilities
			current.Launches = catalog.Launches()
			return current
		},
		PerToken:       ratelimit.Rate(s.Limits.PerToken),
		PerAddress:     ratelimit.Rate(s.Limits.PerAddress),
		TrustedProxies: s.Limits.TrustedProxies,
		Log:            s.Log, Now: s.Now,
	})
	return nil
}

// Addr is the address on which requesters are served.
func (s *Server) Addr() string { return s.Listener.Addr().String() }

// Ready is closed when the service accepts payments for the first time.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// operatorHandler returns the handler of the operator's routes.
func (s *Server) operatorHandler() http.Handler {
	return httpapi.NewOperator(httpapi.OperatorConfig{
		Payments: s.store, Work: work.Canceller{Store: s.store}, Log: s.Log, Now: s.Now,
		Health: map[string]func(context.Context) error{
			"store":   s.store.Ping,
			"chain":   func(context.Context) error { return s.chainHealth() },
			"settler": func(context.Context) error { return s.settler.Health() },
		},
	})
}

// OperatorAddr is the address of the operator's HTTP, empty if there is none.
func (s *Server) OperatorAddr() string {
	if s.operator == nil {
		return ""
	}
	return s.operator.Addr().String()
}

// Run serves until ctx ends, then lets open requests finish within ShutdownGrace. It
// fails if the chain is not the configured one.
func (s *Server) Run(ctx context.Context) error {
	loops, stopLoops := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLoops()
	var running sync.WaitGroup
	failed := make(chan error, 4)
	requesters := newHTTPServer(s.handler)
	running.Go(func() { failed <- serve(requesters, s.Listener) })
	operator := newHTTPServer(s.operatorHandler())
	if s.operator != nil {
		running.Go(func() { failed <- serve(operator, s.operator) })
	}
	if s.flow != nil {
		running.Go(func() { s.flow.Run(loops) })
		running.Go(func() { s.launches.run(loops) })
		running.Go(func() {
			if err := s.work.run(loops); err != nil {
				failed <- err
			}
		})
	}
	running.Go(func() {
		if err := s.waitForChain(loops); err != nil {
			failed <- err
			return
		}
		s.settler.Run(loops)
	})
	s.Log.InfoContext(ctx, "serving", "baseUrl", s.BaseURL, "listen", s.Addr(), "operator", s.OperatorAddr(),
		"chain", s.Chain.ID)

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Duration(s.ShutdownGrace))
	defer cancel()
	err = errors.Join(err, requesters.Shutdown(grace), operator.Shutdown(grace))
	stopLoops()
	running.Wait()
	return err
}

func serve(server *http.Server, listener net.Listener) error {
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func newHTTPServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo), // it would log connections that clients broke
	}
}

// Close closes what New opened. Call it after Run has returned.
func (s *Server) Close() error {
	var failures []error
	for _, listener := range []net.Listener{s.Listener, s.operator} {
		if listener != nil {
			if err := listener.Close(); !errors.Is(err, net.ErrClosed) {
				failures = append(failures, err)
			}
		}
	}
	if s.chain != nil {
		s.chain.Close()
	}
	if s.store != nil {
		failures = append(failures, s.store.Close())
	}
	return errors.Join(failures...)
}

// waitForChain checks the chain until the RPC node answers. If the answer contradicts
// the configuration it returns an error: payments on another chain or in another token
// must not be accepted.
func (s *Server) waitForChain(ctx context.Context) error {
	if s.chain == nil {
		close(s.ready)
		return nil
	}
	retry := time.NewTicker(time.Second)
	defer retry.Stop()
	for {
		facts, err := s.chain.Check(ctx)
		if err == nil && s.flow != nil && int(facts.Token.Decimals) != s.Payment.Decimals {
			err = fmt.Errorf("%w: payment.decimals is %d, the token has %d", evm.ErrWrongChain, s.Payment.Decimals,
				facts.Token.Decimals)
		}
		if err == nil && s.Settlement.Via == ViaKey && !facts.Settlement {
			err = evm.ErrNotDeployed
		}
		s.checked.Store(&err)
		switch {
		case err == nil:
			close(s.ready)
			s.Log.InfoContext(ctx, "chain checked", "chain", s.Chain.ID, "token", facts.Token.Symbol)
			return nil
		case errors.Is(err, evm.ErrWrongChain), errors.Is(err, evm.ErrNotDeployed):
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		s.Log.WarnContext(ctx, "the RPC node does not answer: no payment is accepted or settled", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-retry.C:
		}
	}
}

var errUnchecked = errors.New("the RPC node has not answered yet")

func (s *Server) chainHealth() error {
	if s.chain == nil {
		return nil
	}
	if err := s.checked.Load(); err != nil {
		return *err
	}
	return errUnchecked
}

// checkedStandings accepts no payment before the chain is known to be the
// configured one.
type checkedStandings struct{ server *Server }

func (c checkedStandings) Standing(
	ctx context.Context, permits []payment.Permit, approvals ...payment.Approval,
) ([]payment.Standing, error) {
	if err := c.server.chainHealth(); err != nil {
		return nil, err
	}
	return c.server.chain.Standing(ctx, permits, approvals...)
}
