package x402_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"boxoffice/x402"
)

// full is a payload in which every member that the protocol has is there.
const full = `{
	"x402Version": 2,
	"resource": {"url": "https://boxoffice.example/requests/1/submit", "description": "d",
		"mimeType": "application/json"},
	"accepted": {
		"scheme": "exact", "network": "eip155:31337", "asset": "0xe6524858a96f935aa192f5eb476bfe9d37f0dcd7",
		"amount": "5",
		"payTo": "0x81c435d560df39d0268846bfb3a345cab42a2d43", "maxTimeoutSeconds": 300,
		"extra": {"assetTransferMethod": "permit2", "name": "Test Token", "version": "1"}
	},
	"payload": {
		"signature": "0x0102",
		"permit2Authorization": {
			"from": "0x3b50214518c257d5Feb162D22a6B1d020D80d1db",
			"permitted": {"token": "0xE6524858A96f935Aa192F5eB476bfE9d37F0DCD7", "amount": "5"},
			"spender": "0x402085c248EeA27D92E8b30b2C58ed07f9E20001", "nonce": "257", "deadline": "1795000300",
			"witness": {"to": "0x81c435d560dF39d0268846bFB3a345CAB42A2D43", "validAfter": "0"}
		}
	},
	"extensions": {}
}`

// optional are the members that a payload may leave out.
var optional = []string{"resource", "resource.description", "resource.mimeType", "accepted.extra", "extensions"}

func header(document string) string { return base64.StdEncoding.EncodeToString([]byte(document)) }

// object returns the full payload as a tree, and the object at path in it.
func object(path string) (root, at map[string]any) {
	if err := json.Unmarshal([]byte(full), &root); err != nil {
		panic(err)
	}
	at = root
	if path != "" {
		for name := range strings.SplitSeq(path, ".") {
			at = at[name].(map[string]any)
		}
	}
	return root, at
}

