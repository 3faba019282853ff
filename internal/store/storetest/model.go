package storetest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/ethereum/go-ethereum/common"

	"boxoffice"
	"boxoffice/internal/order"
	"boxoffice/internal/payment"
	"boxoffice/internal/work"
)

// model is what a store should hold, as plainly as it can be said. It has its
// own chain, so that many models share a store.
type model struct {
	chain    uint64
	orders   map[boxoffice.UUID]order.Record   // without Payment
	last     map[boxoffice.UUID]boxoffice.UUID // of an order, its last intent
	intents  map[boxoffice.UUID]payment.Intent
	permits  map[string]boxoffice.UUID // of a nonce, its order
	slots    map[boxoffice.UUID]modelSlot
	carrier  map[boxoffice.UUID]boxoffice.UUID // of an intent, the last slot that carried it
	credited map[modelLog]bool                 // the Transfer logs of settled intents
}

type modelSlot struct {
	payment.Slot // its Intents have IDs alone
	closed       bool
}

type modelLog struct {
	tx    common.Hash
	index uint
}

func logOf(evidence *payment.Evidence) modelLog { return modelLog{evidence.TxHash, evidence.LogIndex} }

var modelChains atomic.Uint64

func newModel() *model {
	return &model{
		chain:    1_000_000 + modelChains.Add(1),
		orders:   map[boxoffice.UUID]order.Record{},
		last:     map[boxoffice.UUID]boxoffice.UUID{},
		intents:  map[boxoffice.UUID]payment.Intent{},
		permits:  map[string]boxoffice.UUID{},
		slots:    map[boxoffice.UUID]modelSlot{},
		carrier:  map[boxoffice.UUID]boxoffice.UUID{},
		credited: map[modelLog]bool{},
	}
}

func (m *model) clone() *model {
	return &model{
		m.chain, maps.Clone(m.orders), maps.Clone(m.last), maps.Clone(m.intents), maps.Clone(m.permits), maps.Clone(m.slots), maps.Clone(m.carrier), maps.Clone(m.credited),
	}
}

func (m *model) record(id boxoffice.UUID) order.Record {
	record := m.orders[id]
	if last, ok := m.last[id]; ok {
		record.Payment = pointer(m.intents[last])
	}
	return record
}

func (m *model) begin(intent payment.Intent, replaces *boxoffice.UUID) error {
	record, last := m.orders[intent.OrderID], m.last[intent.OrderID]
	first := record.Status == boxoffice.Quoted && replaces == nil
	next := record.Status == boxoffice.PaymentFailed && replaces != nil && *replaces == last
	if !first && !next {
		return order.ErrStale
	}
	permit := fmt.Sprint(intent.Permit.From, intent.Permit.Nonce)
	if holder, taken := m.permits[permit]; taken && holder != record.ID {
		return order.ErrPermitTaken
	}
	record.Status = boxoffice.PaymentPending
	m.orders[record.ID], m.last[record.ID], m.intents[intent.ID], m.permits[permit] = record, intent.ID, intent, record.ID
	return nil
}

func (m *model) openSlot(slot payment.Slot) error {
	for _, s := range m.slots {
		if s.WalletNonce == slot.WalletNonce {
			return payment.ErrStale
		}
	}
	for _, carried := range slot.Intents {
		intent := m.intents[carried.ID]
		if intent.State != payment.Waiting {
			return payment.ErrStale
		}
		intent.State = payment.Sent
		m.intents[intent.ID], m.carrier[intent.ID] = intent, slot.ID
	}
	m.slots[slot.ID] = modelSlot{Slot: slot}
	return nil
}

func (m *model) addTx(id boxoffice.UUID, tx payment.Tx) error {
	slot := m.slots[id]
	if slot.closed {
		return payment.ErrStale
	}
	slot.Txs = append(slices.Clone(slot.Txs), tx)
	m.slots[id] = slot
	return nil
}

