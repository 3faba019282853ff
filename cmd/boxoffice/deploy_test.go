package main

import (
	"encoding/hex"
	"fmt"
	"os"
	"testing"
	"time"

	"boxoffice/contracts/settlement"
	"boxoffice/internal/server"
	"boxoffice/internal/test/devchain"
	"boxoffice/internal/test/faultrpc"
	"boxoffice/internal/test/servertest"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/rogpeppe/go-internal/testscript"
)

// deployWorld is what the commands of one script share.
type deployWorld struct {
	*devchain.Chain
	node *faultrpc.Proxy // in front of the chain
}

// TestDeployScripts runs the scripts about a chain that has no settlement contract yet.
func TestDeployScripts(t *testing.T) {
	key := devchain.SettlementKey()
	of := func(ts *testscript.TestScript) *deployWorld { return ts.Value(deployWorld{}).(*deployWorld) }
	testscript.Run(t, testscript.Params{
		Dir: "testdata/deploy",
		Setup: func(env *testscript.Env) error {
			env.Setenv("BOXOFFICE_SETTLEMENT_KEY", hex.EncodeToString(crypto.FromECDSA(key)))
			env.Values[deployWorld{}] = new(deployWorld)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits,
			"pick":  pick,
			// chain starts a chain without the settlement contract, and with without-factory also
			// without what deploys it. It writes boxoffice.toml for it, and other.toml, which has
			// another chain id.
			"chain": func(ts *testscript.TestScript, _ bool, args []string) {
				config := devchain.Config{Funded: devchain.DevAccounts(), Without: []common.Address{settlement.Address}}
				if len(args) > 0 && args[0] == "without-factory" {
					config.Without = append(config.Without, settlement.Factory)
				}
				chain, err := devchain.Start(t.Context(), config)
				ts.Check(err)
				ts.Defer(func() { ts.Check(chain.Close()) })
				_, err = chain.Mine(t.Context())
				ts.Check(err)
				node := faultrpc.New(t, chain.URL())
				*of(ts) = deployWorld{chain, node}
				c := servertest.Configure(chain, "127.0.0.1:0", servertest.Price)
				c.Chain.RPCURL = node.URL + "/v3/secret-of-the-node"
				c.Chain.Timeout = server.Duration(time.Second)
				c.Store.Path, c.Work.Dir = ts.MkAbs("boxoffice.db"), ts.MkAbs("work")
				c.Facilitator.Listen, c.Facilitator.Assets = "127.0.0.1:0", []common.Address{chain.Token()}
				for _, file := range []string{"boxoffice.toml", "other.toml"} {
					document, err := c.Marshal()
					ts.Check(err)
					ts.Check(os.WriteFile(ts.MkAbs(file), document, 0o600))
					c.Chain.ID++
				}
			},
			// node makes all requests with a method fail: node FAULT METHOD. Without arguments none fails.
			"node": func(ts *testscript.TestScript, _ bool, args []string) {
				if len(args) == 0 {
					of(ts).node.Set(nil)
					return
				}
				of(ts).node.Set(func(method string) faultrpc.Fault {
					if method == args[1] {
						return faultrpc.Fault(args[0])
					}
					return faultrpc.None
				})
			},
			// sent waits until the wallet has sent so many transactions: sent 1.
			"sent": func(ts *testscript.TestScript, _ bool, args []string) {
				deadline := time.Now().Add(time.Minute)
				for {
					n, err := of(ts).Client().PendingNonceAt(t.Context(), crypto.PubkeyToAddress(key.PublicKey))
					ts.Check(err)
					if fmt.Sprint(n) == args[0] {
						return
					}
					if time.Now().After(deadline) {
						ts.Fatalf("the wallet has sent %d transactions, want %s", n, args[0])
					}
					<-time.After(10 * time.Millisecond)
				}
			},
			"mine": func(ts *testscript.TestScript, _ bool, _ []string) {
				_, err := of(ts).Mine(t.Context())
				ts.Check(err)
			},
		},
	})
}
