package payment

import (
	"context"
	"errors"
	"slices"
	"time"

	"boxoffice/x402"
)

// unresolved is an intent in no slot that has to be decided by the confirmed chain:
// it waits and would not settle now, or it failed and is not final, or a facilitator
// has it.
type unresolved struct {
	intent Intent
	// failure is why a waiting intent would not settle now. It is nil if its nonce is
	// spent, if it failed before, or if a facilitator has it and did not refuse it.
	failure *Rejection
}

// permitState is the state of an unresolved intent's permit in the confirmed chain.
type permitState struct {
	spent   bool // its nonce is spent as of the confirmed block
	expired bool // its deadline had passed at the confirmed block
	final   bool // spent or expired as of the buried block: it can never settle any more
}

// resolve decides unresolved intents as far as the confirmed chain allows. It
// leaves the others as they are. If an error keeps it from deciding one intent, it
// still decides the others.
func (d *Decider) resolve(ctx context.Context, v view, intents []unresolved) error {
	if len(intents) == 0 {
		return nil
	}
	states, err := d.permitStates(ctx, v, intents)
	if err != nil {
		return err
	}
	var failures []error
	for i, u := range intents {
		decision, err := d.decide(ctx, v, u, states[i])
		if err == nil && decision != nil {
			err = d.saveDecision(ctx, *decision)
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// permitStates reads the state of each intent's permit from the confirmed and the
// buried block.
func (d *Decider) permitStates(ctx context.Context, v view, intents []unresolved) ([]permitState, error) {
	states := make([]permitState, len(intents))
	signed := make([]Permit, len(intents))
	for i, u := range intents {
		signed[i] = u.intent.Permit
	}
	for _, block := range []uint64{v.confirmed, v.buried} {
		spent, err := d.Chain.Spent(ctx, signed, block)
		if err != nil {
			return nil, err
		}
		at, err := d.Chain.BlockTime(ctx, block)
		if err != nil {
			return nil, err
		}
		for i, permit := range signed {
			deadline, fits := permit.Deadline.Uint64()
			expired := fits && at > deadline
			if block == v.confirmed {
				states[i] = permitState{spent: spent[i], expired: expired}
			}
			if block == v.buried {
				states[i].final = spent[i] || expired
			}
		}
	}
	return states, nil
}

// decide returns the decision on an intent, nil to leave it as it is.
func (d *Decider) decide(ctx context.Context, v view, u unresolved, permit permitState) (*Decision, error) {
	failed := &Decision{Intent: u.intent, Outcome: OutcomeFailed, Final: permit.final}
	switch {
	case permit.spent && u.intent.FromBlock > v.confirmed && !permit.expired:
		// The nonce was unspent in a later block, when the payment was verified. So the
		// node is behind that block, or a reorganisation is going on. Decide nothing.
		return nil, nil
	case permit.spent:
		transfer, err := d.findTransfer(ctx, v, u.intent)
		if err != nil {
			return nil, err
		}
		if transfer != nil {
			return &Decision{Intent: u.intent, Outcome: OutcomeSettled, Evidence: d.evidence(*transfer)}, nil
		}
		failed.Reason = string(x402.ReasonNonceSpent)
	case permit.expired:
		failed.Reason = string(x402.ReasonDeadlineExpired)
	case u.failure == nil:
		// The confirmed chain does not decide it yet: it failed before and can still settle,
		// or its nonce is spent in a block that is not confirmed, or a facilitator has it.
		return nil, nil
	case u.failure.Reason == x402.ReasonNotYetValid:
		return nil, nil // it stays waiting until validAfter
	default:
		failed.Reason = string(u.failure.Reason)
	}
	// A failed intent can only become final. An undone one is tried again as long as its
	// permit can settle, because its order is paid.
	if (u.intent.State == Failed || u.intent.Undone()) && !permit.final {
		return nil, nil
	}
	return failed, nil
}

// saveDecision saves a decision on an intent that is in no slot.
func (d *Decider) saveDecision(ctx context.Context, decision Decision) error {
	intent := decision.Intent
	err := d.save(ctx, nil, []Decision{decision})
	switch {
	case errors.Is(err, ErrCredited):
		// The Transfer settled another intent. The next round skips this Transfer.
		d.credited[logID{decision.Evidence.TxHash, decision.Evidence.LogIndex}] = true
	case err != nil:
	case decision.Outcome == OutcomeSettled:
		d.Log.InfoContext(ctx, "payment settled by another transaction",
			"intent", intent.ID, "tx", decision.Evidence.TxHash)
	case intent.Undone():
		d.Log.ErrorContext(ctx,
			"a payment that a reorganisation removed cannot be settled again: its order is paid, the recipient is not",
			"intent", intent.ID, "order", intent.OrderID, "reason", decision.Reason)
	default:
		d.Log.InfoContext(ctx, "payment failed",
			"intent", intent.ID, "reason", decision.Reason, "final", decision.Final)
	}
	return err
}

// findTransfer returns the confirmed Transfer of an intent whose nonce is spent,
// nil if there is none. A Transfer is the intent's own if
//   - it matches the intent: payer, recipient, token and amount,
//   - it has not settled another intent,
//   - its transaction is not one of ours that did not carry the intent, and
//   - its block is the one that spent the intent's nonce.
//
// It looks through the blocks since the intent was verified, and through ReorgDepth
// blocks before them, because a reorganisation may move the transaction to an earlier
// block.
func (d *Decider) findTransfer(ctx context.Context, v view, intent Intent) (*Transfer, error) {
	permit := intent.Permit
	first, err := d.searchFrom(ctx, v, intent)
	if err != nil {
		return nil, err
	}
	transfers, err := d.Chain.Transfers(ctx, permit.Permitted.Token, permit.From, permit.Witness.To, first, v.confirmed)
	if err != nil {
		return nil, err
	}
	for _, transfer := range transfers {
		if !intent.matches(transfer) || d.credited[logID{transfer.TxHash, transfer.LogIndex}] {
			continue
		}
		if ours, carried, err := d.History.Carried(ctx, transfer.TxHash); err != nil {
			return nil, err
		} else if ours && !slices.Contains(carried, intent.ID) {
			continue
		}
		spent, err := d.spentBy(ctx, permit, transfer.BlockNumber)
		if errors.Is(err, ErrRefused) {
			// The node no longer has the state of that block. The nonce is spent and the
			// Transfer fits, so it counts.
			spent = true
		} else if err != nil {
			return nil, err
		}
		if spent {
			return &transfer, nil
		}
	}
	return nil, nil
}

// searchFrom returns the first block that can have the Transfer of an intent.
//
// The permit of an intent whose FromBlock is above the confirmed block has expired by the
// time of the confirmed block, and had not at FromBlock. So FromBlock is wrong: an RPC
// node named a block that did not exist. Then the time of submission leads to the block,
// less an hour by which our clock may be ahead.
func (d *Decider) searchFrom(ctx context.Context, v view, intent Intent) (uint64, error) {
	if intent.FromBlock <= v.confirmed {
		return intent.FromBlock - min(intent.FromBlock, d.ReorgDepth), nil
	}
	since := uint64(intent.SubmittedAt.Time().Add(-time.Hour).Unix())
	first := v.confirmed
	for step := uint64(1); first > 0; step *= 2 { // a node may not have the oldest blocks
		at, err := d.Chain.BlockTime(ctx, first)
		if err != nil {
			return 0, err
		}
		if at < since {
			break
		}
		first -= min(first, step)
	}
	return first, nil
}

// spentBy reports whether a block spent the nonce of a permit.
func (d *Decider) spentBy(ctx context.Context, permit Permit, block uint64) (bool, error) {
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
