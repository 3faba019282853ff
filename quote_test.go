package boxoffice_test

import (
	"encoding/json"
	"strings"
	"testing"

	"boxoffice"

	"github.com/google/go-cmp/cmp"
)

const largestInteger = "9007199254740991"

// An edit sends a member of a resource with another value, as JSON: "-" leaves
// the member out.
type edit struct {
	member, value string // member is a path with dots
	pointer       string // of the error, or "ok"
}

// checkEdits decodes the document of valid after each edit, with the decoders
// of the server and of clients alike.
func checkEdits[T any, P interface {
	*T
	json.Unmarshaler
	Validate() error
}](t *testing.T, valid T, edits []edit) {
	t.Helper()
	for _, e := range edits {
		t.Run(e.member+"="+e.value[:min(len(e.value), 30)], func(t *testing.T) {
			document := edited(t, valid, func(members map[string]any) {
				path := strings.Split(e.member, ".")
				for _, name := range path[:len(path)-1] {
					members = members[name].(map[string]any)
				}
				last := path[len(path)-1]
				if e.value == "-" {
					delete(members, last)
					return
				}
				members[last] = json.RawMessage(e.value)
			})
			var decoded T
			err := json.Unmarshal(document, &decoded)
			wantField(t, err, e.pointer)
			if err != nil {
				return
			}
			if err := P(&decoded).Validate(); err != nil {
				t.Errorf("was decoded and is not valid: %v", err)
			}
			if diff := cmp.Diff(string(canonical(t, document)), string(canonical(t, marshal(t, decoded)))); diff != "" {
				t.Errorf("encodes to something else than was sent:\n%s", diff)
			}
		})
	}
}

func canonical(t testing.TB, document []byte) []byte {
	t.Helper()
	form, err := boxoffice.Canonical(document)
	if err != nil {
		t.Fatal(err)
	}
	return form
}

func text(length int) string { return `"` + strings.Repeat("x", length) + `"` }

