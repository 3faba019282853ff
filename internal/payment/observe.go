package payment

import (
	"context"
	"errors"

	"boxoffice"
)

// Observer decides intents that somebody else carries to the chain, by the same
// evidence as a Settler: the nonce and the Transfer in the confirmed chain. It
// has no wallet and follows no slots.
type Observer struct{ settler *Settler }

// NewObserver returns an Observer. Of the configuration it needs ChainID, Chain,
// Store, History, Confirmations, ReorgDepth, RecheckEvery, Now and Log; Decided
// may be nil.
func NewObserver(c SettlerConfig) *Observer { return &Observer{NewSettler(c)} }

// Decide looks once at the chain and decides those of the waiting intents that
// it can. An intent with a refusal fails for it, unless its nonce is spent. Now
// and then it looks again at what was decided before: at failed intents that
// somebody may have settled, and at settled ones that the chain may have taken
// back.
func (o *Observer) Decide(ctx context.Context, waiting []Intent, refusals map[boxoffice.UUID]*Rejection) error {
	s := o.settler
	again := s.past.at(s.Now(), s.RecheckEvery)
	if len(waiting) == 0 && !again {
		return nil
	}
	v, err := s.look(ctx)
	if err != nil {
		return err
	}
	cases := make([]doubt, len(waiting))
	for i, intent := range waiting {
		cases[i] = doubt{intent: intent, failure: refusals[intent.ID]}
	}
	failures := []error{s.conclude(ctx, v, cases)}
	if again {
		s.past.last = s.Now()
		failures = append(failures, o.review(ctx, v))
	}
	return errors.Join(failures...)
}

func (o *Observer) review(ctx context.Context, v view) error {
	s := o.settler
	failed, err := s.Store.Unresolved(ctx, s.ChainID, reviewFailed)
	if err != nil {
		return err
	}
	cases := make([]doubt, len(failed))
	for i, intent := range failed {
		cases[i] = doubt{intent: intent}
	}
	settled, err := s.History.Settled(ctx, s.ChainID, v.confirmed-min(v.confirmed, s.ReorgDepth), reviewSettled)
	if err == nil && (len(settled) == 0 || settled[0].Evidence.BlockNumber <= v.confirmed) {
		err = s.undo(ctx, v, settled)
	}
	return errors.Join(s.conclude(ctx, v, cases), err)
}
