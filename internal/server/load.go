package server

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/pelletier/go-toml/v2"
)

// Load reads the configuration file of a service over the defaults. The error of an
// unknown key, a wrong type or an impossible value names the line or the key.
func Load(file string) (Config, error) { return load(file, (*Config).check) }

// LoadDeployment reads the keys of a configuration file that are needed to deploy the
// settlement contract: those of the chain and the settlement key.
func LoadDeployment(file string) (Config, error) {
	return load(file, func(c *Config) error {
		switch {
		case c.Chain.ID == 0:
			return errors.New("chain.id is required")
		case c.Chain.RPCURL == "":
			return errNoNode
		}
		return positive("chain.timeout", c.Chain.Timeout)
	})
}

var errNoNode = errors.New("chain.rpc_url is required, here or as BOXOFFICE_CHAIN_RPC_URL in the environment")

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
	var none common.Address
	switch {
	case c.BaseURL == "":
		return errors.New("base_url is required")
	case !isHTTP(c.BaseURL), strings.HasSuffix(c.BaseURL, "/"):
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
	case c.Payment.MaxTimeout < Duration(30*time.Second), c.Payment.MaxTimeout > Duration(24*time.Hour):
		return errors.New("payment.max_timeout must be between 30s and 24h")
	}
	return cmp.Or(
		c.Limits.PerToken.check("limits.per_token"), c.Limits.PerAddress.check("limits.per_address"),
		positive("judge.timeout", c.Judge.Timeout), c.Settlement.checkVia(), c.checkSettling(),
	)
}

// checkSettling checks the keys that a service and a facilitator need to settle.
func (c *Config) checkSettling() error {
	switch {
	case c.Chain.ID == 0:
		return errors.New("chain.id is required")
	case c.Chain.RPCURL == "" && c.Settlement.Via != ViaFacilitator:
		return errNoNode
	case c.Chain.Confirmations == 0:
		return errors.New("chain.confirmations must be at least 1")
	case c.Settlement.MaxBatch < 1:
		return errors.New("settlement.max_batch must be at least 1")
	case c.Settlement.MaxInFlight < 1:
		return errors.New("settlement.max_in_flight must be at least 1")
	case c.Settlement.MaxTries < 1:
		return errors.New("settlement.max_tries must be at least 1")
	}
	return cmp.Or(
		c.checkWork(),
		positive("chain.timeout", c.Chain.Timeout), positive("settlement.poll", c.Settlement.Poll),
		positive("settlement.bump_after", c.Settlement.BumpAfter), positive("settlement.lease", c.Settlement.Lease),
		positive("settlement.recheck", c.Settlement.Recheck),
	)
}

// positive refuses a duration of 0.
func positive(key string, value Duration) error {
	if value <= 0 {
		return errors.New(key + " must be above 0")
	}
	return nil
}

// isHTTP reports whether an address is http or https, without a query or a fragment.
func isHTTP(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https") && u.RawQuery == "" &&
		u.Fragment == ""
}

func (r RateConfig) check(key string) error {
	if r.PerSecond <= 0 || r.Burst < 1 {
		return fmt.Errorf("%s needs a per_second above 0 and a burst of at least 1", key)
	}
	return nil
}

// Marshal returns the configuration as a file with a comment on every key.
func (c Config) Marshal() ([]byte, error) { return toml.Marshal(c) }

// Sample returns a file with every key: first the defaults, then an example of each
// optional table, whose lines are commented out with #.
func Sample() ([]byte, error) {
	config := Default()
	defaults, err := config.Marshal()
	if err != nil {
		return nil, err
	}
	local := DefaultAgent()
	local.Command, local.Env = []string{"/usr/local/bin/agent"}, []string{"AGENT_KEY"}
	local.Writable, local.MaxMemory, local.Confined = []string{"/var/cache/agent"}, 4<<30, true
	config.Agents = map[string]AgentConfig{
		"default": local,
		"audit":   {URL: "https://agents.example/audit", SecretEnv: "AUDIT_SECRET", Callback: true},
	}
	kinds := []string{"custom_token"}
	config.Launches = &LaunchesConfig{DefaultChainID: 1, Chains: []LaunchChainConfig{{
		ChainID: 1, Name: "Ethereum", RPCURL: "https://node.example", Kinds: kinds,
		Pairings: []PairingConfig{{
			PairWith: "native", Currency: common.Address{}.Hex(),
			Symbol: "ETH", Name: "Ether", Decimals: 18, Kinds: kinds,
		}},
	}}}
	all, err := config.Marshal()
	sample := bytes.NewBuffer(append(defaults, '\n'))
	for line := range bytes.Lines(all[len(defaults):]) { // Agents and Launches are the last fields of Config
		if line[0] != '\n' && line[0] != '#' {
			sample.WriteByte('#')
		}
		sample.Write(line)
	}
	return sample.Bytes(), err
}
