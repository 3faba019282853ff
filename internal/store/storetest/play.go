package storetest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	diff "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"boxoffice"
	"boxoffice/internal/facilitator"
	"boxoffice/internal/order"
	"boxoffice/internal/payment"
	"boxoffice/internal/work"
)

// testModel runs random operations, many of them wrong, on the store and on the
// model. It compares their outcomes and everything that can be read.
func testModel(t *testing.T, store Store) {
	rapid.Check(t, func(rt *rapid.T) {
		p := &player{T: rt, t: t, store: store, model: newModel()}
		p.create(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"create": p.create, "begin": p.begin, "submit": p.submit, "open slot": p.openSlot, "add tx": p.addTx,
			"settle": p.settle, "reopen": p.reopen, "admit": p.admit, "": p.compareNowAndThen,
		})
		p.compare()
	})
}

type player struct {
	*rapid.T
	t     *testing.T
	store Store
	model *model
	made  uint64 // counts the values that have to differ
	steps int
}

// try runs an operation on a copy of the model and compares its outcome with the
// store's. If it succeeds, the copy becomes the model.
func (p *player) try(got error, operation func(*model) error) {
	next := p.model.clone()
	want := operation(next)
	if !agree(got, want) {
		p.Fatalf("got error %v, want %v", got, want)
	}
	if want == nil {
		p.model = next
	}
}

// agree reports whether a store's error is one of those that the model expects.
func agree(got, want error) bool {
	if got == nil || want == nil {
		return got == want
	}
	outcome := errMistake
	for _, err := range []error{payment.ErrStale, payment.ErrCredited, order.ErrPermitTaken, facilitator.ErrPermitTaken} {
		if errors.Is(got, err) {
			outcome = err
		}
	}
	return errors.Is(want, outcome)
}

func (p *player) unlike() uint64 {
	p.made++
	return p.model.chain<<16 | p.made
}

func (p *player) now() boxoffice.Timestamp { return now + boxoffice.Timestamp(p.unlike()&0xffff) }

// pick draws one of a map's keys.
func pick[V any](p *player, name string, from map[boxoffice.UUID]V) boxoffice.UUID {
	if len(from) == 0 {
		p.Skip("there is none")
	}
	return rapid.SampledFrom(slices.Sorted(maps.Keys(from))).Draw(p.T, name)
}

func (p *player) create(*rapid.T) {
	if len(p.model.orders) == 4 {
		p.Skip("enough orders")
	}
	record := quoted(p.t, rapid.SampledFrom([]boxoffice.Requester{alice, bob}).Draw(p.T, "requester"))
	_, created, err := p.store.Create(p.Context(), record)
	if err != nil || !created {
		p.Fatalf("created %t: %v", created, err)
	}
	p.model.orders[record.ID] = record
}

func (p *player) begin(*rapid.T) {
	record := p.model.record(pick(p, "order", p.model.orders))
	intent := paying(p.t, record, wallet, rapid.Uint64Range(0, 4).Draw(p.T, "permit nonce"))
	intent.ChainID, intent.SubmittedAt = p.model.chain, p.now()
	var replaces *boxoffice.UUID
	switch rapid.SampledFrom([]string{"the last", "nothing", "any"}).Draw(p.T, "replaces") {
	case "the last":
		if record.Payment != nil {
			replaces = &record.Payment.ID
		}
	case "any":
		replaces = pointer(pick(p, "replaced", p.model.intents))
	}
	p.try(beginPayment(p.Context(), p.store, intent, replaces), func(m *model) error { return m.begin(intent, replaces) })
}

func (p *player) submit(*rapid.T) {
	intent := submission(p.t, rapid.Uint64Range(0, 4).Draw(p.T, "permit nonce"))
	intent.ChainID, intent.SubmittedAt = p.model.chain, p.now()
	saved, err := p.store.Submit(p.Context(), intent)
	p.try(err, func(m *model) error {
		want, err := m.submit(intent)
		if err == nil {
			p.same("submission", saved, want, nil)
		}
		return err
	})
}

