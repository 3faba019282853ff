package x402_test

import (
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/go-cmp/cmp"

	"boxoffice/x402"
)

func requirements() x402.Requirements {
	return x402.Requirements{
		Scheme: x402.SchemeExact, Network: "eip155:31337",
		Asset:  common.HexToAddress("0xE6524858A96f935Aa192F5eB476bfE9d37F0DCD7"),
		Amount: x402.NewUint256(5), PayTo: common.HexToAddress("0x81c435d560dF39d0268846bFB3a345CAB42A2D43"),
		MaxTimeoutSeconds: 300,
		Extra:             &x402.Extra{AssetTransferMethod: x402.MethodPermit2, Name: "Test Token", Version: "1"},
	}
}

func TestRequiredHeader(t *testing.T) {
	want := x402.PaymentRequired{
		X402Version: x402.Version,
		Error:       "Payment required",
		Resource:    &x402.Resource{URL: "https://boxoffice.example/requests/1/submit", MimeType: "application/json"},
		Accepts:     []x402.Requirements{requirements()},
	}
	encoded, err := x402.EncodeHeader(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := x402.DecodeRequired(encoded)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Error(diff)
	}
}

func TestResponseHeader(t *testing.T) {
	for _, want := range []x402.Settlement{
		{Success: true, Payer: "0x3b50214518c257d5feb162d22a6b1d020d80d1db", Transaction: "0x" + strings.Repeat("ab", 32),
			Network: "eip155:31337", Amount: "5"},
		{ErrorReason: x402.ReasonNonceSpent, Network: "eip155:31337"},
	} {
		encoded, err := x402.EncodeHeader(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := x402.DecodeResponse(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestDecodeRequired(t *testing.T) {
	const item = `{"scheme":"exact","network":"eip155:1","asset":"0x81c435d560df39d0268846bfb3a345cab42a2d43","amount":"5",` +
		`"payTo":"0x81c435d560df39d0268846bfb3a345cab42a2d43","maxTimeoutSeconds":300}`
	const newer = `{"x402Version":2,"resource":{"url":"u","serviceName":"s","tags":[]},"accepts":[` + item + `],"extensions":{"bazaar":{}}}`
	if got, err := x402.DecodeRequired(header(newer)); err != nil || len(got.Accepts) != 1 {
		t.Errorf("what a newer server adds: %v", err)
	}
	tests := map[string]struct{ header, want string }{
		"too long": {
			strings.Repeat("A", x402.MaxHeaderLength+1),
			"PAYMENT-REQUIRED is longer than 12288 characters",
		},
		"not base64": {"*", "PAYMENT-REQUIRED must be padded standard base64"},
		"not JSON": {
			header("<html>"),
			"PAYMENT-REQUIRED is not JSON: invalid character '<' at start of value",
		},
		"a missing member": {header(`{"x402Version":2}`), "accepts is required"},
		"a fault in an item": {
			header(strings.Replace(newer, `"amount":"5"`, `"amount":5`, 1)),
			"accepts[0].amount must be a string",
		},
		"a member twice": {
			header(strings.Replace(newer, `"amount":"5"`, `"amount":"5","amount":"6"`, 1)),
			"accepts[0].amount appears twice",
		},
	}
	for name, test := range tests {
		if _, err := x402.DecodeRequired(test.header); err == nil || err.Error() != test.want {
			t.Errorf("%s: got %v, want %s", name, err, test.want)
		}
	}
}

func TestEncodeHeaderRefuses(t *testing.T) {
	for name, v := range map[string]any{"too long": strings.Repeat("x", 9215), "no JSON": func() {}} {
		if got, err := x402.EncodeHeader(v); err == nil {
			t.Errorf("%s: got %d characters", name, len(got))
		}
	}
	if got, err := x402.EncodeHeader(strings.Repeat("x", 9214)); err != nil || len(got) != x402.MaxHeaderLength {
		t.Errorf("the longest: got %d characters, %v", len(got), err)
	}
}

func TestMismatch(t *testing.T) {
	changes := map[string]func(*x402.Requirements){
		"":                          func(*x402.Requirements) {},
		"scheme":                    func(r *x402.Requirements) { r.Scheme = "upto" },
		"network":                   func(r *x402.Requirements) { r.Network = "eip155:1" },
		"asset":                     func(r *x402.Requirements) { r.Asset[0]++ },
		"amount":                    func(r *x402.Requirements) { r.Amount = x402.NewUint256(6) },
		"payTo":                     func(r *x402.Requirements) { r.PayTo[19]++ },
		"maxTimeoutSeconds":         func(r *x402.Requirements) { r.MaxTimeoutSeconds++ },
		"extra":                     func(r *x402.Requirements) { r.Extra = nil },
		"extra.assetTransferMethod": func(r *x402.Requirements) { r.Extra.AssetTransferMethod = "eip3009" },
		"extra.name":                func(r *x402.Requirements) { r.Extra.Name += " " },
		"extra.version":             func(r *x402.Requirements) { r.Extra.Version = "2" },
	}
	for field, change := range changes {
		ours, theirs := requirements(), requirements()
		change(&theirs)
		if got, back := ours.Mismatch(theirs), theirs.Mismatch(ours); got != field || back != field {
			t.Errorf("got %q and %q, want %q", got, back, field)
		}
	}
	bare := requirements()
	bare.Extra = nil
	if field := bare.Mismatch(bare); field != "" {
		t.Errorf("requirements without extra differ from themselves in %s", field)
	}
}

func TestNetwork(t *testing.T) {
	for network, want := range map[string]uint64{
		"eip155:1": 1, "eip155:31337": 31337, "eip155:99999999999999999": 99999999999999999,
	} {
		if got, err := x402.ChainID(network); err != nil || got != want || x402.Network(want) != network {
			t.Errorf("%s: got %d, %v, and %s back", network, got, err, x402.Network(want))
		}
	}
	for _, network := range []string{"", "1", "eip155", "eip155:", "eip155:0", "eip155:01", "eip155:+1", "eip155:-1", "eip155:1 ", "eip155:0x1",
		"EIP155:1", "solana:1", "eip155:1:2", "eip155:100000000000000000"} {
		if got, err := x402.ChainID(network); err == nil {
			t.Errorf("%q was taken as %d", network, got)
		}
	}
}
