package payment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"boxoffice"
)

// SettlerConfig is what a Settler needs.
type SettlerConfig struct {
	ChainID       uint64
	Chain         Chain
	Wallet        Wallet
	Store         Store
	History       History
	Costs         Costs
	Holder        string        // names this process in the lease
	Confirmations uint64        // blocks that must hold a transfer before it counts, its own included; at least 1
	ReorgDepth    uint64        // blocks above one that no reorganisation takes back; below it, what was decided is watched
	MaxBatch      int           // permits in a transaction
	MaxInFlight   int           // slots open at once
	MaxTries      int           // confirmed transactions in vain after which an intent fails; at least 1
	GatherFor     time.Duration // how long a new intent waits for company
	PollEvery     time.Duration // how often the chain and the store are asked
	BumpAfter     time.Duration // how long a transaction may stay unmined before its fee rises
	LeaseFor      time.Duration // how long a settler that fell silent keeps the wallet
	RecheckEvery  time.Duration // how often the wallet, failed intents and settled ones are looked at
	Decided       func()        // called after intents were decided; may be nil
	Now           func() time.Time
	Log           *slog.Logger
}

// Settler carries saved intents to the chain and back. One runs for each
// settlement wallet; any number may be started, a lease in the store chooses.
//
// All that it knows is in the store and on the chain, so a round after a crash
// is a round like any other.
type Settler struct {
	SettlerConfig
	wake     chan struct{}
	newest   Head                    // the newest block seen: what was believed of the chain does not go back
	credited map[logID]bool          // transfers found to be credited already
	alone    map[boxoffice.UUID]bool // waiting intents that were found to go alone
	twoFaced twoFaced                // owners whose simulations are not believed
	wallet   due                     // the next look at the wallet
	past     due                     // the next look at what was decided
	unready  atomic.Pointer[error]
	health   atomic.Pointer[error]
}

// NewSettler returns a Settler.
func NewSettler(c SettlerConfig) *Settler {
	return &Settler{SettlerConfig: c, wake: make(chan struct{}, 1), credited: map[logID]bool{}, alone: map[boxoffice.UUID]bool{}, twoFaced: twoFaced{}}
}

// Wake tells the settler that an intent is waiting.
func (s *Settler) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run settles until ctx ends, and then leaves the wallet to others. A round
// that fails is logged and tried again.
func (s *Settler) Run(ctx context.Context) {
	defer s.yield(context.WithoutCancel(ctx))
	poll := time.NewTicker(s.PollEvery)
	defer poll.Stop()
	for {
		err := s.Round(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.Log.WarnContext(ctx, "settlement round failed; it will be tried again", "err", err)
		}
		s.health.Store(&err)
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		case <-s.wake:
			select {
			case <-ctx.Done():
				return
			case <-time.After(s.GatherFor):
			}
		}
	}
}

// Health returns why the last round failed, or why the wallet cannot settle;
// nil if all is well.
func (s *Settler) Health() error {
	if err := s.health.Load(); err != nil && *err != nil {
		return *err
	}
	return s.Ready()
}

// Ready returns why the wallet could not settle a new payment when it was last
// looked at, nil if it could. While it cannot, none should be taken.
func (s *Settler) Ready() error {
	if err := s.unready.Load(); err != nil {
		return *err
	}
	return nil
}

func (s *Settler) lease(ctx context.Context, length time.Duration) error {
	now := boxoffice.At(s.Now())
	name := fmt.Sprintf("settler/%d/%s", s.ChainID, s.Wallet.Address())
	return s.Store.Lease(ctx, name, s.Holder, now, now+boxoffice.Timestamp(length.Milliseconds()))
}

func (s *Settler) yield(ctx context.Context) {
	if err := s.lease(ctx, 0); err != nil && !errors.Is(err, ErrStale) {
		s.Log.WarnContext(ctx, "the settlement lease was not given back; it runs out by itself", "err", err)
	}
}

// due is when something is done again. A clock that is set back does not delay
// it.
type due struct{ last time.Time }

func (d *due) at(now time.Time, every time.Duration) bool {
	age := now.Sub(d.last)
	return age >= every || age < 0
}

// view is what a round believes of the chain. Nothing is concluded from a block
// after confirmed, and that a permit is dead only from one that is buried.
type view struct {
	head      Head
	confirmed uint64
	buried    uint64
}

// look returns the newest block that any node told of. A node that lags behind
// others is not believed: every question names a block of the view, and a node
// that does not know it yet fails the round.
func (s *Settler) look(ctx context.Context) (view, error) {
	head, err := s.Chain.Head(ctx)
	if err != nil {
		return view{}, err
	}
	if head.Number >= s.newest.Number {
		s.newest = head
	}
	at := func(depth uint64) uint64 { return s.newest.Number - min(s.newest.Number, depth) }
	return view{head: s.newest, confirmed: at(s.Confirmations - 1), buried: at(max(s.Confirmations-1, s.ReorgDepth))}, nil
}

// Round looks once at everything that is under way and moves what can be
// moved. A crash between any two of its steps loses nothing:
//
//  1. Take the lease. Two settlers that both believe to hold it cannot pay
//     twice: a slot's wallet nonce and an intent's state are taken in the store
//     before anything is signed away.
//  2. Look again at what was decided: settled intents that a reorganisation may
//     have undone, failed ones that somebody may have settled.
//  3. Follow the open slots: credit what is confirmed, release what was left
//     out, send again or at a higher fee what is not mined.
//  4. Put waiting intents into a new slot: simulate, sign, SAVE, broadcast. A
//     crash before saving leaves them waiting; after it, step 3 broadcasts.
func (s *Settler) Round(ctx context.Context) error {
	s.checkWallet(ctx)
	err := s.lease(ctx, s.LeaseFor)
	if errors.Is(err, ErrStale) {
		return nil
	}
	if err != nil {
		return err
	}
	v, err := s.look(ctx)
	if err != nil {
		return err
	}
	reviewed := s.review(ctx, v)
	open, err := s.follow(ctx, v)
	return errors.Join(reviewed, err, s.dispatch(ctx, v, open))
}

// checkWallet finds out whether the wallet can settle, at every round while it
// cannot.
func (s *Settler) checkWallet(ctx context.Context) {
	before := s.Ready()
	if before == nil && !s.wallet.at(s.Now(), s.RecheckEvery) {
		return
	}
	s.wallet.last = s.Now()
	err := s.Wallet.Ready(ctx)
	if !errors.Is(err, ErrWalletEmpty) && !errors.Is(err, ErrFeeCeiling) {
		if err != nil {
			return // the chain did not answer, which says nothing of the wallet
		}
		if before != nil {
			s.Log.InfoContext(ctx, "the settlement wallet can settle again")
		}
	}
	s.setReady(ctx, err)
}

func (s *Settler) setReady(ctx context.Context, err error) {
	if err != nil && s.Ready() == nil {
		s.Log.ErrorContext(ctx, "the settlement wallet cannot settle; no payment is taken until it can", "err", err)
	}
	s.unready.Store(&err)
}
