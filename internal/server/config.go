package server

import (
	"errors"
	"net/netip"
	"time"

	"boxoffice"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/params"
)

// Config is the configuration file. Default has the value of every key that a file
// leaves out; a key without a default is required.
type Config struct {
	BaseURL        string   `toml:"base_url" comment:"The public address of the service, without a trailing slash. Browsers may call from its origin only."`
	ServiceName    string   `toml:"service_name" comment:"The name of the service. Payers sign quote approvals for '<service_name> Paid Action'."`
	Listen         string   `toml:"listen" comment:"The address on which requesters are served."`
	OperatorListen string   `toml:"operator_listen" comment:"The address of /healthz, /readyz, /payments and /work/ID/cancel, which need no token: keep it private.\nEmpty: these routes are not served."`
	SubmitWait     Duration `toml:"submit_wait" comment:"How long a submit waits for the outcome of its payment before it answers 202."`
	ShutdownGrace  Duration `toml:"shutdown_grace" comment:"How long open requests may take after a signal to stop."`

	Store       StoreConfig            `toml:"store"`
	Chain       ChainConfig            `toml:"chain"`
	Payment     PaymentConfig          `toml:"payment"`
	Settlement  SettlementConfig       `toml:"settlement"`
	Limits      LimitsConfig           `toml:"limits"`
	Facilitator FacilitatorConfig      `toml:"facilitator" comment:"What 'boxoffice facilitator' settles for other x402 servers. 'boxoffice serve' does not read this table."`
	Judge       JudgeConfig            `toml:"judge"`
	Log         LogConfig              `toml:"log"`
	Work        WorkConfig             `toml:"work"`
	Delivery    DeliveryConfig         `toml:"delivery"`
	Agents      map[string]AgentConfig `toml:"agents,omitempty" comment:"The agents that do the work, by template. [agents.oracle] answers as the members of panels, [agents.default]\ndoes the work of every template that has no agent of its own. Without agents, work is sold and waits."`
	Launches    *LaunchesConfig        `toml:"launches,omitempty" comment:"The chains on which launches can deploy. Without this table launch.open is refused."`
}

// StoreConfig says where orders are saved.
type StoreConfig struct {
	Path string `toml:"path" comment:"The SQLite database file. A relative path is relative to the folder of this file."`
}

// ChainConfig says on which chain payments are made.
type ChainConfig struct {
	ID            uint64   `toml:"id" comment:"The EIP-155 chain id."`
	RPCURL        string   `toml:"rpc_url" comment:"The JSON-RPC address of an RPC node. If it contains an access key, set BOXOFFICE_CHAIN_RPC_URL in the environment\ninstead, which overrides this key."`
	Confirmations uint64   `toml:"confirmations" comment:"How many blocks confirm a transfer, the block with the transfer included."`
	ReorgDepth    uint64   `toml:"reorg_depth" comment:"How many blocks on top of a block make it impossible for a reorganisation to remove it. A settled payment is watched\nthat long and sent again if its block is removed. A failed payment is final only when a block that deep proves it."`
	Timeout       Duration `toml:"timeout" comment:"The timeout of each call to the RPC node."`
}

// PaymentConfig says what is paid, and to whom.
type PaymentConfig struct {
	Asset      common.Address              `toml:"asset" comment:"The address of the ERC-20 token."`
	Symbol     string                      `toml:"symbol" comment:"The symbol of the token, for people."`
	Name       string                      `toml:"name" comment:"The name in the token's EIP-712 domain."`
	Version    string                      `toml:"version" comment:"The version in the token's EIP-712 domain."`
	Decimals   int                         `toml:"decimals" comment:"The decimals of the token. The start fails if the token contract says another number."`
	PayTo      common.Address              `toml:"pay_to" comment:"The address that receives every payment."`
	Amount     boxoffice.Amount            `toml:"amount" comment:"The price of one unit of every action, in atomic token units, as a string.\n[payment.prices] overrides it for an action: \"oracle.request\" = '5000000'."`
	Prices     map[string]boxoffice.Amount `toml:"prices,omitempty" comment:"The prices of actions that do not cost amount."`
	MaxTimeout Duration                    `toml:"max_timeout" comment:"How long a payment may take. Payers see it as maxTimeoutSeconds."`
}

// SettlementConfig says how payments are settled on the chain. The settlement key
// pays the gas. It is read from BOXOFFICE_SETTLEMENT_KEY (hex) in the environment or
// from a keystore file, never from the configuration.
type SettlementConfig struct {
	Via          string   `toml:"via" comment:"How payments are settled: 'key' sends transactions with the settlement key, 'facilitator' hands payments to the\nx402 facilitator in [settlement.facilitator]. Change it only while no payment is waiting or sent."`
	Keystore     string   `toml:"keystore" comment:"A keystore file (Web3 Secret Storage) with the settlement key; BOXOFFICE_KEYSTORE_PASSWORD holds its password.\nA relative path is relative to the folder of this file. Empty: BOXOFFICE_SETTLEMENT_KEY holds the key in hex."`
	Gather       Duration `toml:"gather" comment:"How long a payment waits for others that can share its transaction."`
	Poll         Duration `toml:"poll" comment:"How often the chain is read while a payment is not decided."`
	MaxBatch     int      `toml:"max_batch" comment:"The most payments in one transaction."`
	MaxInFlight  int      `toml:"max_in_flight" comment:"The most transactions that are unconfirmed at the same time."`
	MaxTries     int      `toml:"max_tries" comment:"A payment fails after so many confirmed transactions that did not settle it.\nA payment from a wallet with code fails after the first."`
	BumpAfter    Duration `toml:"bump_after" comment:"A transaction that is not mined for so long, while the chain makes blocks, is sent again with a higher fee."`
	Lease        Duration `toml:"lease" comment:"Another process may use the settlement key after its holder has not renewed its lease for so long."`
	Recheck      Duration `toml:"recheck" comment:"How often failed payments that could still settle are checked."`
	MaxFeePerGas uint64   `toml:"max_fee_per_gas" comment:"The highest fee for a unit of gas, in wei."`
	MaxTxGas     uint64   `toml:"max_tx_gas" comment:"The gas limit of a transaction, at most 16777216 (EIP-7825). It limits how many payments share a transaction."`
	GasPerSettle uint64   `toml:"gas_per_settle" comment:"The gas that a payment may use at most; unused gas is not paid. A payment that needs more is refused."`

	Facilitator RemoteConfig `toml:"facilitator"`
}

