package server

import (
	"bytes"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"boxoffice"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/accounts/keystore"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/params"
	"github.com/pelletier/go-toml/v2"
)

// Config is the configuration file. Default has the value of every key that
// the file leaves out; a key without one is required.
type Config struct {
	BaseURL        string   `toml:"base_url" comment:"Where requesters reach the service; no trailing slash.\nIts origin is the only one browsers may call from."`
	ServiceName    string   `toml:"service_name" comment:"The service's name. Quote approvals are signed for '<service_name> Paid Action'."`
	Listen         string   `toml:"listen" comment:"Address of the requesters' HTTP."`
	OperatorListen string   `toml:"operator_listen" comment:"Address of /healthz, /readyz, /payments and /work/ID/cancel. Keep it private. Empty: none."`
	SubmitWait     Duration `toml:"submit_wait" comment:"How long a submit waits for its outcome before it answers 202."`
	ShutdownGrace  Duration `toml:"shutdown_grace" comment:"How long requests under way may take after a signal to stop."`

	Store       StoreConfig            `toml:"store"`
	Chain       ChainConfig            `toml:"chain"`
	Payment     PaymentConfig          `toml:"payment"`
	Settlement  SettlementConfig       `toml:"settlement"`
	Limits      LimitsConfig           `toml:"limits"`
	Facilitator FacilitatorConfig      `toml:"facilitator" comment:"What 'boxoffice facilitator' settles for other x402 servers; 'boxoffice serve' does not read it."`
	Judge       JudgeConfig            `toml:"judge"`
	Log         LogConfig              `toml:"log"`
	Work        WorkConfig             `toml:"work"`
	Delivery    DeliveryConfig         `toml:"delivery"`
	Agents      map[string]AgentConfig `toml:"agents,omitempty" comment:"Who does the work, by template; [agents.oracle] are the members of panels, [agents.default] does\nwhat no other does. Without agents work is sold and waits."`
	Launches    *LaunchesConfig        `toml:"launches,omitempty" comment:"The chains that launches can deploy on. Without them launch.open is refused."`
}

// StoreConfig says where orders are kept.
type StoreConfig struct {
	Path string `toml:"path" comment:"The SQLite database file. A relative path starts at this file's folder."`
}

// ChainConfig says which chain payments are made on.
type ChainConfig struct {
	ID            uint64         `toml:"id" comment:"EIP-155 chain id."`
	RPCURL        string         `toml:"rpc_url" comment:"JSON-RPC of a node. BOXOFFICE_CHAIN_RPC_URL in the environment goes before it:\nsuch addresses often hold a key."`
	Confirmations uint64         `toml:"confirmations" comment:"Blocks that must hold a transfer before it counts, its own included."`
	ReorgDepth    uint64         `toml:"reorg_depth" comment:"A block with so many above it is never taken back. Until then a settled payment is watched, and sent\nagain if the chain takes it back; and after a failed one another is taken only when its end is so deep."`
	Timeout       Duration       `toml:"timeout" comment:"For each call of the node."`
	Multicall3    common.Address `toml:"multicall3" comment:"The aggregator that settles many payments in one transaction."`
}

// PaymentConfig says what is paid, to whom.
type PaymentConfig struct {
	Asset      common.Address              `toml:"asset" comment:"The ERC-20 token."`
	Symbol     string                      `toml:"symbol" comment:"Its symbol, for people."`
	Name       string                      `toml:"name" comment:"The name in its EIP-712 domain."`
	Version    string                      `toml:"version" comment:"The version in its EIP-712 domain."`
	Decimals   int                         `toml:"decimals" comment:"Its decimals; compared with the token's own at start."`
	PayTo      common.Address              `toml:"pay_to" comment:"Who is paid."`
	Amount     boxoffice.Amount            `toml:"amount" comment:"The price of one unit of every action, in atomic token units, as a string.\nOther prices stand under [payment.prices], by action: \"oracle.request\" = '5000000'."`
	Prices     map[string]boxoffice.Amount `toml:"prices,omitempty" comment:"Other prices, by action."`
	MaxTimeout Duration                    `toml:"max_timeout" comment:"How long a payment may take, told to payers as maxTimeoutSeconds."`
}

