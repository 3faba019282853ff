package order_test

import (
	"context"
	"fmt"
	"testing"

	"boxoffice"
	"boxoffice/internal/order"
	"boxoffice/internal/payment"

	"github.com/ethereum/go-ethereum/common"
)

// captured keeps what a Settlement has a store execute.
type captured struct{ order.Changes }

func (c *captured) SaveChanges(_ context.Context, changes order.Changes) error {
	c.Changes = changes
	return nil
}

var (
	slotID   = boxoffice.UUID("00000000-0000-7000-8000-00000000000a")
	evidence = &payment.Evidence{TxHash: common.Hash{1}, BlockNumber: 7, SettledAt: 5}
	newer    = &payment.Evidence{TxHash: common.Hash{2}, BlockNumber: 8, SettledAt: 6}
)

// An intent in every state, by its name in the table below.
var intents = map[string]payment.Progress{
	"waiting":         {State: payment.Waiting, Reverts: 1},
	"sent":            {State: payment.Sent, SlotID: &slotID, Reverts: 1},
	"settled":         {State: payment.Settled, Reverts: 1, Evidence: evidence},
	"failed":          {State: payment.Failed, Reverts: 1, Reason: "first"},
	"failed, final":   {State: payment.Failed, Reverts: 1, Reason: "first", Final: true},
	"waiting, undone": {State: payment.Waiting, Reverts: 1, Evidence: evidence},
	"sent, undone":    {State: payment.Sent, SlotID: &slotID, Reverts: 1, Evidence: evidence},
	"failed, undone":  {State: payment.Failed, Reverts: 1, Reason: "first", Evidence: evidence},
}

var outcomes = map[string]payment.Decision{
	"settled":        {Outcome: payment.OutcomeSettled, Evidence: newer},
	"failed":         {Outcome: payment.OutcomeFailed, Reason: "second"},
	"failed, final":  {Outcome: payment.OutcomeFailed, Reason: "second", Final: true},
	"released":       {Outcome: payment.OutcomeReleased},
	"reverted":       {Outcome: payment.OutcomeReverted},
	"undone":         {Outcome: payment.OutcomeUndone},
	"any other word": {Outcome: "perhaps"},
}

