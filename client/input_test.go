package client_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"boxoffice"
	"boxoffice/client"

	"github.com/ethereum/go-ethereum/crypto"
	"pgregory.net/rapid"
)

func TestSameInput(t *testing.T) {
	tests := []struct{ name, asked, prepared, field string }{
		{"the same", `{"objective":"x"}`, `{"objective":"x"}`, ""},
		{"defaults", `{"objective":"x"}`, `{"objective":"x","template":"research"}`, ""},
		{"trimmed", `{"objective":" x\r\ny \n"}`, `{"objective":"x\ny"}`, ""},
		{"composed", `{"objective":"Cafe\u0301"}`, `{"objective":"Café"}`, ""},
		{"empty left out", `{"objective":"x","context":[],"repoUrl":" "}`, `{"objective":"x"}`, ""},
		{
			"lowercase UUID",
			`{"jobId":"0198A5C2-7B3E-7C11-9A4D-2F6B8E0C1D23"}`,
			`{"jobId":"0198a5c2-7b3e-7c11-9a4d-2f6b8e0c1d23"}`,
			"",
		},
		{"timestamp", `{"startAt":"2026-11-20T13:00:00+01:00"}`, `{"startAt":"2026-11-20T12:00:00.000Z"}`, ""},
		{"number", `{"runs":1e1,"deep":{"n":0.50}}`, `{"deep":{"n":0.5},"runs":10}`, ""},
		{"other text", `{"objective":"x"}`, `{"objective":"X"}`, "input/objective"},
		{"other number", `{"runs":10}`, `{"runs":11}`, "input/runs"},
		{"number as text", `{"runs":10}`, `{"runs":"10"}`, "input/runs"},
		{
			"other time",
			`{"startAt":"2026-11-20T13:00:00Z"}`,
			`{"startAt":"2026-11-20T12:00:00.000Z"}`,
			"input/startAt",
		},
		{"left out", `{"objective":"x","template":"audit"}`, `{"objective":"x"}`, "input/template"},
		{"item added", `{"options":["a"]}`, `{"options":["a","b"]}`, "input/options"},
		{"item swapped", `{"options":["a","b"]}`, `{"options":["b","a"]}`, "input/options/0"},
		{
			"deep",
			`{"nodes":[{"id":"a/b","x":{"~":true}}]}`,
			`{"nodes":[{"id":"a/b","x":{"~":false}}]}`,
			"input/nodes/0/x/~0",
		},
		{"null", `{"a":null}`, `{"a":1}`, "input/a"},
		{"not an object", `{"a":{}}`, `{"a":[]}`, "input/a"},
		{"not JSON", `{"a":1}`, `{`, "input"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := client.SameInput(json.RawMessage(test.asked), json.RawMessage(test.prepared))
			if test.field == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if refusal, ok := errors.AsType[*client.MismatchError](err); !ok || refusal.Field != test.field {
				t.Errorf("error %v, want a mismatch at %s", err, test.field)
			}
		})
	}
}

// The canonical JSON of any input is the same input, until a text in it changes.
func TestSameInputOfCanonical(t *testing.T) {
	value := rapid.Deferred(func() *rapid.Generator[any] {
		return rapid.OneOf(
			rapid.StringMatching(`[a-zé ]{0,6}`).AsAny(), rapid.Int32().AsAny(), rapid.Bool().AsAny(),
			rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,3}`), 0, 3).AsAny(),
			rapid.MapOfN(rapid.StringMatching(`[a-z~/]{1,3}`), rapid.Int16(), 0, 3).AsAny(),
		)
	})
	rapid.Check(t, func(t *rapid.T) {
		input := rapid.MapOfN(rapid.StringMatching(`[a-z~/]{1,3}`), value, 0, 5).Draw(t, "input")
		input["objective"] = "text"
		asked, err := json.MarshalIndent(input, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		prepared, err := boxoffice.Canonical(asked)
		if err != nil {
			t.Fatal(err)
		}
		if err := client.SameInput(asked, prepared); err != nil {
			t.Error(err)
		}
		changed := strings.Replace(string(prepared), `"objective":"text"`, `"objective":"test"`, 1)
		if err := client.SameInput(asked, json.RawMessage(changed)); err == nil {
			t.Errorf("%s passed for %s", changed, asked)
		}
	})
}

// Keys, tokens and signed payments do not appear in logs, with any verb of fmt.
func TestSecretsAreNotPrinted(t *testing.T) {
	payment := client.SignedPayment{Header: "secret-header", QuoteSignature: boxoffice.Signature{0xab, 0xcd}}
	signer := client.KeySigner(key)
	text := fmt.Sprintf("%v %+v %#v %s %v %+v %#v", payment, payment, payment, payment, signer, signer, signer)
	for _, secret := range []string{
		"secret-header", "abcd", new(big.Int).SetBytes(crypto.FromECDSA(key)).String(),
		hex.EncodeToString(crypto.FromECDSA(key)),
	} {
		if strings.Contains(strings.ToLower(text), secret) {
			t.Errorf("%q shows in %s", secret, text)
		}
	}
}
