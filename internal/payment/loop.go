package payment

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"boxoffice"
)

// Leases lets one process at a time do what several could do.
type Leases interface {
	// HoldLease lets holder do the work called name until the given moment, or
	// reports that another process does it now.
	HoldLease(ctx context.Context, name, holder string, now, until boxoffice.Timestamp) (held bool, err error)
}

// LoopConfig is what a Loop needs.
type LoopConfig struct {
	Leases       Leases
	Holder       string        // names this process in the lease
	LeaseFor     time.Duration // how long a process that was killed keeps the lease
	PollEvery    time.Duration // how often a round runs without a Wake
	GatherFor    time.Duration // how long a round waits after a Wake, so that it finds several intents
	RecheckEvery time.Duration // how often RoundFuncs.Check runs while payments can be settled
	Now          func() time.Time
	Log          *slog.Logger
}

// RoundFuncs is what a Loop runs for a settler.
type RoundFuncs struct {
	Lease string // the name of the lease: one process at a time runs Round
	// Check finds out whether payments can be settled now: it returns nil, or why
	// not. Every process runs it. known is false if it did not find out.
	Check func(ctx context.Context) (known bool, reason error)
	// Unchecked is what Ready returns before the first Check.
	Unchecked error
	Round     func(ctx context.Context) error
	// Finish runs before the loop returns the lease; may be nil.
	Finish func()
}

// Loop runs the rounds of a settler.
type Loop struct {
	config    LoopConfig
	funcs     RoundFuncs
	wake      chan struct{}
	lastCheck time.Time
	ready     atomic.Pointer[error] // why no payment can be settled
	failed    atomic.Pointer[error] // why the last round failed
}

// NewLoop returns a Loop that has not started.
func NewLoop(c LoopConfig, funcs RoundFuncs) *Loop {
	l := &Loop{config: c, funcs: funcs, wake: make(chan struct{}, 1)}
	l.ready.Store(&funcs.Unchecked)
	l.failed.Store(new(error))
	return l
}

// Wake makes the next round run now: an intent is waiting.
func (l *Loop) Wake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Ready returns why no payment could be settled when Check last ran, nil if they
// could. While they cannot, no new payment should be accepted.
func (l *Loop) Ready() error { return *l.ready.Load() }

// Health returns why the last round failed, or else what Ready returns.
func (l *Loop) Health() error {
	if err := *l.failed.Load(); err != nil {
		return err
	}
	return l.Ready()
}

// Run runs rounds until ctx ends, then returns the lease. It logs a round that
// fails and tries again.
func (l *Loop) Run(ctx context.Context) {
	defer l.returnLease(context.WithoutCancel(ctx))
	if l.funcs.Finish != nil {
		defer l.funcs.Finish()
	}
	poll := time.NewTicker(l.config.PollEvery)
	defer poll.Stop()
	for {
		err := l.Round(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			l.config.Log.WarnContext(ctx, "settlement round failed; it will be tried again", "err", err)
		}
		l.failed.Store(&err)
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		case <-l.wake:
			select {
			case <-ctx.Done():
				return
			case <-time.After(l.config.GatherFor):
			}
		}
	}
}

// Round runs one round, if this process gets or has the lease.
func (l *Loop) Round(ctx context.Context) error {
	l.check(ctx)
	held, err := l.holdLease(ctx, l.config.LeaseFor)
	if err != nil || !held {
		return err
	}
	return l.funcs.Round(ctx)
}

// check runs RoundFuncs.Check in every round while payments cannot be settled, else
// every RecheckEvery.
func (l *Loop) check(ctx context.Context) {
	now := l.config.Now()
	if l.Ready() == nil && !passed(l.lastCheck, now, l.config.RecheckEvery) {
		return
	}
	l.lastCheck = now
	if known, reason := l.funcs.Check(ctx); known && ctx.Err() == nil {
		l.setReady(ctx, reason)
	}
}

func (l *Loop) setReady(ctx context.Context, reason error) {
	switch before := l.Ready(); {
	case before == nil && reason != nil:
		l.config.Log.ErrorContext(ctx, "payments cannot be settled; none is accepted until they can", "err", reason)
	case before != nil && reason == nil:
		l.config.Log.InfoContext(ctx, "payments can be settled")
	}
	l.ready.Store(&reason)
}

// holdLease takes or renews the lease, or reports that another process has it.
func (l *Loop) holdLease(ctx context.Context, length time.Duration) (held bool, err error) {
	now := boxoffice.At(l.config.Now())
	return l.config.Leases.HoldLease(ctx, l.funcs.Lease, l.config.Holder, now,
		now+boxoffice.Timestamp(length.Milliseconds()))
}

// returnLease ends the lease now, so that another process need not wait until it
// expires.
func (l *Loop) returnLease(ctx context.Context) {
	if _, err := l.holdLease(ctx, 0); err != nil {
		l.config.Log.WarnContext(ctx, "the settlement lease was not returned; it expires by itself", "err", err)
	}
}

// passed reports whether the interval has passed since the last time. It returns true
// also if the clock was set back behind the last time, so that this delays nothing.
func passed(last, now time.Time, interval time.Duration) bool {
	age := now.Sub(last)
	return age >= interval || age < 0
}