func encode(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func shapeError(t *testing.T, document string) *x402.ShapeError {
	t.Helper()
	payment, err := x402.ParsePayment(header(document))
	fault, ok := errors.AsType[*x402.ShapeError](err)
	if !ok || payment != nil {
		t.Fatalf("got %v, %v, want a *ShapeError of %s", payment, err, document)
	}
	if fault.Message == "" || fault.Error() != fault.Path+" "+fault.Message {
		t.Errorf("%q is not a sentence about %q", fault.Error(), fault.Path)
	}
	return fault
}

// Every member at every level: left out, null, of each wrong type, and twice;
// and at every level an unknown member.
func TestParsePaymentShape(t *testing.T) {
	levels := []string{
		"", "resource", "accepted", "accepted.extra", "payload",
		"payload.permit2Authorization", "payload.permit2Authorization.permitted",
		"payload.permit2Authorization.witness",
	}
	wrong := map[string]any{
		"a boolean": true,
		"a number":  1.5,
		"a string":  "text",
		"an array":  []any{},
		"an object": map[string]any{"x": 1},
	}
	check := func(t *testing.T, root any, path, message string) {
		t.Helper()
		fault := shapeError(t, encode(root))
		if fault.Path != path || message != "" && fault.Message != message {
			t.Errorf("got %q, want %q", fault, path+" "+message)
		}
		if pointer := "/" + strings.ReplaceAll(path, ".", "/"); fault.Pointer != pointer {
			t.Errorf("got pointer %q, want %q", fault.Pointer, pointer)
		}
	}
	for _, level := range levels {
		dotted := func(name string) string { return strings.TrimPrefix(level+"."+name, ".") }
		t.Run("unknown in "+level, func(t *testing.T) {
			for _, value := range []any{nil, 1, map[string]any{}} {
				root, at := object(level)
				at["nonse"] = value
				check(t, root, dotted("nonse"), "is not a known member")
			}
		})
		_, members := object(level)
		for _, name := range slices.Sorted(maps.Keys(members)) {
			path := dotted(name)
			t.Run(path, func(t *testing.T) {
				root, at := object(level)
				value := at[name]
				delete(at, name)
				if slices.Contains(optional, path) {
					if _, err := x402.ParsePayment(header(encode(root))); err != nil {
						t.Errorf("left out: %v", err)
					}
				} else {
					check(t, root, path, "is required")
				}
				at[name] = nil
				check(t, root, path, "must not be null")
				for kind, other := range wrong {
					if _, text := value.(string); text && kind == "a string" && slices.Contains([]string{
						"resource.url", "resource.description", "resource.mimeType", "accepted.scheme",
						"accepted.network",
						"accepted.extra.assetTransferMethod", "accepted.extra.name", "accepted.extra.version",
					}, path) {
						continue // text is what belongs there
					}
					if _, nested := value.(map[string]any); nested && kind == "an object" {
						continue // another object is another level's test
					}
					at[name] = other
					check(t, root, path, "")
				}
				at[name] = value
				at["\x00"] = value
				twice := strings.Replace(encode(root), `"\u0000":`, encode(name)+":", 1)
				fault := shapeError(t, twice)
				if fault.Path != path || fault.Message != "appears twice" {
					t.Errorf("twice: got %q", fault)
				}
			})
		}
	}
}

func TestParsePaymentRefuses(t *testing.T) {
	const authorization = "payload.permit2Authorization."
	replace := func(old, with string) string {
		if !strings.Contains(full, old) {
			panic(old)
		}
		return header(strings.Replace(full, old, with, 1))
	}
	const notUint256 = " must be an unsigned integer of at most 256 bits in decimal digits"
	const notAddress = " must be an address: a string of 0x and 40 hex digits"
	const notHex = " must be a string of 0x and pairs of hex digits"
	tests := map[string]struct{ header, want string }{
		"nothing": {"", "PAYMENT-SIGNATURE is empty"},
		"one character too long": {
			strings.Repeat("A", x402.MaxHeaderLength+1),
			"PAYMENT-SIGNATURE is longer than 12288 characters",
		},
		"not base64": {"{}", "PAYMENT-SIGNATURE must be padded standard base64"},
		"no padding": {
			strings.TrimRight(header(full+" "), "="),
			"PAYMENT-SIGNATURE must be padded standard base64",
		},
		"url-safe base64": {
			base64.URLEncoding.EncodeToString([]byte("{\"\u00fe\u00ff\":\"???>>>\"}")),
			"PAYMENT-SIGNATURE must be padded standard base64",
		},
		"a line break": {
			header(full)[:64] + "\n" + header(full)[64:],
			"PAYMENT-SIGNATURE must be padded standard base64",
		},
		"bits behind the end": {"e31=", "PAYMENT-SIGNATURE must be padded standard base64"},
		"white space":         {header(" "), "PAYMENT-SIGNATURE is empty"},
		"an array":            {header("[]"), "PAYMENT-SIGNATURE must be an object"},
		"null":                {header("null"), "PAYMENT-SIGNATURE must not be null"},
		"a second document":   {header(full + "{}"), "PAYMENT-SIGNATURE has more data after its end"},
		"a cut document":      {header(`{"x402Version":2`), "PAYMENT-SIGNATURE ends too early"},
		"version 1":           {replace(`"x402Version": 2`, `"x402Version": 1`), "x402Version must be 2"},
		"version as text": {
			replace(`"x402Version": 2`, `"x402Version": "2"`),
			"x402Version must be an integer of at most 64 bits",
		},
		"version 2.0": {
			replace(`"x402Version": 2`, `"x402Version": 2.0`),
			"x402Version must be an integer of at most 64 bits",
		},
		"version 2e0": {
			replace(`"x402Version": 2`, `"x402Version": 2e0`),
			"x402Version must be an integer of at most 64 bits",
		},
		"an extension": {
			replace(`"extensions": {}`, `"extensions": {"bazaar": {"info": {}}}`),
			"extensions must be empty: no extension is supported",
		},
		"an empty extension": {
			replace(`"extensions": {}`, `"extensions": {"bazaar": {}}`),
			"extensions must be empty: no extension is supported",
		},
		"a null extension": {
			replace(`"extensions": {}`, `"extensions": {"bazaar": null}`),
			"extensions must be empty: no extension is supported",
		},
		"extensions as an array": {replace(`"extensions": {}`, `"extensions": []`), "extensions must be an object"},
		"extensions null": {
			replace(`"extensions": {}`, `"extensions": null`),
			"extensions must not be null",
		},
		"2^53+1": {
			replace(`300`, `9007199254740993`),
			"accepted.maxTimeoutSeconds must be a number that a double carries exactly",
		},
		"2^63": {
			replace(`300`, `9223372036854775808`),
			"accepted.maxTimeoutSeconds must be an integer of at most 64 bits",
		},
		"invalid UTF-8": {replace(`Test Token`, "Test\xff"), "accepted.extra.name is not valid UTF-8"},
		"a lone surrogate": {
			replace(`Test Token`, `\ud83d`),
			"accepted.extra.name has one half of a surrogate pair",
		},
		"amount as a number":       {replace(`"amount": "5"`, `"amount": 5`), "accepted.amount must be a string"},
		"amount with a sign":       {replace(`"amount": "5"`, `"amount": "+5"`), "accepted.amount" + notUint256},
		"a negative amount":        {replace(`"amount": "5"`, `"amount": "-5"`), "accepted.amount" + notUint256},
		"amount with a zero ahead": {replace(`"amount": "5"`, `"amount": "05"`), "accepted.amount" + notUint256},
		"amount in hex":            {replace(`"amount": "5"`, `"amount": "0x5"`), "accepted.amount" + notUint256},
		"amount with a fraction":   {replace(`"amount": "5"`, `"amount": "5.0"`), "accepted.amount" + notUint256},
		"amount of 2^256": {
			replace(
				`"amount": "5"`,
				`"amount": "115792089237316195423570985008687907853269984665640564039457584007913129639936"`,
			),
			"accepted.amount" + notUint256,
		},
		"nonce empty":              {replace(`"257"`, `""`), authorization + "nonce" + notUint256},
		"nonce with space":         {replace(`"257"`, `" 257"`), authorization + "nonce" + notUint256},
		"deadline in other digits": {replace(`"1795000300"`, `"١٧٩٥"`), authorization + "deadline" + notUint256},
		"an address with 0X":       {replace(`"0x3b50`, `"0X3b50`), authorization + "from" + notAddress},
		"an address without 0x":    {replace(`"0x402085`, `"402085`), authorization + "spender" + notAddress},
		"a short address":          {replace(`2D43"`, `2D4"`), authorization + "witness.to" + notAddress},
		"a long address":           {replace(`DCD7"`, `DCD700"`), authorization + "permitted.token" + notAddress},
		"signature without 0x":     {replace(`"0x0102"`, `"0102"`), "payload.signature" + notHex},
		"half a byte":              {replace(`"0x0102"`, `"0x010"`), "payload.signature" + notHex},
		"EIP-3009": {
			replace(`permit2Authorization`, `authorization`),
			"payload.authorization is not a known member",
		},
		"an odd name":   {replace(`"url"`, `"a b":1,"url"`), `resource["a b"] is not a known member`},
		"an empty name": {replace(`"url"`, `"":1,"url"`), `resource[""] is not a known member`},
		"a long name": {
			replace(`"url"`, `"`+strings.Repeat("n", 4000)+`":1,"url"`),
			"resource." + strings.Repeat("n", 63) + "… is not a known member",
		},
		"a deep fault": {header(`{"accepted":` + strings.Repeat("[", 2000) + "x"),
			"accepted" + strings.Repeat("[0]", 82) + "… is not JSON: invalid character 'x' at start of value"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			payment, err := x402.ParsePayment(test.header)
			fault, ok := errors.AsType[*x402.ShapeError](err)
			if !ok || payment != nil {
				t.Fatalf("got %v, %v", payment, err)
			}
			if fault.Error() != test.want {
				t.Errorf("got  %s\nwant %s", fault, test.want)
			}
		})
	}
}

