package server_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/server"
	"boxoffice/internal/test/servertest"
)

// Launches on a chain are sold while its RPC node answers and is of that chain.
func TestLaunchChainsAreChecked(t *testing.T) {
	const key = "key-of-the-rpc-node"
	var said atomic.Value
	said.Store("0x7a69")
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var call struct {
			ID json.RawMessage `json:"id"`
		}
		body, _ := io.ReadAll(r.Body)
		json.Unmarshal(body, &call)
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": call.ID, "result": said.Load()})
	}))
	defer node.Close()
	w := servertest.Start(t, func(o *server.Options) {
		chains := o.Launches.Chains
		chains[0].RPCURL = node.URL
		o.Launches.Chains = append(chains,
			server.LaunchChainConfig{
				ChainID: 1, Name: "Another", Kinds: []string{"evm_project"}, RPCURL: "http://127.0.0.1:1/" + key,
			})
	})
	buyer := w.Client(w.NewPayer())
	sold := func() (ids []uint64) {
		t.Helper()
		capabilities, err := buyer.Capabilities(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if capabilities.Launches == nil {
			return nil
		}
		for _, chain := range capabilities.Launches.Chains {
			ids = append(ids, chain.ChainID)
		}
		return ids
	}
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for len(sold()) == 0 {
		<-again.C
	}
	if ids := sold(); len(ids) != 1 || ids[0] != 31337 {
		t.Errorf("launches are sold on %v", ids)
	}
	for !strings.Contains(w.Log.String(), "launches on a chain are not sold") {
		<-again.C
	}
	if strings.Contains(w.Log.String(), key) {
		t.Error("the key of an RPC node is in the log")
	}
	said.Store("0x1")
	w.Restart()
	refused := newRequester(t, w).send("POST", "/requests/quote", asJSON(t, map[string]any{
		"action": boxoffice.ActionLaunchOpen, "requestKey": boxoffice.NewUUID(),
		"input": map[string]any{"objective": "A token", "kind": "custom_token", "chainId": 31337},
	}))
	refused.want(t, http.StatusUnprocessableEntity, boxoffice.ActionRefused, "launches_unavailable")
}