func (p *player) openSlot(*rapid.T) {
	slot := carrying(rapid.Uint64Range(0, 9).Draw(p.T, "wallet nonce"))
	slot.ChainID, slot.OpenedAt, slot.Txs = p.model.chain, p.now(), []payment.Tx{signed(p.unlike())}
	waiting := p.model.choose(func(i payment.Intent) bool { return i.State == payment.Waiting })
	for _, intent := range waiting {
		if rapid.IntRange(0, 3).Draw(p.T, "carried") > 0 {
			slot.Intents = append(slot.Intents, intent)
		}
	}
	if rapid.IntRange(0, 3).Draw(p.T, "wrong") == 0 {
		slot.Intents = append(slot.Intents, p.read(pick(p, "also carried", p.model.intents)))
	}
	p.try(openSlot(p.Context(), p.store, slot), func(m *model) error { return m.openSlot(slot) })
}

// read returns an intent as it is, or sometimes as it was when it was saved, or as
// if another slot carried it.
func (p *player) read(id boxoffice.UUID) payment.Intent {
	intent := p.model.intents[id]
	switch stale := rapid.IntRange(0, 7).Draw(p.T, "stale"); {
	case stale == 0:
		intent.Progress = payment.Progress{State: payment.Waiting}
	case stale == 1 && intent.State == payment.Sent:
		intent.SlotID = pointer(pick(p, "another slot", p.model.slots))
	}
	return intent
}

func (p *player) addTx(*rapid.T) {
	slotID, tx := pick(p, "slot", p.model.slots), signed(p.unlike())
	p.try(p.store.AddTx(p.Context(), slotID, tx), func(m *model) error { return m.addTx(slotID, tx) })
}

func (p *player) settle(*rapid.T) {
	var (
		slotID  *boxoffice.UUID
		decided []boxoffice.UUID
	)
	if rapid.Bool().Draw(p.T, "with a slot") {
		slotID = pointer(pick(p, "slot", p.model.slots))
		for _, intent := range p.model.slots[*slotID].Intents {
			if rapid.IntRange(0, 7).Draw(p.T, "decided") > 0 {
				decided = append(decided, intent.ID)
			}
		}
	}
	for range rapid.IntRange(0, 2).Draw(p.T, "further decisions") {
		decided = append(decided, pick(p, "decided", p.model.intents))
	}
	var decisions []payment.Decision
	for _, id := range decided {
		decision := payment.Decision{
			Intent: p.read(id),
			Outcome: rapid.SampledFrom([]payment.Outcome{
				payment.OutcomeSettled, payment.OutcomeSettled, payment.OutcomeSettled, payment.OutcomeFailed,
				payment.OutcomeReleased, payment.OutcomeReverted, payment.OutcomeUndone}).Draw(p.T, "outcome"),
		}
		switch decision.Outcome {
		case payment.OutcomeSettled:
			log := rapid.Uint64Range(0, 15).Draw(p.T, "log")
			decision.Evidence = transfer(p.model.chain<<16 | 0xff00 | log)
			if slotID != nil && log > 3 { // in a transaction of ours
				decision.Evidence.TxHash = p.model.slots[*slotID].Txs[0].Hash
			}
		case payment.OutcomeFailed:
			decision.Reason = fmt.Sprint("reason ", p.unlike())
			decision.Final = rapid.Bool().Draw(p.T, "final")
		}
		decisions = append(decisions, decision)
	}
	at := p.now()
	p.try(settle(p.Context(), p.store, slotID, decisions, at), func(m *model) error {
		return m.settle(slotID, decisions, at)
	})
}

func (p *player) reopen(*rapid.T) {
	nonce := rapid.Uint64Range(5, 10).Draw(p.T, "first nonce")
	closed, err := p.store.ClosedSlots(p.Context(), p.model.chain, sender, nonce)
	p.same("closed slots", closed, p.model.closedSlots(nonce), err)
	p.try(p.store.ReopenSlots(p.Context(), closed, payment.Resend(closed)), func(m *model) error {
		m.reopen(nonce)
		return nil
	})
}