func (m *model) settle(slotID *boxoffice.UUID, decisions []payment.Decision, at boxoffice.Timestamp) error {
	for _, decision := range decisions {
		intent := m.intents[decision.IntentID]
		record := m.orders[intent.OrderID]
		carried := intent.State == payment.Sent && slotID != nil && m.carrier[intent.ID] == *slotID
		unsettled := intent.State == payment.Failed && !intent.Final
		switch decision.Outcome {
		case payment.OutcomeSettled:
			if !carried && !unsettled && intent.State != payment.Waiting || m.last[record.ID] != intent.ID {
				return payment.ErrStale
			}
			if m.credited[logOf(decision.Evidence)] {
				return payment.ErrCredited
			}
			m.credited[logOf(decision.Evidence)] = true
			intent.State, intent.Evidence, intent.Reason = payment.Settled, decision.Evidence, ""
			if record.Status != boxoffice.Paid {
				record.Status, record.PaidAt = boxoffice.Paid, &at
			}
		case payment.OutcomeFailed:
			switch {
			case carried || intent.State == payment.Waiting:
				intent.State, intent.Reason, intent.Final = payment.Failed, decision.Reason, decision.Final
				if record.Status != boxoffice.Paid {
					record.Status = boxoffice.PaymentFailed
				}
			case unsettled && decision.Final:
				intent.Final = true
			default:
				return payment.ErrStale
			}
		case payment.OutcomeReleased, payment.OutcomeReverted:
			if !carried {
				return payment.ErrStale
			}
			intent.State = payment.Waiting
			if decision.Outcome == payment.OutcomeReverted {
				intent.Reverts++
			}
		case payment.OutcomeUndone:
			if intent.State != payment.Settled {
				return payment.ErrStale
			}
			delete(m.credited, logOf(intent.Evidence))
			intent.State = payment.Waiting
		}
		m.intents[intent.ID], m.orders[record.ID] = intent, record
	}
	if slotID == nil {
		return nil
	}
	slot := m.slots[*slotID]
	if slot.closed || slices.ContainsFunc(slot.Intents, func(i payment.Intent) bool {
		return m.intents[i.ID].State == payment.Sent && m.carrier[i.ID] == *slotID
	}) {
		return payment.ErrStale
	}
	slot.closed = true
	m.slots[*slotID] = slot
	return nil
}

// reopen opens the closed slots from a nonce on, with what their transactions
// had settled.
func (m *model) reopen(nonce uint64) (reopened int) {
	for id, slot := range m.slots {
		if slot.closed && slot.WalletNonce >= nonce {
			slot.closed = false
			m.slots[id] = slot
			reopened++
		}
		for _, carried := range slot.Intents {
			intent := m.intents[carried.ID]
			if slot.WalletNonce >= nonce && intent.State == payment.Settled && slot.signed(intent.Evidence.TxHash) {
				delete(m.credited, logOf(intent.Evidence))
				intent.State = payment.Sent
				m.intents[intent.ID], m.carrier[intent.ID] = intent, id
			}
		}
	}
	return reopened
}

func (s modelSlot) signed(hash common.Hash) bool {
	return slices.ContainsFunc(s.Txs, func(tx payment.Tx) bool { return tx.Hash == hash })
}

func (m *model) admit(id boxoffice.UUID, at boxoffice.Timestamp, opened work.Opened) error {
	record := m.orders[id]
	if record.Status != boxoffice.Paid || record.Admission != nil {
		return order.ErrStale
	}
	record.Admission = &order.Admission{AdmittedAt: at, Opened: opened}
	m.orders[id] = record
	return nil
}

// choose returns the intents that hold, in the order of the store's lists.
func (m *model) choose(holds func(payment.Intent) bool) []payment.Intent {
	chosen := slices.DeleteFunc(slices.Collect(maps.Values(m.intents)), func(i payment.Intent) bool { return !holds(i) })
	slices.SortFunc(chosen, func(a, b payment.Intent) int {
		return cmp.Or(cmp.Compare(a.SubmittedAt, b.SubmittedAt), cmp.Compare(a.ID, b.ID))
	})
	return chosen
}

func (m *model) openSlots() (open []payment.Slot) {
	for _, slot := range m.slots {
		if slot.closed {
			continue
		}
		whole := slot.Slot
		whole.Intents = nil
		for _, intent := range slot.Intents {
			if m.carrier[intent.ID] == slot.ID && m.intents[intent.ID].State == payment.Sent {
				whole.Intents = append(whole.Intents, m.intents[intent.ID])
			}
		}
		open = append(open, whole)
	}
	slices.SortFunc(open, func(a, b payment.Slot) int { return cmp.Compare(a.WalletNonce, b.WalletNonce) })
	return open
}
