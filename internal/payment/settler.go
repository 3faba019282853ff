package payment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"boxoffice"

	"github.com/ethereum/go-ethereum/common"
)

// SettlerConfig is what a Settler needs.
type SettlerConfig struct {
	ChainID       uint64
	Chain         Chain
	Wallet        Wallet
	Store         Store
	Holder        string        // names this process in the lease
	Confirmations uint64        // blocks that must hold a transfer before it counts, its own included; at least 1
	MaxBatch      int           // permits in a transaction
	MaxInFlight   int           // slots open at once
	GatherFor     time.Duration // how long a new intent waits for company
	PollEvery     time.Duration // how often the chain and the store are asked
	BumpAfter     time.Duration // how long a transaction may stay unmined before its fee rises
	LeaseFor      time.Duration // how long a settler that fell silent keeps the wallet
	RecheckEvery  time.Duration // how often failed intents that could still settle are looked at
	Decided       func()        // called after intents were decided; may be nil
	Now           func() time.Time
	Log           *slog.Logger
}

// Settler carries saved intents to the chain and back. One runs for each
// settlement wallet; any number may be started, a lease in the store chooses.
//
// All that it knows is in the store and on the chain, so a round after a crash
// is a round like any other.
type Settler struct {
	SettlerConfig
	wake      chan struct{}
	credited  map[logID]bool // transfers found to be credited already
	recheckAt time.Time
	health    atomic.Pointer[error]
}

type logID struct {
	tx    common.Hash
	index uint
}

// NewSettler returns a Settler.
func NewSettler(c SettlerConfig) *Settler {
	return &Settler{SettlerConfig: c, wake: make(chan struct{}, 1), credited: map[logID]bool{}}
}

// Wake tells the settler that an intent is waiting.
func (s *Settler) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run settles until ctx ends, and then leaves the wallet to others. A round
// that fails is logged and tried again.
func (s *Settler) Run(ctx context.Context) {
	defer s.yield(context.WithoutCancel(ctx))
	poll := time.NewTicker(s.PollEvery)
	defer poll.Stop()
	for {
		err := s.Round(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.Log.WarnContext(ctx, "settlement round failed; it will be tried again", "err", err)
		}
		s.health.Store(&err)
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		case <-s.wake:
			select {
			case <-ctx.Done():
				return
			case <-time.After(s.GatherFor):
			}
		}
	}
}

// Health returns why the last round failed, nil if it did not.
func (s *Settler) Health() error {
	if err := s.health.Load(); err != nil {
		return *err
	}
	return nil
}

func (s *Settler) lease(ctx context.Context, length time.Duration) error {
	now := boxoffice.At(s.Now())
	name := fmt.Sprintf("settler/%d/%s", s.ChainID, s.Wallet.Address())
	return s.Store.Lease(ctx, name, s.Holder, now, now+boxoffice.Timestamp(length.Milliseconds()))
}

func (s *Settler) yield(ctx context.Context) {
	if err := s.lease(ctx, 0); err != nil && !errors.Is(err, ErrLost) {
		s.Log.WarnContext(ctx, "the settlement lease was not given back; it runs out by itself", "err", err)
	}
}

// view is what a round believes of the chain. Nothing is concluded from a block
// after confirmed.
type view struct {
	head      Head
	confirmed uint64
}

// Round looks once at everything that is under way and moves what can be
// moved. A crash between any two of its steps loses nothing:
//
//  1. Take the lease. Two settlers that both believe to hold it cannot pay
//     twice: a slot's wallet nonce and an intent's state are taken in the store
//     before anything is signed away.
//  2. Follow the open slots: credit what is confirmed, release what was left
//     out, send again or at a higher fee what is not mined.
//  3. Look again at failed intents that somebody may have settled.
//  4. Put waiting intents into a new slot: simulate, sign, SAVE, broadcast. A
//     crash before saving leaves them waiting; after it, step 2 broadcasts.
func (s *Settler) Round(ctx context.Context) error {
	err := s.lease(ctx, s.LeaseFor)
	if errors.Is(err, ErrLost) {
		return nil
	}
	if err != nil {
		return err
	}
	head, err := s.Chain.Head(ctx)
	if err != nil {
		return err
	}
	v := view{head: head, confirmed: head.Number - min(head.Number, s.Confirmations-1)}
	open, err := s.follow(ctx, v)
	return errors.Join(err, s.recheck(ctx, v), s.dispatch(ctx, v, open))
}