func (p *player) admit(*rapid.T) {
	orders := maps.Clone(p.model.orders)
	if rapid.Bool().Draw(p.T, "paid") {
		maps.DeleteFunc(orders, func(_ boxoffice.UUID, record order.Record) bool { return record.Status != boxoffice.Paid })
	}
	record := orders[pick(p, "order", orders)]
	opened, at := job(record.Requester, record.ID), p.now()
	result := work.Opened{Kind: work.KindJob, ID: opened.ID}
	p.try(p.store.Admit(p.Context(), admission(p.t, p.store, record, at), func(tx work.Tx) (work.Opened, error) {
		return result, tx.InsertJob(p.Context(), opened)
	}), func(m *model) error { return m.admit(record.ID, at, result) })
	_, err := p.store.Job(p.Context(), record.Requester, opened.ID)
	admission := p.model.orders[record.ID].Admission
	if kept := err == nil; kept != (admission != nil && admission.Opened == result) {
		p.Fatalf("the job that was opened is kept: %t", kept)
	}
}

// compareNowAndThen compares after every fourth operation. That is faster, and the
// effect of a wrong write can still be seen later.
func (p *player) compareNowAndThen(*rapid.T) {
	if p.steps++; p.steps%4 == 0 {
		p.compare()
	}
}

// compare reads everything of this model's chain from the store.
func (p *player) compare() {
	var unadmitted []order.Record
	for id := range p.model.orders {
		want := p.model.record(id)
		got, err := p.store.Order(p.Context(), want.Requester, id)
		p.same("order", got, want, err)
		if want.Status == boxoffice.Paid && want.Admission == nil {
			unadmitted = append(unadmitted, want)
		}
	}
	slices.SortFunc(unadmitted, func(a, b order.Record) int {
		return cmp.Or(cmp.Compare(*a.PaidAt, *b.PaidAt), cmp.Compare(a.ID, b.ID))
	})
	stored, err := p.store.Unadmitted(p.Context(), 1_000_000)
	stored = slices.DeleteFunc(stored, func(r order.Record) bool { _, ours := p.model.orders[r.ID]; return !ours })
	p.same("unadmitted", stored, unadmitted, err)

	waiting, err := p.store.Waiting(p.Context(), p.model.chain, 100)
	p.same("waiting", waiting, p.model.choose(func(i payment.Intent) bool { return i.State == payment.Waiting }), err)
	unresolved, err := p.store.Unresolved(p.Context(), p.model.chain, 100)
	p.same("unresolved", unresolved, p.model.choose(func(i payment.Intent) bool {
		return i.State == payment.Failed && !i.Final && (i.OrderID == "" || p.model.last[i.OrderID] == i.ID)
	}), err)
	settled, err := p.store.Settled(p.Context(), p.model.chain, 0, 100)
	slices.SortFunc(settled, func(a, b payment.Intent) int {
		return cmp.Or(cmp.Compare(a.SubmittedAt, b.SubmittedAt), cmp.Compare(a.ID, b.ID))
	})
	p.same("settled", settled, p.model.choose(func(i payment.Intent) bool { return i.State == payment.Settled }), err)
	slots, err := p.store.Slots(p.Context(), p.model.chain)
	p.same("slots", slots, p.model.openSlots(), err)

	alive := p.model.choose(func(i payment.Intent) bool { return i.State == payment.Waiting || i.State == payment.Sent })
	var want boxoffice.Amount
	for _, intent := range alive {
		want, _ = want.Add(intent.Permit.Permitted.Amount)
	}
	if len(alive) > 0 {
		pending, err := p.store.PendingAmount(p.Context(), alive[0].Permit, p.model.chain)
		p.same("pending amount", pending, want, err)
	}
}

func (p *player) same(what string, got, want any, err error) {
	if err != nil {
		p.Fatalf("%s: %v", what, err)
	}
	if reflect.DeepEqual(got, want) { // much faster than the comparison that reports differences
		return
	}
	if diff := diff.Diff(want, got, comparing...); diff != "" {
		p.Fatalf("%s (-want +got)\n%s", what, diff)
	}
}