// LimitsConfig limits how often requesters may call.
type LimitsConfig struct {
	PerToken       RateConfig     `toml:"per_token" comment:"For each request token."`
	PerAddress     RateConfig     `toml:"per_address" comment:"For each IPv4 address, and for each /64 network of IPv6 addresses."`
	TrustedProxies []netip.Prefix `toml:"trusted_proxies" comment:"The networks of proxies whose X-Forwarded-For header is believed, also by 'boxoffice facilitator'."`
}

// RateConfig is a rate limit.
type RateConfig struct {
	PerSecond float64 `toml:"per_second" comment:"Requests per second in the long run."`
	Burst     int     `toml:"burst" comment:"Requests at once."`
}

// JudgeConfig names a program that may change or refuse an input before it is priced.
type JudgeConfig struct {
	URL     string   `toml:"url" comment:"Every input is posted to this address before it is priced; the program there may change or refuse it. Empty: none."`
	Timeout Duration `toml:"timeout" comment:"The timeout of each call."`
}

// LogConfig says what is logged to standard error.
type LogConfig struct {
	Level  string `toml:"level" comment:"debug, info, warn or error."`
	Format string `toml:"format" comment:"text or json."`
}

// LaunchesConfig lists the chains on which launches can deploy.
type LaunchesConfig struct {
	DefaultChainID uint64              `toml:"default_chain_id" comment:"The chain that requesters are offered first. It has to be one of the chains below."`
	Chains         []LaunchChainConfig `toml:"chains"`
}

// LaunchChainConfig is one chain of LaunchesConfig.
type LaunchChainConfig struct {
	ChainID  uint64          `toml:"chain_id" comment:"The EIP-155 chain id."`
	Name     string          `toml:"name" comment:"The name of the chain, for people."`
	Testnet  bool            `toml:"testnet" comment:"Whether the coins of the chain are worth nothing."`
	RPCURL   string          `toml:"rpc_url,omitempty" comment:"The JSON-RPC address of an RPC node. Launches are sold while it answers. Empty: launches are always sold."`
	Kinds    []string        `toml:"kinds" comment:"What can be launched on the chain: custom_token, univ4_hook, evm_contracts, evm_project."`
	Pairings []PairingConfig `toml:"pairings" comment:"The currencies that a launched token can be paired with."`
}

// PairingConfig is a currency that a launched token can be paired with.
type PairingConfig struct {
	PairWith string   `toml:"pair_with" comment:"The value of pairWith in the input of a launch."`
	Currency string   `toml:"currency" comment:"The address of the currency; zeros are the native coin."`
	Symbol   string   `toml:"symbol" comment:"The symbol, for people."`
	Name     string   `toml:"name" comment:"The name, for people."`
	Decimals int      `toml:"decimals" comment:"The decimals of the currency."`
	Kinds    []string `toml:"kinds" comment:"The kinds of launches that can be paired with it."`
}

// Default returns the value of every key that a configuration file leaves out. No
// other package has a default of its own for a configured value.
func Default() Config {
	seconds := func(n float64) Duration { return Duration(n * float64(time.Second)) }
	return Config{
		ServiceName:    "Boxoffice",
		Listen:         "127.0.0.1:8402",
		OperatorListen: "127.0.0.1:9402",
		SubmitWait:     seconds(5),
		ShutdownGrace:  seconds(10),
		Store:          StoreConfig{Path: "boxoffice.db"},
		Chain:          ChainConfig{Confirmations: 2, ReorgDepth: 32, Timeout: seconds(10)},
		Payment:        PaymentConfig{Version: "1", Decimals: 18, MaxTimeout: seconds(300)},
		Settlement: SettlementConfig{
			Via: ViaKey, Facilitator: RemoteConfig{Timeout: seconds(60), MaxInFlight: 50, Retry: seconds(1)},
			Gather: seconds(.025), Poll: seconds(.5), BumpAfter: seconds(30), Lease: seconds(5), Recheck: seconds(15),
			MaxBatch: 50, MaxInFlight: 8, MaxTries: 3,
			MaxFeePerGas: 500e9, GasPerSettle: 250_000, MaxTxGas: params.MaxTxGas,
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
			Dir: "work", Concurrency: 4, MaxFailures: 3, Backoff: seconds(5), Lease: seconds(30), Poll: seconds(.25),
			Scheduling: seconds(5),
		},
		Delivery: DeliveryConfig{
			AllowedHosts: []string{}, Credentials: map[string]CredentialConfig{},
			PullRequest: []string{}, Env: []string{},
			Author: "Boxoffice <boxoffice@localhost>", Timeout: seconds(120),
		},
		Log: LogConfig{Level: "info", Format: "text"},
	}
}

// DefaultAgent returns the value of every key that a table of agents leaves out.
func DefaultAgent() AgentConfig {
	return AgentConfig{Timeout: Duration(30 * time.Minute), MaxOutput: 1 << 20}
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
