package payment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"boxoffice"
	"boxoffice/internal/crash"

	"github.com/ethereum/go-ethereum/common"
)

// followSlots takes every open slot one step further and returns those that stay
// open. Slots of a wallet that is not configured any more are followed too: their
// transactions can still move money.
func (s *Settler) followSlots(ctx context.Context, v view) (open []Slot, err error) {
	slots, err := s.Store.Slots(ctx, s.ChainID)
	if err != nil || len(slots) == 0 {
		return nil, err
	}
	var hashes []common.Hash
	confirmed := map[common.Address]uint64{} // wallet nonces
	seen := map[common.Hash]uint64{}
	for _, slot := range slots {
		newest := slot.lastTx().Hash
		seen[newest] = v.head.Number
		if at, known := s.seen[newest]; known {
			seen[newest] = min(at, v.head.Number)
		}
		if _, known := confirmed[slot.Sender]; !known {
			if confirmed[slot.Sender], err = s.Chain.Nonce(ctx, slot.Sender, v.confirmed); err != nil {
				return slots, err
			}
		}
		for _, tx := range slot.Txs {
			hashes = append(hashes, tx.Hash)
		}
	}
	s.seen = seen
	receipts, err := s.Chain.Receipts(ctx, hashes, v.confirmed)
	if err != nil {
		return slots, err
	}
	var failures []error
	for _, slot := range slots {
		own := receipts[:len(slot.Txs)]
		receipts = receipts[len(slot.Txs):]
		closed, err := s.followSlot(ctx, v, slot, minedReceipt(own), confirmed[slot.Sender])
		if err != nil {
			failures = append(failures, fmt.Errorf("slot %d: %w", slot.WalletNonce, err))
		}
		if !closed {
			open = append(open, slot)
		}
	}
	return open, errors.Join(failures...)
}

// minedReceipt returns the receipt of the transaction that was mined, nil if none
// was. A wallet nonce allows only one.
func minedReceipt(receipts []*Receipt) *Receipt {
	i := slices.IndexFunc(receipts, func(r *Receipt) bool { return r != nil })
	if i < 0 {
		return nil
	}
	return receipts[i]
}

// followSlot closes an open slot, or raises its fee, or broadcasts it again. receipt
// is that of its mined transaction, nil if none is mined; confirmed is how many
// transactions of the wallet are confirmed. It reports whether it closed the slot.
func (s *Settler) followSlot(ctx context.Context, v view, slot Slot, receipt *Receipt,
	confirmed uint64) (closed bool, err error) {
	switch {
	case receipt != nil && receipt.BlockNumber <= v.confirmed:
		err := s.closeSlot(ctx, slot, receipt)
		return err == nil, err
	case receipt != nil:
		return false, nil // mined, but not confirmed yet
	case slot.WalletNonce < confirmed:
		s.Log.ErrorContext(ctx,
			"a transaction that we did not sign used a nonce of the settlement wallet; its payments are sent again",
			"walletNonce", slot.WalletNonce)
		err := s.save(ctx, &slot.ID, decisionsFor(slot.Intents, OutcomeReleased))
		return err == nil, err
	case slot.Sender != s.Wallet.Address():
		return s.followOtherWallet(ctx, v, slot)
	case slot.expired(v.head.Time) && !slot.lastTx().empty():
		return false, s.replaceTx(ctx, v, slot)
	}
	err = s.Wallet.Broadcast(ctx, slot.lastTx()) // the node may have dropped it
	if n := len(slot.Txs); err != nil && n > 1 && slot.lastTx().empty() {
		// On some chains an empty transaction needs more gas. Then the one before it uses up
		// the nonce.
		err = errors.Join(err, s.Wallet.Broadcast(ctx, slot.Txs[n-2]))
	}
	// The fee is raised if the market rose: blocks were made without the transaction, or
	// the node says so. While the chain makes no block, no fee helps.
	raise := errors.Is(err, ErrUnderpriced) || v.head.Number >= s.seen[slot.lastTx().Hash]+bumpBlocks
	if raise && passed(slot.lastTx().SignedAt.Time(), s.Now(), s.BumpAfter) {
		err = s.replaceTx(ctx, v, slot)
	}
	return false, err
}

