package remote

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
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
	Store       Store
	Recorder    payment.Recorder
	Exposures   Exposures
	Decider     *payment.Decider // decides by the chain; nil: no RPC node is configured, and the facilitator's answer decides
	MaxInFlight int              // calls open at once
	RetryEvery  time.Duration    // how long to wait before a payment is handed over again; longer each time
	Decided     func()           // called after intents were decided by the facilitator's answer; may be nil
	Rounds      payment.LoopConfig
}

// Store is the part of payment.Store that a Settler needs.
type Store interface {
	Waiting(ctx context.Context, chainID uint64, limit int) ([]payment.Intent, error)
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
	*payment.Loop
	calls sync.WaitGroup
	mu    sync.Mutex
	asked map[boxoffice.UUID]*asking
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
	s := &Settler{SettlerConfig: c, asked: map[boxoffice.UUID]*asking{}}
	s.Loop = payment.NewLoop(c.Rounds, payment.Work{
		Lease:     fmt.Sprintf("facilitator/%d", c.ChainID),
		Check:     func(ctx context.Context) (bool, error) { return true, c.Client.Check(ctx) },
		Unchecked: errors.New("the facilitator has not been asked yet what it supports"),
		Round:     s.settleRound,
		Finish:    s.calls.Wait,
	})
	return s
}

// maxWaiting is how many waiting intents a round looks at.
const maxWaiting = 1000

// settleRound hands over the intents that are due and decides what can be
// decided. The calls run beside it, and each wakes the next round.
func (s *Settler) settleRound(ctx context.Context) error {
	waiting, err := s.Store.Waiting(ctx, s.ChainID, maxWaiting)
	if err != nil {
		return err
	}
	s.handOver(ctx, waiting)
	if s.Decider != nil {
		return s.Decider.Decide(ctx, waiting, s.refusals())
	}
	return s.decideByAnswers(ctx, waiting)
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
	now := s.Rounds.Now()
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
		s.Rounds.Log.InfoContext(ctx, "facilitator asked to settle", "intent", intent.ID, "outcome", answer.Outcome, "reason", answer.Reason, "detail", answer.Detail)
	}
	s.mu.Lock()
	pause := s.RetryEvery << min(a.tries-1, 6)
	a.open, a.heard, a.clean = false, &answer, !before
	a.next = s.Rounds.Now().Add(max(pause, min(answer.RetryAfter, maxRetryAfter)))
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

// decideByAnswers decides by the facilitator's word. None of its failures is final:
// that a permit is dead only the chain can tell.
func (s *Settler) decideByAnswers(ctx context.Context, waiting []payment.Intent) error {
	var failures []error
	for _, intent := range waiting {
		s.mu.Lock()
		a := *s.asked[intent.ID]
		s.mu.Unlock()
		if a.open || a.heard == nil {
			continue
		}
		decision := payment.Decision{Intent: intent, Outcome: payment.OutcomeFailed, Reason: string(a.heard.Reason)}
		deadline, fits := intent.Permit.Deadline.Uint64()
		late := fits && s.Rounds.Now().Add(-afterDeadline).Unix() > int64(deadline)
		switch {
		case a.heard.Outcome == Settled:
			decision = payment.Decision{Intent: intent, Outcome: payment.OutcomeSettled, Evidence: s.word(intent, *a.heard)}
		case a.heard.Outcome == Refused && a.clean:
		case a.heard.Outcome == Declined && a.clean && late:
		default:
			if late {
				s.Rounds.Log.ErrorContext(ctx, "a payment may have been settled and the facilitator does not tell; configure chain.rpc_url to let the chain decide",
					"intent", intent.ID, "order", intent.OrderID, "reason", a.heard.Reason)
			}
			continue
		}
		failures = append(failures, s.apply(ctx, decision))
	}
	return errors.Join(failures...)
}

func (s *Settler) apply(ctx context.Context, decision payment.Decision) error {
	err := s.Recorder.Record(ctx, nil, []payment.Decision{decision}, boxoffice.At(s.Rounds.Now()))
	if err != nil {
		return err
	}
	s.Rounds.Log.InfoContext(ctx, "payment decided by the facilitator's word", "intent", decision.Intent.ID, "verdict", decision.Outcome, "reason", decision.Reason)
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
		SettledAt: boxoffice.At(s.Rounds.Now()),
	}
}
