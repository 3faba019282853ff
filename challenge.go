package boxoffice

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"boxoffice/x402"
)

// Challenge is the body of a 402 that offers payment (docs/protocol.md §2.7).
type Challenge struct {
	X402Version        int                 `json:"x402Version"`
	Resource           x402.Resource       `json:"resource"`
	Accepts            []x402.Requirements `json:"accepts"`
	Quote              Quote               `json:"quote"`
	RequesterScopeHash Hash                `json:"requesterScopeHash"`
	ResourceURL        string              `json:"resourceUrl"`
	Input              json.RawMessage     `json:"input"` // the prepared input, to inspect before signing
}

// Validate checks the challenge against docs/protocol.md §2.7.
func (c *Challenge) Validate() error {
	return cmp.Or(
		rule(c.X402Version == x402.Version, "/x402Version", "must be 2"),
		c.validateAccepts(),
		member("/quote", c.Quote),
		uri("/resourceUrl", c.ResourceURL),
		rule(json.Valid(c.Input), "/input", "is required"),
	)
}

// Verify checks the challenge before it is signed: its rules, the quote's hash,
// that the input is the one that the quote prices, and that an item of accepts
// asks for the quote's payment. It does not compare the challenge with what the
// caller asked for.
func (c *Challenge) Verify() error {
	if err := c.Validate(); err != nil {
		return err
	}
	_, err := c.Accepted()
	return cmp.Or(
		nested("/quote", c.Quote.Verify()),
		c.Quote.verifyInput("/input", c.Input),
		rule(c.Resource.URL == c.ResourceURL, "/resource/url", "must be resourceUrl"),
		err,
	)
}

// Accepted returns the item of accepts that asks for exactly the payment of the
// quote, by Permit2: the one to sign.
func (c *Challenge) Accepted() (x402.Requirements, error) {
	terms := c.Quote.Payment
	for _, item := range c.Accepts {
		if item.Scheme == terms.Scheme && item.Network == terms.Network && item.Asset == terms.Asset &&
			item.Amount == terms.Amount && item.PayTo == terms.PayTo &&
			item.Extra != nil && item.Extra.AssetTransferMethod == x402.MethodPermit2 {
			return item, nil
		}
	}
	return x402.Requirements{}, &FieldError{
		Pointer: "/accepts",
		Message: "has no item for the payment of the quote by " + x402.MethodPermit2,
	}
}

// validateAccepts checks the items against the second table of docs/protocol.md §2.7.
func (c *Challenge) validateAccepts() error {
	for i, item := range c.Accepts {
		if err := cmp.Or(
			oneOf("/scheme", item.Scheme, x402.SchemeExact),
			network("/network", item.Network),
			integer("/maxTimeoutSeconds", item.MaxTimeoutSeconds, 1, MaxSafeInteger),
		); err != nil {
			return nested(fmt.Sprint("/accepts/", i), err)
		}
	}
	return rule(len(c.Accepts) > 0, "/accepts", "must have at least one item")
}

// Submission is the body of a submit that pays (docs/protocol.md §4.4). The type of its
// member has all its rules.
type Submission struct {
	QuoteSignature Signature `json:"quoteSignature"`
}

// Signature is a 65-byte signature of a key or a contract wallet, written as 0x
// and 130 hex characters of either case.
type Signature [65]byte

func (s Signature) String() string { return "0x" + hex.EncodeToString(s[:]) }

// MarshalText implements encoding.TextMarshaler.
func (s Signature) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText takes what matches ^0x[0-9a-fA-F]{130}$ (docs/protocol.md §4.4).
func (s *Signature) UnmarshalText(text []byte) error {
	if len(text) == 2+2*len(s) && text[0] == '0' && text[1] == 'x' {
		if decoded, err := hex.DecodeString(string(text[2:])); err == nil {
			*s = Signature(decoded)
			return nil
		}
	}
	return errors.New("must be 0x and 130 hex characters: 65 bytes, " +
		"from a contract wallet too, which has to be deployed")
}
