package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/ethereum/go-ethereum/common"

	"boxoffice"
	"boxoffice/internal/order"
	"boxoffice/internal/payment"
)

const (
	openSlots   = "s.chain_id = ? AND s.closed_at IS NULL"
	closedSlots = "s.chain_id = ? AND s.sender = ? AND s.closed_at IS NOT NULL AND s.wallet_nonce >= ?"
	stillSent   = " AND i.slot_id = m.slot_id"
)

func selectSlots(which string) string {
	return `SELECT s.id, s.sender, s.wallet_nonce, s.opened_at FROM slots s WHERE ` + which + ` ORDER BY s.sender, s.wallet_nonce`
}

// Slots implements payment.Store.
func (s *Store) Slots(ctx context.Context, chainID uint64) (slots []payment.Slot, err error) {
	return s.readSlots(ctx, openSlots, stillSent, chainID)
}

// ClosedSlots implements payment.History.
func (s *Store) ClosedSlots(
	ctx context.Context, chainID uint64, sender common.Address, nonce uint64,
) ([]payment.Slot, error) {
	return s.readSlots(ctx, closedSlots, "", chainID, text{sender}, nonce)
}

// readSlots reads the slots for which one condition holds, with their transactions
// and with those of their intents for which the other holds.
func (s *Store) readSlots(
	ctx context.Context, which, intents string, chainID uint64, more ...any,
) (slots []payment.Slot, err error) {
	args := append([]any{chainID}, more...)
	err = s.view(ctx, "read slots", func(tx *sql.Tx) error {
		slots, err = collect(ctx, tx, func(from row) (payment.Slot, error) {
			slot := payment.Slot{ChainID: chainID}
			err := from.Scan(&slot.ID, intoText{&slot.Sender}, &slot.WalletNonce, &slot.OpenedAt)
			return slot, err
		}, selectSlots(which), args...)
		if err != nil || len(slots) == 0 {
			return err
		}
		at := make(map[boxoffice.UUID]*payment.Slot, len(slots))
		for i := range slots {
			at[slots[i].ID] = &slots[i]
		}
		if _, err = collect(ctx, tx, func(from row) (id boxoffice.UUID, err error) {
			var signed payment.Tx
			err = from.Scan(&id, intoText{&signed.Hash}, &signed.Raw, &signed.GasLimit,
				intoText{&signed.FeeCap}, intoText{&signed.TipCap}, &signed.SignedAt)
			if err == nil {
				at[id].Txs = append(at[id].Txs, signed)
			}
			return id, err
		}, `
			SELECT t.slot_id, t.hash, t.raw, t.gas_limit, t.fee_cap, t.tip_cap, t.signed_at
			FROM slots s JOIN transactions t ON t.slot_id = s.id
			WHERE `+which+` ORDER BY t.slot_id, t.position`, args...); err != nil {
			return err
		}
		_, err = collect(ctx, tx, func(from row) (id boxoffice.UUID, err error) {
			var r intentRow
			if err := from.Scan(append([]any{&id}, r.columns()...)...); err != nil {
				return id, err
			}
			intent, err := r.intent()
			if err == nil {
				at[id].Intents = append(at[id].Intents, intent)
			}
			return id, err
		}, `
			SELECT m.slot_id, `+intentColumns+`
			FROM slots s JOIN slot_intents m ON m.slot_id = s.id JOIN intents i ON i.id = m.intent_id`+intents+`
			WHERE `+which+` ORDER BY m.slot_id, m.position`, args...)
		return err
	})
	return slots, err
}

// OpenSlot implements payment.Store.
func (s *Store) OpenSlot(ctx context.Context, slot payment.Slot, changes []payment.Change) error {
	if len(slot.Txs) != 1 {
		return fmt.Errorf("sqlite: open slot: txs: a slot opens with 1 transaction, not %d", len(slot.Txs))
	}
	return s.write(ctx, "open slot", func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `
			INSERT INTO slots (id, chain_id, sender, wallet_nonce, opened_at) VALUES (?, ?, ?, ?, ?)`,
			slot.ID, slot.ChainID, text{slot.Sender}, slot.WalletNonce, slot.OpenedAt,
		); err != nil {
			return ifTaken(err, payment.ErrStale)
		}
		if err := addTx(ctx, tx, slot.ID, slot.Txs[0]); err != nil {
			return err
		}
		for position, change := range changes {
			if err := move(ctx, tx, `
				INSERT INTO slot_intents (slot_id, position, intent_id)
				SELECT ?, ?, id FROM intents WHERE id = ? AND chain_id = ?`,
				slot.ID, position, change.IntentID, slot.ChainID,
			); err != nil {
				return ifTaken(err, payment.ErrStale)
			}
		}
		return changeIntents(ctx, tx, changes)
	})
}

