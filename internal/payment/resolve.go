package payment

import (
	"context"
	"errors"
	"slices"

	"boxoffice/x402"
)

// unresolved is an intent that is in no slot and would not settle now.
type unresolved struct {
	intent Intent

	failure *Rejection // why it would not settle; nil if it failed before, or if its nonce is spent
}

// permitState is what the chain says of a unresolved intent.
type permitState struct {
	spent, expired bool // its nonce, its deadline, as of the confirmed block
	dead           bool // the same, as of the buried block
}

// resolve decides unresolved intents as far as the confirmed chain allows. Others
// stay as they are.
func (d *Decider) resolve(ctx context.Context, v view, cases []unresolved) error {
	if len(cases) == 0 {
		return nil
	}
	found := make([]permitState, len(cases))
	signed := make([]Permit, len(cases))
	for i, c := range cases {
		signed[i] = c.intent.Permit
	}
	for _, block := range []uint64{v.confirmed, v.buried} {
		spent, err := d.Chain.Spent(ctx, signed, block)
		if err != nil {
			return err
		}
		at, err := d.Chain.BlockTime(ctx, block)
		if err != nil {
			return err
		}
		for i, permit := range signed {
			deadline, fits := permit.Deadline.Uint64()
			expired := fits && at > deadline
			if block == v.confirmed {
				found[i] = permitState{spent: spent[i], expired: expired}
			}
			found[i].dead = spent[i] || expired // the buried block has the last word
		}
	}
	var failures []error
	for i, c := range cases {
		decision, err := d.decide(ctx, v, c, found[i])
		if err == nil && decision != nil {
			err = d.apply(ctx, c.intent, *decision)
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// decide returns the decision on an intent, nil to leave it as it is.
func (d *Decider) decide(ctx context.Context, v view, c unresolved, found permitState) (*Decision, error) {
	decision := &Decision{Intent: c.intent, Outcome: OutcomeFailed, Final: found.dead}
	switch {
	case found.spent && c.intent.FromBlock > v.confirmed:
		return nil, nil // it was free in a later block: the chain is not of one mind
	case found.spent:
		transfer, err := d.findTransfer(ctx, v, c.intent)
		if err != nil {
			return nil, err
		}
		if transfer != nil {
			return &Decision{Intent: c.intent, Outcome: OutcomeSettled, Evidence: d.evidence(*transfer)}, nil
		}
		decision.Reason = string(x402.ReasonNonceSpent)
	case found.expired:
		decision.Reason = string(x402.ReasonDeadlineExpired)
	case c.failure == nil, // failed before and still alive, or spent in a block that is not confirmed
		c.failure.Reason == x402.ReasonNotYetValid: // only early
		return nil, nil
	default:
		decision.Reason = string(c.failure.Reason)
	}
	// What failed has failed, unless its permit died; what was undone is tried
	// until then, because its order is paid.
	if (c.intent.State == Failed || c.intent.Undone()) && !found.dead {
		return nil, nil
	}
	return decision, nil
}

func (d *Decider) apply(ctx context.Context, intent Intent, decision Decision) error {
	err := d.settle(ctx, nil, []Decision{decision})
	switch {
	case errors.Is(err, ErrCredited): // another payment's: the next look finds the next one
		d.credited[logID{decision.Evidence.TxHash, decision.Evidence.LogIndex}] = true
	case err != nil:
	case decision.Outcome == OutcomeSettled:
		d.Log.InfoContext(ctx, "payment settled by another transaction", "intent", intent.ID, "tx", decision.Evidence.TxHash)
	case intent.Undone():
		d.Log.ErrorContext(ctx, "a payment that a reorganisation took back can not be settled again: its order is paid and its money is not there",
			"intent", intent.ID, "order", intent.OrderID, "reason", decision.Reason)
	default:
		d.Log.InfoContext(ctx, "payment failed", "intent", intent.ID, "reason", decision.Reason, "final", decision.Final)
	}
	return err
}

// findTransfer returns the confirmed transfer that spent the intent's nonce, in
// a transaction of somebody else or in one of ours that carried it; nil if the
// nonce was spent without one. It looks through the blocks since the intent was
// verified, and through as many before as a reorganisation may have moved.
func (d *Decider) findTransfer(ctx context.Context, v view, intent Intent) (*Transfer, error) {
	permit := intent.Permit
	first := intent.FromBlock - min(intent.FromBlock, d.ReorgDepth)
	transfers, err := d.Chain.Transfers(ctx, permit.Permitted.Token, permit.From, permit.Witness.To, first, v.confirmed)
	if err != nil {
		return nil, err
	}
	for _, transfer := range transfers {
		if !intent.movedBy(transfer) || d.credited[logID{transfer.TxHash, transfer.LogIndex}] {
			continue
		}
		if ours, carried, err := d.History.Carried(ctx, transfer.TxHash); err != nil {
			return nil, err
		} else if ours && !slices.Contains(carried, intent.ID) {
			continue
		}
		here, err := d.spentIn(ctx, permit, transfer.BlockNumber)
		if errors.Is(err, ErrRefused) {
			here = true // no state of that block is left: the nonce is spent, and the transfer is the permit's own
		} else if err != nil {
			return nil, err
		}
		if here {
			return &transfer, nil
		}
	}
	return nil, nil
}

// spentIn reports whether the permit's nonce was spent in the very block.
func (d *Decider) spentIn(ctx context.Context, permit Permit, block uint64) (bool, error) {
	before, err := d.Chain.Spent(ctx, []Permit{permit}, block-1)
	if err != nil {
		return false, err
	}
	after, err := d.Chain.Spent(ctx, []Permit{permit}, block)
	if err != nil {
		return false, err
	}
	return !before[0] && after[0], nil
}
