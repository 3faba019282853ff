package payment

import (
	"context"
	"errors"

	"boxoffice"

	"github.com/ethereum/go-ethereum/common"
)

// Intents that one review looks at: of those that failed and of those that settled.
const (
	maxReviewFailed  = 100
	maxReviewSettled = 1000
)

// reviewDue reports whether it is time to review, and if so begins the next
// interval.
func (d *Decider) reviewDue() bool {
	now := d.Now()
	due := passed(d.lastReview, now, d.ReviewEvery)
	if due {
		d.lastReview = now
	}
	return due
}

// review looks again, every ReviewEvery, at what was decided and may not be the
// last word.
func (s *Settler) review(ctx context.Context, v view) error {
	if !s.reviewDue() {
		return nil
	}
	failed := s.reviewFailed(ctx, v)
	err := s.reopenSlots(ctx, v)
	if err == nil {
		err = s.reviewSettled(ctx, v)
	}
	return errors.Join(failed, err)
}

// reviewFailed looks again at failed intents that are not final: another
// transaction may have settled them, or their permit is dead by now.
func (d *Decider) reviewFailed(ctx context.Context, v view) error {
	failed, err := d.Store.Unresolved(ctx, d.ChainID, maxReviewFailed)
	if err != nil {
		return err
	}
	cases := make([]unresolved, len(failed))
	for i, intent := range failed {
		cases[i] = unresolved{intent: intent}
	}
	return d.resolve(ctx, v, cases)
}

// reviewSettled lets settled intents wait again whose transfer a reorganisation
// removed. It looks at those whose block a reorganisation may still remove.
func (d *Decider) reviewSettled(ctx context.Context, v view) error {
	if older, err := d.isOlder(ctx, v); err != nil || older {
		return err
	}
	settled, err := d.History.Settled(ctx, d.ChainID, v.confirmed-min(v.confirmed, d.ReorgDepth), maxReviewSettled)
	if err != nil {
		return err
	}
	return d.undo(ctx, v, settled)
}

// isOlder reports whether an intent was settled by a block that the view does not
// have as confirmed. Such a view does not show what a reorganisation removed.
func (d *Decider) isOlder(ctx context.Context, v view) (bool, error) {
	later, err := d.History.Settled(ctx, d.ChainID, v.confirmed+1, 1)
	return len(later) > 0, err
}

// reopenSlots opens the closed slots again whose wallet nonces the chain gave
// back: a reorganisation deeper than the confirmations removed their
// transactions. Their orders stay paid.
func (s *Settler) reopenSlots(ctx context.Context, v view) error {
	if older, err := s.isOlder(ctx, v); err != nil || older {
		return err
	}
	consumed, err := s.Wallet.Nonce(ctx, v.confirmed)
	if err != nil {
		return err
	}
	closed, err := s.History.ClosedSlots(ctx, s.ChainID, s.Wallet.Address(), consumed)
	if err != nil {
		return err
	}
	err = s.History.ReopenSlots(ctx, s.ChainID, s.Wallet.Address(), consumed, Resend(closed))
	if err == nil && len(closed) > 0 {
		s.Log.ErrorContext(ctx, "a reorganisation deeper than the confirmations removed transactions; they are sent again",
			"slots", len(closed), "fromWalletNonce", consumed)
	}
	return err
}

// undo lets settled intents wait again whose transfer no block has any more.
func (d *Decider) undo(ctx context.Context, v view, settled []Intent) error {
	var hashes []common.Hash
	place := map[common.Hash]int{}
	for _, intent := range settled {
		if _, known := place[intent.Evidence.TxHash]; !known {
			place[intent.Evidence.TxHash] = len(hashes)
			hashes = append(hashes, intent.Evidence.TxHash)
		}
	}
	if len(hashes) == 0 {
		return nil
	}
	receipts, err := d.Chain.Receipts(ctx, hashes, v.confirmed)
	if err != nil {
		return err
	}
	// Twins, of one payer and amount in one transaction, need a transfer each. If
	// one is missing, all of them wait until it is clear whose.
	type claim struct {
		tx       common.Hash
		from, to account
		amount   boxoffice.Amount
	}
	claims := map[claim][]Intent{}
	for _, intent := range settled {
		permit := intent.Permit
		token := permit.Permitted.Token
		key := claim{intent.Evidence.TxHash, account{permit.From, token}, account{permit.Witness.To, token}, permit.Permitted.Amount}
		claims[key] = append(claims[key], intent)
	}
	var undone []Intent
	for key, twins := range claims {
		there := 0
		if receipt := receipts[place[key.tx]]; receipt != nil {
			for _, transfer := range receipt.Transfers {
				if twins[0].movedBy(transfer) {
					there++
				}
			}
		}
		if there >= len(twins) {
			continue
		}
		undone = append(undone, twins...)
		for _, intent := range twins {
			d.Log.ErrorContext(ctx, "a reorganisation took a settled payment back; its order stays paid, and it is settled again while its permit lives",
				"intent", intent.ID, "order", intent.OrderID, "tx", key.tx, "block", intent.Evidence.BlockNumber)
		}
	}
	if len(undone) == 0 {
		return nil
	}
	return d.settle(ctx, nil, decisionsFor(undone, OutcomeUndone))
}
