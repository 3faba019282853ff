// Package evm is the chain and the settlement wallet that package payment asks
// for, over the JSON-RPC of an Ethereum node.
//
// A node that is away, refuses or answers nonsense is an error and never says
// anything about a payment. No error repeats the node's URL, which may hold a
// key, or anything that was signed.
package evm

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"boxoffice"
	"boxoffice/internal/payment"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/params"
	"github.com/ethereum/go-ethereum/rpc"
)

// Config says which chain to use and how. Zero fields take their defaults.
type Config struct {
	RPCURL  string         // http, https, ws or wss; required; a secret if it holds a key
	ChainID uint64         // required
	Asset   common.Address // the token that Check looks at; required

	Permit2    common.Address // default x402.Permit2
	Proxy      common.Address // default x402.ExactProxy
	Multicall3 common.Address // default x402.Multicall3; a chain without code there settles one payment a transaction

	RequestTimeout time.Duration // of one round trip; default 10 s
	BatchLimit     int           // requests in one JSON-RPC batch; default 100

	Fees Fees
	// GasPerSettle is the gas that a transaction's limit holds for each
	// payment, on top of GasBase. Default 150,000: a payment in a plain ERC-20
	// uses about 80,000 at most, and a token that does more work needs room. A
	// chain that charges its data in gas (Arbitrum) needs more.
	GasPerSettle uint64
	MaxTxGas     uint64 // default 16,777,216, the most that EIP-7825 allows

	Now func() time.Time // stamps signed transactions, and tells whether a payment is early; default time.Now
}

// Fees bounds what the wallet offers, in wei a gas.
type Fees struct {
	Max    boxoffice.Amount // no transaction offers more; default 500 gwei
	MinTip boxoffice.Amount // default 0.001 gwei
	MaxTip boxoffice.Amount // of a first offer, not of a replacement; default 5 gwei
}

// GasBase is the gas of a settling transaction beside that of its payments.
const GasBase = 60_000

func (cfg *Config) complete() error {
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
	case cfg.Asset == common.Address{}:
		return errors.New("the token is missing: Asset")
	}
	setDefault(&cfg.Permit2, x402.Permit2)
	setDefault(&cfg.Proxy, x402.ExactProxy)
	setDefault(&cfg.Multicall3, x402.Multicall3)
	setDefault(&cfg.RequestTimeout, 10*time.Second)
	setDefault(&cfg.BatchLimit, 100)
	setDefault(&cfg.GasPerSettle, 150_000)
	setDefault(&cfg.MaxTxGas, params.MaxTxGas)
	setDefault(&cfg.Fees.Max, x402.NewUint256(500*params.GWei))
	setDefault(&cfg.Fees.MinTip, x402.NewUint256(params.GWei/1000))
	setDefault(&cfg.Fees.MaxTip, x402.NewUint256(5*params.GWei))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	switch {
	case cfg.RequestTimeout < 0 || cfg.BatchLimit < 0:
		return errors.New("RequestTimeout and BatchLimit must be positive")
	case cfg.MaxTxGas > params.MaxTxGas:
		return fmt.Errorf("MaxTxGas must be at most %d (EIP-7825)", params.MaxTxGas)
	case cfg.MaxTxGas < GasBase || cfg.GasPerSettle > cfg.MaxTxGas-GasBase:
		return fmt.Errorf("GasPerSettle must be at most MaxTxGas less %d", GasBase)
	case cfg.Fees.MinTip.Cmp(cfg.Fees.MaxTip) > 0 || cfg.Fees.MaxTip.Cmp(cfg.Fees.Max) > 0:
		return errors.New("Fees must have MinTip ≤ MaxTip ≤ Max")
	}
	return nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Chain reads a chain through one node. Its methods may be called from many
// goroutines. It implements payment.Chain.
type Chain struct {
	cfg     Config
	scrub   *strings.Replacer // takes the secret parts of RPCURL out of a text
	batches atomic.Int32      // whether Multicall3 has code: unknown, present or absent

	mu     sync.Mutex
	client *rpc.Client // nil until a websocket is connected
}

var _ payment.Chain = (*Chain)(nil)

const (
	unknown int32 = iota
	present
	absent
)

// Dial returns the chain behind a node. The node may be down: the first call
// that needs it will say so. It fails on a wrong Config alone.
func Dial(ctx context.Context, cfg Config) (*Chain, error) {
	if err := cfg.complete(); err != nil {
		return nil, fmt.Errorf("evm: %w", err)
	}
	c := &Chain{cfg: cfg, scrub: newScrubber(cfg.RPCURL)}
	// Over HTTP this connects nothing and cannot fail; a websocket that cannot
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
	// A redirect would carry signed payments to a node that nobody configured.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client, err := rpc.DialOptions(ctx, c.cfg.RPCURL, rpc.WithHTTPClient(&http.Client{CheckRedirect: stay}))
	if err != nil {
		return nil, err
	}
	c.client = client
	return client, nil
}

// header is what this package reads of a block. Chains that are not quite
// Ethereum leave out other members.
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

const latest = "latest"

func (c *Chain) header(ctx context.Context, op, block string) (*header, error) {
	var h *header
	if err := c.ask(ctx, op, headerRequest(block, &h)); err != nil {
		return nil, err
	}
	if err := h.check(); err != nil {
		return nil, c.fail(op, err)
	}
	return h, nil
}

// hasMulticall reports whether the chain has Multicall3, and asks only once.
func (c *Chain) hasMulticall(ctx context.Context) (bool, error) {
	if known := c.batches.Load(); known != unknown {
		return known == present, nil
	}
	var code hexutil.Bytes
	if err := c.ask(ctx, "look for Multicall3", codeRequest(c.cfg.Multicall3, &code)); err != nil {
		return false, err
	}
	c.learnMulticall(len(code) > 0)
	return len(code) > 0, nil
}

func (c *Chain) learnMulticall(found bool) {
	if found {
		c.batches.Store(present)
	} else {
		c.batches.Store(absent)
	}
}

func codeRequest(at common.Address, into *hexutil.Bytes) rpc.BatchElem {
	return rpc.BatchElem{Method: "eth_getCode", Args: []any{at, latest}, Result: into}
}

// amount converts what the chain calls a uint256.
func amount(n *big.Int) (boxoffice.Amount, error) { return x402.Uint256FromBig(n) }
