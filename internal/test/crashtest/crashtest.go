// Package crashtest kills a real server again and again while clients buy from it. Then it compares the chain, the
// databases and what the clients were told: every order must be paid exactly once, with its exact amount, and admitted
// once.
package crashtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"time"

	"boxoffice/internal/crash"
)

// Config says how much is bought and how often the server is killed.
type Config struct {
	Orders   int          // at least
	Seed     uint64       // decides the purchases, the kills and the chain's behaviour, but not their timing
	Steps    []crash.Step // to kill the server at; nil is every step
	Remote   bool         // the server settles through boxoffice facilitator, which is not killed
	Each     int          // kills at each step, at least
	Random   int          // kills at a random moment
	Buyers   int          // purchases at the same time; 0 is 24
	Dir      string       // an existing directory for the databases and the logs
	Progress io.Writer    // gets a line about each kill; nil discards them
	Timeout  time.Duration
}

// DefaultTimeout is more than a run with so many orders takes on a slow machine.
func DefaultTimeout(orders int) time.Duration {
	return 5*time.Minute + time.Duration(orders)*500*time.Millisecond
}

// maxServers is the most servers that are started and killed.
func (c *Config) maxServers() int { return c.Random + len(c.Steps)*c.Each*(1+maxAttempts) }

// suite is one run.
type suite struct {
	Config
	chain    *chain
	servers  *servers
	service  *service
	wallets  []*wallet
	orders   chan int // numbers of orders that may be bought now
	released int      // orders so far

	mu       sync.Mutex
	receipts []receipt
	bought   int
	report   Report
}

// Run buys cfg.Orders orders of a server that is killed again and again, and compares what is left. An error means that
// the run could not be completed; what the comparison found is in the report.
func Run(ctx context.Context, cfg Config) (report Report, err error) {
	if cfg.Steps == nil {
		cfg.Steps = crash.Steps
		if cfg.Remote {
			cfg.Steps = crash.RemoteSteps
		}
	}
	if cfg.Buyers == 0 {
		cfg.Buyers = 24
	}
	if cfg.Progress == nil {
		cfg.Progress = io.Discard
	}
	started := time.Now()
	timeout := fmt.Errorf("the crash suite took longer than %s", cfg.Timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.Timeout, timeout)
	defer cancel()
	s := &suite{
		Config: cfg, orders: make(chan int, cfg.Orders+cfg.maxServers()),
		report: Report{Config: cfg, Kills: map[crash.Step]int{}},
	}
	if err := s.open(ctx); err != nil {
		return s.report, err
	}
	defer func() { err = errors.Join(err, s.chain.Close()) }()
	if cfg.Remote {
		facilitator, err := s.servers.startFacilitator(ctx)
		if err != nil {
			return s.report, err
		}
		defer facilitator.kill()
	}
	err = s.run(ctx)
	s.report.Orders, s.report.Servers, s.report.Duration = s.released, s.servers.started, time.Since(started)
	return s.report, err
}

func (s *suite) open(ctx context.Context) error {
	if info, err := os.Stat(s.Dir); err != nil || !info.IsDir() {
		return fmt.Errorf("crash suite: %q is not a directory", s.Dir)
	}
	keys, err := newKeys(s.Seed, 20)
	if err != nil {
		return err
	}
	if s.wallets, err = newWallets(s.Dir, keys); err != nil {
		return err
	}
	if s.chain, err = startChain(ctx, keys); err != nil {
		return err
	}
	s.servers, err = newServers(ctx, s.Dir, s.chain, s.Remote)
	if err != nil {
		return errors.Join(err, s.chain.Close())
	}
	s.service = &service{baseURL: s.servers.config.BaseURL, chain: s.chain.Client(), http: &http.Client{
		Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: s.Buyers},
	}}
	return nil
}

// run lets the buyers buy while servers are killed, and compares when all orders are bought.
func (s *suite) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mining sync.WaitGroup
	mining.Go(func() {
		if err := s.chain.run(ctx, s.random(1)); err != nil {
			cancel(fmt.Errorf("the chain: %w", err))
		}
	})
	var buying sync.WaitGroup
	for range s.Buyers {
		buying.Go(func() {
			if err := s.buy(ctx); err != nil {
				cancel(err)
			}
		})
	}
	err := s.killServers(ctx)
	close(s.orders)
	if err == nil {
		err = s.finish(ctx, &buying)
	}
	if cause := context.Cause(ctx); cause != nil {
		err = errors.Join(cause, err)
	}
	if err != nil {
		cancel(err)
	} else {
		s.report.Audit, err = s.audit(ctx)
		cancel(nil)
	}
	buying.Wait()
	mining.Wait()
	return err
}

// buy buys orders until there are no more.
func (s *suite) buy(ctx context.Context) error {
	for n := range s.orders {
		receipts, err := s.service.buy(ctx, newPurchase(s.random(uint64(n)+1000), n, s.wallets))
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.receipts, s.bought = append(s.receipts, receipts...), s.bought+1
		s.mu.Unlock()
	}
	return nil
}

func (s *suite) random(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(s.Seed, stream)) }

// finish runs one last server until every buyer has all its orders and no payment is undecided, and then stops it with
// SIGTERM.
func (s *suite) finish(ctx context.Context, buying *sync.WaitGroup) error {
	s.chain.behaviour.Store(regular)
	last, err := s.servers.start(ctx, "", 0)
	if err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		buying.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-last.ended:
		return last.wasKilled()
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), last.kill())
	}
	s.progress("all orders are bought; waiting until every payment is decided")
	if err := errors.Join(s.service.awaitAnswer(ctx), s.awaitDecisions(ctx)); err != nil {
		return errors.Join(err, last.kill())
	}
	if err := s.buyAgain(ctx); err != nil {
		return errors.Join(err, last.kill())
	}
	s.service.http.CloseIdleConnections() // a server that stops waits for connections that were opened and never used
	return last.stop()
}

// buyAgain repeats every purchase under its request key. That returns the order as it is now and costs nothing.
func (s *suite) buyAgain(ctx context.Context) error {
	failures := make([]error, len(s.receipts))
	indexes := make(chan int)
	var buying sync.WaitGroup
	for range s.Buyers {
		buying.Go(func() {
			for i := range indexes {
				s.receipts[i].status, failures[i] = s.service.buyUntilAdmitted(ctx, s.receipts[i].purchase)
			}
		})
	}
	for i := range s.receipts {
		indexes <- i
	}
	close(indexes)
	buying.Wait()
	return errors.Join(failures...)
}

func (s *suite) progress(format string, args ...any) {
	fmt.Fprintf(s.Progress, format+"\n", args...)
}
