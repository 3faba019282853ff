package payment

import (
	"context"
	"errors"
	"slices"

	"boxoffice"
)

// dispatch opens a slot for the waiting intents that would settle, and decides
// those that would not.
func (s *Settler) dispatch(ctx context.Context, v view, open []Slot) error {
	if len(open) >= s.MaxInFlight {
		return nil
	}
	limit := min(s.MaxBatch, s.Wallet.MaxBatch())
	waiting, err := s.Store.Waiting(ctx, s.ChainID, limit)
	if err != nil || len(waiting) == 0 {
		return err
	}
	standings, err := s.Chain.Standing(ctx, permits(waiting))
	if err != nil {
		return err
	}
	var failures []error
	var batches [][]Intent
	var together []Intent
	for i, intent := range waiting {
		switch standing := &standings[i]; {
		case standing.Failure != nil || standing.Spent:
			failures = append(failures, s.conclude(ctx, v, intent, standing))
		case standing.Code: // Permit2 calls the owner, who could burn the gas of its neighbours
			batches = append(batches, []Intent{intent})
		default:
			together = append(together, intent)
		}
	}
	if len(together) > 0 {
		batches = slices.Insert(batches, 0, together)
	}
	for _, batch := range batches[:min(len(batches), s.MaxInFlight-len(open))] {
		slot, err := s.openSlot(ctx, v, open, batch)
		if err != nil {
			return errors.Join(append(failures, err)...)
		}
		open = append(open, slot)
		failures = append(failures, s.Wallet.Broadcast(ctx, slot.Txs[0]))
	}
	if len(waiting) == limit {
		s.Wake()
	}
	return errors.Join(failures...)
}

// openSlot signs a transaction for the batch and saves it, before anybody hears
// of it.
func (s *Settler) openSlot(ctx context.Context, v view, open []Slot, batch []Intent) (Slot, error) {
	nonce, err := s.Wallet.Nonce(ctx, v.head.Number)
	if err != nil {
		return Slot{}, err
	}
	for _, slot := range open {
		nonce = max(nonce, slot.WalletNonce+1)
	}
	tx, err := s.Wallet.Sign(ctx, permits(batch), nonce, nil)
	if err != nil {
		return Slot{}, err
	}
	slot := Slot{
		ID: boxoffice.NewUUID(), ChainID: s.ChainID, Sender: s.Wallet.Address(), WalletNonce: nonce,
		Txs: []Tx{tx}, Intents: batch, OpenedAt: boxoffice.At(s.Now()),
	}
	if err := s.Store.OpenSlot(ctx, slot); err != nil {
		return Slot{}, err
	}
	s.Log.InfoContext(ctx, "slot opened", "tx", tx.Hash, "walletNonce", nonce, "payments", len(batch))
	return slot, nil
}
