package boxoffice

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
)

// Token is a requester's secret: 32 random bytes, written as 64 hex characters
// and sent as the Bearer token (docs/protocol.md §5). It identifies the requester's
// orders and is never stored by the service. Every way to print, log or encode
// it is redacted, so that no log or error carries it; Reveal returns the
// secret. Two things escape that, because fmt calls no methods for them: a
// struct that keeps a token in an unexported field, and the verb %p.
type Token [32]byte

// NewToken returns a fresh random token.
func NewToken() Token {
	var t Token
	rand.Read(t[:]) // never fails, see crypto/rand
	return t
}

// ParseToken reads 64 hex characters of either case.
func ParseToken(s string) (Token, error) {
	var t Token
	if len(s) != 2*len(t) {
		return Token{}, errors.New("a request token is 64 hex characters")
	}
	if _, err := hex.Decode(t[:], []byte(s)); err != nil {
		return Token{}, errors.New("a request token is 64 hex characters")
	}
	return t, nil
}

// Reveal returns the token as it is sent.
func (t Token) Reveal() string { return hex.EncodeToString(t[:]) }

func (t Token) String() string { return "[request token]" }

// Format redacts the token under every verb.
func (t Token) Format(s fmt.State, _ rune) { io.WriteString(s, t.String()) }

// MarshalText redacts the token.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// LogValue redacts the token.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// Requester returns the identity under which the service keeps the token's
// orders: SHA-256("boxoffice-requester-v1" ‖ 0x00 ‖ token).
func (t Token) Requester() Requester {
	return sha256.Sum256(append([]byte("boxoffice-requester-v1\x00"), t[:]...))
}

// Requester identifies the holder of a token without revealing the token.
type Requester [sha256.Size]byte

func (r Requester) String() string { return hex.EncodeToString(r[:]) }

// ScopeHash binds the requester to one service: SHA-256("boxoffice-scope-v1" ‖
// 0x00 ‖ base URL ‖ 0x00 ‖ requester). It is what a quote approval signs.
func (r Requester) ScopeHash(baseURL string) Hash {
	preimage := append([]byte("boxoffice-scope-v1\x00"+baseURL+"\x00"), r[:]...)
	return sha256.Sum256(preimage)
}