// paymentEdits are the rules of docs/protocol.md §2.2, for payment terms at a prefix.
func paymentEdits(prefix string) []edit {
	path := strings.ReplaceAll(strings.TrimSuffix(prefix, "."), ".", "/")
	if path != "" {
		path = "/" + path
	}
	edits := []edit{
		{"network", `"eip155:1"`, "ok"},
		{"network", `"eip155:99999999999999999"`, "ok"}, // 24 characters
		{"network", `"eip155:999999999999999999"`, "/network"},
		{"network", `"eip155:0"`, "/network"},
		{"network", `"eip155:01"`, "/network"},
		{"network", `"eip155:"`, "/network"},
		{"network", `"eip155:1x"`, "/network"},
		{"network", `"eip155:1\n"`, "/network"},
		{"network", `"EIP155:1"`, "/network"},
		{"network", `"solana:1"`, "/network"},
		{"network", `8453`, "/network"},
		{"network", "null", "/network"},
		{"network", "-", "/network"},
		{"asset", `"0x0000000000000000000000000000000000000000"`, "ok"},
		{"asset", `"0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"`, "/asset"},
		{"asset", `"0X833589fcd6edb6e08f4c7c32d4f71b54bda02913"`, "/asset"},
		{"asset", `"833589fcd6edb6e08f4c7c32d4f71b54bda02913"`, "/asset"},
		{"asset", `"0x833589fcd6edb6e08f4c7c32d4f71b54bda0291"`, "/asset"},
		{"asset", `"0x833589fcd6edb6e08f4c7c32d4f71b54bda029130"`, "/asset"},
		{"asset", `"0x833589fcd6edb6e08f4c7c32d4f71b54bda0291g"`, "/asset"},
		{"asset", `""`, "/asset"},
		{"asset", "0", "/asset"},
		{"asset", "null", "/asset"},
		{"asset", "-", "/asset"},
		{"amount", `"` + maxUint256 + `"`, "ok"},
		{
			"amount",
			`"115792089237316195423570985008687907853269984665640564039457584007913129639936"`,
			"/amount",
		}, // 2^256
		{
			"amount",
			`"` + strings.Repeat("9", 78) + `"`,
			"/amount",
		}, // allowed by the pattern, moved by no token
		{"amount", `"1` + strings.Repeat("0", 78) + `"`, "/amount"},
		{"amount", `"0"`, "ok"},
		{"amount", `"00"`, "/amount"},
		{"amount", `"01"`, "/amount"},
		{"amount", `"+1"`, "/amount"},
		{"amount", `"-1"`, "/amount"},
		{"amount", `"1.0"`, "/amount"},
		{"amount", `"1e3"`, "/amount"},
		{"amount", `"0x1"`, "/amount"},
		{"amount", `" 1"`, "/amount"},
		{"amount", `"1\n"`, "/amount"},
		{"amount", `"١"`, "/amount"},
		{"amount", `""`, "/amount"},
		{"amount", `1`, "/amount"},
		{"amount", "null", "/amount"},
		{"amount", "-", "/amount"},
		{"payTo", `"0x00000000000000000000000000000000000000AB"`, "/payTo"},
		{"payTo", `"0xab"`, "/payTo"},
		{"payTo", "null", "/payTo"},
		{"payTo", "-", "/payTo"},
		{"decimals", "0", "ok"},
		{"decimals", "255", "ok"},
		{"decimals", "256", "/decimals"},
		{"decimals", "-1", "/decimals"},
		{"decimals", "1.5", "/decimals"},
		{"decimals", "1e1", "/decimals"},
		{"decimals", `"18"`, "/decimals"},
		{"decimals", "99999999999999999999", "/decimals"},
		{"decimals", "null", "/decimals"},
		{"decimals", "-", "/decimals"},
		{"scheme", `"upto"`, "/scheme"},
		{"scheme", `"Exact"`, "/scheme"},
		{"scheme", `""`, "/scheme"},
		{"scheme", "null", "/scheme"},
		{"symbol", `"TKN"`, "/symbol"},
		{"Asset", `"0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"`, "/Asset"},
	}
	for i := range edits {
		edits[i].member = prefix + edits[i].member
		if edits[i].pointer != "ok" {
			edits[i].pointer = path + edits[i].pointer
		}
	}
	return edits
}

const maxUint256 = "115792089237316195423570985008687907853269984665640564039457584007913129639935"

func TestPaymentRules(t *testing.T) {
	checkEdits(t, somePayment(), append(paymentEdits(""), edit{"scheme", "-", "ok"}, edit{"scheme", `"exact"`, "ok"}))
}

// actionEdits are the rules of the member action of docs/protocol.md §2.1.
func actionEdits() []edit {
	return []edit{
		{"action", `"a"`, "ok"},
		{"action", `"job_open-v2.x9"`, "ok"},
		{"action", `"` + strings.Repeat("a", 64) + `"`, "ok"},
		{"action", `"` + strings.Repeat("a", 65) + `"`, "/action"},
		{"action", `""`, "/action"},
		{"action", `"Job.open"`, "/action"},
		{"action", `"9job"`, "/action"},
		{"action", `"job."`, "/action"},
		{"action", `".job"`, "/action"},
		{"action", `"job..open"`, "/action"},
		{"action", `"job open"`, "/action"},
		{"action", `"job.open\n"`, "/action"},
		{"action", `7`, "/action"},
		{"action", "null", "/action"},
		{"action", "-", "/action"},
	}
}

func versionEdits(name string) []edit {
	return []edit{
		{name, text(1), "ok"},
		{name, text(64), "ok"},
		{name, `"` + strings.Repeat("ü", 64) + `"`, "ok"},
		{name, text(65), "/" + name},
		{name, `""`, "/" + name},
		{name, "1", "/" + name},
		{name, "null", "/" + name},
		{name, "-", "/" + name},
	}
}

