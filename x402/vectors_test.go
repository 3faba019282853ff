package x402_test

import (
	"crypto/ecdsa"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"os"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/common/math"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/signer/core/apitypes"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"boxoffice/x402"
)

// A vector is a payment made by other implementations: viem signed it, and the
// official x402 client built some of them.
type vector struct {
	Name          string
	Key           string
	ChainID       uint64
	Authorization x402.Authorization
	Digest        common.Hash
	Signature     hexutil.Bytes
	Signer        common.Address
	Canonical     string
	PaymentHash   string
	Header        string
}

func (v vector) privateKey(t testing.TB) *ecdsa.PrivateKey {
	key, err := crypto.ToECDSA(crypto.Keccak256([]byte(v.Key)))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func vectors(t testing.TB) []vector {
	data, err := os.ReadFile("testdata/permit2.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Vectors []vector }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Vectors) == 0 {
		t.Fatal("no vectors")
	}
	return file.Vectors
}

func TestVectors(t *testing.T) {
	for _, v := range vectors(t) {
		t.Run(v.Name, func(t *testing.T) {
			payment, err := x402.ParsePayment(v.Header)
			if err != nil {
				t.Fatal(err)
			}
			if string(payment.Raw) != v.Canonical {
				t.Errorf("raw\ngot  %s\nwant %s", payment.Raw, v.Canonical)
			}
			if got := hex.EncodeToString(payment.Hash[:]); got != v.PaymentHash {
				t.Errorf("hash: got %s, want %s", got, v.PaymentHash)
			}
			signed := payment.Payload.Payload
			if diff := cmp.Diff(v.Authorization, signed.Authorization); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(v.Signature, signed.Signature); diff != "" {
				t.Error(diff)
			}
			chainID, err := x402.ChainID(payment.Accepted.Network)
			if err != nil || chainID != v.ChainID {
				t.Errorf("chain: got %d, %v", chainID, err)
			}
			digest := signed.Authorization.Digest(chainID)
			if digest != v.Digest {
				t.Errorf("digest: got %x, want %x", digest, v.Digest)
			}
			signer, err := x402.Recover(digest, signed.Signature)
			if err != nil || signer != v.Signer || signer != signed.Authorization.From {
				t.Errorf("signer: got %s, %v, want %s", signer, err, v.Signer)
			}
			signature, err := x402.Sign(digest, v.privateKey(t))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]byte(v.Signature), signature); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Digest is the hash that go-ethereum's typed data has.
func TestDigestAgreesWithAPITypes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := authorizations().Draw(t, "authorization")
		chainID := rapid.Uint64().Draw(t, "chain")
		want, _, err := apitypes.TypedDataAndHash(typedData(a, chainID))
		if err != nil {
			t.Fatal(err)
		}
		if got := a.Digest(chainID); common.Hash(got) != common.BytesToHash(want) {
			t.Errorf("got %x, want %x", got, want)
		}
	})
}

// Every part of an authorization but its owner changes the digest.
func TestDigestCoversEverything(t *testing.T) {
	a := vectors(t)[0].Authorization
	changes := map[string]func(*x402.Authorization){
		"token":      func(a *x402.Authorization) { a.Permitted.Token[19]++ },
		"amount":     func(a *x402.Authorization) { a.Permitted.Amount, _ = a.Permitted.Amount.Add(x402.NewUint256(1)) },
		"spender":    func(a *x402.Authorization) { a.Spender[0]++ },
		"nonce":      func(a *x402.Authorization) { a.Nonce = x402.Uint256{} },
		"deadline":   func(a *x402.Authorization) { a.Deadline = x402.Uint256{} },
		"to":         func(a *x402.Authorization) { a.Witness.To = common.Address{} },
		"validAfter": func(a *x402.Authorization) { a.Witness.ValidAfter = x402.NewUint256(1) },
	}
	for name, change := range changes {
		changed := a
		change(&changed)
		if a.Digest(1) == changed.Digest(1) {
			t.Errorf("%s does not change the digest", name)
		}
	}
	if a.Digest(1) == a.Digest(2) {
		t.Error("the chain does not change the digest")
	}
}

func authorizations() *rapid.Generator[x402.Authorization] {
	address := rapid.Custom(func(t *rapid.T) common.Address {
		return common.BytesToAddress(rapid.SliceOfN(rapid.Byte(), 20, 20).Draw(t, "address"))
	})
	number := rapid.Custom(func(t *rapid.T) x402.Uint256 {
		n, err := x402.Uint256FromBig(new(big.Int).SetBytes(rapid.SliceOfN(rapid.Byte(), 0, 32).Draw(t, "number")))
		if err != nil {
			t.Fatal(err)
		}
		return n
	})
	return rapid.Custom(func(t *rapid.T) x402.Authorization {
		return x402.Authorization{
			From:      address.Draw(t, "from"),
			Permitted: x402.Permitted{Token: address.Draw(t, "token"), Amount: number.Draw(t, "amount")},
			Spender:   address.Draw(t, "spender"),
			Nonce:     number.Draw(t, "nonce"),
			Deadline:  number.Draw(t, "deadline"),
			Witness:   x402.Witness{To: address.Draw(t, "to"), ValidAfter: number.Draw(t, "validAfter")},
		}
	})
}

func typedData(a x402.Authorization, chainID uint64) apitypes.TypedData {
	chain := math.HexOrDecimal256(*x402.NewUint256(chainID).Big())
	return apitypes.TypedData{
		Types: apitypes.Types{
			"EIP712Domain": {
				{
					Name: "name",
					Type: "string",
				}, {Name: "chainId", Type: "uint256"}, {Name: "verifyingContract", Type: "address"},
			},
			"PermitWitnessTransferFrom": {
				{
					Name: "permitted",
					Type: "TokenPermissions",
				}, {Name: "spender", Type: "address"}, {Name: "nonce", Type: "uint256"},
				{Name: "deadline", Type: "uint256"}, {Name: "witness", Type: "Witness"},
			},
			"TokenPermissions": {{Name: "token", Type: "address"}, {Name: "amount", Type: "uint256"}},
			"Witness":          {{Name: "to", Type: "address"}, {Name: "validAfter", Type: "uint256"}},
		},
		PrimaryType: "PermitWitnessTransferFrom",
		Domain: apitypes.TypedDataDomain{
			Name:              "Permit2",
			ChainId:           &chain,
			VerifyingContract: x402.Permit2.Hex(),
		},
		Message: apitypes.TypedDataMessage{
			"permitted": map[string]any{"token": a.Permitted.Token.Hex(), "amount": a.Permitted.Amount.String()},
			"spender":   a.Spender.Hex(),
			"nonce":     a.Nonce.String(),
			"deadline":  a.Deadline.String(),
			"witness":   map[string]any{"to": a.Witness.To.Hex(), "validAfter": a.Witness.ValidAfter.String()},
		},
	}
}