// bumpBlocks is how many blocks are made without a transaction before its fee is raised.
const bumpBlocks = 2

// followOtherWallet broadcasts the transaction of a slot whose key is not configured any
// more, unless a process with that key runs. Its fee cannot be raised without the key. It
// closes the slot when all permits have expired as of the buried block: then no
// transaction can settle them.
func (s *Settler) followOtherWallet(ctx context.Context, v view, slot Slot) (closed bool, err error) {
	// A lease that ends when it begins only shows whether another process has it.
	now := boxoffice.At(s.Now())
	free, err := s.Rounds.Leases.HoldLease(ctx, leaseOf(s.ChainID, slot.Sender), s.Rounds.Holder, now, now)
	if err != nil || !free {
		return false, err
	}
	at, err := s.Chain.BlockTime(ctx, v.buried)
	if err != nil {
		return false, err
	}
	if slot.expired(at) {
		err := s.save(ctx, &slot.ID, decisionsFor(slot.Intents, OutcomeReleased))
		return err == nil, err
	}
	err = s.Wallet.Broadcast(ctx, slot.lastTx())
	if passed(slot.lastTx().SignedAt.Time(), s.Now(), s.BumpAfter) {
		const format = "wallet %s, which is not configured, signed a transaction that is not mined; its payments " +
			"fail when their permits expire, unless the service is started with that key"
		err = errors.Join(fmt.Errorf(format, hexOf(slot.Sender)), err)
	}
	return false, err
}

// expired reports whether no permit of the slot can settle after a block of that time.
func (s *Slot) expired(time uint64) bool {
	return !slices.ContainsFunc(s.Intents, func(intent Intent) bool {
		deadline, fits := intent.Permit.Deadline.Uint64()
		return !fits || deadline >= time
	})
}

func (s *Slot) lastTx() Tx { return s.Txs[len(s.Txs)-1] }

// replaceTx signs the transaction of a slot again with higher fees, saves it and
// broadcasts it. If all permits have expired, the new transaction is empty. If it cannot
// be signed, the last one is broadcast again: one has to use up the wallet nonce. A crash
//   - after signing, before saving: the next round signs again;
//   - after saving: the next round broadcasts the newest transaction of the slot.
//
// Any of the slot's transactions may be mined. Its receipt decides.
func (s *Settler) replaceTx(ctx context.Context, v view, slot Slot) error {
	last := slot.lastTx()
	replacement, err := s.signReplacement(ctx, v, slot, last)
	if err != nil {
		return errors.Join(err, s.Wallet.Broadcast(ctx, last))
	}
	crash.At(crash.ReplacementSigned)
	if err := s.Store.AddTx(ctx, slot.ID, replacement); err != nil {
		return err
	}
	crash.At(crash.ReplacementSaved)
	s.Log.InfoContext(ctx, "transaction replaced at a higher fee",
		"tx", replacement.Hash, "walletNonce", slot.WalletNonce, "feeCap", replacement.FeeCap)
	err = s.Wallet.Broadcast(ctx, replacement)
	crash.At(crash.ReplacementSent)
	return err
}

// signReplacement signs the transaction of a slot again. It asks again which owners
// have code, because these may have got it meanwhile. If the node does not answer that,
// the payments of owners with code are skipped and sent again later: no slot stays
// open because a simulation fails.
func (s *Settler) signReplacement(ctx context.Context, v view, slot Slot, last Tx) (Tx, error) {
	if slot.expired(v.head.Time) {
		return s.Wallet.Sign(ctx, nil, slot.WalletNonce, &last)
	}
	standings, err := s.Chain.Standing(ctx, permits(slot.Intents))
	calls := make([]Call, len(slot.Intents))
	for i, intent := range slot.Intents {
		calls[i] = Call{intent.Permit, err == nil && standings[i].Code}
	}
	replacement, err := s.Wallet.Sign(ctx, calls, slot.WalletNonce, &last)
	if errors.Is(err, ErrBatch) {
		// Blocks hold less gas than when the slot was opened. An empty transaction
		// uses up the wallet nonce, and then the intents are released.
		return s.Wallet.Sign(ctx, nil, slot.WalletNonce, &last)
	}
	return replacement, err
}