// SettlementConfig says how payments are carried to the chain. The settlement
// key pays the gas. It is read from the environment's BOXOFFICE_SETTLEMENT_KEY
// (hex) or from a keystore file, never from the configuration.
type SettlementConfig struct {
	Via          string   `toml:"via" comment:"Who carries payments to the chain: 'key', this service with the settlement key, or 'facilitator',\nthe x402 facilitator under [settlement.facilitator]. Change it when no payment is under way."`
	Keystore     string   `toml:"keystore" comment:"A keystore file (Web3 Secret Storage) with the settlement key, whose password is in BOXOFFICE_KEYSTORE_PASSWORD;\na relative path starts at this file's folder. Empty: BOXOFFICE_SETTLEMENT_KEY holds the key in hex."`
	Gather       Duration `toml:"gather" comment:"How long a payment waits for others to share its transaction."`
	Poll         Duration `toml:"poll" comment:"How often the chain is asked while something is under way."`
	MaxBatch     int      `toml:"max_batch" comment:"Payments in one transaction."`
	MaxInFlight  int      `toml:"max_in_flight" comment:"Transactions that may be unconfirmed at once."`
	MaxTries     int      `toml:"max_tries" comment:"Confirmed transactions that carried a payment in vain, after which it fails.\nFrom the second on it goes alone. A wallet with code has one."`
	BumpAfter    Duration `toml:"bump_after" comment:"How long a transaction may stay unmined before its fee is raised."`
	Lease        Duration `toml:"lease" comment:"How long a process that fell silent keeps the settlement key to itself."`
	Recheck      Duration `toml:"recheck" comment:"How often failed payments that could still settle are looked at."`
	MaxFeePerGas uint64   `toml:"max_fee_per_gas" comment:"The highest fee for a unit of gas, in wei."`
	MaxTxGas     uint64   `toml:"max_tx_gas" comment:"The gas limit of a transaction, at most 16777216 (EIP-7825). A batch has as many payments as fit."`
	GasPerSettle uint64   `toml:"gas_per_settle" comment:"Gas set aside for each payment in a transaction; what is not used is not paid.\nA payment that needs more is refused."`

	Facilitator RemoteConfig `toml:"facilitator"`
}

// LimitsConfig bounds how often requesters may ask.
type LimitsConfig struct {
	PerToken       RateConfig     `toml:"per_token" comment:"For each request token."`
	PerAddress     RateConfig     `toml:"per_address" comment:"For each client address; IPv6 by /64."`
	TrustedProxies []netip.Prefix `toml:"trusted_proxies" comment:"Networks of proxies whose X-Forwarded-For is believed, also by 'boxoffice facilitator'."`
}

// RateConfig is a rate limit.
type RateConfig struct {
	PerSecond float64 `toml:"per_second" comment:"Requests a second in the long run."`
	Burst     int     `toml:"burst" comment:"Requests at once."`
}

// JudgeConfig names a program that is asked about every input before it is priced.
type JudgeConfig struct {
	URL     string   `toml:"url" comment:"Where inputs are posted before they are priced. Empty: nobody is asked."`
	Timeout Duration `toml:"timeout" comment:"For each question."`
}

// LogConfig says what is logged, on standard error.
type LogConfig struct {
	Level  string `toml:"level" comment:"debug, info, warn or error."`
	Format string `toml:"format" comment:"text or json."`
}

// LaunchesConfig is the chains that launches can deploy on.
type LaunchesConfig struct {
	DefaultChainID uint64              `toml:"default_chain_id" comment:"The chain that requesters are offered first; one of those below."`
	Chains         []LaunchChainConfig `toml:"chains"`
}