// AddTx implements payment.Store. It returns ErrStale if the slot is not open or
// the transaction is saved already.
func (s *Store) AddTx(ctx context.Context, slotID boxoffice.UUID, signed payment.Tx) error {
	return s.write(ctx, "add transaction", func(tx *sql.Tx) error { return addTx(ctx, tx, slotID, signed) })
}

func addTx(ctx context.Context, tx *sql.Tx, slotID boxoffice.UUID, signed payment.Tx) error {
	err := move(ctx, tx, `
		INSERT INTO transactions (hash, slot_id, position, raw, gas_limit, fee_cap, tip_cap, signed_at)
		SELECT ?, s.id, (SELECT count(*) FROM transactions WHERE slot_id = s.id), ?, ?, ?, ?, ?
		FROM slots s WHERE s.id = ? AND s.closed_at IS NULL`,
		text{signed.Hash}, signed.Raw, signed.GasLimit, text{signed.FeeCap}, text{signed.TipCap}, signed.SignedAt,
		slotID)
	return ifTaken(err, payment.ErrStale)
}

// SaveChanges implements order.SettlementStore.
func (s *Store) SaveChanges(ctx context.Context, changes order.Changes) error {
	return s.write(ctx, "settle", func(tx *sql.Tx) error {
		if err := changeIntents(ctx, tx, changes.Intents); err != nil {
			return err
		}
		for _, change := range changes.Orders {
			if err := changeOrder(ctx, tx, change); err != nil {
				return err
			}
		}
		if changes.CloseSlot == nil {
			return nil
		}
		return move(ctx, tx, `
			UPDATE slots SET closed_at = ?
			WHERE id = ? AND closed_at IS NULL AND NOT EXISTS (SELECT 1 FROM intents WHERE slot_id = slots.id)`,
			changes.At, changes.CloseSlot)
	})
}

// changeIntents executes conditional writes on intents.
func changeIntents(ctx context.Context, tx *sql.Tx, changes []payment.Change) error {
	const progress = "(state, slot_id, reason, final, reverts, tx_hash, log_index, block_number, settled_at)"
	for _, change := range changes {
		args := append(progressColumns(change.To), change.IntentID)
		if err := move(ctx, tx, `
			UPDATE intents SET `+progress+` = (?, ?, ?, ?, ?, ?, ?, ?, ?)
			WHERE id = ? AND `+progress+` IS (?, ?, ?, ?, ?, ?, ?, ?, ?)`, append(args, progressColumns(change.From)...)...,
		); err != nil {
			return ifTaken(err, credited(err))
		}
	}
	return nil
}

// credited returns the outcome of an error that says that a row with the same
// unique values exists. Either another intent has the same evidence, or the order
// has another payment that has not failed.
func credited(err error) error {
	if strings.Contains(err.Error(), "intents.tx_hash") {
		return payment.ErrCredited
	}
	return payment.ErrStale
}

func progressColumns(p payment.Progress) []any {
	columns := []any{p.State, p.SlotID, unlessEmpty(p.Reason), p.Final, p.Reverts}
	if p.Evidence == nil {
		return append(columns, nil, nil, nil, nil)
	}
	return append(columns, text{p.Evidence.TxHash}, p.Evidence.LogIndex, p.Evidence.BlockNumber, p.Evidence.SettledAt)
}

// ReopenSlots implements payment.History.
func (s *Store) ReopenSlots(ctx context.Context, closed []payment.Slot, changes []payment.Change) error {
	return s.write(ctx, "reopen slots", func(tx *sql.Tx) error {
		for _, slot := range closed {
			if err := move(ctx, tx, `
				UPDATE slots SET closed_at = NULL WHERE id = ? AND closed_at IS NOT NULL`, slot.ID); err != nil {
				return err
			}
		}
		return changeIntents(ctx, tx, changes)
	})
}

// Carried implements payment.History.
func (s *Store) Carried(ctx context.Context, hash common.Hash) (ours bool, intents []boxoffice.UUID, err error) {
	err = s.view(ctx, "read a transaction", func(tx *sql.Tx) error {
		found := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM transactions WHERE hash = ?)", text{hash})
		if err := found.Scan(&ours); err != nil {
			return err
		}
		intents, err = collect(ctx, tx, scanValue[boxoffice.UUID], `
			SELECT m.intent_id FROM transactions t JOIN slot_intents m ON m.slot_id = t.slot_id
			WHERE t.hash = ? ORDER BY m.position`, text{hash})
		return err
	})
	return ours, intents, err
}
