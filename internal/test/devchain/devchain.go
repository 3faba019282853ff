// Package devchain is an Ethereum chain inside the process, for development and tests: a go-ethereum node that makes
// its own blocks and serves HTTP JSON-RPC. Its genesis block contains a test token, Permit2, the x402 exact proxy,
// Multicall3, Settlement and the CREATE2 factory. Its keys are public and anybody can mint its token, so nothing on it
// has value. A test checks that the production binary does not link it.
package devchain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"boxoffice/contracts"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/rawdb"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/eth"
	"github.com/ethereum/go-ethereum/eth/ethconfig"
	"github.com/ethereum/go-ethereum/eth/filters"
	"github.com/ethereum/go-ethereum/eth/tracers"
	_ "github.com/ethereum/go-ethereum/eth/tracers/native" // registers callTracer and others for debug_trace*
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/log"
	"github.com/ethereum/go-ethereum/node"
	"github.com/ethereum/go-ethereum/p2p"
	"github.com/ethereum/go-ethereum/rpc"
)

// DefaultChainID is the chain id that Hardhat and Anvil use too.
const DefaultChainID = 31337

// Config says how to start a chain. The zero value is a chain in memory that makes a block only when [Chain.Mine] is
// called.
type Config struct {
	// DataDir is where the chain is on disk; empty keeps it in memory. A chain on disk loses no mined block when its
	// process is killed. The genesis block is made at the first start, so later starts ignore Funded and Without.
	DataDir string
	// RPCListen is the host and port of HTTP JSON-RPC; empty means 127.0.0.1 and any free port.
	RPCListen string
	// BlockTime is the time from one block to the next, which may be empty. With zero, only [Chain.Mine] makes blocks.
	// Block timestamps are whole seconds and rise by at least one. So with a BlockTime below a second, timestamps run
	// ahead of Now; when they are two seconds ahead, blocks are made once a second.
	BlockTime time.Duration
	// ChainID is DefaultChainID if zero. A chain on disk refuses to start under another id.
	ChainID uint64
	// Funded are the accounts that own something in the genesis block.
	Funded []Funded
	// Without are the contracts that the genesis block does not have.
	Without []common.Address
	// Now gives blocks their timestamps; nil is time.Now. Blocks that are mined faster than one a second run ahead of
	// it by a second each. A test that mines n blocks quickly and compares deadlines with the real time needs a Now
	// that is n seconds in the past.
	Now func() time.Time
	// Logger logs blocks (debug) and failed attempts to make one (error); nil logs nothing.
	Logger *slog.Logger
}

// Chain is a running chain. Its methods may be called from many goroutines.
type Chain struct {
	cfg    Config
	node   *node.Node
	eth    *eth.Ethereum
	client *ethclient.Client

	sealing   sync.Mutex // held while a block is made, so that each has one parent and a later timestamp
	accounts  sync.Mutex // held from choosing an account's nonce until its transaction is mined
	stop      context.CancelFunc
	mining    sync.WaitGroup
	closeOnce sync.Once
	closeErr  error
}