// LaunchChainConfig is one chain of LaunchesConfig.
type LaunchChainConfig struct {
	ChainID  uint64          `toml:"chain_id" comment:"EIP-155 chain id."`
	Name     string          `toml:"name" comment:"For people."`
	Testnet  bool            `toml:"testnet" comment:"Whether its coins are worth nothing."`
	RPCURL   string          `toml:"rpc_url,omitempty" comment:"JSON-RPC of a node of the chain. Launches are sold while it answers; without one, always."`
	Kinds    []string        `toml:"kinds" comment:"What can be launched there: custom_token, univ4_hook, evm_contracts, evm_project."`
	Pairings []PairingConfig `toml:"pairings" comment:"What a launched token can be paired with."`
}

// PairingConfig is a currency that a launched token can be paired with.
type PairingConfig struct {
	PairWith string   `toml:"pair_with" comment:"What a launch's pairWith says."`
	Currency string   `toml:"currency" comment:"Its address; zeros are the native coin."`
	Symbol   string   `toml:"symbol" comment:"For people, as the name."`
	Name     string   `toml:"name"`
	Decimals int      `toml:"decimals" comment:"Of its units."`
	Kinds    []string `toml:"kinds" comment:"Which of the kinds can be paired with it."`
}

// Default returns the configuration that a file starts from.
func Default() Config {
	seconds := func(n float64) Duration { return Duration(n * float64(time.Second)) }
	return Config{
		ServiceName:    "Boxoffice",
		Listen:         "127.0.0.1:8402",
		OperatorListen: "127.0.0.1:9402",
		SubmitWait:     seconds(5),
		ShutdownGrace:  seconds(10),
		Store:          StoreConfig{Path: "boxoffice.db"},
		Chain:          ChainConfig{Confirmations: 2, ReorgDepth: 32, Timeout: seconds(10), Multicall3: x402.Multicall3},
		Payment:        PaymentConfig{Version: "1", Decimals: 18, MaxTimeout: seconds(300)},
		Settlement: SettlementConfig{
			Via: ViaKey, Facilitator: RemoteConfig{Timeout: seconds(60), MaxInFlight: 50, Retry: seconds(1)},
			Gather: seconds(.025), Poll: seconds(.5), MaxBatch: 50, MaxInFlight: 8, MaxTries: 3, BumpAfter: seconds(30),
			Lease: seconds(5), Recheck: seconds(15), MaxFeePerGas: 500e9, GasPerSettle: 250_000, MaxTxGas: params.MaxTxGas,
		},
		Limits: LimitsConfig{
			PerToken:   RateConfig{PerSecond: 10, Burst: 40},
			PerAddress: RateConfig{PerSecond: 20, Burst: 80}, TrustedProxies: []netip.Prefix{},
		},
		Facilitator: FacilitatorConfig{
			Listen: "127.0.0.1:8403", Wait: seconds(20), Rate: RateConfig{PerSecond: 100, Burst: 400},
			Assets: []common.Address{}, Recipients: []common.Address{},
		},
		Judge: JudgeConfig{Timeout: seconds(10)},
		Work: WorkConfig{
			Dir: "work", Concurrency: 4, Attempts: 3, Backoff: seconds(5), Lease: seconds(30), Poll: seconds(.25), Scheduling: seconds(5),
		},
		Delivery: DeliveryConfig{
			AllowedHosts: []string{}, Credentials: map[string]CredentialConfig{}, PullRequest: []string{}, Env: []string{},
			Author: "Boxoffice <boxoffice@localhost>", Timeout: seconds(120),
		},
		Log: LogConfig{Level: "info", Format: "text"},
	}
}

// Load reads a configuration file over the defaults. An unknown key, a wrong
// type or a value that makes no sense is an error that names the line or the key.
func Load(file string) (Config, error) { return load(file, (*Config).check) }

