package payment

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"boxoffice/internal/crash"

	"github.com/ethereum/go-ethereum/common"
)

// followSlots looks at every open slot and returns those that stay open.
func (s *Settler) followSlots(ctx context.Context, v view) (open []Slot, err error) {
	slots, err := s.Store.Slots(ctx, s.ChainID, s.Wallet.Address())
	if err != nil || len(slots) == 0 {
		return nil, err
	}
	consumed, err := s.Wallet.Nonce(ctx, v.confirmed)
	if err != nil {
		return slots, err
	}
	var hashes []common.Hash
	for _, slot := range slots {
		for _, tx := range slot.Txs {
			hashes = append(hashes, tx.Hash)
		}
	}
	receipts, err := s.Chain.Receipts(ctx, hashes, v.confirmed)
	if err != nil {
		return slots, err
	}
	var failures []error
	for _, slot := range slots {
		mine := receipts[:len(slot.Txs)]
		receipts = receipts[len(slot.Txs):]
		closed, err := s.followSlot(ctx, v, slot, minedReceipt(mine), consumed)
		if err != nil {
			failures = append(failures, fmt.Errorf("slot %d: %w", slot.WalletNonce, err))
		}
		if !closed {
			open = append(open, slot)
		}
	}
	return open, errors.Join(failures...)
}

func minedReceipt(receipts []*Receipt) *Receipt {
	i := slices.IndexFunc(receipts, func(r *Receipt) bool { return r != nil })
	if i < 0 {
		return nil
	}
	return receipts[i]
}

func (s *Settler) followSlot(ctx context.Context, v view, slot Slot, receipt *Receipt, consumed uint64) (closed bool, err error) {
	switch {
	case receipt != nil && receipt.BlockNumber <= v.confirmed:
		err := s.closeSlot(ctx, v, slot, receipt)
		return err == nil, err
	case receipt != nil:
		return false, nil // mined, and waiting for its confirmations
	case slot.WalletNonce < consumed:
		s.Log.ErrorContext(ctx, "a transaction that this service did not sign used a nonce of the settlement wallet; its payments are sent again",
			"walletNonce", slot.WalletNonce)
		err := s.settle(ctx, &slot.ID, decisionsFor(slot.Intents, OutcomeReleased))
		return err == nil, err
	}
	last := slot.Txs[len(slot.Txs)-1]
	if !passed(last.SignedAt.Time(), s.Now(), s.BumpAfter) {
		return false, s.Wallet.Broadcast(ctx, last)
	}
	bumped, err := s.Wallet.Sign(ctx, permits(slot.Intents), slot.WalletNonce, &last)
	if errors.Is(err, ErrBatch) { // a block holds less gas than when it was sent: give up the batch, not the nonce
		bumped, err = s.Wallet.Sign(ctx, nil, slot.WalletNonce, &last)
	}
	if err != nil {
		return false, errors.Join(err, s.Wallet.Broadcast(ctx, last))
	}
	crash.At(crash.ReplacementSigned)
	if err := s.Store.AddTx(ctx, slot.ID, bumped); err != nil {
		return false, err
	}
	crash.At(crash.ReplacementSaved)
	s.Log.InfoContext(ctx, "transaction replaced at a higher fee", "tx", bumped.Hash, "walletNonce", slot.WalletNonce, "feeCap", bumped.FeeCap)
	err = s.Wallet.Broadcast(ctx, bumped)
	crash.At(crash.ReplacementSent)
	return false, err
}

// closeSlot credits the intents whose own Transfer is in the slot's receipt and
// whose nonce is spent. All others wait again: whether they can still settle, or
// were settled elsewhere, is for the next look at them.
func (s *Settler) closeSlot(ctx context.Context, v view, slot Slot, receipt *Receipt) error {
	crash.At(crash.ReceiptSeen)
	spent, err := s.Chain.Spent(ctx, permits(slot.Intents), v.confirmed)
	if err != nil {
		return err
	}
	decisions, settled := s.matchTransfers(slot, receipt, spent)
	if settled < count(spent) {
		// Somebody else spent a nonce. If that was in an earlier block, the
		// transfers here are of its twins of the same payer and amount.
		before, err := s.Chain.Spent(ctx, permits(slot.Intents), receipt.BlockNumber-1)
		switch {
		case err == nil:
			for i := range spent {
				spent[i] = spent[i] && !before[i]
			}
			decisions, settled = s.matchTransfers(slot, receipt, spent)
		case !errors.Is(err, ErrRefused): // a node without the old state leaves the twins alike
			return err
		}
	}
	if err := s.Costs.SaveCost(ctx, receipt.TxHash, int64(receipt.GasUsed), receipt.feeGwei()); err != nil {
		return err
	}
	if err := s.settle(ctx, &slot.ID, decisions); err != nil {
		return err
	}
	s.Log.InfoContext(ctx, "slot closed", "tx", receipt.TxHash, "walletNonce", slot.WalletNonce,
		"settled", settled, "leftOut", len(decisions)-settled, "gasUsed", receipt.GasUsed)
	return nil
}

// matchTransfers gives each spent intent its own transfer of the receipt: the calls and
// their logs have one order.
func (s *Settler) matchTransfers(slot Slot, receipt *Receipt, spent []bool) (decisions []Decision, settled int) {
	unclaimed := slices.Clone(receipt.Transfers)
	decisions = decisionsFor(slot.Intents, OutcomeReverted)
	for i, intent := range slot.Intents {
		own := slices.IndexFunc(unclaimed, intent.movedBy)
		if spent[i] && own >= 0 {
			decisions[i].Outcome, decisions[i].Evidence = OutcomeSettled, s.evidence(unclaimed[own])
			unclaimed = slices.Delete(unclaimed, own, own+1)
			settled++
		}
	}
	return decisions, settled
}

// movedBy reports whether a transfer is the one that the intent's permit makes.
func (i *Intent) movedBy(t Transfer) bool {
	return t.Token == i.Permit.Permitted.Token && t.From == i.Permit.From &&
		t.To == i.Permit.Witness.To && t.Amount == i.Permit.Permitted.Amount
}

func decisionsFor(intents []Intent, verdict Outcome) []Decision {
	decisions := make([]Decision, len(intents))
	for i, intent := range intents {
		decisions[i] = Decision{Intent: intent, Outcome: verdict}
	}
	return decisions
}

func permits(intents []Intent) []Permit {
	list := make([]Permit, len(intents))
	for i, intent := range intents {
		list[i] = intent.Permit
	}
	return list
}

func count(flags []bool) (n int) {
	for _, flag := range flags {
		if flag {
			n++
		}
	}
	return n
}
