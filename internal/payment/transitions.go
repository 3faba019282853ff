package payment

import (
	"fmt"
	"slices"

	"boxoffice"

	"github.com/ethereum/go-ethereum/common"
)

// This file decides every state change of an intent. A Store only executes it.
//
//	        OutcomeReleased, OutcomeReverted
//	         ┌───────────────────────────┐
//	         ▼                           │
//	───▶ waiting ───────── Send ──────▶ sent ◀────┐
//	     ▲  │  │                         │        │
//	     │  │  │ OutcomeFailed           │        │
//	     │  │  └─────▶ failed            │        │
//	     │  │            │ until it is   │        │
//	     │  │            │ final         │        │
//	     │  └────────────┤OutcomeSettled │        │
//	     │               ├───────────────┘        │
//	     │               ▼                        │
//	     └───────── settled ──────────────────────┘
//	  OutcomeUndone                    Resend
//	 after a reorganisation: its order stays paid

// Progress is the part of an intent that changes.
type Progress struct {
	State    State
	SlotID   *boxoffice.UUID // the open slot that carries a sent intent
	Reason   string          // why a failed intent failed
	Final    bool            // failed, and its permit can never settle any more
	Reverts  int             // how many confirmed transactions of ours carried it and did not settle it
	Evidence *Evidence       // of a settled intent; stays when a reorganisation removes the transfer
}

// Undone reports whether a reorganisation removed the transfer of the intent
// after it was settled. Its order is paid and stays paid.
func (p *Progress) Undone() bool { return p.Evidence != nil && p.State != Settled }

// Change is one conditional write: the progress of an intent becomes To where it
// still is From.
type Change struct {
	IntentID boxoffice.UUID
	From, To Progress
}

// Change returns what a decision changes of its intent. An error means that the
// decision makes no sense for the intent as it was read.
func (d *Decision) Change() (Change, error) {
	from := d.Intent.Progress
	to := from
	to.SlotID = nil
	wrong := func() (Change, error) {
		return Change{}, fmt.Errorf("payment: intent %s is %s (final: %t), so its outcome cannot be %q", d.Intent.ID,
			from.State, from.Final, d.Outcome)
	}
	if from.Final {
		return wrong()
	}
	switch d.Outcome {
	case OutcomeSettled:
		if from.State == Settled {
			return wrong()
		}
		if d.Evidence == nil {
			return Change{}, fmt.Errorf("payment: intent %s cannot be settled without evidence", d.Intent.ID)
		}
		to.State, to.Reason, to.Evidence = Settled, "", d.Evidence
	case OutcomeFailed:
		switch {
		case from.State == Failed && d.Final: // it keeps its first reason
			to.Final = true
		case from.State == Waiting:
			if d.Reason == "" {
				return Change{}, fmt.Errorf("payment: intent %s cannot fail without a reason", d.Intent.ID)
			}
			to.State, to.Reason, to.Final = Failed, d.Reason, d.Final
		default:
			return wrong()
		}
	case OutcomeReleased, OutcomeReverted:
		if from.State != Sent {
			return wrong()
		}
		to.State = Waiting
		if d.Outcome == OutcomeReverted {
			to.Reverts++
		}
	case OutcomeUndone:
		if from.State != Settled {
			return wrong()
		}
		to.State = Waiting
	default:
		return wrong()
	}
	return Change{d.Intent.ID, from, to}, nil
}

// Send returns the changes of waiting intents that a new slot carries.
func Send(slot *Slot) ([]Change, error) {
	changes := make([]Change, len(slot.Intents))
	for i, intent := range slot.Intents {
		if intent.State != Waiting {
			return nil, fmt.Errorf("payment: intent %s is %s, so it cannot be sent", intent.ID, intent.State)
		}
		to := intent.Progress
		to.State, to.SlotID = Sent, &slot.ID
		changes[i] = Change{intent.ID, intent.Progress, to}
	}
	return changes, nil
}

// Resend returns the changes of the intents of closed slots that are opened again:
// those that a transaction of their slot had settled become sent again.
func Resend(closed []Slot) (changes []Change) {
	for _, slot := range closed {
		for _, intent := range slot.Intents {
			if intent.State != Settled || !slot.signed(intent.Evidence.TxHash) {
				continue
			}
			to := intent.Progress
			to.State, to.SlotID = Sent, &slot.ID
			changes = append(changes, Change{intent.ID, intent.Progress, to})
		}
	}
	return changes
}

func (s *Slot) signed(hash common.Hash) bool {
	return slices.ContainsFunc(s.Txs, func(tx Tx) bool { return tx.Hash == hash })
}
