package server

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"boxoffice/internal/payment/evm"
)

// launchChains checks regularly whether the RPC nodes of the chains on which launches
// deploy answer. Launches are sold on those that do. Requests use the last result, so
// that none of them waits for a chain.
type launchChains struct {
	nodes map[uint64]string // the JSON-RPC address of each chain that is checked
	every time.Duration
	log   *slog.Logger

	mu   sync.RWMutex
	live map[uint64]bool // of the chains that were checked
}

// How often a launch chain is checked, and how long its RPC node may take to answer.
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

// Live reports whether launches can deploy on a chain now. A chain without an RPC node
// is always live.
func (l *launchChains) Live(chainID uint64) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	_, checked := l.nodes[chainID]
	return !checked || l.live[chainID]
}

// run checks the chains until ctx ends.
func (l *launchChains) run(ctx context.Context) {
	if len(l.nodes) == 0 {
		return
	}
	tick := time.NewTicker(l.every)
	defer tick.Stop()
	for {
		l.check(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (l *launchChains) check(ctx context.Context) {
	var checks sync.WaitGroup
	for chainID, node := range l.nodes {
		checks.Go(func() {
			err := evm.CheckChainID(ctx, node, launchCheckTimeout, chainID)
			if ctx.Err() != nil {
				return
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			before, checked := l.live[chainID]
			l.live[chainID] = err == nil
			if err != nil && (before || !checked) {
				l.log.WarnContext(ctx, "launches on a chain are not sold: its RPC node does not answer as it should",
					"chain", chainID, "err", err)
			}
		})
	}
	checks.Wait()
}
