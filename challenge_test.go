package boxoffice_test

import (
	"encoding/json"
	"strings"
	"testing"

	"boxoffice"
	"boxoffice/internal/strictjson"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
)

func TestChallengeRules(t *testing.T) {
	type challenge = boxoffice.Challenge
	checkRules(t, func() challenge { return *someChallenge() }, []breach[challenge]{
		{"x402Version", func(c *challenge) { c.X402Version = 1 }, "/x402Version"},
		{"no accepts", func(c *challenge) { c.Accepts = nil }, "/accepts"},
		{"empty accepts", func(c *challenge) { c.Accepts = []x402.Requirements{} }, "/accepts"},
		{"scheme", func(c *challenge) { c.Accepts[0].Scheme = "upto" }, "/accepts/0/scheme"},
		{
			"scheme of the second",
			func(c *challenge) { c.Accepts = append(c.Accepts, x402.Requirements{}) },
			"/accepts/1/scheme",
		},
		{"network", func(c *challenge) { c.Accepts[0].Network = "base" }, "/accepts/0/network"},
		{
			"maxTimeoutSeconds",
			func(c *challenge) { c.Accepts[0].MaxTimeoutSeconds = 0 },
			"/accepts/0/maxTimeoutSeconds",
		},
		{"no extra", func(c *challenge) { c.Accepts[0].Extra = nil }, "ok"},
		{"quote", func(c *challenge) { c.Quote.Payment.Scheme = "" }, "/quote/payment/scheme"},
		{"no resourceUrl", func(c *challenge) { c.ResourceURL = "" }, "/resourceUrl"},
		{"relative resourceUrl", func(c *challenge) { c.ResourceURL = "/requests/1/submit" }, "/resourceUrl"},
		{"broken resourceUrl", func(c *challenge) { c.ResourceURL = "https://%zz/" }, "/resourceUrl"},
		{"no input", func(c *challenge) { c.Input = nil }, "/input"},
		{"any input", func(c *challenge) { c.Input = json.RawMessage("null") }, "ok"},
	})
}

func TestChallengeVerify(t *testing.T) {
	wantField(t, someChallenge().Verify(), "ok")
	type challenge = boxoffice.Challenge
	for _, tc := range []breach[challenge]{
		{"a rule", func(c *challenge) { c.X402Version = 1 }, "/x402Version"},
		{"other quote", func(c *challenge) { c.Quote.IssuedAt-- }, "/quote/quoteHash"},
		{"other input", func(c *challenge) { c.Input = json.RawMessage(`{}`) }, "/input"},
		{"input in other words", func(c *challenge) { c.Input = append(json.RawMessage(" "), c.Input...) }, "ok"},
		{"ambiguous input", func(c *challenge) { c.Input = json.RawMessage(`{"a":1,"a":2}`) }, "/input"},
		{"other resource", func(c *challenge) { c.Resource.URL += "/" }, "/resource/url"},
		{"other network", func(c *challenge) { c.Accepts[0].Network = "eip155:1" }, "/accepts"},
		{"other asset", func(c *challenge) { c.Accepts[0].Asset = common.Address{} }, "/accepts"},
		{"other amount", func(c *challenge) { c.Accepts[0].Amount = amountOf("1") }, "/accepts"},
		{"other recipient", func(c *challenge) { c.Accepts[0].PayTo = common.Address{} }, "/accepts"},
		{"other method", func(c *challenge) { c.Accepts[0].Extra.AssetTransferMethod = "eip3009" }, "/accepts"},
		{"no method", func(c *challenge) { c.Accepts[0].Extra = nil }, "/accepts"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			challenge := someChallenge()
			tc.change(challenge)
			wantField(t, challenge.Verify(), tc.pointer)
		})
	}
}

func TestAccepted(t *testing.T) {
	challenge := someChallenge()
	matching := challenge.Accepts[0]
	dear := matching
	dear.Amount = amountOf("2000000000000000000")
	challenge.Accepts = []x402.Requirements{dear, matching}
	accepted, err := challenge.Accepted()
	if err != nil || accepted.Mismatch(matching) != "" {
		t.Errorf("got %+v, %v", accepted, err)
	}
}

// TestSubmission: the body of a paying submit is decoded by its type alone.
func TestSubmission(t *testing.T) {
	lower := "0x" + strings.Repeat("ab", 65)
	for name, tc := range map[string]struct{ body, pointer string }{
		"lowercase":     {`{"quoteSignature":"` + lower + `"}`, "ok"},
		"any case":      {`{"quoteSignature":"0x` + strings.Repeat("aBCd", 32) + `Ef"}`, "ok"},
		"0X":            {`{"quoteSignature":"0X` + strings.Repeat("ab", 65) + `"}`, "/quoteSignature"},
		"no 0x":         {`{"quoteSignature":"` + strings.Repeat("ab", 66) + `"}`, "/quoteSignature"},
		"64 bytes":      {`{"quoteSignature":"0x` + strings.Repeat("ab", 64) + `"}`, "/quoteSignature"},
		"66 bytes":      {`{"quoteSignature":"0x` + strings.Repeat("ab", 66) + `"}`, "/quoteSignature"},
		"odd":           {`{"quoteSignature":"` + lower[:131] + `"}`, "/quoteSignature"},
		"not hex":       {`{"quoteSignature":"` + lower[:131] + `g"}`, "/quoteSignature"},
		"trailing line": {`{"quoteSignature":"` + lower[:131] + `\n"}`, "/quoteSignature"},
		"a number":      {`{"quoteSignature":1}`, "/quoteSignature"},
		"null":          {`{"quoteSignature":null}`, "/quoteSignature"},
		"missing":       {`{}`, "/quoteSignature"},
		"another key":   {`{"quoteSignature":"` + lower + `","memo":""}`, "/memo"},
	} {
		t.Run(name, func(t *testing.T) {
			var submission boxoffice.Submission
			err := strictjson.Decode([]byte(tc.body), &submission)
			wantField(t, err, tc.pointer)
			if err == nil && !strings.EqualFold(string(marshal(t, submission)), tc.body) {
				t.Errorf("is written as %s", marshal(t, submission))
			}
		})
	}
}