// follow looks at every open slot and returns those that stay open.
func (s *Settler) follow(ctx context.Context, v view) (open []Slot, err error) {
	slots, err := s.Store.Slots(ctx, s.ChainID, s.Wallet.Address())
	if err != nil || len(slots) == 0 {
		return nil, err
	}
	consumed, err := s.Wallet.Nonce(ctx, v.confirmed)
	if err != nil {
		return slots, err
	}
	var hashes []common.Hash
	for _, slot := range slots {
		for _, tx := range slot.Txs {
			hashes = append(hashes, tx.Hash)
		}
	}
	receipts, err := s.Chain.Receipts(ctx, hashes)
	if err != nil {
		return slots, err
	}
	var failures []error
	for _, slot := range slots {
		mine := receipts[:len(slot.Txs)]
		receipts = receipts[len(slot.Txs):]
		closed, err := s.followSlot(ctx, v, slot, mined(mine), consumed)
		if err != nil {
			failures = append(failures, fmt.Errorf("slot %d: %w", slot.WalletNonce, err))
		}
		if !closed {
			open = append(open, slot)
		}
	}
	return open, errors.Join(failures...)
}

func mined(receipts []*Receipt) *Receipt {
	i := slices.IndexFunc(receipts, func(r *Receipt) bool { return r != nil })
	if i < 0 {
		return nil
	}
	return receipts[i]
}

func (s *Settler) followSlot(ctx context.Context, v view, slot Slot, receipt *Receipt, consumed uint64) (closed bool, err error) {
	switch {
	case receipt != nil && receipt.BlockNumber <= v.confirmed:
		return true, s.closeSlot(ctx, v, slot, receipt)
	case receipt != nil:
		return false, nil // mined, and waiting for its confirmations
	case slot.WalletNonce < consumed:
		s.Log.ErrorContext(ctx, "a transaction that this service did not sign used a nonce of the settlement wallet", "walletNonce", slot.WalletNonce)
		return true, s.closeSlot(ctx, v, slot, &Receipt{})
	}
	last := slot.Txs[len(slot.Txs)-1]
	if s.Now().Sub(last.SignedAt.Time()) >= s.BumpAfter {
		bumped, err := s.Wallet.Sign(ctx, permits(slot.Intents), slot.WalletNonce, &last)
		if err != nil {
			return false, errors.Join(err, s.Wallet.Broadcast(ctx, last))
		}
		if err := s.Store.AddTx(ctx, slot.ID, bumped); err != nil {
			return false, err
		}
		last = bumped
		s.Log.InfoContext(ctx, "transaction replaced at a higher fee", "tx", last.Hash, "walletNonce", slot.WalletNonce, "feeCap", last.FeeCap)
	}
	return false, s.Wallet.Broadcast(ctx, last)
}

// closeSlot credits the intents whose own Transfer is in the slot's receipt and
// whose nonce is spent. All others wait again: whether they can still settle, or
// were settled elsewhere, is for the next look at them.
func (s *Settler) closeSlot(ctx context.Context, v view, slot Slot, receipt *Receipt) error {
	spent, err := s.Chain.Spent(ctx, permits(slot.Intents), v.confirmed)
	if err != nil {
		return err
	}
	unclaimed := slices.Clone(receipt.Transfers)
	decisions := make([]Decision, len(slot.Intents))
	settled := 0
	for i, intent := range slot.Intents {
		decisions[i] = Decision{IntentID: intent.ID, Verdict: VerdictReleased}
		own := slices.IndexFunc(unclaimed, intent.movedBy)
		if spent[i] && own >= 0 {
			decisions[i].Verdict, decisions[i].Evidence = VerdictSettled, s.evidence(unclaimed[own])
			unclaimed = slices.Delete(unclaimed, own, own+1)
			settled++
		}
	}
	if err := s.settle(ctx, &slot.ID, decisions); err != nil {
		return err
	}
	s.Log.InfoContext(ctx, "slot closed", "tx", receipt.TxHash, "walletNonce", slot.WalletNonce,
		"settled", settled, "released", len(decisions)-settled, "gasUsed", receipt.GasUsed)
	return nil
}

// movedBy reports whether a transfer is the one that the intent's permit makes.
func (i *Intent) movedBy(t Transfer) bool {
	return t.Token == i.Permit.Permitted.Token && t.From == i.Permit.From &&
		t.To == i.Permit.Witness.To && t.Amount == i.Permit.Permitted.Amount
}

func (s *Settler) evidence(t Transfer) *Evidence {
	return &Evidence{TxHash: t.TxHash, LogIndex: t.LogIndex, BlockNumber: t.BlockNumber, SettledAt: boxoffice.At(s.Now())}
}

func (s *Settler) settle(ctx context.Context, slotID *boxoffice.UUID, decisions []Decision) error {
	if err := s.Store.Settle(ctx, slotID, decisions, boxoffice.At(s.Now())); err != nil {
		return err
	}
	for _, d := range decisions {
		if d.Verdict == VerdictFailed {
			s.Log.InfoContext(ctx, "payment failed", "intent", d.IntentID, "reason", d.Reason, "final", d.Final)
		}
	}
	if s.Decided != nil {
		s.Decided()
	}
	return nil
}

func permits(intents []Intent) []Permit {
	list := make([]Permit, len(intents))
	for i, intent := range intents {
		list[i] = intent.Permit
	}
	return list
}
