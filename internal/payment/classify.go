package payment

import (
	"context"
	"fmt"

	"boxoffice"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
)

// classes says what a round does with each waiting intent that it looks at. An intent
// in none of the classes stays waiting until an open slot of its owner is closed.
type classes struct {
	together   []Intent     // go into one transaction
	isolated   []Intent     // each goes into a transaction alone
	unresolved []unresolved // would not settle now: resolve decides them
}

// An intent is isolated if its owner has code, because code can burn the gas of
// the other calls in a transaction, or if a transaction of ours carried it and its
// call reverted. s.isolated remembers the waiting ones between rounds.

// readWaiting returns the waiting intents that this round looks at, oldest first.
func (s *Settler) readWaiting(ctx context.Context, limit, slotsLeft int) ([]Intent, error) {
	// It reads more than the limit: isolated intents have to wait for slots, and must
	// not keep the intents behind them from being read.
	waiting, err := s.Store.Waiting(ctx, s.ChainID, limit+min(len(s.isolated), maxIsolated))
	if err != nil {
		return nil, err
	}
	return s.chooseWaiting(waiting, limit, slotsLeft), nil
}

// maxIsolated is how many isolated intents are read beside a full round. If more
// than that wait, they delay the others.
const maxIsolated = 1000

// chooseWaiting chooses the first intents, up to the limit. It skips isolated
// intents once it has chosen as many as there are slots left for them, except
// those of reverting owners: they fail without a slot. It also removes intents that
// do not wait any more from s.isolated.
func (s *Settler) chooseWaiting(waiting []Intent, limit, slotsLeft int) (chosen []Intent) {
	stillWaiting := map[boxoffice.UUID]bool{}
	for _, intent := range waiting {
		if s.isolated[intent.ID] {
			stillWaiting[intent.ID] = true
			if _, reverting := s.reverting[intent.Permit.From]; !reverting {
				if slotsLeft <= 0 {
					continue
				}
				slotsLeft--
			}
		}
		if len(chosen) < limit {
			chosen = append(chosen, intent)
		}
	}
	s.isolated = stillWaiting
	return chosen
}

// classify simulates the waiting intents in their order and puts each into a
// class. It also notes which of them are isolated, and which owners are reverting. It
// fails if the node that simulated is behind the round's view, or behind
// the block where an intent's nonce was seen unspent.
func (s *Settler) classify(ctx context.Context, v view, open []Slot, waiting []Intent) (found classes, err error) {
	if len(waiting) == 0 {
		return classes{}, nil
	}
	standings, err := s.Chain.Standing(ctx, permits(waiting))
	if err != nil {
		return classes{}, err
	}
	for i, intent := range waiting {
		if at, needed := standings[i].Block, max(v.head.Number, intent.FromBlock); at < needed {
			return classes{}, fmt.Errorf("the RPC node that simulated the payments is at block %d, behind block %d",
				at, needed)
		}
	}
	s.noteReverting(ctx, waiting, standings)
	committed := committedBy(open)
	for i, intent := range waiting {
		standing := &standings[i]
		if standing.Code || intent.Reverts > 0 {
			s.isolated[intent.ID] = true
		}
		switch {
		case standing.Spent:
			found.unresolved = append(found.unresolved, unresolved{intent: intent})
		case standing.Failure != nil:
			found.unresolved = append(found.unresolved, unresolved{intent, standing.Failure})
		case intent.Reverts >= s.MaxTries, s.isReverting(intent, *standing):
			found.unresolved = append(found.unresolved,
				unresolved{intent, &Rejection{Reason: x402.ReasonTransactionFailed}})
		case !committed.reserve(standing.Balance, intent.Permit):
			// The simulation does not know the open slots: once these have moved the owner's
			// money, too little is left for this intent.
		case s.isolated[intent.ID]:
			found.isolated = append(found.isolated, intent)
		default:
			found.together = append(found.together, intent)
		}
	}
	return found, nil
}

// committed is what open slots will move, by owner and token.
type committed map[account]boxoffice.Amount

type account struct{ owner, token common.Address }

func committedBy(open []Slot) committed {
	sums := committed{}
	for _, slot := range open {
		for _, intent := range slot.Intents {
			permit := intent.Permit
			key := account{permit.From, permit.Permitted.Token}
			if sum, fits := sums[key].Add(permit.Permitted.Amount); fits {
				sums[key] = sum
			}
		}
	}
	return sums
}

// reserve adds a permit's amount to what is committed of its owner's balance. It
// returns false, and adds nothing, if the balance is too low for both. For an owner
// without open slots it does nothing: the simulation has checked that balance.
func (c committed) reserve(balance boxoffice.Amount, permit Permit) bool {
	key := account{permit.From, permit.Permitted.Token}
	sum, some := c[key]
	if !some {
		return true
	}
	sum, fits := sum.Add(permit.Permitted.Amount)
	if fits && balance.Cmp(sum) >= 0 {
		c[key] = sum
		return true
	}
	return false
}