// closeSlot decides the intents of a slot whose transaction is confirmed. The settlement
// contract reported what it did with each of them, in the order of the calls. An intent
// that it settled and whose Transfer is in the receipt has settled. Any other waits
// again: the next dispatch finds out whether it can still settle or another transaction
// settled it. After a crash before the decisions are saved the slot is open, and the
// next round closes it by the same receipt.
func (s *Settler) closeSlot(ctx context.Context, slot Slot, receipt *Receipt) error {
	crash.At(crash.ReceiptSeen)
	decisions := s.decideCalls(ctx, slot, receipt)
	if err := s.Costs.SaveCost(ctx, receipt.TxHash, int64(receipt.GasUsed), receipt.feeGwei()); err != nil {
		return err
	}
	if err := s.save(ctx, &slot.ID, decisions); err != nil {
		return err
	}
	settled := 0
	for _, decision := range decisions {
		if decision.Outcome == OutcomeSettled {
			settled++
		}
	}
	s.Log.InfoContext(ctx, "slot closed", "tx", receipt.TxHash, "walletNonce", slot.WalletNonce,
		"settled", settled, "notSettled", len(decisions)-settled, "gasUsed", receipt.GasUsed)
	return nil
}

// decideCalls decides the intents of a slot by the receipt of its transaction. Payments
// that are alike have Transfers that are alike, in the order of the calls.
//
// A transaction with another number of calls is the empty one, or one that was signed
// before a reorganisation opened the slot again with fewer intents: then no position
// shows whose outcome it is, and the confirmed chain decides the intents.
func (s *Settler) decideCalls(ctx context.Context, slot Slot, receipt *Receipt) []Decision {
	decisions := decisionsFor(slot.Intents, OutcomeReverted)
	switch {
	case receipt.Failed:
		return decisions
	case len(receipt.Calls) != len(slot.Intents):
		return decisionsFor(slot.Intents, OutcomeReleased)
	}
	unclaimed := slices.Clone(receipt.Transfers)
	for i, intent := range slot.Intents {
		outcome := receipt.Calls[i]
		own := slices.IndexFunc(unclaimed, intent.matches)
		switch {
		case outcome == CallSettled && own >= 0:
			decisions[i].Outcome, decisions[i].Evidence = OutcomeSettled, s.evidence(unclaimed[own])
			unclaimed = slices.Delete(unclaimed, own, own+1)
			continue
		case outcome == CodeAppeared: // the call ran none of it
			decisions[i].Outcome = OutcomeReleased
			s.flipping[intent.Permit.From] = s.Now()
		}
		s.Log.InfoContext(ctx, "a payment did not settle in its transaction; it is looked at again",
			"intent", intent.ID, "tx", receipt.TxHash, "outcome", outcome)
	}
	return decisions
}

// matches reports whether a transfer has the token, payer, recipient and amount of
// the intent's permit. Transfers of identical payments match it too.
func (i *Intent) matches(t Transfer) bool {
	return t.Token == i.Permit.Permitted.Token && t.From == i.Permit.From &&
		t.To == i.Permit.Witness.To && t.Amount == i.Permit.Permitted.Amount
}

// hexOf formats an address as our API does, in lowercase.
func hexOf(a common.Address) string { return strings.ToLower(a.Hex()) }

func decisionsFor(intents []Intent, outcome Outcome) []Decision {
	decisions := make([]Decision, len(intents))
	for i, intent := range intents {
		decisions[i] = Decision{Intent: intent, Outcome: outcome}
	}
	return decisions
}

func permits(intents []Intent) []Permit {
	list := make([]Permit, len(intents))
	for i, intent := range intents {
		list[i] = intent.Permit
	}
	return list
}