func TestPolicyRules(t *testing.T) {
	edits := append(actionEdits(), versionEdits("version")...)
	edits = append(edits, paymentEdits("payment.")...)
	checkEdits(t, somePolicy(), append(edits, []edit{
		{"payment.scheme", `"exact"`, "/payment/scheme"},
		{"payment", "null", "/payment"},
		{"payment", "[]", "/payment"},
		{"payment", "-", "/payment"},
		{"quoteTtlSeconds", "1", "ok"},
		{"quoteTtlSeconds", largestInteger, "ok"},
		{"quoteTtlSeconds", "9007199254740992", "/quoteTtlSeconds"},
		{"quoteTtlSeconds", "0", "/quoteTtlSeconds"},
		{"quoteTtlSeconds", "-1", "/quoteTtlSeconds"},
		{"quoteTtlSeconds", "0.5", "/quoteTtlSeconds"},
		{"quoteTtlSeconds", `"600"`, "/quoteTtlSeconds"},
		{"quoteTtlSeconds", "null", "/quoteTtlSeconds"},
		{"quoteTtlSeconds", "-", "/quoteTtlSeconds"},
		{"limits", "{}", "/limits"},
	}...))
}

func hashEdits(name string) []edit {
	return []edit{
		{name, `"` + strings.Repeat("0f", 32) + `"`, "ok"},
		{name, `"` + strings.Repeat("0F", 32) + `"`, "/" + name},
		{name, `"0x` + strings.Repeat("0f", 32) + `"`, "/" + name},
		{name, `"` + strings.Repeat("0f", 31) + `"`, "/" + name},
		{name, `"` + strings.Repeat("0f", 33) + `"`, "/" + name},
		{name, `"` + strings.Repeat("0g", 32) + `"`, "/" + name},
		{name, `""`, "/" + name},
		{name, "0", "/" + name},
		{name, "null", "/" + name},
		{name, "-", "/" + name},
	}
}

func momentEdits(name string) []edit {
	return []edit{
		{name, "0", "ok"},
		{name, largestInteger, "ok"},
		{name, "9007199254740992", "/" + name},
		{name, "-1", "/" + name},
		{name, "1.5", "/" + name},
		{name, `"0"`, "/" + name},
		{name, "null", "/" + name},
		{name, "-", "/" + name},
	}
}

func TestQuoteRules(t *testing.T) {
	edits := []edit{
		{"v", "2", "/v"},
		{"v", "0", "/v"},
		{"v", `"1"`, "/v"},
		{"v", "null", "/v"},
		{"v", "-", "/v"},
		{"id", `"00000000-0000-0000-0000-000000000000"`, "ok"},
		{"id", `"ffffffff-ffff-ffff-ffff-ffffffffffff"`, "ok"},
		{"id", `"6f9619ff-8b86-1d01-842d-00c04fc964ff"`, "ok"},
		{"id", `"6f9619ff-8b86-8d01-b42d-00c04fc964ff"`, "ok"},
		{"id", `"6f9619ff-8b86-9d01-b42d-00c04fc964ff"`, "/id"},
		{"id", `"6f9619ff-8b86-0d01-b42d-00c04fc964ff"`, "/id"},
		{"id", `"6f9619ff-8b86-4d01-c42d-00c04fc964ff"`, "/id"},
		{"id", `"6F9619FF-8B86-4D01-B42D-00C04FC964FF"`, "/id"}, // another text, and another hash
		{"id", `"6f9619ff8b864d01b42d00c04fc964ff"`, "/id"},
		{"id", `""`, "/id"},
		{"id", "1", "/id"},
		{"id", "null", "/id"},
		{"id", "-", "/id"},
		{"terms.purchase", `"action-result"`, "/terms/purchase"},
		{"terms.purchase", "-", "/terms/purchase"},
		{"terms.resultGuaranteed", "true", "/terms/resultGuaranteed"},
		{"terms.resultGuaranteed", "0", "/terms/resultGuaranteed"},
		{"terms.resultGuaranteed", "-", "/terms/resultGuaranteed"},
		{"terms.refund", "true", "/terms/refund"},
		{"terms", "null", "/terms"},
		{"terms", "-", "/terms"},
		{"payment.scheme", "-", "/payment/scheme"},
		{"payment", "null", "/payment"},
		{"payment", "-", "/payment"},
		{"runs", "0", "/runs"},
		{"runs", "1", "/unitAmount"},
		{"runs", "null", "/runs"},
		{"unitAmount", `"1"`, "/runs"},
		{"unitAmount", "null", "/unitAmount"},
		{"payer", `"0x1111111111111111111111111111111111111111"`, "ok"},
		{"payer", `"0xABcdEFABcdEFabcdEfAbCdefabcdeFABcDEFabCD"`, "/payer"},
		{"payer", `""`, "/payer"},
		{"payer", "null", "/payer"},
		{"signature", `"0x"`, "/signature"},
	}
	edits = append(edits, actionEdits()...)
	edits = append(edits, versionEdits("policyVersion")...)
	edits = append(edits, hashEdits("inputHash")...)
	edits = append(edits, hashEdits("quoteHash")...)
	edits = append(edits, momentEdits("issuedAt")...)
	edits = append(edits, momentEdits("expiresAt")...)
	edits = append(edits, paymentEdits("payment.")...)
	checkEdits(t, someQuote(), edits)
}

