package boxoffice_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"boxoffice"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestHashVectors compares with hashes that were computed elsewhere.
func TestHashVectors(t *testing.T) {
	input, err := boxoffice.HashJSON(
		[]byte(" {\"template\" : \"research\", \"objective\":\"W\\u00e4gen \\u0026 pr\\u00fcfen \\u003c1 €>\"}\n"),
	)
	if err != nil || input.String() != someInputHash {
		t.Errorf("the hash of the input is %s, %v, want %s", input, err, someInputHash)
	}
	for want, quote := range map[string]boxoffice.Quote{quoteHash: someQuote(), runsQuoteHash: runsQuote()} {
		sealed, err := quote.Seal()
		if err != nil || sealed.String() != want {
			t.Errorf("the hash of the quote for %s is %s, %v, want %s", quote.Action, sealed, err, want)
		}
		if err := quote.Verify(); err != nil {
			t.Error(err)
		}
	}
	if _, err := boxoffice.HashJSON([]byte(`{"a":1,"a":1}`)); err == nil {
		t.Error("a document with a repeated member was hashed")
	}
	if _, err := boxoffice.HashJSON([]byte(`9007199254740993`)); err == nil {
		t.Error("a number that a double does not carry was hashed")
	}
}

func TestVerifyRefusesAnotherHash(t *testing.T) {
	quote := someQuote()
	quote.QuoteHash[31] ^= 1
	wantField(t, quote.Verify(), "/quoteHash")
	quote = someQuote()
	quote.Terms.ResultGuaranteed = true
	wantField(t, quote.Verify(), "/terms/resultGuaranteed")
}

func TestLive(t *testing.T) {
	quote := someQuote()
	if !quote.Live(quote.ExpiresAt-1) || quote.Live(quote.ExpiresAt) {
		t.Error("a quote must live until the second expiresAt, without it")
	}
}

// anyQuote draws a valid quote, sealed.
func anyQuote(t *rapid.T) boxoffice.Quote {
	address := rapid.Custom(func(t *rapid.T) common.Address {
		return common.Address(rapid.SliceOfN(rapid.Byte(), 20, 20).Draw(t, "address"))
	})
	moment := rapid.Int64Range(0, boxoffice.MaxSafeInteger)
	quote := boxoffice.Quote{
		V: boxoffice.QuoteVersion,
		ID: boxoffice.UUID(
			rapid.StringMatching(`[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`).
				Draw(t, "id"),
		),
		Action:        rapid.SampledFrom(boxoffice.Actions()).Draw(t, "action"),
		PolicyVersion: rapid.StringN(1, 64, -1).Draw(t, "policyVersion"),
		InputHash:     boxoffice.Hash(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "inputHash")),
		IssuedAt:      moment.Draw(t, "issuedAt"),
		ExpiresAt:     moment.Draw(t, "expiresAt"),
		Payment: boxoffice.Payment{
			Scheme:   x402.SchemeExact,
			Network:  x402.Network(rapid.Uint64Range(1, 99999999999999999).Draw(t, "chain")),
			Asset:    address.Draw(t, "asset"),
			Amount:   x402.NewUint256(rapid.Uint64().Draw(t, "amount")),
			PayTo:    address.Draw(t, "payTo"),
			Decimals: rapid.IntRange(0, 255).Draw(t, "decimals"),
		},
		Terms: boxoffice.AdmissionTerms(),
	}
	if rapid.Bool().Draw(t, "has runs") {
		unit := x402.NewUint256(rapid.Uint64().Draw(t, "unitAmount"))
		quote.UnitAmount, quote.Runs = &unit, rapid.Int64Range(1, boxoffice.MaxSafeInteger).Draw(t, "runs")
		quote.Payment.Amount, _ = unit.Mul(x402.NewUint256(uint64(quote.Runs)))
	}
	if rapid.Bool().Draw(t, "has payer") {
		quote.Payer = some(address.Draw(t, "payer"))
	}
	var err error
	if quote.QuoteHash, err = quote.Seal(); err != nil {
		t.Fatal(err)
	}
	return quote
}

// TestQuoteRoundTrip: a valid quote verifies, and encoding and decoding it, in
// any order of its members, gives the same quote with the same hash.
func TestQuoteRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		quote := anyQuote(t)
		if err := quote.Verify(); err != nil {
			t.Fatal(err)
		}
		document, err := json.Marshal(quote)
		if err != nil {
			t.Fatal(err)
		}
		var decoded boxoffice.Quote
		if err := json.Unmarshal(reordered(t, document), &decoded); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(quote, decoded, cmp.Comparer(func(a, b boxoffice.Amount) bool { return a == b })); diff != "" {
			t.Fatal(diff)
		}
		if err := decoded.Verify(); err != nil {
			t.Fatal(err)
		}
	})
}

