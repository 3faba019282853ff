package payment

import (
	"context"
	"errors"
	"slices"

	"boxoffice"
	"boxoffice/internal/crash"
)

// dispatch puts waiting intents into transactions. If there is room for another slot,
// it reads the waiting intents and simulates them. It sends those that would settle,
// in a new slot, and resolves the others: the confirmed chain decides whether they
// settled already or fail. Then it fills a gap between the wallet nonces of the open
// slots.
//
// If an intent cannot be resolved, dispatch still sends the others. If the simulation
// fails, it still fills the gap. It stops at the first slot that cannot be sent.
func (s *Settler) dispatch(ctx context.Context, v view, all []Slot) error {
	open := slices.DeleteFunc(slices.Clone(all), func(slot Slot) bool { return slot.Sender != s.Wallet.Address() })
	limit := min(s.MaxBatch, s.Wallet.MaxBatch())
	var found classes
	var failed error
	if len(open) < s.MaxInFlight {
		found, failed = s.classify(ctx, v, all, limit)
	}
	resolved := errors.Join(failed, s.resolve(ctx, v, found.unresolved))
	if len(found.sendable)+len(open) == 0 {
		return resolved
	}
	mined, err := s.Chain.Nonce(ctx, s.Wallet.Address(), v.head.Number)
	if err != nil {
		return errors.Join(resolved, err)
	}
	sent := open
	if len(found.sendable) > 0 {
		sent, err = s.sendBatch(ctx, open, nextNonce(mined, open), found.sendable)
	}
	if err == nil {
		sent, err = s.fillGap(ctx, mined, sent)
	}
	if err == nil && len(found.sendable) == limit && len(sent) < s.MaxInFlight {
		s.Wake() // more intents may wait, and there is room for them
	}
	return errors.Join(resolved, err)
}

// fillGap sends an empty transaction if an open slot has a higher wallet nonce than
// one that is neither mined nor in an open slot. Such a gap arises when a
// reorganisation removes the transaction that used the wallet nonce. Until the gap is
// filled, no transaction with a higher wallet nonce can be mined.
func (s *Settler) fillGap(ctx context.Context, mined uint64, open []Slot) ([]Slot, error) {
	gap := nextNonce(mined, open)
	if !slices.ContainsFunc(open, func(slot Slot) bool { return slot.WalletNonce > gap }) {
		return open, nil
	}
	s.Log.WarnContext(ctx,
		"no transaction uses a wallet nonce that is lower than those of open slots; an empty one fills the gap",
		"walletNonce", gap)
	return s.sendBatch(ctx, open, gap, nil)
}

// nextNonce returns the lowest wallet nonce that is not mined and in no open slot.
func nextNonce(mined uint64, open []Slot) uint64 {
	for slices.ContainsFunc(open, func(slot Slot) bool { return slot.WalletNonce == mined }) {
		mined++
	}
	return mined
}

// sendBatch opens a slot for a batch of intents and broadcasts its transaction. If
// the batch is too large for a block, or costs more than the wallet holds, it
// sends the first half, or the first quarter and so on; the rest waits. It returns
// all open slots. If broadcasting fails, the slot is open and the next round
// broadcasts it again.
func (s *Settler) sendBatch(ctx context.Context, open []Slot, nonce uint64, batch []sendable) ([]Slot, error) {
	slot, err := s.openSlot(ctx, nonce, batch)
	for len(batch) > 1 && (errors.Is(err, ErrBatch) || errors.Is(err, ErrWalletEmpty)) {
		batch = batch[:len(batch)/2]
		slot, err = s.openSlot(ctx, nonce, batch)
	}
	if errors.Is(err, ErrWalletEmpty) || errors.Is(err, ErrFeeCeiling) {
		s.setReady(ctx, err)
	}
	if err != nil {
		return open, err
	}
	err = s.Wallet.Broadcast(ctx, slot.Txs[0])
	crash.At(crash.TransactionSent)
	return append(open, slot), err
}

// openSlot signs a transaction for a batch of intents and saves it with a new
// slot. Nothing is broadcast before it is saved. A crash
//   - after signing, before saving: the intents wait, the next round signs again;
//   - after saving: the next round finds the open slot and broadcasts it.
func (s *Settler) openSlot(ctx context.Context, nonce uint64, batch []sendable) (Slot, error) {
	intents := make([]Intent, len(batch))
	calls := make([]Call, len(batch))
	for i, b := range batch {
		intents[i], calls[i] = b.Intent, Call{b.Permit, b.code}
	}
	tx, err := s.Wallet.Sign(ctx, calls, nonce, nil)
	if err != nil {
		return Slot{}, err
	}
	slot := Slot{
		ID: boxoffice.NewUUID(), ChainID: s.ChainID, Sender: s.Wallet.Address(), WalletNonce: nonce,
		Txs: []Tx{tx}, Intents: intents, OpenedAt: boxoffice.At(s.Now()),
	}
	changes, err := Send(&slot)
	if err != nil {
		return Slot{}, err
	}
	crash.At(crash.TransactionSigned)
	if err := s.Store.OpenSlot(ctx, slot, changes); err != nil {
		return Slot{}, err
	}
	crash.At(crash.SlotSaved)
	s.Log.InfoContext(ctx, "slot opened", "tx", tx.Hash, "walletNonce", nonce, "payments", len(batch))
	return slot, nil
}
