package payment

import (
	"context"
	"fmt"
	"slices"

	"boxoffice"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
)

// classes says what a round does with each waiting intent that it looks at. An intent
// in none of the classes stays waiting until an open slot of its owner is closed.
type classes struct {
	sendable   []sendable
	unresolved []unresolved // would not settle now: resolve decides them
}

// sendable is an intent that would settle now.
type sendable struct {
	Intent
	code bool // its owner has code
}

const (
	// maxWaiting is how many waiting intents a round looks at to fill one transaction.
	maxWaiting = 1000
	// maxRiskyInFlight is how many payments of one owner are in open slots at once if the
	// owner has code or is reverting or flipping. Code can find out that it is simulated, and use up
	// the gas of each of its payments in a block.
	maxRiskyInFlight = 4
)

// classify looks at waiting intents, oldest first, until limit of them are sendable:
// intents that cannot be sent now keep none behind them from being sent.
func (s *Settler) classify(ctx context.Context, v view, open []Slot, limit int) (found classes, err error) {
	waiting, err := s.Store.Waiting(ctx, s.ChainID, maxWaiting)
	if err != nil {
		return classes{}, err
	}
	flying := newInFlight(open)
	for part := range slices.Chunk(waiting, limit) {
		if len(found.sendable) == limit {
			break
		}
		standings, err := s.readStandings(ctx, v, part)
		if err != nil {
			return classes{}, err
		}
		sent := len(found.sendable)
		for i, intent := range part {
			standing, owner, now := standings[i], intent.Permit.From, s.Now()
			reverting := s.reverting.has(owner, now)
			risky := standing.Code || reverting || s.flipping.has(owner, now)
			switch {
			case standing.Spent, standing.Block < intent.FromBlock:
				// The node may be behind the block where the nonce was seen unspent, or the number
				// of that block is wrong. Neither keeps other intents from being sent.
				found.unresolved = append(found.unresolved, unresolved{intent: intent})
			case standing.Failure != nil:
				found.unresolved = append(found.unresolved, unresolved{intent, standing.Failure})
			case intent.Reverts >= s.MaxTries, reverting && standing.Code && !intent.Undone():
				// An undone intent is sent all the same, because its order is paid.
				found.unresolved = append(found.unresolved,
					unresolved{intent, &Rejection{Reason: x402.ReasonTransactionFailed}})
			case len(found.sendable) < limit && flying.admits(intent, standing, risky):
				found.sendable = append(found.sendable, sendable{intent, standing.Code})
				flying.owners[owner]++
			}
		}
		for _, chosen := range found.sendable[sent:] {
			flying.commit(chosen.Permit)
		}
	}
	return found, nil
}

// readStandings simulates that the intents settle in their order. It fails if the node
// that simulated is behind the round's view.
func (s *Settler) readStandings(ctx context.Context, v view, intents []Intent) ([]Standing, error) {
	standings, err := s.Chain.Standing(ctx, permits(intents))
	if err != nil {
		return nil, err
	}
	for _, standing := range standings {
		if standing.Block < v.head.Number {
			return nil, fmt.Errorf("the RPC node that simulated the payments is at block %d, behind block %d",
				standing.Block, v.head.Number)
		}
	}
	s.noteReverting(ctx, intents, standings)
	return standings, nil
}

// inFlight is what a simulation does not know: the payments in open slots, and those
// that this round has chosen before it.
type inFlight struct {
	committed map[account]boxoffice.Amount // what they will move
	owners    map[common.Address]int       // how many they are
}

type account struct{ owner, token common.Address }

func newInFlight(open []Slot) inFlight {
	f := inFlight{committed: map[account]boxoffice.Amount{}, owners: map[common.Address]int{}}
	for _, slot := range open {
		for _, intent := range slot.Intents {
			f.commit(intent.Permit)
			f.owners[intent.Permit.From]++
		}
	}
	return f
}

func (f inFlight) commit(permit Permit) {
	key := account{permit.From, permit.Permitted.Token}
	if sum, fits := f.committed[key].Add(permit.Permitted.Amount); fits {
		f.committed[key] = sum
	}
}

// admits reports whether an intent can be sent beside the payments in flight: the
// balance is enough for all, and a risky owner has not too many of them.
func (f inFlight) admits(intent Intent, standing Standing, risky bool) bool {
	permit := intent.Permit
	sum, fits := f.committed[account{permit.From, permit.Permitted.Token}].Add(permit.Permitted.Amount)
	return fits && standing.Balance.Cmp(sum) >= 0 && (!risky || f.owners[permit.From] < maxRiskyInFlight)
}
