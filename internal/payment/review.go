package payment

import (
	"context"
	"errors"
	"maps"
	"slices"

	"boxoffice"

	"github.com/ethereum/go-ethereum/common"
)

// How many intents one review looks at.
const (
	maxReviewFailed  = 1000
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

// review looks again, every ReviewEvery, at decisions that the chain may change.
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
// transaction may have settled them, or their permit can never settle any more.
func (d *Decider) reviewFailed(ctx context.Context, v view) error {
	failed, err := d.Store.Unresolved(ctx, d.ChainID, maxReviewFailed)
	if err != nil {
		return err
	}
	intents := make([]unresolved, len(failed))
	for i, intent := range failed {
		intents[i] = unresolved{intent: intent}
	}
	return d.resolve(ctx, v, intents)
}

// reviewSettled undoes settled intents whose Transfer a reorganisation removed. It
// checks only intents in blocks that a reorganisation may still remove.
func (d *Decider) reviewSettled(ctx context.Context, v view) error {
	if older, err := d.viewIsOlder(ctx, v); err != nil || older {
		return err
	}
	settled, err := d.History.Settled(ctx, d.ChainID, v.confirmed-min(v.confirmed, d.ReorgDepth), maxReviewSettled)
	if err != nil {
		return err
	}
	// Another process may have settled an intent by a later block meanwhile.
	return d.undo(ctx, v, slices.DeleteFunc(settled, func(intent Intent) bool {
		return intent.Evidence.BlockNumber > v.confirmed
	}))
}

// viewIsOlder reports whether the view is older than what was decided: an intent was
// settled by a block that is not confirmed in the view. Then a Transfer may be missing
// in the view although no reorganisation removed it.
func (d *Decider) viewIsOlder(ctx context.Context, v view) (bool, error) {
	later, err := d.History.Settled(ctx, d.ChainID, v.confirmed+1, 1)
	return len(later) > 0, err
}

// reopenSlots opens closed slots again if a reorganisation deeper than the
// confirmations removed their transactions: then their wallet nonces are unused in
// the confirmed chain. followSlots broadcasts the transactions again. The orders stay
// paid.
func (s *Settler) reopenSlots(ctx context.Context, v view) error {
	if older, err := s.viewIsOlder(ctx, v); err != nil || older {
		return err
	}
	unused, err := s.Chain.Nonce(ctx, s.Wallet.Address(), v.confirmed)
	if err != nil {
		return err
	}
	closed, err := s.History.ClosedSlots(ctx, s.ChainID, s.Wallet.Address(), unused)
	if err != nil || len(closed) == 0 {
		return err
	}
	if err := s.History.ReopenSlots(ctx, closed, Resend(closed)); err != nil {
		return err
	}
	s.Log.ErrorContext(ctx,
		"a reorganisation deeper than the confirmations removed transactions; they are sent again",
		"slots", len(closed), "fromWalletNonce", unused)
	return nil
}

// undo makes settled intents waiting again if their Transfer is in no block any more.
// Their orders stay paid.
//
// A transaction that settled several identical payments (same payer, recipient, token
// and amount) must have as many matching Transfers. If it has fewer, nothing shows to
// which payment the missing one belonged. So all of them are undone, and settle again
// when their Transfers are found.
func (d *Decider) undo(ctx context.Context, v view, settled []Intent) error {
	type payments struct {
		tx       common.Hash
		from, to account
		amount   boxoffice.Amount
	}
	identical := map[payments][]Intent{}
	for _, intent := range settled {
		permit := intent.Permit
		token := permit.Permitted.Token
		key := payments{intent.Evidence.TxHash, account{permit.From, token}, account{permit.Witness.To, token},
			permit.Permitted.Amount}
		identical[key] = append(identical[key], intent)
	}
	receipts, err := d.settlingReceipts(ctx, v, settled)
	if err != nil {
		return err
	}
	var undone []Intent
	for key, intents := range identical {
		found := 0
		if receipt := receipts[key.tx]; receipt != nil {
			for _, transfer := range receipt.Transfers {
				if intents[0].matches(transfer) {
					found++
				}
			}
		}
		if found >= len(intents) {
			continue
		}
		undone = append(undone, intents...)
		for _, intent := range intents {
			d.Log.ErrorContext(ctx,
				"a reorganisation removed a settled payment; its order stays paid, and it is sent again",
				"intent", intent.ID, "order", intent.OrderID, "tx", key.tx, "block", intent.Evidence.BlockNumber)
		}
	}
	if len(undone) == 0 {
		return nil
	}
	return d.save(ctx, nil, decisionsFor(undone, OutcomeUndone))
}

// settlingReceipts returns the receipts of the transactions that settled the
// intents, nil for one that is not mined any more.
func (d *Decider) settlingReceipts(ctx context.Context, v view, settled []Intent) (map[common.Hash]*Receipt, error) {
	receipts := map[common.Hash]*Receipt{}
	for _, intent := range settled {
		receipts[intent.Evidence.TxHash] = nil
	}
	hashes := slices.Collect(maps.Keys(receipts))
	found, err := d.Chain.Receipts(ctx, hashes, v.confirmed)
	if err != nil {
		return nil, err
	}
	for i, receipt := range found {
		receipts[hashes[i]] = receipt
	}
	return receipts, nil
}
