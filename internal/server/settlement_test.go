package server_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"boxoffice/internal/server"
)

const remote = "[settlement]\nvia = \"facilitator\"\n[settlement.facilitator]\nurl = \"https://facilitator.example\"\n"

// A service that settles through a facilitator needs no RPC node. One that settles with
// its own key does.
func TestConfigOfSettlement(t *testing.T) {
	noNode := strings.Replace(minimal, "rpc_url", "# rpc_url", 1)
	for _, test := range []struct{ name, document, want string }{
		{"facilitator", minimal + remote, ""},
		{"facilitator without a node", noNode + remote, ""},
		{"key without a node", noNode, "chain.rpc_url is required"},
		{"neither", minimal + "[settlement]\nvia = \"pigeon\"\n", "settlement.via must be"},
		{"no facilitator", minimal + "[settlement]\nvia = \"facilitator\"\n", "settlement.facilitator.url is required"},
		{"an odd address",
			minimal + strings.Replace(remote, "https:", "ftp:", 1), "settlement.facilitator.url must be"},
		{"no retry", minimal + remote + "retry = \"0s\"\n", "settlement.facilitator.timeout and retry"},
		{"no calls", minimal + remote + "max_in_flight = 0\n", "settlement.facilitator.max_in_flight"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := load(t, test.document)
			if test.want == "" && err != nil ||
				test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

// A facilitator sells nothing, so it needs no price and no base_url.
func TestConfigOfFacilitator(t *testing.T) {
	const facilitator = "[chain]\nid = 8453\nrpc_url = \"http://127.0.0.1:8545\"\n" +
		"[facilitator]\nassets = [\"0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913\"]\n"
	for _, test := range []struct{ name, document, want string }{
		{"alone", facilitator, ""},
		{"in the file of a service", minimal + facilitator[strings.Index(facilitator, "[facilitator]"):], ""},
		{"no tokens", minimal, "facilitator.assets is required"},
		{"no wait", facilitator + "wait = \"0s\"\n", "facilitator.wait"},
		{"no rate", facilitator + "rate = {per_second = 0, burst = 1}\n", "facilitator.rate"},
		{"no node", strings.Replace(facilitator, "rpc_url", "# rpc_url", 1), "chain.rpc_url"},
		{"through another", facilitator + remote, "settlement.via"},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "boxoffice.toml")
			if err := os.WriteFile(file, []byte(test.document), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := server.LoadFacilitator(file)
			if test.want == "" && err != nil ||
				test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}
