package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"boxoffice"
	"boxoffice/internal/crash"
	"boxoffice/internal/payment"
)

// Exposures saves which intents are exposed: the facilitator may have sent them.
type Exposures interface {
	// MarkExposed marks an intent as exposed, before the facilitator is called. It
	// reports whether the intent was exposed before.
	MarkExposed(ctx context.Context, intentID boxoffice.UUID) (before bool, err error)
	// ClearExposed removes the mark: the facilitator replied that it sent nothing.
	ClearExposed(ctx context.Context, intentID boxoffice.UUID) error
}

// SettlerConfig is what a Settler needs.
type SettlerConfig struct {
	ChainID   uint64
	Client    *Client
	Store     Store
	Decisions payment.Decisions
	Exposures Exposures
	// Decider decides by the chain. It is nil if no RPC node is configured: then the
	// facilitator's replies decide.
	Decider     *payment.Decider
	MaxInFlight int           // calls under way at once
	RetryEvery  time.Duration // the pause before the second call for an intent; each further one is twice as long
	Rounds      payment.LoopConfig
}

// Store is the part of payment.Store that a Settler needs.
type Store interface {
	Waiting(ctx context.Context, chainID uint64, limit int) ([]payment.Intent, error)
}

// Settler hands waiting intents to a facilitator until their outcome is known.
// They stay waiting meanwhile. Everything that must not be lost is in the store. A
// crash loses only the last replies and the times of the next calls.
//
//	       MarkExposed, then the call
//	waiting ──────────────┬──▶ settled   ReplySettled, or the chain has its Transfer
//	   ▲                  ├──▶ failed    ReplyRefused, and no earlier call can have sent it
//	   └──────────────────┘    ReplyUnknown, ReplyNotTaken: called again with the same bytes
type Settler struct {
	SettlerConfig
	*payment.Loop
	calls     sync.WaitGroup
	mu        sync.Mutex
	handovers map[boxoffice.UUID]*handover
}

// handover is what this process remembers of the calls for one intent.
type handover struct {
	calling   bool // a call is under way
	calls     int
	next      time.Time // when to call again
	reply     *Reply    // the last; nil before the first
	neverSent bool      // reply says that the payment was not sent, and no call before it can have sent it
}

// NewSettler returns a Settler.
func NewSettler(c SettlerConfig) *Settler {
	s := &Settler{SettlerConfig: c, handovers: map[boxoffice.UUID]*handover{}}
	s.Loop = payment.NewLoop(c.Rounds, payment.RoundFuncs{
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

// settleRound starts the calls that are due and decides what can be decided. The
// calls go on beside the rounds, and each wakes the next round when it ends.
func (s *Settler) settleRound(ctx context.Context) error {
	waiting, err := s.Store.Waiting(ctx, s.ChainID, maxWaiting)
	if err != nil {
		return err
	}
	s.startCalls(ctx, waiting)
	if s.Decider != nil {
		return s.Decider.Decide(ctx, waiting, s.refusals())
	}
	return s.decideByReplies(ctx, waiting)
}

// startCalls starts a call for each waiting intent that is due, and forgets the
// intents that do not wait any more.
func (s *Settler) startCalls(ctx context.Context, waiting []payment.Intent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.handovers
	s.handovers = make(map[boxoffice.UUID]*handover, len(waiting))
	calling := 0
	for id, h := range known {
		if h.calling {
			s.handovers[id] = h
			calling++
		}
	}
	now := s.Rounds.Now()
	for _, intent := range waiting {
		h := known[intent.ID]
		if h == nil {
			h = new(handover)
		}
		s.handovers[intent.ID] = h
		wait := h.next.Sub(now)
		if h.calling || calling >= s.MaxInFlight || wait > 0 && wait <= s.longestPause() {
			continue
		}
		h.calling, h.calls = true, h.calls+1
		calling++
		s.calls.Go(func() { s.callFacilitator(ctx, intent, h) })
	}
}

// longestPause is the longest pause between two calls for an intent. If the next
// call is further away than that, the clock was set back, and the call is due.
func (s *Settler) longestPause() time.Duration { return max(64*s.RetryEvery, maxRetryAfter) }

// maxRetryAfter is the longest pause that a facilitator may ask for.
const maxRetryAfter = time.Minute

// callFacilitator hands one intent to the facilitator. Before the call it saves
// that the intent is exposed, and after a reply that nothing was sent it clears
// that, unless an earlier call may have sent the payment. A crash
//   - before the intent is marked: the next process calls for the first time;
//   - after that, in the call or before its reply is used: the intent stays exposed,
//     so the next process calls with the same bytes and ignores a refusal.
func (s *Settler) callFacilitator(ctx context.Context, intent payment.Intent, h *handover) {
	exposed, err := s.Exposures.MarkExposed(ctx, intent.ID)
	var reply Reply
	if err != nil {
		exposed = true // an earlier call may have sent it
		reply = Reply{Kind: ReplyNotTaken, Reason: reasonNotTaken, Detail: "not called: the store did not answer"}
	} else {
		crash.At(crash.ExposureSaved)
		reply = s.Client.Settle(ctx, intent)
		crash.At(crash.FacilitatorReplied)
		if !exposed && (reply.Kind == ReplyNotTaken || reply.Kind == ReplyRefused) {
			err = s.Exposures.ClearExposed(ctx, intent.ID)
			exposed = err != nil
		}
	}
	if ctx.Err() == nil {
		s.Rounds.Log.InfoContext(ctx, "facilitator called to settle", "intent", intent.ID, "reply", reply.Kind,
			"reason", reply.Reason, "detail", reply.Detail)
	}
	s.mu.Lock()
	pause := s.RetryEvery << min(h.calls-1, 6)
	h.calling, h.reply, h.neverSent = false, &reply, !exposed
	h.next = s.Rounds.Now().Add(max(pause, min(reply.RetryAfter, maxRetryAfter)))
	s.mu.Unlock()
	s.Wake()
}
