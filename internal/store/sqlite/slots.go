package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/ethereum/go-ethereum/common"

	"boxoffice"
	"boxoffice/internal/payment"
)

// Lease implements payment.Leases. A lease is held until the moment before its
// end; its holder may move the end to any moment.
func (s *Store) Lease(ctx context.Context, name, holder string, now, until boxoffice.Timestamp) error {
	return s.write(ctx, "lease", func(tx *sql.Tx) error {
		return move(ctx, tx, `
			INSERT INTO leases (name, holder, until) VALUES (?1, ?2, ?3)
			ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
			WHERE leases.holder = excluded.holder OR leases.until <= ?4`, name, holder, until, now)
	})
}

const (
	openSlots     = "s.chain_id = ? AND s.sender = ? AND s.closed_at IS NULL"
	selectSlots   = `SELECT s.id, s.wallet_nonce, s.opened_at FROM slots s WHERE ` + openSlots + ` ORDER BY s.wallet_nonce`
	selectSlotTxs = `SELECT t.slot_id, t.hash, t.raw, t.gas_limit, t.fee_cap, t.tip_cap, t.signed_at
		FROM slots s JOIN transactions t ON t.slot_id = s.id WHERE ` + openSlots + ` ORDER BY t.slot_id, t.position`
	selectSlotIntents = `SELECT m.slot_id, ` + intentColumns + `
		FROM slots s JOIN slot_intents m ON m.slot_id = s.id JOIN intents i ON i.id = m.intent_id AND i.slot_id = m.slot_id
		WHERE ` + openSlots + ` ORDER BY m.slot_id, m.position`
)

// Slots implements payment.Store.
func (s *Store) Slots(ctx context.Context, chainID uint64, sender common.Address) (slots []payment.Slot, err error) {
	err = s.view(ctx, "read slots", func(tx *sql.Tx) error {
		slots, err = collect(ctx, tx, func(from row) (payment.Slot, error) {
			slot := payment.Slot{ChainID: chainID, Sender: sender}
			err := from.Scan(&slot.ID, &slot.WalletNonce, &slot.OpenedAt)
			return slot, err
		}, selectSlots, chainID, text{sender})
		if err != nil {
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
		}, selectSlotTxs, chainID, text{sender}); err != nil {
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
		}, selectSlotIntents, chainID, text{sender})
		return err
	})
	return slots, err
}

// OpenSlot implements payment.Store.
func (s *Store) OpenSlot(ctx context.Context, slot payment.Slot) error {
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
		for position, intent := range slot.Intents {
			if err := move(ctx, tx, `
				INSERT INTO slot_intents (slot_id, position, intent_id)
				SELECT ?, ?, id FROM intents WHERE id = ? AND chain_id = ? AND state = 'waiting'`,
				slot.ID, position, intent.ID, slot.ChainID,
			); err != nil {
				return err
			}
			if err := move(ctx, tx, `
				UPDATE intents SET state = 'sent', slot_id = ? WHERE id = ? AND state = 'waiting'`, slot.ID, intent.ID,
			); err != nil {
				return err
			}
		}
		return nil
	})
}

// AddTx implements payment.Store. It returns ErrStale if the slot is not open or
// the transaction is saved already.
func (s *Store) AddTx(ctx context.Context, slotID boxoffice.UUID, signed payment.Tx) error {
	return s.write(ctx, "add transaction", func(tx *sql.Tx) error { return addTx(ctx, tx, slotID, signed) })
}

func addTx(ctx context.Context, tx *sql.Tx, slotID boxoffice.UUID, signed payment.Tx) error {
	return ifTaken(move(ctx, tx, `
		INSERT INTO transactions (hash, slot_id, position, raw, gas_limit, fee_cap, tip_cap, signed_at)
		SELECT ?, s.id, (SELECT count(*) FROM transactions WHERE slot_id = s.id), ?, ?, ?, ?, ?
		FROM slots s WHERE s.id = ? AND s.closed_at IS NULL`,
		text{signed.Hash}, signed.Raw, signed.GasLimit, text{signed.FeeCap}, text{signed.TipCap}, signed.SignedAt, slotID), payment.ErrStale)
}

// Settle implements payment.Store. A sent intent is decided by naming its slot,
// and then every intent of the slot that is still sent. Waiting intents and
// failed ones that are not final are decided with or without a slot: such a
// failed one can be settled, if it is the last payment of its order, or made
// final, and keeps its first reason.
func (s *Store) Settle(ctx context.Context, slotID *boxoffice.UUID, decisions []payment.Decision, at boxoffice.Timestamp) error {
	return s.write(ctx, "settle", func(tx *sql.Tx) error {
		for _, decision := range decisions {
			if err := decide(ctx, tx, slotID, decision, at); err != nil {
				return err
			}
		}
		if slotID == nil {
			return nil
		}
		return move(ctx, tx, `
			UPDATE slots SET closed_at = ?
			WHERE id = ? AND closed_at IS NULL AND NOT EXISTS (SELECT 1 FROM intents WHERE slot_id = slots.id)`, at, slotID)
	})
}