func load(file string, check func(*Config) error) (Config, error) {
	document, err := os.ReadFile(file)
	if err != nil {
		return Config{}, fmt.Errorf("configuration: %w", err)
	}
	config := Default()
	err = toml.NewDecoder(bytes.NewReader(document)).DisallowUnknownFields().Decode(&config)
	if unknown, ok := errors.AsType[*toml.StrictMissingError](err); ok {
		row, _ := unknown.Errors[0].Position()
		return Config{}, fmt.Errorf("%s:%d: unknown key %s", file, row, strings.Join(unknown.Errors[0].Key(), "."))
	}
	if wrong, ok := errors.AsType[*toml.DecodeError](err); ok {
		row, _ := wrong.Position()
		place := fmt.Sprintf("%s:%d", file, row)
		if len(wrong.Key()) > 0 {
			place += ": " + strings.Join(wrong.Key(), ".")
		}
		return Config{}, fmt.Errorf("%s: %w", place, err)
	}
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", file, err)
	}
	for _, path := range []*string{&config.Store.Path, &config.Settlement.Keystore, &config.Work.Dir} {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(filepath.Dir(file), *path)
		}
	}
	if rpc := os.Getenv("BOXOFFICE_CHAIN_RPC_URL"); rpc != "" {
		config.Chain.RPCURL = rpc
	}
	if err := check(&config); err != nil {
		return Config{}, fmt.Errorf("%s: %w", file, err)
	}
	return config, nil
}

func (c *Config) check() error {
	base, err := url.Parse(c.BaseURL)
	var none common.Address
	switch {
	case c.BaseURL == "":
		return errors.New("base_url is required")
	case err != nil, base.Host == "", base.Scheme != "http" && base.Scheme != "https", base.RawQuery != "", base.Fragment != "", strings.HasSuffix(c.BaseURL, "/"):
		return errors.New("base_url must be an http or https address without a trailing slash")
	case c.ServiceName == "":
		return errors.New("service_name must not be empty")
	case c.Payment.Asset == none:
		return errors.New("payment.asset is required")
	case c.Payment.PayTo == none:
		return errors.New("payment.pay_to is required")
	case c.Payment.Name == "":
		return errors.New("payment.name is required")
	case c.Payment.Symbol == "":
		return errors.New("payment.symbol is required")
	case c.Payment.Amount.IsZero():
		return errors.New("payment.amount is required and must be above 0")
	case c.Payment.Decimals < 0 || c.Payment.Decimals > 255:
		return errors.New("payment.decimals must be between 0 and 255")
	case c.Payment.MaxTimeout < Duration(30*time.Second):
		return errors.New("payment.max_timeout must be at least 30s")
	}
	for key, rate := range map[string]RateConfig{"limits.per_token": c.Limits.PerToken, "limits.per_address": c.Limits.PerAddress} {
		if err := rate.check(key); err != nil {
			return err
		}
	}
	if c.Judge.Timeout <= 0 {
		return errors.New("judge.timeout must be above 0")
	}
	return errors.Join(c.Settlement.checkVia(), c.checkSettling())
}

// checkSettling checks what settling needs, whosever payments it settles.
func (c *Config) checkSettling() error {
	switch {
	case c.Chain.ID == 0:
		return errors.New("chain.id is required")
	case c.Chain.RPCURL == "" && c.Settlement.Via != ViaFacilitator:
		return errors.New("chain.rpc_url is required, here or as BOXOFFICE_CHAIN_RPC_URL in the environment")
	case c.Chain.Confirmations == 0:
		return errors.New("chain.confirmations must be at least 1")
	case c.Settlement.MaxBatch < 1:
		return errors.New("settlement.max_batch must be at least 1")
	case c.Settlement.MaxInFlight < 1:
		return errors.New("settlement.max_in_flight must be at least 1")
	case c.Settlement.MaxTries < 1:
		return errors.New("settlement.max_tries must be at least 1")
	}
	if err := c.checkWork(); err != nil {
		return err
	}
	for key, value := range map[string]Duration{
		"chain.timeout": c.Chain.Timeout, "settlement.poll": c.Settlement.Poll, "settlement.bump_after": c.Settlement.BumpAfter,
		"settlement.lease": c.Settlement.Lease, "settlement.recheck": c.Settlement.Recheck,
	} {
		if value <= 0 {
			return fmt.Errorf("%s must be above 0", key)
		}
	}
	return nil
}

