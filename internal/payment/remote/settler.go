package remote

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"boxoffice"
	"boxoffice/internal/crash"
	"boxoffice/internal/payment"

	"github.com/ethereum/go-ethereum/crypto"
)

// Exposures remembers which payments the facilitator may have sent.
type Exposures interface {
	// MarkExposed notes that a payment is handed to the facilitator, before it is. It
	// reports whether that was noted before.
	MarkExposed(ctx context.Context, intentID boxoffice.UUID) (before bool, err error)
	// ClearExposed takes the note back: the facilitator said that it sent nothing.
	ClearExposed(ctx context.Context, intentID boxoffice.UUID) error
}

// SettlerConfig is what a Settler needs.
type SettlerConfig struct {
	ChainID     uint64
	Client      *Client
	Store       payment.Store
	Exposures   Exposures
	Observer    *payment.Observer // decides by the chain; nil: no node is configured, and the facilitator's word decides
	Holder      string            // names this process in the lease
	MaxInFlight int               // calls open at once
	PollEvery   time.Duration     // how often the store and the chain are asked
	RetryEvery  time.Duration     // how long to wait before a payment is handed over again; longer each time
	LeaseFor    time.Duration     // how long a process that fell silent keeps the others out
	CheckEvery  time.Duration     // how often the facilitator is asked what it supports
	Decided     func()            // called after intents were decided; may be nil
	Now         func() time.Time
	Log         *slog.Logger
}

// Settler carries saved intents to a facilitator until their outcome is known.
// They stay waiting meanwhile. All that it has to know is in the store, so it
// can die at any moment; what it forgets is only when to ask next.
//
//	   MarkExposed is saved        Settled, or by the chain
//	waiting ──▶ the call ──┬──▶ settled
//	   ▲                   ├──▶ failed    Refused, and no earlier call can have sent it
//	   └───────────────────┘    Open, Declined: asked again in the same bytes
type Settler struct {
	SettlerConfig
	wake   chan struct{}
	calls  sync.WaitGroup
	mu     sync.Mutex
	asked  map[boxoffice.UUID]*asking
	last   time.Time // the last Check
	ready  atomic.Pointer[error]
	health atomic.Pointer[error]
}

// asking is what the process remembers of an intent.
type asking struct {
	open  bool // a call is under way
	tries int
	next  time.Time // of the next call
	heard *Answer   // the last answer; nil before the first
	clean bool      // heard was said with no earlier call that may have sent the payment
}

// NewSettler returns a Settler.
func NewSettler(c SettlerConfig) *Settler {
	s := &Settler{SettlerConfig: c, wake: make(chan struct{}, 1), asked: map[boxoffice.UUID]*asking{}}
	unchecked := errors.New("the facilitator has not been asked yet what it supports")
	s.ready.Store(&unchecked)
	return s
}

// Wake tells the settler that an intent is waiting.
func (s *Settler) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Ready returns why the facilitator cannot settle a new payment, nil if it
// could when it was last asked.
func (s *Settler) Ready() error { return *s.ready.Load() }

// Health returns why the last round failed, or why the facilitator cannot
// settle; nil if all is well.
func (s *Settler) Health() error {
	if err := s.health.Load(); err != nil && *err != nil {
		return *err
	}
	return s.Ready()
}

// Run settles until ctx ends. A round that fails is logged and tried again.
func (s *Settler) Run(ctx context.Context) {
	defer func() {
		s.calls.Wait()
		s.yield(context.WithoutCancel(ctx))
	}()
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
		}
	}
}

// waitingAtOnce is how many waiting intents a round looks at.
const waitingAtOnce = 1000

// Round hands over what is due and decides what can be decided. The calls run
// beside it and wake the next round.
func (s *Settler) Round(ctx context.Context) error {
	s.check(ctx)
	err := s.lease(ctx, s.LeaseFor)
	if errors.Is(err, payment.ErrStale) {
		return nil
	}
	if err != nil {
		return err
	}
	waiting, err := s.Store.Waiting(ctx, s.ChainID, waitingAtOnce)
	if err != nil {
		return err
	}
	s.handOver(ctx, waiting)
	if s.Observer != nil {
		return s.Observer.Decide(ctx, waiting, s.refusals())
	}
	return s.believe(ctx, waiting)
}

func (s *Settler) check(ctx context.Context) {
	before := s.Ready()
	if age := s.Now().Sub(s.last); before == nil && age >= 0 && age < s.CheckEvery {
		return
	}
	s.last = s.Now()
	err := s.Client.Check(ctx)
	if ctx.Err() != nil {
		return
	}
	switch {
	case err != nil && before == nil:
		s.Log.ErrorContext(ctx, "the facilitator cannot settle; no payment is taken until it can", "err", err)
	case err == nil && before != nil:
		s.Log.InfoContext(ctx, "the facilitator settles on this chain")
	}
	s.ready.Store(&err)
}

func (s *Settler) lease(ctx context.Context, length time.Duration) error {
	now := boxoffice.At(s.Now())
	return s.Store.Lease(ctx, fmt.Sprintf("facilitator/%d", s.ChainID), s.Holder, now, now+boxoffice.Timestamp(length.Milliseconds()))
}

func (s *Settler) yield(ctx context.Context) {
	if err := s.lease(ctx, 0); err != nil && !errors.Is(err, payment.ErrStale) {
		s.Log.WarnContext(ctx, "the settlement lease was not given back; it runs out by itself", "err", err)
	}
}