func decide(ctx context.Context, tx *sql.Tx, slotID *boxoffice.UUID, decision payment.Decision, at boxoffice.Timestamp) error {
	id := decision.IntentID
	switch decision.Outcome {
	case payment.OutcomeSettled:
		evidence := decision.Evidence
		if evidence == nil {
			return fmt.Errorf("decision on %s: evidence: is required", id)
		}
		if err := move(ctx, tx, `
			UPDATE intents SET state = 'settled', slot_id = NULL, reason = NULL,
			                   tx_hash = ?, log_index = ?, block_number = ?, settled_at = ?
			WHERE id = ? AND (state = 'sent' AND slot_id = ? OR state = 'waiting' OR state = 'failed' AND final = 0)
			      AND id = (SELECT intent_id FROM orders WHERE orders.id = intents.order_id)`,
			text{evidence.TxHash}, evidence.LogIndex, evidence.BlockNumber, evidence.SettledAt, id, slotID,
		); err != nil {
			return ifTaken(err, payment.ErrCredited)
		}
		// The order of a payment that was undone is paid already.
		_, err := tx.ExecContext(ctx, `
			UPDATE orders SET status = 'paid', paid_at = ?1
			WHERE id = (SELECT order_id FROM intents WHERE id = ?2) AND status IN ('payment_pending', 'payment_failed')`, at, id)
		return err

	case payment.OutcomeFailed:
		failed, err := affects(ctx, tx, `
			UPDATE intents SET state = 'failed', slot_id = NULL, reason = ?, final = ?
			WHERE id = ? AND (state = 'sent' AND slot_id = ? OR state = 'waiting')`,
			decision.Reason, decision.Final, id, slotID)
		if err != nil {
			return err
		}
		if !failed {
			return move(ctx, tx, `
				UPDATE intents SET final = 1 WHERE id = ? AND state = 'failed' AND final = 0 AND ?`, id, decision.Final)
		}
		_, err = tx.ExecContext(ctx, `
			UPDATE orders SET status = 'payment_failed'
			WHERE id = (SELECT order_id FROM intents WHERE id = ?) AND status = 'payment_pending'`, id)
		return err

	case payment.OutcomeReleased, payment.OutcomeReverted:
		return move(ctx, tx, `
			UPDATE intents SET state = 'waiting', slot_id = NULL, left_out = left_out + ?
			WHERE id = ? AND state = 'sent' AND slot_id = ?`, decision.Outcome == payment.OutcomeReverted, id, slotID)

	case payment.OutcomeUndone:
		return move(ctx, tx, `UPDATE intents SET state = 'waiting' WHERE id = ? AND state = 'settled'`, id)
	}
	return fmt.Errorf("decision on %s: outcome %q is unknown", id, decision.Outcome)
}

// ReopenSlots implements payment.History.
func (s *Store) ReopenSlots(ctx context.Context, chainID uint64, sender common.Address, nonce uint64) (reopened int, err error) {
	err = s.write(ctx, "reopen slots", func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, `
			UPDATE slots SET closed_at = NULL
			WHERE chain_id = ? AND sender = ? AND wallet_nonce >= ? AND closed_at IS NOT NULL`, chainID, text{sender}, nonce)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		if reopened = int(n); err != nil || n == 0 {
			return err
		}
		_, err = tx.ExecContext(ctx, `
			UPDATE intents SET state = 'sent', slot_id = t.slot_id
			FROM transactions t JOIN slots s ON s.id = t.slot_id JOIN slot_intents m ON m.slot_id = s.id
			WHERE s.chain_id = ? AND s.sender = ? AND s.wallet_nonce >= ?
			      AND t.hash = intents.tx_hash AND m.intent_id = intents.id AND intents.state = 'settled'`,
			chainID, text{sender}, nonce)
		return err
	})
	return reopened, err
}

// Carried implements payment.History.
func (s *Store) Carried(ctx context.Context, hash common.Hash) (ours bool, intents []boxoffice.UUID, err error) {
	err = s.view(ctx, "read a transaction", func(tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM transactions WHERE hash = ?)", text{hash}).Scan(&ours); err != nil {
			return err
		}
		intents, err = collect(ctx, tx, func(from row) (id boxoffice.UUID, err error) {
			err = from.Scan(&id)
			return id, err
		}, "SELECT m.intent_id FROM transactions t JOIN slot_intents m ON m.slot_id = t.slot_id WHERE t.hash = ? ORDER BY m.position", text{hash})
		return err
	})
	return ours, intents, err
}
