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

// launchChains checks regularly whether the RPC nodes of the chains on which launches
// deploy answer. Launches are sold on those that do. Requests use the last result, so
// that none of them waits for a chain.
type launchChains struct {
	nodes map[uint64]string // the JSON-RPC address of each chain that is checked
	every time.Duration
	log   *slog.Logger

	mu   sync.RWMutex
	live map[uint64]bool
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
	found := make(map[uint64]bool, len(l.nodes))
	var mu sync.Mutex
	for chainID, node := range l.nodes {
		checks.Go(func() {
			err := checkNode(ctx, chainID, node)
			if err != nil && l.Live(chainID) && ctx.Err() == nil {
				l.log.WarnContext(ctx, "the RPC node of a launch chain does not answer: launches on it are not sold",
					"chain", chainID, "err", err)
			}
			mu.Lock()
			defer mu.Unlock()
			found[chainID] = err == nil
		})
	}
	checks.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.Copy(l.live, found)
}

// checkNode returns an error unless the RPC node answers and is of the chain.
func checkNode(ctx context.Context, chainID uint64, node string) error {
	ctx, cancel := context.WithTimeout(ctx, launchCheckTimeout)
	defer cancel()
	client, err := rpc.DialContext(ctx, node)
	if err != nil {
		return err
	}
	defer client.Close()
	var got string
	if err := client.CallContext(ctx, &got, "eth_chainId"); err != nil {
		return err
	}
	if want := fmt.Sprintf("0x%x", chainID); got != want {
		return fmt.Errorf("the RPC node is of chain %s, not %s", got, want)
	}
	return nil
}
