package server

import (
	"crypto/ecdsa"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/ethereum/go-ethereum/accounts/keystore"
	"github.com/ethereum/go-ethereum/crypto"
)

// SettlementKey returns the key that pays the gas, from the environment or the
// keystore file. Its errors contain no secret.
func (c Config) SettlementKey() (*ecdsa.PrivateKey, error) {
	if c.Settlement.Keystore == "" {
		secret := os.Getenv("BOXOFFICE_SETTLEMENT_KEY")
		if secret == "" {
			return nil, errors.New(
				"the settlement key is missing: set BOXOFFICE_SETTLEMENT_KEY, or settlement.keystore")
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