func TestParsePaymentReads(t *testing.T) {
	longest := full + strings.Repeat(" ", x402.MaxHeaderLength/4*3-len(full))
	if length := len(header(longest)); length != x402.MaxHeaderLength {
		t.Fatalf("%d characters", length)
	}
	want, err := x402.ParsePayment(header(full))
	if err != nil {
		t.Fatal(err)
	}
	if want.Hash != sha256.Sum256(want.Raw) {
		t.Error("hash is not the SHA-256 of raw")
	}
	root, _ := object("")
	same := map[string]string{"the longest": longest, "sorted and without white space": encode(root)}
	for name, document := range same {
		if got, err := x402.ParsePayment(header(document)); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	// The case of an address's letters changes the hash of the payload and nothing else.
	lower, err := x402.ParsePayment(
		header(
			strings.ReplaceAll(full, "0xE6524858A96f935Aa192F5eB476bfE9d37F0DCD7",
				"0xe6524858a96f935aa192f5eb476bfe9d37f0dcd7"),
		),
	)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Payload, lower.Payload); diff != "" || lower.Hash == want.Hash {
		t.Errorf("lowercase: same hash, or %s", diff)
	}
}

func FuzzParsePayment(f *testing.F) {
	f.Add([]byte(full))
	for _, v := range vectors(f) {
		document, err := base64.StdEncoding.DecodeString(v.Header)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(document)
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		for _, text := range []string{string(document), base64.StdEncoding.EncodeToString(document)} {
			payment, err := x402.ParsePayment(text)
			if err != nil {
				if fault, ok := errors.AsType[*x402.ShapeError](err); !ok || fault.Path == "" || fault.Message == "" {
					t.Fatalf("%#v is not a *ShapeError that says where and what", err)
				}
				continue
			}
			again, err := x402.ParsePayment(base64.StdEncoding.EncodeToString(payment.Raw))
			if err != nil {
				t.Fatalf("raw does not parse: %v", err)
			}
			if diff := cmp.Diff(payment, again); diff != "" {
				t.Errorf("raw parses to another payment: %s", diff)
			}
			encoded, err := x402.EncodeHeader(payment.Payload)
			if err != nil {
				t.Fatal(err)
			}
			if again, err = x402.ParsePayment(encoded); err != nil {
				t.Fatalf("what was read does not parse: %v", err)
			}
			if diff := cmp.Diff(payment.Payload, again.Payload, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("encoding changed the payload: %s", diff)
			}
		}
	})
}

// The work of a submit before the first RPC call.
func BenchmarkVerify(b *testing.B) {
	v := vectors(b)[0]
	b.Run("ParsePayment", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := x402.ParsePayment(v.Header); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Digest", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			v.Authorization.Digest(v.ChainID)
		}
	})
	b.Run("Recover", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := x402.Recover(v.Digest, v.Signature); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("all", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			payment, err := x402.ParsePayment(v.Header)
			if err != nil {
				b.Fatal(err)
			}
			signed := payment.Payload.Payload
			if _, err := x402.Recover(signed.Authorization.Digest(v.ChainID), signed.Signature); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A contract wallet's signature may be any bytes: the parser does not check it.
func TestSignatureOfAnyBytes(t *testing.T) {
	for _, signature := range []string{
		strings.Repeat("ff", 65), strings.Repeat("00", 65), strings.Repeat("6492", 64), "",
	} {
		payment, err := x402.ParsePayment(header(strings.Replace(full, "0x0102", "0x"+signature, 1)))
		if err != nil {
			t.Fatal(err)
		}
		if got := payment.Payload.Payload.Signature.String(); got != "0x"+signature {
			t.Errorf("got %s, want %s", got, signature)
		}
	}
}
