// Package boxoffice is what the server and its clients share: the resources of
// the paid request flow, the rules that decode and hash them, the QuoteApproval
// typed data and the table of errors. It performs no I/O.
//
// Amounts are integers in atomic token units. Quote times are Unix seconds;
// every other time is a Timestamp.
package boxoffice

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"boxoffice/internal/strictjson"
	"boxoffice/x402"

	"github.com/google/uuid"
)

// MaxSafeInteger is the largest integer that every JSON reader carries exactly.
const MaxSafeInteger = 1<<53 - 1

// MaxBodyBytes bounds the body of a quote or a submit (docs/protocol.md §8).
const MaxBodyBytes = 16 << 10

// Amount is a number of atomic token units. On the wire it is a decimal string
// (docs/protocol.md §2.2). It holds at most 256 bits: the pattern there also allows
// 78-digit numbers above 2^256-1, which no token could move and no approval
// could sign as a uint256, so they are refused.
type Amount = x402.Uint256

// UUID is a lowercase UUID in its 36-character form.
type UUID string

var uuidPattern = regexp.MustCompile(
	`^(?:[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}` +
		`|0{8}-0{4}-0{4}-0{4}-0{12}|f{8}-f{4}-f{4}-f{4}-f{12})$`,
)

// NewUUID returns a fresh UUID whose order is that of its creation (version 7).
func NewUUID() UUID { return UUID(uuid.Must(uuid.NewV7()).String()) }

// ParseUUID reads a UUID of RFC 4122 versions 1 to 8, or the all-zero or all-f
// one (docs/protocol.md §2.4), in either case.
func ParseUUID(s string) (UUID, error) {
	id := strings.ToLower(s)
	if !uuidPattern.MatchString(id) {
		return "", errors.New("must be a UUID")
	}
	return UUID(id), nil
}

// UnmarshalText implements encoding.TextUnmarshaler with the rules of ParseUUID.
func (id *UUID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseUUID(string(text))
	return err
}

// Hash is a SHA-256 digest, written as 64 lowercase hex characters.
type Hash [sha256.Size]byte

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText implements encoding.TextMarshaler.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hash) UnmarshalText(text []byte) error {
	decoded, err := hex.DecodeString(string(text))
	if err != nil || len(decoded) != len(h) || bytes.ContainsAny(text, "ABCDEF") {
		return errors.New("must be 64 lowercase hex characters")
	}
	*h = Hash(decoded)
	return nil
}

// Timestamp is a moment in Unix milliseconds, written in RFC 3339, UTC, with
// milliseconds: 2026-11-20T12:00:00.000Z.
type Timestamp int64

const timestampLayout = "2006-01-02T15:04:05.000Z"

// At returns the Timestamp of t.
func At(t time.Time) Timestamp { return Timestamp(t.UnixMilli()) }

// Time returns t as a time.Time in UTC.
func (t Timestamp) Time() time.Time { return time.UnixMilli(int64(t)).UTC() }

func (t Timestamp) String() string { return t.Time().Format(timestampLayout) }

// MarshalText implements encoding.TextMarshaler.
func (t Timestamp) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. It takes the one form that
// MarshalText writes; time.Parse alone would take more.
func (t *Timestamp) UnmarshalText(text []byte) error {
	moment, err := time.Parse(timestampLayout, string(text))
	if err != nil || At(moment).String() != string(text) {
		return errors.New("must be a timestamp like 2026-11-20T12:00:00.000Z")
	}
	*t = At(moment)
	return nil
}

// Canonical returns the canonical form (RFC 8785) of a JSON document. It fails
// on a document that the form cannot carry: duplicate names, invalid UTF-8, or
// a number that is not exactly a double.
func Canonical(document []byte) ([]byte, error) { return strictjson.Canonical(document) }

// HashJSON returns the SHA-256 of the canonical form of a JSON document.
func HashJSON(document []byte) (Hash, error) {
	canonical, err := strictjson.Canonical(document)
	if err != nil {
		return Hash{}, fmt.Errorf("canonical JSON: %w", err)
	}
	return sha256.Sum256(canonical), nil
}