// reordered writes an object with its members, at every depth, in a drawn order.
func reordered(t *rapid.T, document []byte) []byte {
	var members map[string]json.RawMessage
	if json.Unmarshal(document, &members) != nil {
		return document
	}
	names := rapid.Permutation(slices.Sorted(maps.Keys(members))).Draw(t, "order")
	written := make([]string, len(names))
	for i, name := range names {
		written[i] = fmt.Sprintf(" %q : %s ", name, reordered(t, members[name]))
	}
	return []byte("{" + strings.Join(written, ",\n\t") + "}")
}

// TestSealCoversEveryMember changes one member at a time and leaves the hash as
// it was: no such quote passes Verify.
func TestSealCoversEveryMember(t *testing.T) {
	for _, quote := range []boxoffice.Quote{someQuote(), runsQuote()} {
		var paths []string
		leaves(t, marshal(t, quote), "", func(path string) { paths = append(paths, path) })
		if want := 14; len(paths) < want {
			t.Fatalf("only %d members: %v", len(paths), paths)
		}
		for _, path := range paths {
			changed, err := withOther(quote, path)
			if err != nil {
				t.Fatal(err)
			}
			if err := changed.Verify(); err == nil {
				t.Errorf("a quote with another %s passes Verify", path)
			}
			sealed, err := changed.Seal()
			if err != nil {
				t.Fatal(err)
			}
			if same := sealed == quote.QuoteHash; same != (path == "/quoteHash") {
				t.Errorf("with another %s the hash is the same: %v", path, same)
			}
		}
	}
}

func leaves(t *testing.T, document []byte, path string, visit func(path string)) {
	t.Helper()
	var members map[string]json.RawMessage
	if json.Unmarshal(document, &members) != nil {
		visit(path)
		return
	}
	for name, value := range members {
		leaves(t, value, path+"/"+name, visit)
	}
}

// withOther returns a quote with another value at a path.
func withOther(q boxoffice.Quote, path string) (boxoffice.Quote, error) {
	one := x402.NewUint256(1)
	switch path {
	case "/v":
		q.V++
	case "/id":
		q.ID = otherID
	case "/action":
		q.Action = boxoffice.ActionJobContinue
	case "/policyVersion":
		q.PolicyVersion += "x"
	case "/inputHash":
		q.InputHash[0] ^= 1
	case "/issuedAt":
		q.IssuedAt++
	case "/expiresAt":
		q.ExpiresAt++
	case "/payment/scheme":
		q.Payment.Scheme = ""
	case "/payment/network":
		q.Payment.Network = "eip155:1"
	case "/payment/asset":
		q.Payment.Asset[0] ^= 1
	case "/payment/amount":
		q.Payment.Amount, _ = q.Payment.Amount.Add(one)
	case "/payment/payTo":
		q.Payment.PayTo[19] ^= 1
	case "/payment/decimals":
		q.Payment.Decimals--
	case "/unitAmount":
		q.UnitAmount = &one
	case "/runs":
		q.Runs++
	case "/payer":
		q.Payer = nil
	case "/terms/purchase":
		q.Terms.Purchase = ""
	case "/terms/resultGuaranteed":
		q.Terms.ResultGuaranteed = true
	case "/quoteHash":
		q.QuoteHash[0] ^= 1
	default:
		return q, fmt.Errorf("the quote has a new member %s, which this test does not change", path)
	}
	return q, nil
}

// FuzzQuote decodes any document. A quote that decodes is valid, and encodes to
// the same canonical JSON.
func FuzzQuote(f *testing.F) {
	quote := marshal(f, someQuote())
	f.Add(quote)
	f.Add(marshal(f, runsQuote()))
	f.Add([]byte(`{"v":1,"v":1}`))
	f.Add([]byte(strings.Replace(string(quote), `"issuedAt":1795168800`, `"issuedAt":-0`, 1)))
	f.Add([]byte(strings.Replace(string(quote), `"terms"`, `"runs":0,"terms"`, 1)))
	// Parts of a valid quote, the same in every run.
	source := rand.New(rand.NewPCG(1, 2))
	for range 8 {
		f.Add(quote[:source.IntN(len(quote))])
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		var decoded boxoffice.Quote
		if err := decoded.UnmarshalJSON(document); err != nil {
			return
		}
		if err := decoded.Validate(); err != nil {
			t.Fatalf("was decoded and is not valid: %v", err)
		}
		if diff := cmp.Diff(string(canonical(t, document)), string(canonical(t, marshal(t, decoded)))); diff != "" {
			t.Fatalf("encodes to something else than was sent:\n%s", diff)
		}
	})
}
