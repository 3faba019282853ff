package boxoffice

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"boxoffice/internal/strictjson"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	jsonv2 "github.com/go-json-experiment/json"
)

// FieldError says which member of a resource breaks a rule. Its Pointer is a
// JSON Pointer (RFC 6901) into that resource. Every Validate method returns nil
// or a *FieldError, for the first member in the order of the tables of docs/protocol.md §2.
type FieldError = strictjson.Error

// The patterns of docs/protocol.md §2.
var (
	actionPattern  = regexp.MustCompile(`^[a-z][a-z0-9]*(?:[._-][a-z0-9]+)*$`)
	commitPattern  = regexp.MustCompile(`^[0-9a-fA-F]{40}$`)
	addressPattern = regexp.MustCompile(`^0x[0-9a-f]{40}$`)
)

// A resource is a value that knows its own rules.
type resource interface{ Validate() error }

func rule(holds bool, pointer, message string) error {
	if holds {
		return nil
	}
	return &FieldError{Pointer: pointer, Message: message}
}

// member checks a resource that stands at pointer in another.
func member(pointer string, r resource) error { return nested(pointer, r.Validate()) }

// nested moves the error of a resource to where it stands in another.
func nested(pointer string, err error) error {
	if err == nil {
		return nil
	}
	if field, ok := errors.AsType[*FieldError](err); ok {
		return &FieldError{Pointer: pointer + field.Pointer, Message: field.Message}
	}
	return &FieldError{Pointer: pointer, Message: err.Error()}
}

func items[T resource](pointer string, list []T) error {
	for i, item := range list {
		if err := member(fmt.Sprint(pointer, "/", i), item); err != nil {
			return err
		}
	}
	return nil
}

// text counts characters as JSON Schema does: Unicode code points.
func text(pointer, s string, least, most int) error {
	n := utf8.RuneCountInString(s)
	return rule(utf8.ValidString(s) && least <= n && n <= most, pointer,
		fmt.Sprintf("must be a string of %d to %d characters", least, most))
}

func integer(pointer string, n, least, most int64) error {
	return rule(least <= n && n <= most, pointer, fmt.Sprintf("must be an integer from %d to %d", least, most))
}

func oneOf[S ~string](pointer string, s S, values ...S) error {
	list := make([]string, len(values))
	for i, value := range values {
		list[i] = string(value)
	}
	message := "must be " + list[0]
	if len(list) > 1 {
		message = "must be one of " + strings.Join(list, ", ")
	}
	return rule(slices.Contains(values, s), pointer, message)
}

func action(pointer, s string) error {
	return rule(len(s) <= 64 && actionPattern.MatchString(s), pointer,
		"must be 1 to 64 lowercase letters and digits in words joined by . _ or -")
}

func network(pointer, s string) error {
	_, err := x402.ChainID(s)
	return rule(err == nil, pointer, "must be eip155:<chainId>, at most 24 characters")
}

// uri takes what a client can follow: a scheme and a host.
func uri(pointer, s string) error {
	u, err := url.Parse(s)
	return rule(err == nil && u.Scheme != "" && u.Host != "", pointer,
		"must be an absolute URL")
}

// Validate checks that id is a UUID in the one form that is signed and compared.
func (id UUID) Validate() error {
	return rule(uuidPattern.MatchString(string(id)), "", "must be a lowercase UUID")
}

// Validate checks that the moment can be written: years 0 to 9999.
func (t Timestamp) Validate() error {
	year := t.Time().Year()
	return rule(0 <= year && year <= 9999, "", "must be a moment of the years 0 to 9999")
}

// decode reads a closed resource that its requester signs or hashes, so it
// accepts only what encodes to the same canonical JSON again: addresses and
// UUIDs in lowercase, and optional members that are absent or not empty.
func decode(data []byte, into any) error {
	if err := strictjson.Decode(data, into, asWritten); err != nil {
		return err
	}
	encoded, err := json.Marshal(into)
	if err != nil {
		return fmt.Errorf("encode again: %w", err)
	}
	var sent, kept map[string]json.RawMessage
	if err := cmp.Or(json.Unmarshal(data, &sent), json.Unmarshal(encoded, &kept)); err != nil {
		return fmt.Errorf("encode again: %w", err)
	}
	for name := range sent {
		if _, ok := kept[name]; !ok {
			return &FieldError{Pointer: "/" + name, Message: "must be absent or have a value that is not empty"}
		}
	}
	return nil
}

var asWritten = jsonv2.WithUnmarshalers(jsonv2.JoinUnmarshalers(
	jsonv2.UnmarshalFunc(func(data []byte, address *common.Address) error {
		s, err := unquote(data)
		if err != nil || !addressPattern.MatchString(s) {
			return errors.New("must be an address: 0x and 40 lowercase hex characters")
		}
		_, err = hex.Decode(address[:], []byte(s[2:]))
		return err
	}),
	jsonv2.UnmarshalFunc(func(data []byte, id *UUID) error {
		s, err := unquote(data)
		if err != nil || !uuidPattern.MatchString(s) {
			return errors.New("must be a lowercase UUID")
		}
		*id = UUID(s)
		return nil
	}),
))

func unquote(data []byte) (s string, err error) {
	err = json.Unmarshal(data, &s)
	return s, err
}
