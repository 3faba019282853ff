// Package payment verifies signed payments, settles them on the chain and
// decides by evidence what became of each. It knows nothing of how an order is
// priced or of what it buys.
//
// A payment that was accepted is an Intent. Each arrow of its life is one
// conditional write of the Store:
//
//	          OpenSlot          its Transfer is confirmed
//	waiting ───────────▶ sent ───────────────────────────▶ settled
//	 │ │ ▲                │                                 ▲  ▲
//	 │ │ └────────────────┘ its slot did not settle it      │  │
//	 │ └────────────────────────────────────────────────────┘  │
//	 │   somebody else's transaction carried it                │
//	 └──▶ failed ──────────────────────────────────────────────┘
//	      it would revert    somebody settled it all the same
//
// A failed intent that is not final can still be settled by anyone who holds
// its signature, until its nonce is spent or its deadline has passed; the
// settler watches it until then. A settled intent whose block a reorganisation
// removes is sent or waiting again, while its order stays paid.
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

// State is where an intent stands.
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
	Payload        []byte              // canonical JSON of the signed x402 payload; never logged or answered
	PayloadHash    boxoffice.Hash      // SHA-256 of Payload
	QuoteSignature boxoffice.Signature // zero for a submission
	FromBlock      uint64              // the newest block when it was verified: its nonce was free then
	SubmittedAt    boxoffice.Timestamp
	Progress
}

// Evidence is the Transfer log that moved an intent's money.
type Evidence struct {
	TxHash      common.Hash
	LogIndex    uint
	BlockNumber uint64
	SettledAt   boxoffice.Timestamp // when the service saw it confirmed
}

// Rejection says why a payment is not accepted or did not settle, in a way
// that the payer can act on.
type Rejection struct {
	Reason x402.Reason
	Detail string
}

func (r *Rejection) Error() string { return string(r.Reason) + ": " + r.Detail }

// Outcome is what a Decision makes of an intent.
type Outcome string

// The verdicts on an intent.
const (
	OutcomeSettled  Outcome = "settled"  // by Evidence
	OutcomeFailed   Outcome = "failed"   // with Reason; Final if the permit is dead
	OutcomeReleased Outcome = "released" // its transaction can never be mined: it waits again
	OutcomeReverted Outcome = "left_out" // its transaction is confirmed without its transfer: it waits again, and that is counted
	OutcomeUndone   Outcome = "undone"   // it was settled, and no block has its transfer any more: it waits again
)

// Decision is what a settler decided about one intent.
type Decision struct {
	Intent   Intent // as the settler read it: the decision holds only where it is still so
	Outcome  Outcome
	Reason   string
	Final    bool
	Evidence *Evidence
}

// Slot is one nonce of a settlement wallet and everything signed for it: of
// its transactions, at most one is ever mined.
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

// ErrStale is what a Store returns when the rows were not as the caller
// believed: somebody else moved them first. The caller reads them again.
var ErrStale = errors.New("payment: the state has changed meanwhile")

// ErrCredited is what a Store returns for evidence that settled another intent.
var ErrCredited = errors.New("payment: the transfer is credited to another payment")

// Store is what the settler keeps. Every method is one transaction.
type Store interface {
	// Waiting returns the oldest waiting intents of a chain.
	Waiting(ctx context.Context, chainID uint64, limit int) ([]Intent, error)
	// Slots returns the open slots of a wallet by rising nonce.
	Slots(ctx context.Context, chainID uint64, sender common.Address) ([]Slot, error)
	// OpenSlot saves a slot with its first transaction and executes the changes of
	// its intents, in the order of their calls: all of it, or ErrStale and nothing.
	OpenSlot(ctx context.Context, slot Slot, changes []Change) error
	// AddTx saves a further transaction of an open slot.
	AddTx(ctx context.Context, slotID boxoffice.UUID, tx Tx) error
	// Unresolved returns the failed intents that are not final and still are the
	// last payment of their order.
	Unresolved(ctx context.Context, chainID uint64, limit int) ([]Intent, error)
}

// Recorder saves what settlers decide about intents and what that means for the
// orders that they pay.
type Recorder interface {
	// Record saves all decisions in one transaction and closes the slot, if one is
	// named: then every intent of the slot that is still sent has to be decided.
	// It returns ErrStale and changes nothing if an intent or the slot changed
	// since it was read, and ErrCredited if a Transfer log was credited to another
	// intent.
	Record(ctx context.Context, slotID *boxoffice.UUID, decisions []Decision, at boxoffice.Timestamp) error
}

