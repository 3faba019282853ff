package payment

import (
	"context"
	"errors"
	"time"

	"boxoffice/x402"
)

// recheck looks at failed intents whose permit is not known to be dead.
func (s *Settler) recheck(ctx context.Context, v view) error {
	if s.Now().Before(s.recheckAt) {
		return nil
	}
	doubtful, err := s.Store.Doubtful(ctx, s.ChainID, 100)
	if err != nil {
		return err
	}
	var failures []error
	for _, intent := range doubtful {
		failures = append(failures, s.conclude(ctx, v, intent, nil))
	}
	s.recheckAt = s.Now().Add(s.RecheckEvery)
	return errors.Join(failures...)
}

// conclude decides an intent that is in no slot and would not settle now, as
// far as the confirmed chain allows; it may leave it as it is. A nil standing
// says that the intent has failed before.
func (s *Settler) conclude(ctx context.Context, v view, intent Intent, standing *Standing) error {
	spent, err := s.Chain.Spent(ctx, []Permit{intent.Permit}, v.confirmed)
	if err != nil {
		return err
	}
	decision := Decision{IntentID: intent.ID, Verdict: VerdictFailed}
	switch {
	case spent[0]:
		transfer, err := s.findTransfer(ctx, v, intent)
		if err != nil {
			return err
		}
		if transfer != nil {
			decision.Verdict, decision.Evidence = VerdictSettled, s.evidence(*transfer)
			break
		}
		decision.Reason, decision.Final = string(x402.ReasonNonceSpent), true
	case standing != nil && standing.Spent:
		return nil // spent in a block that is not confirmed
	default:
		at, err := s.Chain.BlockTime(ctx, v.confirmed)
		if err != nil {
			return err
		}
		if deadline, fits := intent.Permit.Deadline.Uint64(); fits && at > deadline {
			decision.Reason, decision.Final = string(x402.ReasonDeadlineExpired), true
			break
		}
		if standing == nil || standing.Failure.Reason == x402.ReasonNotYetValid {
			return nil // failed and still alive, or only early
		}
		decision.Reason = string(standing.Failure.Reason)
	}
	err = s.settle(ctx, nil, []Decision{decision})
	if errors.Is(err, ErrCredited) {
		s.credited[logID{decision.Evidence.TxHash, decision.Evidence.LogIndex}] = true
	}
	return err
}

// findTransfer returns the confirmed transfer with which somebody else's
// transaction spent the intent's nonce, nil if the nonce was spent without one.
func (s *Settler) findTransfer(ctx context.Context, v view, intent Intent) (*Transfer, error) {
	first, err := s.blockBefore(ctx, v, intent.SubmittedAt.Time().Add(-time.Minute))
	if err != nil {
		return nil, err
	}
	permit := intent.Permit
	transfers, err := s.Chain.Transfers(ctx, permit.Permitted.Token, permit.From, permit.Witness.To, first, v.confirmed)
	if err != nil {
		return nil, err
	}
	for _, transfer := range transfers {
		if !intent.movedBy(transfer) || s.credited[logID{transfer.TxHash, transfer.LogIndex}] {
			continue
		}
		here, err := s.spentIn(ctx, permit, transfer.BlockNumber)
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
func (s *Settler) spentIn(ctx context.Context, permit Permit, block uint64) (bool, error) {
	before, err := s.Chain.Spent(ctx, []Permit{permit}, block-1)
	if err != nil {
		return false, err
	}
	after, err := s.Chain.Spent(ctx, []Permit{permit}, block)
	if err != nil {
		return false, err
	}
	return !before[0] && after[0], nil
}

// blockBefore returns the last block up to the confirmed one that is not newer
// than the given moment.
func (s *Settler) blockBefore(ctx context.Context, v view, moment time.Time) (uint64, error) {
	low, high := uint64(0), v.confirmed
	for low < high {
		middle := low + (high-low+1)/2
		at, err := s.Chain.BlockTime(ctx, middle)
		if err != nil {
			return 0, err
		}
		if int64(at) <= moment.Unix() {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return low, nil
}
