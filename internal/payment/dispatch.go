package payment

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"boxoffice"
	"boxoffice/internal/crash"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
)

// dispatch opens slots for the waiting intents that would settle, and decides
// those that would not.
func (s *Settler) dispatch(ctx context.Context, v view, open []Slot) error {
	var waiting []Intent
	limit := min(s.MaxBatch, s.Wallet.MaxBatch())
	if len(open) < s.MaxInFlight {
		var err error
		if waiting, err = s.Store.Waiting(ctx, s.ChainID, limit+min(len(s.isolated), maxIsolated)); err != nil {
			return err
		}
		waiting = s.chooseWaiting(waiting, limit, s.isolatedSlots()-len(open))
	}
	together, alone, undecided, err := s.classify(ctx, v, open, waiting)
	if err != nil {
		return err
	}
	failed := s.resolve(ctx, v, undecided)
	if len(together)+len(alone)+len(open) == 0 {
		return failed
	}
	before := len(open)
	consumed, err := s.Wallet.Nonce(ctx, v.head.Number)
	if err != nil {
		return errors.Join(failed, err)
	}
	if len(together) > 0 && len(open) < s.MaxInFlight {
		if open, err = s.sendBatch(ctx, open, nextNonce(consumed, open), together); err != nil {
			return errors.Join(failed, err)
		}
	}
	for _, intent := range alone {
		if len(open) >= s.isolatedSlots() {
			break
		}
		if open, err = s.sendBatch(ctx, open, nextNonce(consumed, open), []Intent{intent}); err != nil {
			return errors.Join(failed, err)
		}
	}
	// A reorganisation can leave a nonce behind that blocks the slots after it.
	if gap := nextNonce(consumed, open); slices.ContainsFunc(open, func(slot Slot) bool { return slot.WalletNonce > gap }) {
		s.Log.WarnContext(ctx, "a nonce of the settlement wallet is missing before open slots; an empty transaction fills it", "walletNonce", gap)
		if open, err = s.sendBatch(ctx, open, gap, nil); err != nil {
			return errors.Join(failed, err)
		}
	}
	if len(waiting) == limit && len(open) > before && len(open) < s.MaxInFlight {
		s.Wake()
	}
	return failed
}

// isolatedSlots is how many slots may be open after one that carries an intent
// alone: the last is for those that go together, or none.
func (s *Settler) isolatedSlots() int { return max(1, s.MaxInFlight-1) }

// maxIsolated is how many intents that go alone are read beside a full round. More
// of them than that hold up those that go together.
const maxIsolated = 1000

// chooseWaiting chooses whose turn it is among those that wait, oldest first: as many as
// are looked at in a round. Of those that were found to go alone they are no
// more than find a slot, or the others would wait for all of them. Whoever is
// distrusted needs none.
func (s *Settler) chooseWaiting(waiting []Intent, limit, slots int) (turn []Intent) {
	alone := map[boxoffice.UUID]bool{} // who does not wait any more is forgotten
	for _, intent := range waiting {
		if s.isolated[intent.ID] {
			alone[intent.ID] = true
			if _, distrusted := s.reverting[intent.Permit.From]; !distrusted {
				if slots <= 0 {
					continue
				}
				slots--
			}
		}
		if len(turn) < limit {
			turn = append(turn, intent)
		}
	}
	s.isolated = alone
	return turn
}

