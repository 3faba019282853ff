package remote

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"boxoffice"
	"boxoffice/internal/payment"

	"github.com/ethereum/go-ethereum/crypto"
)

// refusals returns why the facilitator refused intents that it cannot have sent.
func (s *Settler) refusals() map[boxoffice.UUID]*payment.Rejection {
	s.mu.Lock()
	defer s.mu.Unlock()
	refusals := map[boxoffice.UUID]*payment.Rejection{}
	for id, h := range s.handovers {
		if !h.calling && h.reply != nil && h.reply.Kind == ReplyRefused && h.neverSent {
			refusals[id] = &payment.Rejection{Reason: h.reply.Reason, Detail: h.reply.Detail}
		}
	}
	return refusals
}

// afterDeadline is how long after its deadline an intent fails that the facilitator
// never took, if there is no RPC node to ask. Blocks may be older than our clock.
const afterDeadline = 2 * time.Minute

// decideByReplies decides intents by the last replies of the facilitator, because
// no RPC node is configured. None of the failures is final: only the chain
// shows that a permit can never settle any more.
func (s *Settler) decideByReplies(ctx context.Context, waiting []payment.Intent) error {
	var failures []error
	for _, intent := range waiting {
		s.mu.Lock()
		h := *s.handovers[intent.ID]
		s.mu.Unlock()
		if h.calling || h.reply == nil {
			continue
		}
		decision := payment.Decision{Intent: intent, Outcome: payment.OutcomeFailed, Reason: string(h.reply.Reason)}
		deadline, fits := intent.Permit.Deadline.Uint64()
		late := fits && s.Rounds.Now().Add(-afterDeadline).Unix() > int64(deadline)
		switch {
		case h.reply.Kind == ReplySettled:
			decision = payment.Decision{Intent: intent, Outcome: payment.OutcomeSettled,
				Evidence: s.evidence(intent, *h.reply)}
		case h.reply.Kind == ReplyRefused && h.neverSent:
		case h.reply.Kind == ReplyNotTaken && h.neverSent && late:
		default:
			if late {
				s.Rounds.Log.ErrorContext(ctx,
					"the facilitator may have settled a payment; set chain.rpc_url to let the chain decide",
					"intent", intent.ID, "order", intent.OrderID, "reason", h.reply.Reason)
			}
			continue
		}
		err := s.Decisions.SaveDecisions(ctx, nil, []payment.Decision{decision}, boxoffice.At(s.Rounds.Now()))
		if err == nil {
			s.Rounds.Log.InfoContext(ctx, "payment decided by the facilitator's reply",
				"intent", intent.ID, "outcome", decision.Outcome, "reason", decision.Reason)
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// evidence returns the evidence for a reply that says that the payment is settled. The
// reply names the transaction but no log and no block, and there is no RPC node to ask.
// So the block is 0, and the log index is a number that depends on the permit and is
// greater than that of any log. It makes a permit settle one intent only, while many
// permits can share a transaction.
func (s *Settler) evidence(intent payment.Intent, reply Reply) *payment.Evidence {
	digest := intent.Permit.Digest(s.ChainID)
	return &payment.Evidence{
		TxHash:    reply.Transaction,
		LogIndex:  uint(1<<62 | binary.BigEndian.Uint64(crypto.Keccak256(intent.Permit.From[:], digest[:]))>>2),
		SettledAt: boxoffice.At(s.Rounds.Now()),
	}
}
