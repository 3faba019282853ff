package storetest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync/atomic"

	"github.com/ethereum/go-ethereum/common"

	"boxoffice"
	"boxoffice/internal/facilitator"
	"boxoffice/internal/order"
	"boxoffice/internal/payment"
	"boxoffice/internal/work"
)

// model is what a store should contain, in the simplest form. It decides the state
// changes by itself, so it also checks order and payment. Each model has its own
// chain, so that many models can use one store.
type model struct {
	chain    uint64
	orders   map[boxoffice.UUID]order.Record   // without Payment
	last     map[boxoffice.UUID]boxoffice.UUID // the last intent of an order
	intents  map[boxoffice.UUID]payment.Intent
	permits  map[string]boxoffice.UUID // the order or the submission of a nonce
	slots    map[boxoffice.UUID]modelSlot
	credited map[modelLog]bool // the Transfer logs of settled intents
}

type modelSlot struct {
	payment.Slot // of its Intents only the IDs are current
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
		credited: map[modelLog]bool{},
	}
}

func (m *model) clone() *model {
	return &model{
		m.chain, maps.Clone(m.orders), maps.Clone(m.last), maps.Clone(m.intents),
		maps.Clone(m.permits), maps.Clone(m.slots), maps.Clone(m.credited),
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

// submit saves a submission. It returns the saved one with the same nonce.
func (m *model) submit(intent payment.Intent) (payment.Intent, error) {
	permit := fmt.Sprint(intent.Permit.From, intent.Permit.Nonce)
	holder, taken := m.permits[permit]
	if !taken {
		m.intents[intent.ID], m.permits[permit] = intent, intent.SubmissionID
		return intent, nil
	}
	for _, earlier := range m.intents {
		if earlier.SubmissionID == holder {
			return earlier, nil
		}
	}
	return payment.Intent{}, facilitator.ErrPermitTaken
}

func (m *model) openSlot(slot payment.Slot) error {
	if slices.ContainsFunc(slot.Intents, func(i payment.Intent) bool { return i.State != payment.Waiting }) {
		return errMistake
	}
	for _, s := range m.slots {
		if s.WalletNonce == slot.WalletNonce {
			return payment.ErrStale
		}
	}
	for _, carried := range slot.Intents {
		intent := m.intents[carried.ID]
		if !reflect.DeepEqual(intent.Progress, carried.Progress) {
			return payment.ErrStale
		}
		intent.State, intent.SlotID = payment.Sent, &slot.ID
		m.intents[intent.ID] = intent
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

// errMistake stands for an error that only a mistake of the caller causes.
var errMistake = errors.New("a mistake of the caller")

func (m *model) settle(slotID *boxoffice.UUID, decisions []payment.Decision, at boxoffice.Timestamp) error {
	for _, decision := range decisions {
		if mistaken(slotID, decision) {
			return errMistake
		}
	}
	var orders []func() error
	for _, decision := range decisions {
		intent := m.intents[decision.Intent.ID]
		if !reflect.DeepEqual(intent.Progress, decision.Intent.Progress) {
			return payment.ErrStale
		}
		undone := intent.Undone()
		intent.SlotID = nil
		switch decision.Outcome {
		case payment.OutcomeSettled:
			intent.State, intent.Evidence, intent.Reason = payment.Settled, decision.Evidence, ""
			var refused error
			if m.credited[logOf(decision.Evidence)] {
				refused = payment.ErrCredited
			}
			if m.otherAlive(intent) {
				refused = errors.Join(refused, payment.ErrStale)
			}
			if refused != nil {
				return refused
			}
			m.credited[logOf(decision.Evidence)] = true
			orders = append(orders, func() error { return m.move(intent, undone, boxoffice.Paid, &at) })
		case payment.OutcomeFailed:
			if intent.State == payment.Failed {
				intent.Final = true
				break
			}
			intent.State, intent.Reason, intent.Final = payment.Failed, decision.Reason, decision.Final
			orders = append(orders, func() error { return m.move(intent, undone, boxoffice.PaymentFailed, nil) })
		case payment.OutcomeReverted:
			intent.Reverts++
			intent.State = payment.Waiting
		case payment.OutcomeReleased:
			intent.State = payment.Waiting
		case payment.OutcomeUndone:
			delete(m.credited, logOf(intent.Evidence))
			intent.State = payment.Waiting
		}
		m.intents[intent.ID] = intent
	}
	for _, move := range orders {
		if err := move(); err != nil {
			return err
		}
	}
	if slotID == nil {
		return nil
	}
	slot := m.slots[*slotID]
	if slot.closed || slices.ContainsFunc(slot.Intents, func(i payment.Intent) bool { return m.carries(*slotID, i.ID) }) {
		return payment.ErrStale
	}
	slot.closed = true
	m.slots[*slotID] = slot
	return nil
}

// mistaken reports whether a decision makes no sense for the intent that it is about.
func mistaken(slotID *boxoffice.UUID, decision payment.Decision) bool {
	intent := decision.Intent
	if intent.Final || intent.State == payment.Sent && (slotID == nil || *slotID != *intent.SlotID) {
		return true
	}
	switch decision.Outcome {
	case payment.OutcomeSettled:
		return intent.State == payment.Settled
	case payment.OutcomeFailed:
		return intent.State != payment.Waiting && !(intent.State == payment.Failed && decision.Final)
	case payment.OutcomeUndone:
		return intent.State != payment.Settled
	}
	return intent.State != payment.Sent
}

// otherAlive reports whether the order of an intent has another that is not failed.
func (m *model) otherAlive(intent payment.Intent) bool {
	for _, other := range m.intents {
		if intent.OrderID != "" && other.OrderID == intent.OrderID && other.ID != intent.ID && other.State != payment.Failed {
			return true
		}
	}
	return false
}

// move changes the status of an intent's order, unless the order was paid before a
// reorganisation. A submission has no order.
func (m *model) move(intent payment.Intent, undone bool, to boxoffice.State, paidAt *boxoffice.Timestamp) error {
	if undone || intent.OrderID == "" {
		return nil
	}
	if m.last[intent.OrderID] != intent.ID {
		return payment.ErrStale
	}
	record := m.orders[intent.OrderID]
	record.Status, record.PaidAt = to, paidAt
	m.orders[record.ID] = record
	return nil
}

// carries reports whether a slot is open with an intent.
func (m *model) carries(slotID, intentID boxoffice.UUID) bool {
	carrier := m.intents[intentID].SlotID
	return carrier != nil && *carrier == slotID
}

// reopen opens the closed slots from a nonce on. The intents that their transactions
// had settled are sent again.
func (m *model) reopen(nonce uint64) {
	for id, slot := range m.slots {
		if slot.closed && slot.WalletNonce >= nonce {
			slot.closed = false
			m.slots[id] = slot
		}
		for _, carried := range slot.Intents {
			intent := m.intents[carried.ID]
			if slot.WalletNonce >= nonce && intent.State == payment.Settled && slot.signed(intent.Evidence.TxHash) {
				delete(m.credited, logOf(intent.Evidence))
				intent.State, intent.SlotID = payment.Sent, &slot.ID
				m.intents[intent.ID] = intent
			}
		}
	}
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

// choose returns the intents for which holds is true, in the order of the store's lists.
func (m *model) choose(holds func(payment.Intent) bool) []payment.Intent {
	chosen := slices.DeleteFunc(slices.Collect(maps.Values(m.intents)), func(i payment.Intent) bool { return !holds(i) })
	slices.SortFunc(chosen, func(a, b payment.Intent) int {
		return cmp.Or(cmp.Compare(a.SubmittedAt, b.SubmittedAt), cmp.Compare(a.ID, b.ID))
	})
	return chosen
}

func (m *model) openSlots() []payment.Slot {
	return m.chooseSlots(func(slot modelSlot) bool { return !slot.closed })
}

// closedSlots returns the closed slots from a nonce on, with all that they carried.
func (m *model) closedSlots(nonce uint64) []payment.Slot {
	return m.chooseSlots(func(slot modelSlot) bool { return slot.closed && slot.WalletNonce >= nonce })
}

func (m *model) chooseSlots(holds func(modelSlot) bool) (chosen []payment.Slot) {
	for _, slot := range m.slots {
		if !holds(slot) {
			continue
		}
		whole := slot.Slot
		whole.Intents = nil
		for _, intent := range slot.Intents {
			if slot.closed || m.carries(slot.ID, intent.ID) {
				whole.Intents = append(whole.Intents, m.intents[intent.ID])
			}
		}
		chosen = append(chosen, whole)
	}
	slices.SortFunc(chosen, func(a, b payment.Slot) int { return cmp.Compare(a.WalletNonce, b.WalletNonce) })
	return chosen
}
