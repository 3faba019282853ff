package server

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/rpc"
)

// launchChains looks again and again whether the chains that launches deploy on
// answer. What it found is what is sold: nobody pays for a launch on a chain that
// is away, and no request waits for a chain.
type launchChains struct {
	nodes map[uint64]string // the JSON-RPC of each chain that is looked at
	every time.Duration
	log   *slog.Logger

	mu   sync.RWMutex
	live map[uint64]bool
}

// How often a launch chain is looked at, and how long it may take to answer.
const (
	launchCheckEvery   = 15 * time.Second
	launchCheckTimeout = 5 * time.Second
)

func newLaunchChains(config *LaunchesConfig, log *slog.Logger) *launchChains {
	l := &launchChains{nodes: map[uint64]string{}, every: launchCheckEvery, log: log, live: map[uint64]bool{}}
	if config != nil {
		for _, chain := range config.Chains {
			if chain.RPCURL != "" {
				l.nodes[chain.ChainID] = chain.RPCURL
			}
		}
	}
	return l
}

// Live reports whether launches can deploy on a chain now. A chain without a
// node to ask is taken for live.
func (l *launchChains) Live(chainID uint64) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	_, looked := l.nodes[chainID]
	return !looked || l.live[chainID]
}

// run looks until ctx ends.
func (l *launchChains) run(ctx context.Context) {
	if len(l.nodes) == 0 {
		return
	}
	tick := time.NewTicker(l.every)
	defer tick.Stop()
	for {
		l.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (l *launchChains) look(ctx context.Context) {
	var looking sync.WaitGroup
	found := make(map[uint64]bool, len(l.nodes))
	var mu sync.Mutex
	for chainID, node := range l.nodes {
		looking.Go(func() {
			err := answers(ctx, chainID, node)
			if err != nil && l.Live(chainID) && ctx.Err() == nil {
				l.log.WarnContext(ctx, "a launch chain does not answer; launches on it are not sold", "chain", chainID, "err", err)
			}
			mu.Lock()
			defer mu.Unlock()
			found[chainID] = err == nil
		})
	}
	looking.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.Copy(l.live, found)
}

// answers asks a node whether it is of a chain.
func answers(ctx context.Context, chainID uint64, node string) error {
	ctx, cancel := context.WithTimeout(ctx, launchCheckTimeout)
	defer cancel()
	client, err := rpc.DialContext(ctx, node)
	if err != nil {
		return err
	}
	defer client.Close()
	var said string
	if err := client.CallContext(ctx, &said, "eth_chainId"); err != nil {
		return err
	}
	if want := fmt.Sprintf("0x%x", chainID); said != want {
		return fmt.Errorf("the node is of chain %s, not %s", said, want)
	}
	return nil
}