func (r RateConfig) check(key string) error {
	if r.PerSecond <= 0 || r.Burst < 1 {
		return fmt.Errorf("%s needs per_second above 0 and burst of at least 1", key)
	}
	return nil
}

// Marshal returns the configuration as a file with a comment on every key.
func (c Config) Marshal() ([]byte, error) { return toml.Marshal(c) }

// Sample returns a file with every key: the defaults, and after them the tables
// that have none, as comments. A line of theirs counts once its # is removed.
func Sample() ([]byte, error) {
	config := Default()
	defaults, err := config.Marshal()
	if err != nil {
		return nil, err
	}
	config.Agents = map[string]AgentConfig{
		"default": {
			Command: []string{"/usr/local/bin/agent"}, Env: []string{"AGENT_KEY"}, Writable: []string{"/var/cache/agent"},
			MaxMemory: 4 << 30, Confined: true, Timeout: Duration(agentTimeout), MaxOutput: 1 << 20,
		},
		"audit": {URL: "https://agents.example/audit", SecretEnv: "AUDIT_SECRET", Callback: true},
	}
	kinds := []string{"custom_token"}
	config.Launches = &LaunchesConfig{DefaultChainID: 1, Chains: []LaunchChainConfig{{
		ChainID: 1, Name: "Ethereum", RPCURL: "https://node.example", Kinds: kinds,
		Pairings: []PairingConfig{{PairWith: "native", Currency: common.Address{}.Hex(), Symbol: "ETH", Name: "Ether", Decimals: 18, Kinds: kinds}},
	}}}
	all, err := config.Marshal()
	sample := bytes.NewBuffer(append(defaults, '\n'))
	for line := range bytes.Lines(all[len(defaults):]) { // both are the last of Config
		if line[0] != '\n' && line[0] != '#' {
			sample.WriteByte('#')
		}
		sample.Write(line)
	}
	return sample.Bytes(), err
}

// SettlementKey returns the key that pays the gas, from the environment or the
// keystore file. No error of it repeats a secret.
func (c Config) SettlementKey() (*ecdsa.PrivateKey, error) {
	if c.Settlement.Keystore == "" {
		secret := os.Getenv("BOXOFFICE_SETTLEMENT_KEY")
		if secret == "" {
			return nil, errors.New("the settlement key is missing: set BOXOFFICE_SETTLEMENT_KEY, or settlement.keystore")
		}
		key, err := crypto.HexToECDSA(strings.TrimPrefix(secret, "0x"))
		if err != nil {
			return nil, errors.New("BOXOFFICE_SETTLEMENT_KEY is not a private key of 64 hex characters")
		}
		return key, nil
	}
	document, err := os.ReadFile(c.Settlement.Keystore)
	if err != nil {
		return nil, fmt.Errorf("settlement.keystore: %w", err)
	}
	key, err := keystore.DecryptKey(document, os.Getenv("BOXOFFICE_KEYSTORE_PASSWORD"))
	if err != nil {
		return nil, errors.New("settlement.keystore cannot be opened with BOXOFFICE_KEYSTORE_PASSWORD")
	}
	return key.PrivateKey, nil
}

// Duration is a time.Duration that is written like 5s or 25ms.
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil || parsed < 0 {
		return errors.New("must be a duration like 5s or 25ms")
	}
	*d = Duration(parsed)
	return nil
}
