package payment

import (
	"context"
	"errors"
	"fmt"

	"boxoffice"

	"github.com/ethereum/go-ethereum/common"
)

// Head is the newest block.
type Head struct {
	Number uint64
	Time   uint64 // Unix seconds
}

// Standing is the state of a permit and its owner at the newest block.
type Standing struct {
	Balance   boxoffice.Amount // of the owner, after the permits before this one
	Allowance boxoffice.Amount // of the owner for Permit2, after the permits before this one
	Spent     bool             // the permit's nonce is spent
	Code      bool             // the owner has code (EIP-7702 too), which Permit2 runs
	Approved  bool             // the owner has code and accepts the Approval
	Failure   *Rejection       // why settling the permit would fail; nil if it would work
	Block     uint64           // the newest block of the node that answered
}

// Approval is a signature by which an owner approves something else than the permit,
// a quote. If the owner has code, its isValidSignature (EIP-1271) is called to check
// it.
type Approval struct {
	Digest    [32]byte
	Signature boxoffice.Signature
}

// Call is a permit as one call of a settling transaction.
type Call struct {
	Permit
	Code bool // the owner may have code; without this the call is skipped if it has
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

// Receipt is the receipt of a mined transaction.
type Receipt struct {
	TxHash      common.Hash
	BlockNumber uint64
	GasUsed     uint64
	GasPrice    boxoffice.Amount // wei a gas that was paid; 0 if the node does not return it
	Failed      bool             // the whole transaction reverted
	Calls       []CallOutcome    // of a settling transaction, by position
	Transfers   []Transfer
}

// CallOutcome is what the settlement contract did with one payment of a transaction.
type CallOutcome byte

// The outcomes, as contracts/Settlement.sol numbers them.
const (
	NotTried     CallOutcome = iota // too little gas was left
	CallSettled                     // exactly the amount reached the recipient
	TooEarly                        // skipped: validAfter had not passed
	Expired                         // skipped: the deadline had passed
	NonceSpent                      // skipped
	CodeAppeared                    // skipped: the owner had code, which the call did not announce
	CallReverted                    // it reverted, or needed more gas than its bound
	NotExact                        // undone: the recipient did not get exactly the amount
)

var callOutcomes = [...]string{
	"not_tried", "settled", "too_early", "expired", "nonce_spent", "code_appeared", "reverted", "not_exact",
}

func (o CallOutcome) String() string {
	if int(o) < len(callOutcomes) {
		return callOutcomes[o]
	}
	return fmt.Sprintf("outcome_%d", byte(o))
}

// ErrRefused says that the node understood the request and did not carry it out,
// for example because it no longer has the state of so old a block.
var ErrRefused = errors.New("payment: the node refused the request")

// Standings reads standings.
type Standings interface {
	// Standing returns the standing of each permit at the newest block. It simulates
	// that all permits settle in this order; Failure says why one of them would fail.
	// The i-th approval is checked with the owner of the i-th permit; there may be
	// fewer approvals than permits.
	Standing(ctx context.Context, permits []Permit, approvals ...Approval) ([]Standing, error)
}

// Chain reads an EVM chain. An error means that the RPC node did not answer; it
// says nothing about a payment. A method that takes a block fails if the node does
// not have that block yet: one address may lead to many nodes, and nothing must be
// decided by a node that is behind the others.
type Chain interface {
	// Head returns the newest block.
	Head(ctx context.Context) (Head, error)
	// BlockTime returns the timestamp of a block in Unix seconds.
	BlockTime(ctx context.Context, number uint64) (uint64, error)
	Standings
	// Spent returns for each permit whether its nonce was spent as of a block.
	Spent(ctx context.Context, permits []Permit, block uint64) ([]bool, error)
	// Nonce returns how many transactions of a wallet are mined as of a block, which
	// is the next nonce that can be mined.
	Nonce(ctx context.Context, wallet common.Address, block uint64) (uint64, error)
	// Receipts returns the receipt of each transaction, nil for one that is not
	// mined. It fails if the node does not have block needed.
	Receipts(ctx context.Context, hashes []common.Hash, needed uint64) ([]*Receipt, error)
	// Transfers returns the transfers of token from one address to another in
	// the blocks from first to last, both included, oldest first.
	Transfers(ctx context.Context, token, from, to common.Address, first, last uint64) ([]Transfer, error)
}

// The reasons for which a Wallet does not sign.
var (
	// ErrWalletEmpty says that the wallet cannot pay for the transaction.
	ErrWalletEmpty = errors.New("the settlement wallet has not enough native coin")
	// ErrFeeCeiling says that the chain requires a fee above the configured maximum.
	ErrFeeCeiling = errors.New("the fee would be above the configured maximum")
	// ErrUnderpriced says that the RPC node requires a higher fee: for any transaction,
	// or for one that replaces another.
	ErrUnderpriced = errors.New("the fee is too low for the node")
	// ErrBatch says that the permits do not fit one transaction.
	ErrBatch = errors.New("the payments do not fit one transaction")
)

// Wallet signs and sends with the settlement key.
type Wallet interface {
	// Address returns the wallet's address.
	Address() common.Address
	// MaxBatch returns how many permits fit one transaction.
	MaxBatch() int
	// Ready fails, with ErrWalletEmpty or ErrFeeCeiling among others, if the
	// wallet could not settle one permit now.
	Ready(ctx context.Context) error
	// Sign returns a transaction that settles the permits of the calls with the given
	// wallet nonce at the current fees. If it replaces another, its fees are as much
	// higher as nodes require. Without calls it only uses up the wallet nonce.
	Sign(ctx context.Context, calls []Call, nonce uint64, replaces *Tx) (Tx, error)
	// Broadcast sends a transaction to the chain. It is no error if the chain has
	// it already.
	Broadcast(ctx context.Context, tx Tx) error
}
