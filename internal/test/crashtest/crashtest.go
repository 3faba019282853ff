// Package crashtest kills a real server, again and again, under concurrent
// buyers, and then counts: by what stands on the chain and in the store, every
// order must have been paid exactly once, for its exact amount, and admitted
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
	"text/tabwriter"
	"time"

	"boxoffice/internal/crash"
)

// Config says how much is bought and how often the server dies.
type Config struct {
	Orders  int          // at least
	Seed    uint64       // decides the purchases, the deaths and the chain's moods; not their timing
	Steps   []crash.Step // to die at; nil is every step
	Remote  bool         // the server settles through boxoffice facilitator, which lives on
	Each    int          // how often to die at each step, at least
	Random  int          // how often to die at a random moment
	Buyers  int          // purchases under way at once; 0 is 24
	Dir     string       // where the data and the logs go; it must exist
	Tell    io.Writer    // hears of the progress; nil is silent
	Timeout time.Duration
}

// lives is the most lives that the server has before the last one.
func (c *Config) lives() int { return c.Random + len(c.Steps)*c.Each*(1+maxTries) }

// Report is what came of it.
type Report struct {
	Config
	Audit
	Kills    map[crash.Step]int
	AtRandom int
	Starts   int // of the server
	Took     time.Duration
}

// Failed returns why the suite is not passed, nil if it is.
func (r *Report) Failed() error {
	var failures []error
	for _, fault := range r.Faults {
		failures = append(failures, errors.New(fault))
	}
	for _, step := range r.Steps {
		if r.Kills[step] == 0 {
			failures = append(failures, fmt.Errorf("no server died at %q", step))
		}
	}
	return errors.Join(failures...)
}

// Write writes the report as a table.
func (r *Report) Write(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name string, value any) { fmt.Fprintf(table, "%s\t%v\n", name, value) } // Flush has the error
	row("seed", r.Seed)
	row("orders", r.Orders)
	row("transfers on the chain", r.Transfers)
	row("settling transactions", r.Slots)
	for _, step := range r.Steps {
		row("killed at "+string(step), r.Kills[step])
	}
	row("killed at random", r.AtRandom)
	row("starts", r.Starts)
	row("seconds", int(r.Took.Seconds()))
	row("lost", r.Lost)
	row("doubled", r.Doubled)
	return table.Flush()
}

// suite is one run.
type suite struct {
	Config
	chain   *ledger
	station *station
	market  *market
	wallets []*wallet
	tickets chan int // orders that may be bought now
	issued  int      // tickets so far

	mu     sync.Mutex
	views  []view
	bought int
	report Report
}

// Run buys cfg.Orders orders of a server that keeps dying, and audits. Its
// error means that the suite itself could not go on; what it found is in the
// report.
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
	if cfg.Tell == nil {
		cfg.Tell = io.Discard
	}
	started := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.Timeout, fmt.Errorf("the suite took longer than %s", cfg.Timeout))
	defer cancel()
	s := &suite{Config: cfg, tickets: make(chan int, cfg.Orders+cfg.lives()), report: Report{Config: cfg, Kills: map[crash.Step]int{}}}
	if err := s.open(ctx); err != nil {
		return s.report, err
	}
	defer func() { err = errors.Join(err, s.chain.Close()) }()
	if cfg.Remote {
		facilitator, err := s.station.startFacilitator(ctx)
		if err != nil {
			return s.report, err
		}
		defer facilitator.kill()
	}
	err = s.run(ctx)
	s.report.Orders, s.report.Starts, s.report.Took = s.issued, s.station.starts, time.Since(started)
	return s.report, err
}

func (s *suite) open(ctx context.Context) error {
	if info, err := os.Stat(s.Dir); err != nil || !info.IsDir() {
		return fmt.Errorf("crash suite: dir %q: must be a directory", s.Dir)
	}
	keys, err := newWallets(s.Seed, 20)
	if err != nil {
		return err
	}
	if s.wallets, err = newBuyers(s.Dir, keys); err != nil {
		return err
	}
	if s.chain, err = startLedger(ctx, keys); err != nil {
		return err
	}
	s.station, err = newStation(ctx, s.Dir, s.chain, s.Remote)
	if err != nil {
		return errors.Join(err, s.chain.Close())
	}
	s.market = &market{baseURL: s.station.config.BaseURL, chain: s.chain.Client(), http: &http.Client{
		Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: s.Buyers},
	}}
	return nil
}

// run has everybody buy while the server dies, and audits when all have bought.
func (s *suite) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var around sync.WaitGroup
	around.Go(func() {
		if err := s.chain.run(ctx, s.random(1)); err != nil {
			cancel(fmt.Errorf("the chain: %w", err))
		}
	})
	var buying sync.WaitGroup
	for range s.Buyers {
		buying.Go(func() {
			for n := range s.tickets {
				views, err := s.market.buy(ctx, newPurchase(s.random(uint64(n)+1000), n, s.wallets))
				if err != nil {
					cancel(err)
					return
				}
				s.mu.Lock()
				s.views, s.bought = append(s.views, views...), s.bought+1
				s.mu.Unlock()
			}
		})
	}
	err := s.torment(ctx)
	close(s.tickets)
	if err == nil {
		err = s.recover(ctx, &buying)
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
	around.Wait()
	return err
}

func (s *suite) random(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(s.Seed, stream)) }

// recover leaves one server alone until every buyer has what it ordered and
// nothing is under way, and then ends it in peace.
func (s *suite) recover(ctx context.Context, buying *sync.WaitGroup) error {
	s.chain.mood.Store(calm)
	last, err := s.station.start(ctx, "", 0)
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
		return last.died()
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), last.kill())
	}
	s.tell("all have bought; what is under way ends")
	if err := errors.Join(s.market.answers(ctx), s.quiet(ctx)); err != nil {
		return errors.Join(err, last.kill())
	}
	if err := s.askAgain(ctx); err != nil {
		return errors.Join(err, last.kill())
	}
	s.market.http.CloseIdleConnections() // a server waits for connections that were opened and never used
	return last.stop()
}

// askAgain has everybody buy once more under the same request key, which gives
// them what they have and costs nothing.
func (s *suite) askAgain(ctx context.Context) error {
	failures := make([]error, len(s.views))
	places := make(chan int)
	var asking sync.WaitGroup
	for range s.Buyers {
		asking.Go(func() {
			for i := range places {
				s.views[i].status, failures[i] = s.market.insist(ctx, s.views[i].purchase)
			}
		})
	}
	for i := range s.views {
		places <- i
	}
	close(places)
	asking.Wait()
	return errors.Join(failures...)
}

func (s *suite) tell(format string, args ...any) {
	fmt.Fprintf(s.Tell, format+"\n", args...)
}
