package payment

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"boxoffice/internal/crash"

	"github.com/ethereum/go-ethereum/common"
)

// followSlots takes every open slot one step further and returns those that stay
// open.
func (s *Settler) followSlots(ctx context.Context, v view) (open []Slot, err error) {
	slots, err := s.Store.Slots(ctx, s.ChainID, s.Wallet.Address())
	if err != nil || len(slots) == 0 {
		return nil, err
	}
	confirmed, err := s.Wallet.Nonce(ctx, v.confirmed)
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
		own := receipts[:len(slot.Txs)]
		receipts = receipts[len(slot.Txs):]
		closed, err := s.followSlot(ctx, v, slot, minedReceipt(own), confirmed)
		if err != nil {
			failures = append(failures, fmt.Errorf("slot %d: %w", slot.WalletNonce, err))
		}
		if !closed {
			open = append(open, slot)
		}
	}
	return open, errors.Join(failures...)
}

// minedReceipt returns the receipt of the transaction that was mined, nil if none
// was. A wallet nonce allows only one.
func minedReceipt(receipts []*Receipt) *Receipt {
	i := slices.IndexFunc(receipts, func(r *Receipt) bool { return r != nil })
	if i < 0 {
		return nil
	}
	return receipts[i]
}

// followSlot closes an open slot, or raises its fee, or broadcasts it again. receipt
// is that of its mined transaction, nil if none is mined; confirmed is how many
// transactions of the wallet are confirmed. It reports whether it closed the slot.
func (s *Settler) followSlot(ctx context.Context, v view, slot Slot, receipt *Receipt,
	confirmed uint64) (closed bool, err error) {
	switch {
	case receipt != nil && receipt.BlockNumber <= v.confirmed:
		err := s.closeSlot(ctx, v, slot, receipt)
		return err == nil, err
	case receipt != nil:
		return false, nil // mined, but not confirmed yet
	case slot.WalletNonce < confirmed:
		s.Log.ErrorContext(ctx,
			"a transaction that we did not sign used a nonce of the settlement wallet; its payments are sent again",
			"walletNonce", slot.WalletNonce)
		err := s.save(ctx, &slot.ID, decisionsFor(slot.Intents, OutcomeReleased))
		return err == nil, err
	case passed(slot.lastTx().SignedAt.Time(), s.Now(), s.BumpAfter):
		return false, s.replaceTx(ctx, slot)
	}
	return false, s.Wallet.Broadcast(ctx, slot.lastTx()) // the node may have dropped it
}

func (s *Slot) lastTx() Tx { return s.Txs[len(s.Txs)-1] }

// replaceTx signs the transaction of a slot again with higher fees, saves it and
// broadcasts it. If that fails it broadcasts the last one again. A crash
//   - after signing, before saving: the next round signs again;
//   - after saving: the next round broadcasts the newest transaction of the slot.
//
// Any of the slot's transactions may be mined. Its receipt decides.
func (s *Settler) replaceTx(ctx context.Context, slot Slot) error {
	last := slot.lastTx()
	replacement, err := s.Wallet.Sign(ctx, permits(slot.Intents), slot.WalletNonce, &last)
	if errors.Is(err, ErrBatch) {
		// Blocks hold less gas than when the slot was opened. An empty transaction
		// uses up the wallet nonce, and then the intents are released.
		replacement, err = s.Wallet.Sign(ctx, nil, slot.WalletNonce, &last)
	}
	if err != nil {
		return errors.Join(err, s.Wallet.Broadcast(ctx, last))
	}
	crash.At(crash.ReplacementSigned)
	if err := s.Store.AddTx(ctx, slot.ID, replacement); err != nil {
		return err
	}
	crash.At(crash.ReplacementSaved)
	s.Log.InfoContext(ctx, "transaction replaced at a higher fee",
		"tx", replacement.Hash, "walletNonce", slot.WalletNonce, "feeCap", replacement.FeeCap)
	err = s.Wallet.Broadcast(ctx, replacement)
	crash.At(crash.ReplacementSent)
	return err
}

// closeSlot decides the intents of a slot whose transaction is confirmed. An intent
// whose Transfer is in the receipt and whose Permit2 nonce is spent has settled. The
// call of any other intent reverted, and it waits again: the next dispatch finds out
// whether it can still settle or another transaction settled it. After a crash before
// the decisions are saved the slot is open, and the next round closes it by the same
// receipt.
func (s *Settler) closeSlot(ctx context.Context, v view, slot Slot, receipt *Receipt) error {
	crash.At(crash.ReceiptSeen)
	spent, err := s.Chain.Spent(ctx, permits(slot.Intents), v.confirmed)
	if err != nil {
		return err
	}
	decisions, settled := s.matchTransfers(slot, receipt, spent)
	if settled < count(spent) {
		// An intent has a spent nonce and no Transfer in this receipt: another transaction
		// settled it. If an identical intent (same payer, recipient, token and amount) is in
		// this slot, matchTransfers may have given its Transfer to the wrong one. So match
		// again, and only intents whose nonces were unspent before this block.
		before, err := s.Chain.Spent(ctx, permits(slot.Intents), receipt.BlockNumber-1)
		switch {
		case err == nil:
			for i := range spent {
				spent[i] = spent[i] && !before[i]
			}
			decisions, settled = s.matchTransfers(slot, receipt, spent)
		case !errors.Is(err, ErrRefused): // without archive state, identical payments cannot be told apart
			return err
		}
	}
	if err := s.Costs.SaveCost(ctx, receipt.TxHash, int64(receipt.GasUsed), receipt.feeGwei()); err != nil {
		return err
	}
	if err := s.save(ctx, &slot.ID, decisions); err != nil {
		return err
	}
	s.Log.InfoContext(ctx, "slot closed", "tx", receipt.TxHash, "walletNonce", slot.WalletNonce,
		"settled", settled, "reverted", len(decisions)-settled, "gasUsed", receipt.GasUsed)
	return nil
}

// matchTransfers gives each intent whose nonce is spent the first Transfer of the
// receipt that matches it and that it gave to no intent before: the calls of the
// transaction and their Transfers have the same order. An intent with a Transfer has
// settled; the call of any other has reverted.
func (s *Settler) matchTransfers(slot Slot, receipt *Receipt, spent []bool) (decisions []Decision, settled int) {
	unclaimed := slices.Clone(receipt.Transfers)
	decisions = decisionsFor(slot.Intents, OutcomeReverted)
	for i, intent := range slot.Intents {
		own := slices.IndexFunc(unclaimed, intent.matches)
		if spent[i] && own >= 0 {
			decisions[i].Outcome, decisions[i].Evidence = OutcomeSettled, s.evidence(unclaimed[own])
			unclaimed = slices.Delete(unclaimed, own, own+1)
			settled++
		}
	}
	return decisions, settled
}

// matches reports whether a transfer has the token, payer, recipient and amount of
// the intent's permit. Transfers of identical payments match it too.
func (i *Intent) matches(t Transfer) bool {
	return t.Token == i.Permit.Permitted.Token && t.From == i.Permit.From &&
		t.To == i.Permit.Witness.To && t.Amount == i.Permit.Permitted.Amount
}

func decisionsFor(intents []Intent, outcome Outcome) []Decision {
	decisions := make([]Decision, len(intents))
	for i, intent := range intents {
		decisions[i] = Decision{Intent: intent, Outcome: outcome}
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