// TestRunsRules holds a run-priced quote to amount = unitAmount × runs.
func TestRunsRules(t *testing.T) {
	checkEdits(t, runsQuote(), []edit{
		{"runs", "4", "ok"},
		{"runs", "3", "/payment/amount"},
		{"runs", "0", "/runs"},
		{"runs", "-4", "/runs"},
		{"runs", "9007199254740992", "/runs"},
		{"runs", "1.5", "/runs"},
		{"runs", `"4"`, "/runs"},
		{"runs", "-", "/runs"},
		{"unitAmount", `"250000000000000001"`, "/payment/amount"},
		{"unitAmount", `"` + maxUint256 + `"`, "/payment/amount"}, // the product needs 258 bits
		{"unitAmount", `"0250000000000000000"`, "/unitAmount"},
		{"unitAmount", "250", "/unitAmount"},
		{"unitAmount", "-", "/unitAmount"},
		{"payment.amount", `"1000000000000000001"`, "/payment/amount"},
	})
	largest := runsQuote()
	largest.Runs, largest.UnitAmount, largest.Payment.Amount = boxoffice.MaxSafeInteger, some(
		amountOf("1"),
	), amountOf(
		largestInteger,
	)
	wantField(t, largest.Validate(), "ok")
}

// TestDocumentsReadInTwoWays: documents that two readers can read differently are
// refused.
func TestDocumentsReadInTwoWays(t *testing.T) {
	quote := string(marshal(t, someQuote()))
	for name, document := range map[string]string{
		"a member twice":             strings.Replace(quote, `{`, `{"v":1,`, 1),
		"a nested member twice":      strings.Replace(quote, `"scheme"`, `"decimals":18,"scheme"`, 1),
		"a member twice, escaped":    strings.Replace(quote, `{`, `{"\u0076":1,`, 1),
		"trailing data":              quote + `{}`,
		"invalid UTF-8":              strings.Replace(quote, "job-1", "job-\xff", 1),
		"a lone surrogate":           strings.Replace(quote, "job-1", `job-\ud800`, 1),
		"a member in another case":   strings.Replace(quote, `"quoteHash"`, `"quotehash"`, 1),
		"an array":                   `[` + quote + `]`,
		"a string":                   `"quote"`,
		"null":                       `null`,
		"nothing":                    ``,
		"a comment":                  quote + `//`,
		"a number with leading zero": strings.Replace(quote, `"v":1`, `"v":01`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			var decoded boxoffice.Quote
			if err := decoded.UnmarshalJSON([]byte(document)); err == nil {
				t.Errorf("%s was decoded", document)
			}
		})
	}
}