// Start starts a chain, or continues the one in DataDir. The chain runs until [Chain.Close]; ctx is only for the start.
func Start(ctx context.Context, cfg Config) (*Chain, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if cfg.RPCListen == "" {
		cfg.RPCListen = "127.0.0.1:0"
	}
	if cfg.ChainID == 0 {
		cfg.ChainID = DefaultChainID
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Chain{cfg: cfg}
	if err := c.open(ctx); err != nil {
		return nil, fmt.Errorf("development chain: %w", errors.Join(err, c.Close()))
	}
	running, stop := context.WithCancel(context.Background())
	c.stop = stop
	if cfg.BlockTime > 0 {
		c.mining.Go(func() { c.mineOnTime(running) })
	}
	return c, nil
}

func (c *Chain) open(ctx context.Context) error {
	genesis, err := loadGenesis(c.cfg)
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(c.cfg.RPCListen)
	if err != nil {
		return fmt.Errorf("rpc listen address: %w", err)
	}
	portNumber, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return fmt.Errorf("rpc listen address: port %q is not a number", port)
	}
	nodeConfig := node.DefaultConfig
	nodeConfig.Name = "devchain"
	nodeConfig.DataDir = c.cfg.DataDir
	nodeConfig.P2P = p2p.Config{NoDiscovery: true, NoDial: true}
	nodeConfig.HTTPHost = host
	nodeConfig.HTTPPort = int(portNumber)
	nodeConfig.HTTPModules = []string{"eth", "net", "web3", "txpool", "debug"}
	nodeConfig.HTTPCors = []string{"*"}
	nodeConfig.HTTPVirtualHosts = []string{"*"}
	nodeConfig.Logger = log.NewLogger(warnings{c.cfg.Logger.Handler()})
	if c.node, err = node.New(&nodeConfig); err != nil {
		return err
	}

	ethConfig := ethconfig.Defaults
	ethConfig.Genesis = genesis
	ethConfig.SyncMode = ethconfig.FullSync
	ethConfig.TxPool.NoLocals = true
	ethConfig.BlobPool.Datadir = ""
	ethConfig.LogNoHistory = true // logs are found by reading blocks, so there is no index to build or repair
	// With the hash scheme, an archive node writes the state of a block when it inserts the block. The path scheme
	// keeps the newest states in memory until a clean shutdown, so a killed process would lose many blocks.
	ethConfig.StateScheme = rawdb.HashScheme
	ethConfig.NoPruning = true
	ethConfig.SnapshotCache = 0
	ethConfig.TrieCleanCache, ethConfig.TrieDirtyCache, ethConfig.DatabaseCache = 32, 0, 32
	if c.eth, err = eth.New(c.node, &ethConfig); err != nil {
		return err
	}
	c.node.RegisterAPIs(tracers.APIs(c.eth.APIBackend))
	c.node.RegisterAPIs([]rpc.API{{
		Namespace: "eth",
		Service:   filters.NewFilterAPI(filters.NewFilterSystem(c.eth.APIBackend, filters.Config{})),
	}})
	if err := c.resume(); err != nil {
		return err
	}
	if err := c.node.Start(); err != nil {
		return err
	}
	c.eth.SetSynced() // otherwise the node waits for peers and refuses transactions
	c.client = ethclient.NewClient(c.node.Attach())
	return c.awaitIndex(ctx)
}

// awaitIndex waits until the node has indexed its transactions. Before that, it answers a request for an unknown
// transaction with an error. The index of a new chain begins with the first block after the genesis block. A chain with
// a BlockTime gets that block now, any other at the first call of Mine.
func (c *Chain) awaitIndex(ctx context.Context) error {
	if c.Head().Number.Sign() == 0 {
		if c.cfg.BlockTime == 0 {
			return c.eth.TxPool().Sync()
		}
		if _, err := c.Mine(ctx); err != nil {
			return err
		}
	}
	retry := time.NewTicker(time.Millisecond)
	defer retry.Stop()
	for {
		if progress, err := c.eth.BlockChain().TxIndexProgress(); err == nil && progress.Done() {
			return c.eth.TxPool().Sync()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("transaction index: %w", ctx.Err())
		case <-retry.C:
		}
	}
}

// Close stops the chain and its server and waits for their end. A second call does nothing.
func (c *Chain) Close() error {
	c.closeOnce.Do(func() {
		if c.stop != nil {
			c.stop()
		}
		c.mining.Wait()
		if c.client != nil {
			c.client.Close()
		}
		if c.node != nil {
			c.closeErr = c.node.Close()
		}
	})
	return c.closeErr
}

// URL returns the address of HTTP JSON-RPC. It serves the modules eth, net, web3, txpool and debug.
func (c *Chain) URL() string { return c.node.HTTPEndpoint() }

// ChainID returns the chain id.
func (c *Chain) ChainID() *big.Int { return new(big.Int).SetUint64(c.cfg.ChainID) }

// Token returns the address of the test token, which is the same on every development chain.
func (c *Chain) Token() common.Address { return TokenAddress }

// Client returns a client that needs no network. It is closed with the chain.
func (c *Chain) Client() *ethclient.Client { return c.client }

// Head returns the header of the newest block.
func (c *Chain) Head() *types.Header { return c.eth.BlockChain().CurrentBlock() }

// TokenBalance returns an account's balance of the test token at the newest block, in atomic units.
func (c *Chain) TokenBalance(ctx context.Context, account common.Address) (*big.Int, error) {
	var balance *big.Int
	if err := c.read(ctx, TokenAddress, contracts.TestToken(), &balance, "balanceOf", account); err != nil {
		return nil, fmt.Errorf("token balance of %s: %w", account, err)
	}
	return balance, nil
}

// warnings passes on warnings and errors only: the node logs much else at every start and stop.
type warnings struct{ slog.Handler }

func (h warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && h.Handler.Enabled(ctx, level)
}

func (h warnings) Handle(ctx context.Context, record slog.Record) error {
	if strings.HasPrefix(record.Message, "P2P server will be useless") { // no peers are wanted
		return nil
	}
	return h.Handler.Handle(ctx, record)
}

func (h warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{h.Handler.WithAttrs(attrs)}
}

func (h warnings) WithGroup(name string) slog.Handler { return warnings{h.Handler.WithGroup(name)} }