// classify finds the intents that would settle, in one transaction or alone, and
// makes undecided of those that would not.
func (s *Settler) classify(ctx context.Context, v view, open []Slot, waiting []Intent) (together, alone []Intent, undecided []unresolved, err error) {
	if len(waiting) == 0 {
		return nil, nil, nil, nil
	}
	standings, err := s.Chain.Standing(ctx, permits(waiting))
	if err != nil {
		return nil, nil, nil, err
	}
	for i, intent := range waiting {
		if at, needed := standings[i].Block, max(v.head.Number, intent.FromBlock); at < needed {
			return nil, nil, nil, fmt.Errorf("the node that judged the payments is at block %d, behind block %d", at, needed)
		}
	}
	s.noteReverting(ctx, waiting, standings)
	committed := committedBy(open)
	for i, intent := range waiting {
		standing := &standings[i]
		// Code can burn the gas of its neighbours; others failed among theirs.
		if standing.Code || intent.Reverts > 0 {
			s.isolated[intent.ID] = true
		}
		switch {
		case standing.Spent:
			undecided = append(undecided, unresolved{intent: intent})
		case standing.Failure != nil:
			undecided = append(undecided, unresolved{intent, standing.Failure})
		case intent.Reverts >= s.MaxTries, s.refuses(intent, *standing):
			undecided = append(undecided, unresolved{intent, &Rejection{Reason: x402.ReasonTransactionFailed}})
		case committed.overdraws(standing.Balance, intent.Permit):
			// It waits for what is on its way: together they would overdraw the owner.
		case s.isolated[intent.ID]:
			alone = append(alone, intent)
		default:
			together = append(together, intent)
		}
	}
	return together, alone, undecided, nil
}

// sendBatch puts a batch into a slot and broadcasts it. A batch that is too large
// for a block, or for what the wallet holds, goes by halves: the rest waits.
func (s *Settler) sendBatch(ctx context.Context, open []Slot, nonce uint64, batch []Intent) ([]Slot, error) {
	slot, err := s.openSlot(ctx, nonce, batch)
	for len(batch) > 1 && (errors.Is(err, ErrBatch) || errors.Is(err, ErrWalletEmpty)) {
		batch = batch[:len(batch)/2]
		slot, err = s.openSlot(ctx, nonce, batch)
	}
	if errors.Is(err, ErrWalletEmpty) || errors.Is(err, ErrFeeCeiling) {
		s.setReady(ctx, err)
	}
	if err != nil {
		return open, err
	}
	err = s.Wallet.Broadcast(ctx, slot.Txs[0])
	crash.At(crash.TransactionSent)
	return append(open, slot), err
}

// openSlot signs a transaction for the batch and saves it, before anybody hears
// of it.
func (s *Settler) openSlot(ctx context.Context, nonce uint64, batch []Intent) (Slot, error) {
	tx, err := s.Wallet.Sign(ctx, permits(batch), nonce, nil)
	if err != nil {
		return Slot{}, err
	}
	slot := Slot{
		ID: boxoffice.NewUUID(), ChainID: s.ChainID, Sender: s.Wallet.Address(), WalletNonce: nonce,
		Txs: []Tx{tx}, Intents: batch, OpenedAt: boxoffice.At(s.Now()),
	}
	changes, err := Send(&slot)
	if err != nil {
		return Slot{}, err
	}
	crash.At(crash.TransactionSigned)
	if err := s.Store.OpenSlot(ctx, slot, changes); err != nil {
		return Slot{}, err
	}
	crash.At(crash.SlotSaved)
	s.Log.InfoContext(ctx, "slot opened", "tx", tx.Hash, "walletNonce", nonce, "payments", len(batch))
	return slot, nil
}

// nextNonce returns the lowest nonce from consumed on that no open slot has.
func nextNonce(consumed uint64, open []Slot) uint64 {
	for slices.ContainsFunc(open, func(slot Slot) bool { return slot.WalletNonce == consumed }) {
		consumed++
	}
	return consumed
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

// overdraws reports whether an owner has promises and not enough for another.
func (p committed) overdraws(balance boxoffice.Amount, permit Permit) bool {
	key := account{permit.From, permit.Permitted.Token}
	sum, some := p[key]
	if !some {
		return false
	}
	sum, fits := sum.Add(permit.Permitted.Amount)
	if fits && balance.Cmp(sum) >= 0 {
		p[key] = sum
		return false
	}
	return true
}
