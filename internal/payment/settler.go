package payment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/common"
)

// SettlerConfig is what a Settler needs.
type SettlerConfig struct {
	*Decider
	Wallet      Wallet
	Costs       Costs
	MaxBatch    int           // permits in a transaction
	MaxInFlight int           // slots open at once
	MaxTries    int           // reverts after which an intent fails; at least 1
	BumpAfter   time.Duration // how long a transaction may stay unmined before its fee is raised
	Rounds      LoopConfig
}

// Settler settles saved intents with our own settlement key. One process settles
// for each wallet: the one that holds the lease.
//
// It reads all that it needs from the store and the chain in every round, so the
// first round after a crash is not special.
type Settler struct {
	SettlerConfig
	*Loop
	reverting recentOwners           // their payments pass the simulation and revert
	flipping  recentOwners           // they got code after the simulation
	seen      map[common.Hash]uint64 // the newest block when the newest transaction of an open slot was first seen
}

// NewSettler returns a Settler.
func NewSettler(c SettlerConfig) *Settler {
	s := &Settler{SettlerConfig: c, reverting: recentOwners{}, flipping: recentOwners{}}
	s.Loop = NewLoop(c.Rounds, RoundFuncs{
		Lease: leaseOf(c.ChainID, c.Wallet.Address()),
		Check: s.checkWallet, Round: s.settleRound,
	})
	return s
}

// leaseOf names the lease of the process that settles with a wallet.
func leaseOf(chainID uint64, wallet common.Address) string {
	return fmt.Sprintf("settler/%d/%s", chainID, wallet)
}

// settleRound takes every pending payment one step further where that is possible. A
// crash between any two of its steps loses nothing, because the next round starts
// with the first step again:
//
//  1. Review what was decided: settled intents that a reorganisation may have
//     undone, failed ones that another transaction may have settled.
//  2. Follow the open slots: settle what is confirmed, release what did not
//     settle, broadcast again or at a higher fee what is not mined.
//  3. Dispatch waiting intents: simulate them, sign a transaction for them, save
//     it in a slot, broadcast it. After a crash before saving they still wait;
//     after it, step 2 broadcasts the transaction.
//
// If two processes run rounds because one of them lost the lease without noticing,
// no intent is paid twice: only one of them can save a slot with a given wallet
// nonce, or with a given intent.
func (s *Settler) settleRound(ctx context.Context) error {
	v, err := s.readView(ctx)
	if err != nil {
		return err
	}
	reviewed := s.review(ctx, v)
	open, err := s.followSlots(ctx, v)
	return errors.Join(reviewed, err, s.dispatch(ctx, v, open))
}

// checkWallet asks whether the wallet could settle a payment now. An RPC node
// that does not answer says nothing about the wallet.
func (s *Settler) checkWallet(ctx context.Context) (known bool, reason error) {
	err := s.Wallet.Ready(ctx)
	known = err == nil || errors.Is(err, ErrWalletEmpty) || errors.Is(err, ErrFeeCeiling)
	return known, err
}