// TestSettlement is the tables of docs/states.md for the decisions of a settler:
// what each makes of an intent and of its order. A pair that is not in the list
// is refused.
func TestSettlement(t *testing.T) {
	const (
		waiting   = "waiting, 1 reverts"
		reverted  = "waiting, 2 reverts"
		settled   = "settled by 2, 1 reverts"
		failed    = "failed for second, 1 reverts"
		dead      = "failed for second, final, 1 reverts"
		firstDead = "failed for first, final, 1 reverts"
		undone    = ", was settled by 1"

		none     = "the order stays"
		paid     = "payment_pending -> paid"
		fails    = "payment_pending -> payment_failed"
		paidLate = "payment_failed -> paid"
	)
	type result struct{ intent, order string }
	allowed := map[[2]string]result{
		{"waiting", "settled"}:               {settled, paid},
		{"waiting", "failed"}:                {failed, fails},
		{"waiting", "failed, final"}:         {dead, fails},
		{"sent", "settled"}:                  {settled, paid},
		{"sent", "released"}:                 {waiting, none},
		{"sent", "reverted"}:                 {reverted, none},
		{"settled", "undone"}:                {waiting + undone, none},
		{"failed", "settled"}:                {settled, paidLate},
		{"failed", "failed, final"}:          {firstDead, none},
		{"waiting, undone", "settled"}:       {settled, none},
		{"waiting, undone", "failed"}:        {failed + undone, none},
		{"waiting, undone", "failed, final"}: {dead + undone, none},
		{"sent, undone", "settled"}:          {settled, none},
		{"sent, undone", "released"}:         {waiting + undone, none},
		{"sent, undone", "reverted"}:         {reverted + undone, none},
		{"failed, undone", "settled"}:        {settled, none},
		{"failed, undone", "failed, final"}:  {firstDead + undone, none},
	}
	for from, progress := range intents {
		for outcome, decision := range outcomes {
			for _, of := range []string{"order", "submission"} {
				t.Run(fmt.Sprintf("%s of %s is %s", from, of, outcome), func(t *testing.T) {
					decision.Intent = payment.Intent{ID: boxoffice.NewUUID(), OrderID: boxoffice.NewUUID(), Progress: progress}
					if of == "submission" {
						decision.Intent.OrderID, decision.Intent.SubmissionID = "", decision.Intent.OrderID
					}
					var store captured
					err := order.Settlement{Store: &store}.SaveDecisions(t.Context(), progress.SlotID, []payment.Decision{decision}, 9)
					want, may := allowed[[2]string{from, outcome}]
					if !may {
						if err == nil {
							t.Errorf("it was allowed: %+v", store.Changes)
						}
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					if of == "submission" {
						want.order = none
					}
					change := store.Intents[0]
					if change.IntentID != decision.Intent.ID || change.From != progress {
						t.Errorf("it changes %s from %+v", change.IntentID, change.From)
					}
					if got := describe(change.To); got != want.intent {
						t.Errorf("the intent becomes %q, want %q", got, want.intent)
					}
					if got := describeOrders(t, decision.Intent, store.Orders); got != want.order {
						t.Errorf("the order: %q, want %q", got, want.order)
					}
				})
			}
		}
	}
}

func describe(p payment.Progress) string {
	text := string(p.State)
	if p.Reason != "" {
		text += " for " + p.Reason
	}
	if p.Final {
		text += ", final"
	}
	if p.State == payment.Settled {
		text += fmt.Sprint(" by ", p.Evidence.TxHash[0])
	}
	text += fmt.Sprintf(", %d reverts", p.Reverts)
	if p.Undone() {
		text += fmt.Sprint(", was settled by ", p.Evidence.TxHash[0])
	}
	if p.SlotID != nil {
		text += ", in a slot"
	}
	return text
}

// describeOrders checks that at most the order of the intent changes, and only
// while the intent is its last payment.
func describeOrders(t *testing.T, intent payment.Intent, changes []order.Change) string {
	t.Helper()
	if len(changes) == 0 {
		return "the order stays"
	}
	change := changes[0]
	if len(changes) != 1 || change.OrderID != intent.OrderID ||
		*change.From.IntentID != intent.ID || *change.To.IntentID != intent.ID ||
		change.From.PaidAt != nil || change.From.AdmittedAt != nil || change.To.AdmittedAt != nil {
		t.Errorf("the orders change by %+v", changes)
	}
	if paid := change.To.Status == boxoffice.Paid; paid != (change.To.PaidAt != nil) || paid && *change.To.PaidAt != 9 {
		t.Errorf("it is paid at %v", change.To.PaidAt)
	}
	return string(change.From.Status) + " -> " + string(change.To.Status)
}

// Decisions that contradict the slot that is closed are refused: an intent in
// another slot, or in one that stays open.
func TestSettlementOfSlot(t *testing.T) {
	decision := outcomes["released"]
	decision.Intent.Progress = intents["sent"]
	another := boxoffice.NewUUID()
	settlement := order.Settlement{Store: new(captured)}
	for name, closes := range map[string]*boxoffice.UUID{"none": nil, "another": &another} {
		if err := settlement.SaveDecisions(t.Context(), closes, []payment.Decision{decision}, 9); err == nil {
			t.Errorf("an intent left its slot while the slot that closes is %s", name)
		}
	}
	for name, broken := range map[string]payment.Decision{
		"settled without evidence": {Outcome: payment.OutcomeSettled},
		"failed without a reason":  {Outcome: payment.OutcomeFailed},
	} {
		broken.Intent.Progress = intents["waiting"]
		if err := settlement.SaveDecisions(t.Context(), nil, []payment.Decision{broken}, 9); err == nil {
			t.Errorf("%s", name)
		}
	}
}
