package payment

import (
	"context"
	"errors"

	"boxoffice"

	"github.com/ethereum/go-ethereum/common"
)

// Head is the newest block.
type Head struct {
	Number uint64
	Time   uint64 // Unix seconds
}

// Standing is what the newest block says about a permit and its owner.
type Standing struct {
	Balance   boxoffice.Amount // of the owner
	Allowance boxoffice.Amount // of the owner for Permit2
	Spent     bool             // the permit's nonce is spent
	Code      bool             // the owner has code (EIP-7702 too): Permit2 runs it, and it may burn all gas of a batch
	Approved  bool             // the owner has code and accepts the Approval
	Failure   *Rejection       // why the simulated settle failed; nil if it works
	Block     uint64           // the newest block of the node that answered
}

// Approval is a signature over something else than the permit. An owner with code
// is asked whether it is its own (EIP-1271).
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

// Receipt is the receipt of a mined transaction.
type Receipt struct {
	TxHash      common.Hash
	BlockNumber uint64
	GasUsed     uint64
	GasPrice    boxoffice.Amount // wei a gas that was paid; 0 if the node does not return it
	Transfers   []Transfer
}

// ErrRefused says that the node understood the request and did not carry it out,
// for example because it no longer has the state of so old a block.
var ErrRefused = errors.New("payment: the node refused the request")

// Standings reads standings.
type Standings interface {
	// Standing returns the standing of each permit at the newest block; Failure
	// says whether settling all of them in this order would work for it. The
	// approvals are for the owners of the first permits.
	Standing(ctx context.Context, permits []Permit, approvals ...Approval) ([]Standing, error)
}

// Chain reads an EVM chain. An error means that the RPC node did not answer; it
// says nothing about a payment. A method that names a block fails if the node does
// not have that block yet: behind one address there may be many nodes, and one
// that is behind the others must not decide anything.
type Chain interface {
	// Head returns the newest block.
	Head(ctx context.Context) (Head, error)
	// BlockTime returns the timestamp of a block in Unix seconds.
	BlockTime(ctx context.Context, number uint64) (uint64, error)
	Standings
	// Spent returns for each permit whether its nonce was spent as of a block.
	Spent(ctx context.Context, permits []Permit, block uint64) ([]bool, error)
	// Receipts returns the receipt of each transaction, nil for one that is not
	// mined. It fails if the node does not have the block known.
	Receipts(ctx context.Context, hashes []common.Hash, known uint64) ([]*Receipt, error)
	// Transfers returns the transfers of token from one address to another in
	// the blocks from first to last, both included, oldest first.
	Transfers(ctx context.Context, token, from, to common.Address, first, last uint64) ([]Transfer, error)
}

// Why a Wallet does not sign.
var (
	// ErrWalletEmpty says that the wallet cannot pay for the transaction.
	ErrWalletEmpty = errors.New("the settlement wallet has not enough native coin")
	// ErrFeeCeiling says that the chain requires a fee above the configured maximum.
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
	// Nonce returns how many transactions of the wallet are mined as of a block,
	// which is the next nonce that can be mined.
	Nonce(ctx context.Context, block uint64) (uint64, error)
	// Ready fails, with ErrWalletEmpty or ErrFeeCeiling among others, if the
	// wallet could not settle one permit now.
	Ready(ctx context.Context) error
	// Sign returns a transaction that settles the permits with the given wallet
	// nonce at the current fees. If it replaces another, its fees are higher by
	// what nodes require. Without permits it only uses up the nonce.
	Sign(ctx context.Context, permits []Permit, nonce uint64, replaces *Tx) (Tx, error)
	// Broadcast sends a transaction to the chain. It is no error if the chain has
	// it already.
	Broadcast(ctx context.Context, tx Tx) error
}
