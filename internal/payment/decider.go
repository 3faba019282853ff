package payment

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"boxoffice"

	"github.com/ethereum/go-ethereum/common"
)

// DeciderConfig is what a Decider needs.
type DeciderConfig struct {
	ChainID       uint64
	Chain         Chain
	Store         Store
	Decisions     Decisions
	History       History
	Confirmations uint64        // blocks that must hold a transfer before it counts, its own included; at least 1
	ReorgDepth    uint64        // blocks above one that no reorganisation removes
	ReviewEvery   time.Duration // how often decided intents are looked at again
	Now           func() time.Time
	Log           *slog.Logger
}

// Decider decides what became of intents by the confirmed chain: the Transfer of an
// intent, its spent Permit2 nonce, its expired deadline. It neither signs nor sends.
// Both settlers use it.
type Decider struct {
	DeciderConfig
	newest     Head           // the newest block that any round has seen
	newestAt   time.Time      // when a round last saw it or a later one
	credited   map[logID]bool // transfers that were found to belong to another intent
	lastReview time.Time
}

type logID struct {
	tx    common.Hash
	index uint
}

// NewDecider returns a Decider.
func NewDecider(c DeciderConfig) *Decider {
	return &Decider{DeciderConfig: c, credited: map[logID]bool{}}
}

// Decide decides waiting intents that a facilitator carries to the chain, as far as
// the confirmed chain allows. An intent that the facilitator refused fails for that
// reason, unless its nonce is spent. Every ReviewEvery it also looks again at what
// was decided before.
func (d *Decider) Decide(ctx context.Context, waiting []Intent, refusals map[boxoffice.UUID]*Rejection) error {
	due := d.reviewDue()
	if len(waiting) == 0 && !due {
		return nil
	}
	v, err := d.readView(ctx)
	if err != nil {
		return err
	}
	intents := make([]unresolved, len(waiting))
	for i, intent := range waiting {
		intents[i] = unresolved{intent: intent, failure: refusals[intent.ID]}
	}
	err = d.resolve(ctx, v, intents)
	if due {
		err = errors.Join(err, d.reviewFailed(ctx, v), d.reviewSettled(ctx, v))
	}
	return err
}

// view says which blocks one round decides by. Every request by which the round
// decides names one of them.
type view struct {
	head      Head
	confirmed uint64 // the newest confirmed block: no later block decides anything
	buried    uint64 // the newest buried block, which no reorganisation removes
}

// maxBehind is how long the RPC node may be behind the newest block before that block is
// forgotten: then it was wrong, or a reorganisation removed it.
const maxBehind = time.Minute

// readView returns the view of a round, by the newest block that any round has seen in
// the last minute. If the RPC node is behind that block now, the requests for the blocks
// of the view fail, so nothing is decided by a node that is behind.
func (d *Decider) readView(ctx context.Context) (view, error) {
	head, err := d.Chain.Head(ctx)
	if err != nil {
		return view{}, err
	}
	now := d.Now()
	if head.Number < d.newest.Number && passed(d.newestAt, now, maxBehind) {
		d.Log.WarnContext(ctx, "the RPC node has been behind the newest block for a minute; that block is forgotten",
			"newest", d.newest.Number, "node", head.Number)
		d.newest = Head{}
	}
	if head.Number > d.newest.Number {
		// One wrong answer must not become the newest block of all later rounds.
		if _, err := d.Chain.BlockTime(ctx, head.Number); err != nil {
			return view{}, err
		}
	}
	if head.Number >= d.newest.Number {
		d.newest, d.newestAt = head, now
	}
	at := func(depth uint64) uint64 { return d.newest.Number - min(d.newest.Number, depth) }
	return view{head: d.newest, confirmed: at(d.Confirmations - 1),
		buried: at(max(d.Confirmations-1, d.ReorgDepth))}, nil
}

// save saves decisions and closes the slot if one is named. After a crash before that
// the next round decides again, by the chain.
func (d *Decider) save(ctx context.Context, slotID *boxoffice.UUID, decisions []Decision) error {
	return d.Decisions.SaveDecisions(ctx, slotID, decisions, boxoffice.At(d.Now()))
}

func (d *Decider) evidence(t Transfer) *Evidence {
	return &Evidence{TxHash: t.TxHash, LogIndex: t.LogIndex, BlockNumber: t.BlockNumber,
		SettledAt: boxoffice.At(d.Now())}
}
