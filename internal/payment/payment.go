// Package payment verifies signed payments, settles them on the chain and
// decides by evidence what became of each. It knows nothing of how an order is
// priced or of what it buys.
//
// A payment that was accepted is an Intent; transitions.go shows its states. A
// Settler carries intents to the chain with our own key; package remote carries
// them to a facilitator. For both a Decider reads the confirmed chain and decides
// what became of each intent. The way of a payment through the files:
//
//	verify.go    is the payment accepted?
//	settler.go   one round of the settler: review, follow the slots, dispatch
//	classify.go  which waiting intents would settle now
//	dispatch.go  sign a transaction for intents, save it in a slot, broadcast it
//	follow.go    a slot until its transaction is confirmed
//	resolve.go   what the confirmed chain says about an intent in no slot
//	review.go    look again at what was decided: a reorganisation may change it
//
// There are two kinds of nonces: each permit spends a Permit2 nonce of its payer, and
// each transaction uses a wallet nonce of our settlement wallet. "Spent" is about the
// first, "mined" about the second.
//
// A failed intent that is not final can still be settled by anyone who has its
// signed permit, until its nonce is spent or its deadline has passed. The settler
// watches it until then.
package payment

import (
	"context"
	"errors"

	"boxoffice"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
)

// Permit is a signed Permit2 transfer that the x402 exact proxy can settle.
type Permit struct {
	x402.Authorization
	Signature []byte // a secret until it is broadcast
}

// State is the state of an intent.
type State string

// The states of an intent.
const (
	Waiting State = "waiting" // saved, in no transaction
	Sent    State = "sent"    // in a slot whose transactions are saved
	Settled State = "settled" // its transfer is confirmed
	Failed  State = "failed"  // not settled; Reason says why
)

// Intent is an accepted payment: for an order, or a submission of another server.
type Intent struct {
	ID             boxoffice.UUID
	OrderID        boxoffice.UUID // empty for a submission
	SubmissionID   boxoffice.UUID // empty for an order
	ChainID        uint64
	Permit         Permit
	Payload        []byte              // canonical JSON of the signed x402 payload; it reaches no log and no response
	PayloadHash    boxoffice.Hash      // SHA-256 of Payload
	QuoteSignature boxoffice.Signature // zero for a submission
	FromBlock      uint64              // the newest block when it was verified; its nonce was unspent then
	SubmittedAt    boxoffice.Timestamp
	Progress
}

// Evidence is the Transfer log that moved an intent's money.
type Evidence struct {
	TxHash      common.Hash
	LogIndex    uint
	BlockNumber uint64
	SettledAt   boxoffice.Timestamp // when the settler saw it confirmed
}

// Rejection says why a payment is not accepted or did not settle, so that the
// payer knows what to change.
type Rejection struct {
	Reason x402.Reason
	Detail string
}

func (r *Rejection) Error() string { return string(r.Reason) + ": " + r.Detail }

// Outcome is what a Decision says about an intent.
type Outcome string

// The outcomes.
const (
	OutcomeSettled  Outcome = "settled"  // Evidence proves it
	OutcomeFailed   Outcome = "failed"   // Reason says why; Final if its permit can never settle any more
	OutcomeReleased Outcome = "released" // its transaction can never be mined: it waits again
	OutcomeReverted Outcome = "reverted" // its transaction is confirmed and its call did not settle it: it waits again
	OutcomeUndone   Outcome = "undone"   // it was settled, and a reorganisation removed its transfer: it waits again
)

// Decision is what a settler decided about one intent. Its Change is the conditional
// write that follows from it.
type Decision struct {
	Intent   Intent // as the settler read it: the decision holds only where it is still so
	Outcome  Outcome
	Reason   string
	Final    bool
	Evidence *Evidence
}

// Slot is one nonce of a settlement wallet with every transaction that was signed
// for it: each carries the intents, or none. At most one is ever mined.
type Slot struct {
	ID          boxoffice.UUID
	ChainID     uint64
	Sender      common.Address
	WalletNonce uint64
	Txs         []Tx     // oldest first; at least one
	Intents     []Intent // in the order of the calls
	OpenedAt    boxoffice.Timestamp
}

// Tx is a signed transaction.
type Tx struct {
	Hash     common.Hash
	Raw      []byte
	GasLimit uint64
	FeeCap   boxoffice.Amount // wei a gas
	TipCap   boxoffice.Amount // wei a gas
	SignedAt boxoffice.Timestamp
}

// EmptyGas is the gas limit of an empty transaction, which is all that it uses.
const EmptyGas = 21_000

// empty reports whether the transaction carries no payment and only uses up its nonce.
func (t Tx) empty() bool { return t.GasLimit == EmptyGas }

// ErrStale says that a conditional write found the rows changed since the caller
// read them. The caller reads them again.
var ErrStale = errors.New("payment: the state has changed meanwhile")

// ErrCredited says that the Transfer of the evidence has settled another intent.
var ErrCredited = errors.New("payment: the transfer is credited to another payment")

// Store reads and writes intents and open slots. Every method is one transaction.
type Store interface {
	// Waiting returns the oldest waiting intents of a chain.
	Waiting(ctx context.Context, chainID uint64, limit int) ([]Intent, error)
	// Slots returns the open slots of a chain, whatever wallet signed for them, lowest
	// nonce first.
	Slots(ctx context.Context, chainID uint64) ([]Slot, error)
	// OpenSlot saves a slot with its first transaction and executes the changes of
	// its intents, in the order of their calls: all of it, or ErrStale and nothing.
	OpenSlot(ctx context.Context, slot Slot, changes []Change) error
	// AddTx saves a further transaction of an open slot.
	AddTx(ctx context.Context, slotID boxoffice.UUID, tx Tx) error
	// Unresolved returns the failed intents that are not final, oldest first. It leaves
	// out an intent that is not the last payment of its order.
	Unresolved(ctx context.Context, chainID uint64, limit int) ([]Intent, error)
}

// Decisions saves the decisions of settlers, changes the orders that the intents pay
// for, and wakes who waits for a decision.
type Decisions interface {
	// SaveDecisions saves all decisions in one transaction and closes the slot, if one
	// is named: then every intent of the slot that is still sent has to be decided.
	// It returns ErrStale and changes nothing if an intent or the slot changed
	// since it was read, and ErrCredited if a Transfer log was credited to another
	// intent.
	SaveDecisions(ctx context.Context, slotID *boxoffice.UUID, decisions []Decision, at boxoffice.Timestamp) error
}

// History reads settled intents and closed slots, and opens closed slots again after
// a reorganisation. Every method is one transaction.
type History interface {
	// Settled returns the settled intents whose transfer is in a block from
	// first on, newest first.
	Settled(ctx context.Context, chainID, first uint64, limit int) ([]Intent, error)
	// ClosedSlots returns a wallet's closed slots from a nonce on, lowest nonce
	// first, with every intent that they carried.
	ClosedSlots(ctx context.Context, chainID uint64, sender common.Address, nonce uint64) ([]Slot, error)
	// ReopenSlots opens closed slots and executes the changes of their intents: all of
	// it, or ErrStale and nothing.
	ReopenSlots(ctx context.Context, closed []Slot, changes []Change) error
	// Carried returns whether we signed a transaction, and which intents it carried.
	Carried(ctx context.Context, tx common.Hash) (ours bool, intents []boxoffice.UUID, err error)
}
