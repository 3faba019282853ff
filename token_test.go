package boxoffice_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"boxoffice"
)

// The identities of the token 00 01 … 1f, computed with Python's hashlib.
const (
	knownToken     = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
	knownRequester = "f0d18e1708bc646f2e20d389e6891a78801d72c2607a253ed21c510dd7367edb"
	knownScope     = "9ac2e6ccfd715ff61c6799c3e8603c15dbb9413c3af1af75e7f0c9862c78979e" // at https://boxoffice.example
)

func TestTokenIdentities(t *testing.T) {
	token, err := boxoffice.ParseToken(knownToken)
	if err != nil {
		t.Fatal(err)
	}
	requester := token.Requester()
	if requester.String() != knownRequester {
		t.Errorf("the requester is %s, want %s", requester, knownRequester)
	}
	if scope := requester.ScopeHash("https://boxoffice.example"); scope.String() != knownScope {
		t.Errorf("the scope hash is %s, want %s", scope, knownScope)
	}
	if requester.ScopeHash("https://boxoffice.example") == requester.ScopeHash("https://boxoffice.example/") {
		t.Error("two services share a scope hash")
	}
}

func TestParseToken(t *testing.T) {
	for name, tc := range map[string]struct {
		sent string
		ok   bool
	}{
		"lowercase":        {knownToken, true},
		"uppercase":        {strings.ToUpper(knownToken), true},
		"mixed":            {"000102030405060708090a0B0c0D0e0F101112131415161718191A1b1c1D1e1F", true},
		"empty":            {"", false},
		"63 characters":    {knownToken[1:], false},
		"62 characters":    {knownToken[2:], false},
		"65 characters":    {knownToken + "0", false},
		"66 characters":    {"0x" + knownToken, false},
		"0x in 64":         {"0x" + knownToken[2:], false},
		"not hex":          {"g" + knownToken[1:], false},
		"a space":          {" " + knownToken[1:], false},
		"outside of ASCII": {"é" + knownToken[2:], false},
	} {
		t.Run(name, func(t *testing.T) {
			token, err := boxoffice.ParseToken(tc.sent)
			switch {
			case tc.ok && (err != nil || token.Reveal() != knownToken):
				t.Errorf("got %q, %v", token.Reveal(), err)
			case !tc.ok && err == nil:
				t.Error("was accepted")
			case !tc.ok && tc.sent != "" && strings.Contains(err.Error(), tc.sent):
				t.Errorf("the error repeats what was sent: %v", err)
			}
		})
	}
}

func TestNewToken(t *testing.T) {
	first, second := boxoffice.NewToken(), boxoffice.NewToken()
	if first == second || first == (boxoffice.Token{}) {
		t.Error("a new token is not random")
	}
	parsed, err := boxoffice.ParseToken(first.Reveal())
	if err != nil || parsed != first {
		t.Errorf("a new token does not survive being sent: %v", err)
	}
}

// TestTokenIsRedacted prints, logs and encodes a token in every way there is,
// alone and inside of other values.
func TestTokenIsRedacted(t *testing.T) {
	token, err := boxoffice.ParseToken(knownToken)
	if err != nil {
		t.Fatal(err)
	}
	type holder struct {
		Token   boxoffice.Token
		Pointer *boxoffice.Token
		List    []boxoffice.Token
		Map     map[string]boxoffice.Token
	}
	held := holder{token, &token, []boxoffice.Token{token}, map[string]boxoffice.Token{"token": token}}
	printed := map[string]string{"errors": errors.Join(fmt.Errorf("bad token %v", token)).Error()}
	for _, flags := range []string{"", "+", "#", " ", "0", "-80", "# "} {
		for _, verb := range "vsqxXdoObcUeEfFgGtT" {
			format := "%" + flags + string(verb)
			printed[format] = fmt.Sprintf(format, token)
			printed[format+" of a struct"] = fmt.Sprintf(format, held)
			printed[format+" of a pointer"] = fmt.Sprintf(format, &token)
		}
	}
	for name, value := range map[string]any{
		"a token": token, "a pointer": &token, "a struct": held, "a key": map[boxoffice.Token]int{token: 1},
	} {
		encoded, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		printed["json of "+name] = string(encoded)
		var log bytes.Buffer
		slog.New(slog.NewJSONHandler(&log, nil)).Info("request", "value", value)
		slog.New(slog.NewTextHandler(&log, nil)).Info("request", "value", value)
		printed["slog of "+name] = log.String()
	}
	// The secret in the forms in which bytes are printed: hex, decimal, octal,
	// binary, Go syntax, and the text of either.
	secrets := []string{
		"1c1d1e",
		"1c 1d 1e",
		"28 29 30",
		"28, 29",
		"28,29,30",
		"34 35 36",
		"11100 11101",
		"0x1c, 0x1d",
		"0x1c 0x1d",
		"0x1c1d",
		"U+001C",
		"AAECAwQ",
	}
	for how, text := range printed {
		for _, secret := range secrets {
			if strings.Contains(strings.ToLower(text), strings.ToLower(secret)) {
				t.Errorf("%s shows the token: %s", how, text)
			}
		}
		if strings.Contains(text, "\x1c\x1d\x1e") {
			t.Errorf("%s shows the token's bytes", how)
		}
	}
	if len(printed) < 200 {
		t.Errorf("only %d ways were tried", len(printed))
	}
}