// handOver starts a call for each waiting intent that is due, and forgets those
// that wait no more.
func (s *Settler) handOver(ctx context.Context, waiting []payment.Intent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.asked
	s.asked = make(map[boxoffice.UUID]*asking, len(waiting))
	open := 0
	for id, a := range known {
		if a.open {
			s.asked[id] = a
			open++
		}
	}
	now := s.Now()
	for _, intent := range waiting {
		a := known[intent.ID]
		if a == nil {
			a = new(asking)
		}
		s.asked[intent.ID] = a
		wait := a.next.Sub(now)
		if a.open || open >= s.MaxInFlight || wait > 0 && wait <= s.longest() {
			continue
		}
		a.open, a.tries = true, a.tries+1
		open++
		s.calls.Go(func() { s.ask(ctx, intent, a) })
	}
}

// longest is the longest pause between two calls for a payment. A clock that
// is set back does not make it longer.
func (s *Settler) longest() time.Duration { return max(64*s.RetryEvery, maxRetryAfter) }

// maxRetryAfter bounds what a facilitator may ask us to wait.
const maxRetryAfter = time.Minute

// ask hands one intent over. That the facilitator may send it is saved first.
func (s *Settler) ask(ctx context.Context, intent payment.Intent, a *asking) {
	before, err := s.Exposures.MarkExposed(ctx, intent.ID)
	var answer Answer
	if err != nil {
		answer = Answer{Outcome: Declined, Reason: noAnswer, Detail: "not asked: the store is away"}
	} else {
		crash.At(crash.ExposureSaved)
		answer = s.Client.Settle(ctx, intent)
		crash.At(crash.FacilitatorHeard)
		if !before && (answer.Outcome == Declined || answer.Outcome == Refused) {
			err = s.Exposures.ClearExposed(ctx, intent.ID)
			before = err != nil
		}
	}
	if ctx.Err() == nil {
		s.Log.InfoContext(ctx, "facilitator asked to settle", "intent", intent.ID, "outcome", answer.Outcome, "reason", answer.Reason, "detail", answer.Detail)
	}
	s.mu.Lock()
	pause := s.RetryEvery << min(a.tries-1, 6)
	a.open, a.heard, a.clean = false, &answer, !before
	a.next = s.Now().Add(max(pause, min(answer.RetryAfter, maxRetryAfter)))
	s.mu.Unlock()
	s.Wake()
}

// refusals returns why the facilitator will not settle, for the intents that it
// never can have sent.
func (s *Settler) refusals() map[boxoffice.UUID]*payment.Rejection {
	s.mu.Lock()
	defer s.mu.Unlock()
	refusals := map[boxoffice.UUID]*payment.Rejection{}
	for id, a := range s.asked {
		if !a.open && a.heard != nil && a.heard.Outcome == Refused && a.clean {
			refusals[id] = &payment.Rejection{Reason: a.heard.Reason, Detail: a.heard.Detail}
		}
	}
	return refusals
}

// afterDeadline is how long after its deadline a payment that the facilitator
// never took is given up, if no chain can be asked: blocks may trail the clock.
const afterDeadline = 2 * time.Minute

// believe decides by the facilitator's word. None of its failures is final:
// that a permit is dead only the chain can tell.
func (s *Settler) believe(ctx context.Context, waiting []payment.Intent) error {
	var failures []error
	for _, intent := range waiting {
		s.mu.Lock()
		a := *s.asked[intent.ID]
		s.mu.Unlock()
		if a.open || a.heard == nil {
			continue
		}
		decision := payment.Decision{IntentID: intent.ID, Outcome: payment.OutcomeFailed, Reason: string(a.heard.Reason)}
		deadline, fits := intent.Permit.Deadline.Uint64()
		late := fits && s.Now().Add(-afterDeadline).Unix() > int64(deadline)
		switch {
		case a.heard.Outcome == Settled:
			decision = payment.Decision{IntentID: intent.ID, Outcome: payment.OutcomeSettled, Evidence: s.word(intent, *a.heard)}
		case a.heard.Outcome == Refused && a.clean:
		case a.heard.Outcome == Declined && a.clean && late:
		default:
			if late {
				s.Log.ErrorContext(ctx, "a payment may have been settled and the facilitator does not tell; configure chain.rpc_url to let the chain decide",
					"intent", intent.ID, "order", intent.OrderID, "reason", a.heard.Reason)
			}
			continue
		}
		failures = append(failures, s.apply(ctx, decision))
	}
	return errors.Join(failures...)
}

func (s *Settler) apply(ctx context.Context, decision payment.Decision) error {
	err := s.Store.Settle(ctx, nil, []payment.Decision{decision}, boxoffice.At(s.Now()))
	if err != nil {
		return err
	}
	s.Log.InfoContext(ctx, "payment decided by the facilitator's word", "intent", decision.IntentID, "verdict", decision.Outcome, "reason", decision.Reason)
	if s.Decided != nil {
		s.Decided()
	}
	return nil
}

// word is the evidence that a facilitator's answer is. It names the transaction
// and no log or block of it, for nobody looked: the block is 0, and in place of
// the log stands a number above all logs that is the permit's own, so that each
// permit is credited once and many can share a transaction.
func (s *Settler) word(intent payment.Intent, answer Answer) *payment.Evidence {
	digest := intent.Permit.Digest(s.ChainID)
	return &payment.Evidence{
		TxHash:    answer.Transaction,
		LogIndex:  uint(1<<62 | binary.BigEndian.Uint64(crypto.Keccak256(intent.Permit.From[:], digest[:]))>>2),
		SettledAt: boxoffice.At(s.Now()),
	}
}
