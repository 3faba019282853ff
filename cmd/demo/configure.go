package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"boxoffice/internal/server"
	"boxoffice/internal/test/devchain"

	"github.com/ethereum/go-ethereum/accounts/keystore"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/google/uuid"
)

// configure opens the service's listener and writes a configuration file, with which
// "boxoffice serve" runs the same service on the same chain and data.
func configure(o options, chain *devchain.Chain, agent string) (net.Listener, server.Config, string, error) {
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return nil, server.Config{}, "", err
	}
	config := server.Default()
	config.BaseURL = "http://" + listener.Addr().String()
	config.Listen = listener.Addr().String()
	config.OperatorListen = ""
	config.Store.Path = filepath.Join(o.data, "boxoffice.db")
	config.Chain.ID = chain.ChainID().Uint64()
	config.Chain.RPCURL = chain.URL()
	config.Payment.Asset = chain.Token()
	config.Payment.Symbol, config.Payment.Name, config.Payment.Version = "TICKET", "Boxoffice Test Token", "1"
	config.Payment.PayTo = devchain.PayTo()
	config.Payment.Amount = price
	config.Settlement.Poll = server.Duration(min(250*time.Millisecond, o.blockTime/2))
	config.Settlement.Keystore = filepath.Join(o.data, "settlement-key.json")
	config.Work.Dir = filepath.Join(o.data, "work")
	config.Work.Poll = server.Duration(100 * time.Millisecond)
	config.Work.Scheduling = server.Duration(time.Second)
	config.Delivery.AllowedHosts = []string{"github.com", "gitlab.com"}
	if agent != "" {
		config.Agents = map[string]server.AgentConfig{
			"default": {Command: []string{agent}, Timeout: server.Duration(time.Minute)},
			"oracle":  {Command: []string{agent}, Timeout: server.Duration(time.Minute)},
		}
	}
	config.Limits.PerToken = server.RateConfig{PerSecond: 1000, Burst: 2000}
	config.Limits.PerAddress = server.RateConfig{PerSecond: 1000, Burst: 2000}
	config.Launches = &server.LaunchesConfig{
		DefaultChainID: config.Chain.ID,
		Chains: []server.LaunchChainConfig{{
			ChainID: config.Chain.ID, Name: "Development chain", Testnet: true,
			Kinds: []string{"custom_token", "univ4_hook", "evm_contracts", "evm_project"},
			Pairings: []server.PairingConfig{{
				PairWith: "native", Currency: "0x0000000000000000000000000000000000000000",
				Symbol: "ETH", Name: "Ether", Decimals: 18, Kinds: []string{"custom_token", "univ4_hook"},
			}},
		}},
	}
	file := filepath.Join(o.data, "boxoffice.toml")
	if err := save(config, file); err != nil {
		return nil, server.Config{}, "", fmt.Errorf("%w (and %v)", err, listener.Close())
	}
	return listener, config, file, nil
}

// save writes the configuration and the keystore that it names. The key is a
// public development key, so its password is empty.
func save(config server.Config, file string) error {
	key := devchain.SettlementKey()
	secret, err := keystore.EncryptKey(&keystore.Key{
		Id: uuid.New(), Address: crypto.PubkeyToAddress(key.PublicKey), PrivateKey: key,
	}, "", keystore.LightScryptN, keystore.LightScryptP)
	if err != nil {
		return err
	}
	if err := os.WriteFile(config.Settlement.Keystore, secret, 0o600); err != nil {
		return err
	}
	document, err := config.Marshal()
	if err != nil {
		return err
	}
	return os.WriteFile(file, document, 0o600)
}
