package contracts_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"boxoffice/contracts"

	"github.com/google/go-cmp/cmp"
)

// The selectors have to be those of the deployed originals. If they differed, code that works on the dev chain would
// fail on a real chain.
func TestSelectorsOfTheOriginals(t *testing.T) {
	for _, tc := range []struct {
		contract *contracts.Contract
		methods  map[string]string
		errors   map[string]string
	}{
		{
			contracts.Permit2(),
			map[string]string{
				"permitTransferFrom":        "30f28b7a",
				"permitWitnessTransferFrom": "137c29fe",
				"nonceBitmap":               "4fe02b44",
				"invalidateUnorderedNonces": "3ff9dcb1",
				"DOMAIN_SEPARATOR":          "3644e515",
			},
			map[string]string{
				"InvalidNonce":             "756688fe",
				"SignatureExpired":         "cd21db4f",
				"InvalidAmount":            "3728b83d",
				"InvalidSignatureLength":   "4be6321b",
				"InvalidSignature":         "8baa579f",
				"InvalidSigner":            "815e1d64",
				"InvalidContractSignature": "b0669cbc",
			},
		},
		{
			contracts.Multicall3(),
			map[string]string{
				"aggregate":                "252dba42",
				"aggregate3":               "82ad56cb",
				"tryAggregate":             "bce38bd7",
				"getBlockNumber":           "42cbb15c",
				"getCurrentBlockTimestamp": "0f28c97d",
				"getEthBalance":            "4d2301cc",
				"getBasefee":               "3e64a696",
				"getChainId":               "3408e470",
			},
			map[string]string{},
		},
		{
			contracts.TestToken(),
			map[string]string{
				"transfer":     "a9059cbb",
				"transferFrom": "23b872dd",
				"approve":      "095ea7b3",
				"permit":       "d505accf",
				"mint":         "40c10f19",
			},
			map[string]string{},
		},
	} {
		t.Run(tc.contract.Name, func(t *testing.T) {
			methods := map[string]string{}
			for name := range tc.methods {
				methods[name] = hex.EncodeToString(tc.contract.ABI.Methods[name].ID)
			}
			if diff := cmp.Diff(tc.methods, methods); diff != "" {
				t.Errorf("methods (-original +ours):\n%s", diff)
			}
			errors := map[string]string{}
			for name := range tc.errors {
				id := tc.contract.ABI.Errors[name].ID
				errors[name] = hex.EncodeToString(id[:4])
			}
			if diff := cmp.Diff(tc.errors, errors); diff != "" {
				t.Errorf("errors (-original +ours):\n%s", diff)
			}
		})
	}
}

// This test needs Go alone and fails if a source was changed without a rebuild. build.mjs --check compiles the sources
// and compares the bytecode.
func TestArtifactsMatchSources(t *testing.T) {
	sources, err := filepath.Glob("*.sol")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, name := range sources {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		want[strings.TrimSuffix(name, ".sol")] = fmt.Sprintf("%x", sha256.Sum256(text))
	}
	got := map[string]string{}
	for _, c := range []*contracts.Contract{
		contracts.TestToken(), contracts.Permit2(), contracts.ExactProxy(), contracts.Multicall3(),
		contracts.Settlement(), contracts.Wallet(), contracts.HostileWallet(), contracts.HostileToken(),
	} {
		got[c.Name] = c.SourceSHA256
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("run node build.mjs (-sources +artifacts):\n%s", diff)
	}
}
