// Package evm implements the Chain and the Wallet of package payment over the
// JSON-RPC of an Ethereum node.
//
// An RPC node that is down, refuses a request or answers nonsense makes the call
// fail; such an error says nothing about a payment. No error holds the node's
// URL, which may contain a key, or anything that was signed.
package evm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"boxoffice"
	"boxoffice/internal/payment"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/params"
	"github.com/ethereum/go-ethereum/rpc"
)

// Config says which chain to use and how. Every field is required, Asset only by Check.
type Config struct {
	RPCURL         string // http, https, ws or wss; a secret if it holds a key
	ChainID        uint64
	Asset          common.Address   // the token that Check checks
	RequestTimeout time.Duration    // of one round trip
	MaxFee         boxoffice.Amount // no transaction offers more, in wei a gas
	// GasPerSettle is the gas that the settlement contract gives each payment at most. A
	// payment in a plain ERC-20 uses 80,000 at most; a token that does more work needs
	// more, and so does a chain that charges its data in gas (Arbitrum).
	GasPerSettle uint64
	MaxTxGas     uint64           // of a transaction; at most 16,777,216 (EIP-7825)
	Now          func() time.Time // the time of signed transactions, and for checking validAfter
}

// GasBase is the gas of a settling transaction beside that of its payments.
const GasBase = 60_000

// maxPayment is the bytes of a payment in a batch with any nonce, amount and token, and
// a signature of 65 bytes.
const maxPayment = 200

// batchGas returns the gas limit of a transaction that settles n permits with that
// many bytes of calldata. It is enough even if each permit uses up the gas that the
// contract gives it: a node's estimate would be too low then, because a permit that
// fails for lack of gas does not fail the transaction.
//
// A call can pass on at most 63/64 of the gas that is left (EIP-150). Beside its call
// each permit needs gas for the checks before it. A byte of calldata costs at most 40
// gas (EIP-7623).
func (cfg *Config) batchGas(n, bytes int) uint64 {
	const checks, dataGas = 16_000, 40
	each := cfg.GasPerSettle + cfg.GasPerSettle/63 + checks
	return GasBase + uint64(n)*each + uint64(bytes)*dataGas
}

// batchLimit is how many requests one JSON-RPC batch holds: public nodes refuse
// larger ones.
const batchLimit = 100

func (cfg *Config) check() error {
	location, err := url.Parse(cfg.RPCURL)
	switch {
	case cfg.RPCURL == "":
		return errors.New("RPCURL is missing")
	case err != nil: // the parser's error repeats the URL
		return errors.New("RPCURL is not a URL")
	case !slices.Contains([]string{"http", "https", "ws", "wss"}, location.Scheme) || location.Host == "":
		return errors.New("RPCURL must be an http, https, ws or wss URL with a host")
	case cfg.ChainID == 0:
		return errors.New("ChainID is missing")
	case cfg.RequestTimeout <= 0:
		return errors.New("RequestTimeout must be above 0")
	case cfg.MaxTxGas > params.MaxTxGas:
		return fmt.Errorf("MaxTxGas must be at most %d (EIP-7825)", params.MaxTxGas)
	case cfg.GasPerSettle == 0 || cfg.GasPerSettle > cfg.MaxTxGas || cfg.batchGas(1, maxPayment) > cfg.MaxTxGas:
		return errors.New("GasPerSettle must be above 0, and a transaction of MaxTxGas must have room for one payment")
	case cfg.MaxFee.Big().Sign() == 0:
		return errors.New("MaxFee must be above 0")
	}
	return nil
}

// Chain reads a chain through one RPC node. Many goroutines may call its methods
// at once. It implements payment.Chain.
type Chain struct {
	cfg        Config
	secrets    *strings.Replacer // replaces the secret parts of RPCURL in a text
	settlement atomic.Bool       // the chain has the settlement contract

	mu     sync.Mutex
	client *rpc.Client // nil until a websocket is connected
}

var _ payment.Chain = (*Chain)(nil)

// Dial returns the chain behind an RPC node. It fails only if the Config is
// wrong. The node may be down: then the first call that needs it fails.
func Dial(ctx context.Context, cfg Config) (*Chain, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("evm: %w", err)
	}
	c := &Chain{cfg: cfg, secrets: newRedactor(cfg.RPCURL)}
	// Over HTTP this opens no connection and cannot fail. A websocket that cannot
	// be opened now is tried again by every call.
	_, _ = c.connect(ctx)
	return c, nil
}

// Close ends the connection to the node.
func (c *Chain) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil {
		c.client.Close()
		c.client = nil
	}
}

func (c *Chain) connect(ctx context.Context) (*rpc.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil {
		return c.client, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	// Redirects are not followed: they would send signed payments to a node that is not
	// configured.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client, err := rpc.DialOptions(ctx, c.cfg.RPCURL, rpc.WithHTTPClient(&http.Client{CheckRedirect: stay}))
	if err != nil {
		return nil, err
	}
	c.client = client
	return client, nil
}

// header is the part of a block that this package reads. Some chains leave out
// other members.
type header struct {
	Number   *hexutil.Uint64 `json:"number"`
	Time     *hexutil.Uint64 `json:"timestamp"`
	GasLimit hexutil.Uint64  `json:"gasLimit"`
	BaseFee  *hexutil.Big    `json:"baseFeePerGas"` // nil before EIP-1559
}

func headerRequest(block string, into **header) rpc.BatchElem {
	return rpc.BatchElem{Method: "eth_getBlockByNumber", Args: []any{block, false}, Result: into}
}

func (h *header) check() error {
	switch {
	case h == nil:
		return errors.New("the node has no such block")
	case h.Number == nil || h.Time == nil:
		return errors.New("the node's block has no number or timestamp")
	}
	return nil
}

// Head returns the newest block.
func (c *Chain) Head(ctx context.Context) (payment.Head, error) {
	h, err := c.header(ctx, "read the newest block", latest)
	if err != nil {
		return payment.Head{}, err
	}
	return payment.Head{Number: uint64(*h.Number), Time: uint64(*h.Time)}, nil
}

// BlockTime returns the timestamp of a block in Unix seconds.
func (c *Chain) BlockTime(ctx context.Context, number uint64) (uint64, error) {
	op := fmt.Sprintf("read block %d", number)
	h, err := c.header(ctx, op, hexutil.EncodeUint64(number))
	if err != nil {
		return 0, err
	}
	if uint64(*h.Number) != number {
		return 0, c.fail(op, fmt.Errorf("the node answered with block %d", uint64(*h.Number)))
	}
	return uint64(*h.Time), nil
}

// Nonce returns how many transactions of a wallet are in the chain as of a block.
func (c *Chain) Nonce(ctx context.Context, wallet common.Address, block uint64) (uint64, error) {
	var nonce hexutil.Uint64
	err := c.request(ctx, fmt.Sprintf("read the wallet's nonce at block %d", block), rpc.BatchElem{
		Method: "eth_getTransactionCount", Args: []any{wallet, hexutil.EncodeUint64(block)}, Result: &nonce,
	})
	return uint64(nonce), err
}

const latest = "latest"

func (c *Chain) header(ctx context.Context, op, block string) (*header, error) {
	var h *header
	if err := c.request(ctx, op, headerRequest(block, &h)); err != nil {
		return nil, err
	}
	if err := h.check(); err != nil {
		return nil, c.fail(op, err)
	}
	return h, nil
}

func codeRequest(at common.Address, into *hexutil.Bytes) rpc.BatchElem {
	return rpc.BatchElem{Method: "eth_getCode", Args: []any{at, latest}, Result: into}
}
