package server_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"boxoffice/internal/server"
	"boxoffice/x402"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"
)

const minimal = `base_url = "https://boxoffice.example"
[chain]
id = 8453
rpc_url = "http://127.0.0.1:8545"
[payment]
asset = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
symbol = "USDC"
name = "USD Coin"
version = "2"
decimals = 6
pay_to = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
amount = "250000"
`

func load(t *testing.T, document string) (server.Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "boxoffice.toml")
	if err := os.WriteFile(file, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := server.Load(file)
	if err == nil && filepath.Dir(config.Store.Path) != filepath.Dir(file) {
		t.Errorf("the database is at %s", config.Store.Path)
	}
	return config, err
}

func TestConfig(t *testing.T) {
	config, err := load(t, minimal)
	if err != nil {
		t.Fatal(err)
	}
	if config.Payment.Amount != x402.NewUint256(250_000) || config.ServiceName != server.Default().ServiceName {
		t.Errorf("%+v", config)
	}
	t.Setenv("BOXOFFICE_CHAIN_RPC_URL", "https://node.example/secret")
	if config, err = load(t, minimal); err != nil || config.Chain.RPCURL != "https://node.example/secret" {
		t.Errorf("%s, %v", config.Chain.RPCURL, err)
	}
}

// A configuration that was printed can be read again and is the same.
func TestConfigRoundTrip(t *testing.T) {
	config, err := load(t, minimal)
	if err != nil {
		t.Fatal(err)
	}
	config.Payment.Prices = map[string]x402.Uint256{"oracle.request": x402.NewUint256(7)}
	document, err := config.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "again.toml")
	if err := os.WriteFile(file, document, 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := server.Load(file)
	if err != nil {
		t.Fatalf("%v\n%s", err, document)
	}
	if diff := cmp.Diff(config, again); diff != "" {
		t.Error(diff)
	}
}

// The sample has every key, with the value that an empty file means.
func TestConfigSample(t *testing.T) {
	sample, err := server.Sample()
	if err != nil {
		t.Fatal(err)
	}
	read := func(document []byte) server.Config {
		t.Helper()
		config := server.Default()
		if err := toml.NewDecoder(bytes.NewReader(document)).DisallowUnknownFields().Decode(&config); err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		return config
	}
	if diff := cmp.Diff(server.Default(), read(sample)); diff != "" {
		t.Error(diff)
	}
	whole := read(regexp.MustCompile(`(?m)^#([^ ])`).ReplaceAll(sample, []byte("$1")))
	if len(whole.Agents) != 2 || whole.Launches == nil || len(whole.Launches.Chains) != 1 ||
		len(whole.Launches.Chains[0].Pairings) != 1 {
		t.Errorf("%+v, %+v", whole.Agents, whole.Launches)
	}
	if shown, used := whole.Agents["default"], server.DefaultAgent(); shown.Timeout != used.Timeout ||
		shown.MaxOutput != used.MaxOutput {
		t.Errorf("shown are %v and %d, used are %v and %d",
			shown.Timeout, shown.MaxOutput, used.Timeout, used.MaxOutput)
	}
	for line := range strings.Lines(string(sample)) {
		if utf8.RuneCountInString(line) > 121 { // with its \n
			t.Errorf("a line has more than 120 characters: %s", line)
		}
	}
}

func TestConfigMistakes(t *testing.T) {
	for _, test := range []struct{ name, document, want string }{
		{"unknown key", minimal + "colour = 1\n", "boxoffice.toml:13: unknown key payment.colour"},
		{"unknown table", minimal + "[spice]\nhot = true\n", "boxoffice.toml:13: unknown key spice"},
		{"syntax", minimal + "x = = 1\n", "boxoffice.toml:13: toml"},
		{"wrong type", strings.Replace(minimal, "id = 8453", `id = "base"`, 1), "boxoffice.toml:3: chain.id"},
		{"wrong duration", "submit_wait = \"soon\"\n" + minimal, "boxoffice.toml:1: submit_wait"},
		{"wrong address", strings.Replace(minimal, "0x8335", "0x", 1), "boxoffice.toml:6: payment.asset"},
		{"amount", strings.Replace(minimal, `"250000"`, `"0.25"`, 1), "boxoffice.toml:12: payment.amount"},
		{"no base URL", strings.Replace(minimal, "https://boxoffice.example", "", 1), "base_url is required"},
		{"slash", strings.Replace(minimal, ".example", ".example/", 1), "base_url must"},
		{"no chain", strings.Replace(minimal, "id = 8453", "", 1), "chain.id is required"},
		{"no asset", strings.Replace(minimal, "asset =", "# asset =", 1), "payment.asset is required"},
		{"no amount", strings.Replace(minimal, "amount =", "# amount =", 1), "payment.amount is required"},
		{"confirmations",
			strings.Replace(minimal, "id = 8453", "id = 8453\nconfirmations = 0", 1), "chain.confirmations"},
		{"concurrency", minimal + "[work]\nconcurrency = -1\n", "work.concurrency"},
		{"lease", minimal + "[work]\nlease = '0s'\n", "work.lease"},
		{"lease that its agents outlive", minimal + "[work]\nlease = '9s'\n", "work.lease must be at least 10s"},
		{"an agent that is nothing", minimal + "[agents.research]\ntimeout = '5s'\n", "agents.research needs"},
		{"an agent that is both",
			minimal + "[agents.oracle]\ncommand = ['x']\nurl = 'https://x'\n", "agents.oracle needs"},
		{"an agent without a secret", minimal + "[agents.'skill:create-image']\nurl = 'https://x'\n",
			"agents.skill:create-image.secret_env"},
		{"rate", minimal + "[limits.per_token]\nper_second = 0\n", "limits.per_token"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := load(t, test.document); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}
