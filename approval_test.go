package boxoffice_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"boxoffice"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/signer/core/apitypes"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestApprovalVectors compares with the digests and signatures that viem made.
func TestApprovalVectors(t *testing.T) {
	var file struct {
		Vectors []struct {
			Name        string
			ServiceName string
			ChainID     uint64
			Message     struct {
				Resource           string
				RequesterScopeHash common.Hash
				QuoteID            boxoffice.UUID
				QuoteHash          common.Hash
				PaymentHash        common.Hash
				Action             string
				Asset              common.Address
				Amount             boxoffice.Amount
				PayTo              common.Address
				ExpiresAt          int64 `json:",string"`
			}
			Digest    common.Hash
			Signature hexutil.Bytes
			Signer    common.Address
		}
	}
	document, err := os.ReadFile("testdata/quote_approval.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(document, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Vectors) == 0 {
		t.Fatal("no vectors")
	}
	for _, v := range file.Vectors {
		t.Run(v.Name, func(t *testing.T) {
			m := v.Message
			approval := boxoffice.QuoteApproval{
				ServiceName: v.ServiceName, ChainID: v.ChainID,
				Resource: m.Resource, RequesterScopeHash: boxoffice.Hash(m.RequesterScopeHash),
				QuoteID: m.QuoteID, QuoteHash: boxoffice.Hash(m.QuoteHash), PaymentHash: boxoffice.Hash(m.PaymentHash),
				Action: m.Action, Asset: m.Asset, Amount: m.Amount, PayTo: m.PayTo, ExpiresAt: m.ExpiresAt,
			}
			digest := approval.Digest()
			if digest != v.Digest {
				t.Fatalf("the digest is %x, want %x", digest, v.Digest)
			}
			signer, err := x402.Recover(digest, v.Signature)
			if err != nil || signer != v.Signer {
				t.Errorf("the signer is %s, %v, want %s", signer, err, v.Signer)
			}
		})
	}
}

// TestTemplateHashesToDigest: another library that signs the published template
// signs the hash that Digest computes.
func TestTemplateHashesToDigest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hash := rapid.Custom(func(t *rapid.T) boxoffice.Hash {
			return boxoffice.Hash(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "bytes"))
		})
		quote := anyQuote(t)
		chainID, err := x402.ChainID(quote.Payment.Network)
		if err != nil {
			t.Fatal(err)
		}
		challenge := boxoffice.Challenge{
			Quote: quote, ResourceURL: rapid.String().Draw(t, "resource"), RequesterScopeHash: hash.Draw(t, "scope"),
		}
		serviceName, paymentHash := rapid.String().Draw(t, "service"), hash.Draw(t, "payment")
		approval, err := challenge.Approve(serviceName, paymentHash)
		if err != nil {
			t.Fatal(err)
		}
		published, err := json.Marshal(boxoffice.NewQuoteApprovalTemplate(serviceName, chainID))
		if err != nil {
			t.Fatal(err)
		}
		var typed apitypes.TypedData
		if err := json.Unmarshal(published, &typed); err != nil {
			t.Fatal(err)
		}
		typed.Message = apitypes.TypedDataMessage{
			"resource":           challenge.ResourceURL,
			"requesterScopeHash": "0x" + challenge.RequesterScopeHash.String(),
			"quoteId":            string(quote.ID),
			"quoteHash":          "0x" + quote.QuoteHash.String(),
			"paymentHash":        "0x" + paymentHash.String(),
			"action":             quote.Action,
			"asset":              quote.Payment.Asset.Hex(),
			"amount":             quote.Payment.Amount.String(),
			"payTo":              quote.Payment.PayTo.Hex(),
			"expiresAt":          fmt.Sprint(quote.ExpiresAt),
		}
		want, _, err := apitypes.TypedDataAndHash(typed)
		if err != nil {
			t.Fatal(err)
		}
		if got := approval.Digest(); common.Hash(want) != got {
			t.Fatalf("the digest is %x, want %x", got, want)
		}
	})
}

func TestTemplateIsACopy(t *testing.T) {
	first := boxoffice.NewQuoteApprovalTemplate("Boxoffice", 1)
	first.Types["QuoteApproval"][0].Name = "changed"
	second := boxoffice.NewQuoteApprovalTemplate("Boxoffice", 1)
	if second.Types["QuoteApproval"][0].Name != "resource" {
		t.Error("a template shares its types with the next one")
	}
	want := boxoffice.TypedDataDomain{Name: "Boxoffice Paid Action", Version: "1", ChainID: 1}
	if diff := cmp.Diff(want, second.Domain); diff != "" {
		t.Error(diff)
	}
}

// TestApprovalCoversEveryField: every field of an approval changes its digest.
func TestApprovalCoversEveryField(t *testing.T) {
	approval, err := someChallenge().Approve("Boxoffice", boxoffice.Hash{9})
	if err != nil {
		t.Fatal(err)
	}
	key, err := crypto.HexToECDSA("00000000000000000000000000000000000000000000000000000000000000a1")
	if err != nil {
		t.Fatal(err)
	}
	signature, err := x402.Sign(approval.Digest(), key)
	if err != nil {
		t.Fatal(err)
	}
	wallet := crypto.PubkeyToAddress(key.PublicKey)
	if signer, err := x402.Recover(approval.Digest(), signature); err != nil || signer != wallet {
		t.Fatalf("the signer is %s, %v, want %s", signer, err, wallet)
	}
	for name, change := range map[string]func(*boxoffice.QuoteApproval){
		"service":     func(a *boxoffice.QuoteApproval) { a.ServiceName += "x" },
		"chain":       func(a *boxoffice.QuoteApproval) { a.ChainID++ },
		"resource":    func(a *boxoffice.QuoteApproval) { a.Resource += "/" },
		"scope":       func(a *boxoffice.QuoteApproval) { a.RequesterScopeHash[0] ^= 1 },
		"quote":       func(a *boxoffice.QuoteApproval) { a.QuoteID = otherID },
		"quoteHash":   func(a *boxoffice.QuoteApproval) { a.QuoteHash[0] ^= 1 },
		"paymentHash": func(a *boxoffice.QuoteApproval) { a.PaymentHash[0] ^= 1 },
		"action":      func(a *boxoffice.QuoteApproval) { a.Action = "job.continue" },
		"asset":       func(a *boxoffice.QuoteApproval) { a.Asset[0] ^= 1 },
		"amount":      func(a *boxoffice.QuoteApproval) { a.Amount = amountOf("1") },
		"payTo":       func(a *boxoffice.QuoteApproval) { a.PayTo[0] ^= 1 },
		"expiresAt":   func(a *boxoffice.QuoteApproval) { a.ExpiresAt++ },
	} {
		other := approval
		change(&other)
		if signer, err := x402.Recover(other.Digest(), signature); err == nil && signer == wallet {
			t.Errorf("the signature also approves another %s", name)
		}
	}
}

func TestApproveNeedsANetwork(t *testing.T) {
	challenge := someChallenge()
	challenge.Quote.Payment.Network = "solana:1"
	if _, err := challenge.Approve("Boxoffice", boxoffice.Hash{}); err == nil {
		t.Error("a quote on another kind of network can be approved")
	}
}
