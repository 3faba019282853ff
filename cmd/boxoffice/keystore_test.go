package main

import (
	"os"

	"github.com/ethereum/go-ethereum/accounts/keystore"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/google/uuid"
	"github.com/rogpeppe/go-internal/testscript"
)

// writeKeystore moves the wallet of the environment into a file: keystore FILE PASSWORD.
func writeKeystore(ts *testscript.TestScript, negated bool, args []string) {
	if negated || len(args) != 2 {
		ts.Fatalf("usage: keystore FILE PASSWORD")
	}
	key, err := crypto.HexToECDSA(ts.Getenv("BOXOFFICE_PRIVATE_KEY"))
	ts.Check(err)
	sealed, err := keystore.EncryptKey(&keystore.Key{
		Id: uuid.New(), Address: crypto.PubkeyToAddress(key.PublicKey), PrivateKey: key,
	}, args[1], keystore.LightScryptN, keystore.LightScryptP)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), sealed, 0o600))
	ts.Setenv("BOXOFFICE_PRIVATE_KEY", "")
}