// History is what the settler asks of payments that were settled, in case a
// reorganisation takes them back. Every method is one transaction.
type History interface {
	// Settled returns the settled intents whose transfer is in a block from
	// first on, newest first.
	Settled(ctx context.Context, chainID, first uint64, limit int) ([]Intent, error)
	// ClosedSlots returns a wallet's closed slots from a nonce on, by rising nonce,
	// with every intent that they carried.
	ClosedSlots(ctx context.Context, chainID uint64, sender common.Address, nonce uint64) ([]Slot, error)
	// ReopenSlots opens a wallet's closed slots from a nonce on and executes the
	// changes of their intents: all of it, or ErrStale and nothing.
	ReopenSlots(ctx context.Context, chainID uint64, sender common.Address, nonce uint64, changes []Change) error
	// Carried says whether a transaction is one of ours and which intents it
	// carried.
	Carried(ctx context.Context, tx common.Hash) (ours bool, intents []boxoffice.UUID, err error)
}

// Head is the newest block.
type Head struct {
	Number uint64
	Time   uint64 // Unix seconds
}

// Standing is how a permit stands at the newest block.
type Standing struct {
	Balance   boxoffice.Amount // of the owner
	Allowance boxoffice.Amount // of the owner for Permit2
	Spent     bool             // the permit's nonce
	Code      bool             // the owner has code (EIP-7702 too), which Permit2 runs and which may burn all gas of a batch
	Approved  bool             // the owner has code and accepts the approval that was asked about
	Failure   *Rejection       // why settling would fail; nil if it would work
	Block     uint64           // the newest block that the node knew when it was asked
}

// Approval is what an owner with code is asked beside its permit: whether a
// signature over something else is its own (EIP-1271).
type Approval struct {
	Digest    [32]byte
	Signature boxoffice.Signature
}

// Transfer is a Transfer log of an ERC-20 token.
type Transfer struct {
	Token       common.Address
	From, To    common.Address
	Amount      boxoffice.Amount
	TxHash      common.Hash
	LogIndex    uint
	BlockNumber uint64
}

// Receipt is what a mined transaction left behind.
type Receipt struct {
	TxHash      common.Hash
	BlockNumber uint64
	GasUsed     uint64
	GasPrice    boxoffice.Amount // wei a gas that was paid; 0 if the node does not tell
	Transfers   []Transfer
}

// ErrRefused marks the error of a question that the node understood and did not
// answer: it keeps no state of so old a block, for one.
var ErrRefused = errors.New("payment: the node refused the question")

// Standings says how permits stand.
type Standings interface {
	// Standing says of each permit how it stands at the newest block and
	// whether settling all of them in this order would work for it. It asks the
	// owners of the first permits about their approvals, where there are some.
	Standing(ctx context.Context, permits []Permit, approvals ...Approval) ([]Standing, error)
}

// Chain reads an EVM chain. An error means that the chain did not answer; it
// never says anything about a payment. Where a method names a block, a node
// that does not know this block yet is an error: of many nodes behind one
// address, one that lags must not speak for the chain.
type Chain interface {
	// Head returns the newest block.
	Head(ctx context.Context) (Head, error)
	// BlockTime returns the timestamp of a block in Unix seconds.
	BlockTime(ctx context.Context, number uint64) (uint64, error)
	Standings
	// Spent says of each permit whether its nonce was spent as of a block.
	Spent(ctx context.Context, permits []Permit, block uint64) ([]bool, error)
	// Receipts returns the receipt of each transaction, nil for one that is not
	// mined, from a node that knows the given block.
	Receipts(ctx context.Context, hashes []common.Hash, known uint64) ([]*Receipt, error)
	// Transfers returns the transfers of token from one address to another in
	// the blocks from first to last, both included, oldest first.
	Transfers(ctx context.Context, token, from, to common.Address, first, last uint64) ([]Transfer, error)
}

// What keeps a Wallet from signing.
var (
	// ErrWalletEmpty says that the wallet cannot pay for the transaction.
	ErrWalletEmpty = errors.New("the settlement wallet has not enough native coin")
	// ErrFeeCeiling says that the chain asks for more than the configured maximum.
	ErrFeeCeiling = errors.New("the fee would be above the configured maximum")
	// ErrBatch says that the permits do not fit one transaction.
	ErrBatch = errors.New("the payments do not fit one transaction")
)

// Wallet signs and sends with the settlement key.
type Wallet interface {
	// Address returns the wallet's address.
	Address() common.Address
	// MaxBatch returns how many permits fit one transaction.
	MaxBatch() int
	// Nonce returns how many transactions of the wallet are in the chain as of
	// a block.
	Nonce(ctx context.Context, block uint64) (uint64, error)
	// Ready fails, with ErrWalletEmpty or ErrFeeCeiling among others, if the
	// wallet could not settle one permit now.
	Ready(ctx context.Context) error
	// Sign returns a transaction that settles the permits with the given wallet
	// nonce at the going fees. If it replaces one, its fees are higher by at
	// least what nodes ask of a replacement. One without permits does nothing
	// but use up the nonce.
	Sign(ctx context.Context, permits []Permit, nonce uint64, replaces *Tx) (Tx, error)
	// Broadcast hands a transaction to the chain. A transaction that is known
	// already is not an error.
	Broadcast(ctx context.Context, tx Tx) error
}
