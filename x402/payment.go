package x402

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"boxoffice/internal/strictjson"
)

// Payment is a payload as it was sent.
type Payment struct {
	Payload
	Raw  []byte   // the canonical JSON (RFC 8785) of exactly what was sent
	Hash [32]byte // the SHA-256 of Raw: paymentHash of docs/protocol.md §6.2
}

// ParsePayment reads a PAYMENT-SIGNATURE header (docs/protocol.md §6.3): at most
// MaxHeaderLength characters of padded standard base64 that hold a Payload of
// version 2 in which every member is known, required members are there, and no
// extension is used. Keys come in any order and hex digits in either case; the
// payer hashes what it sent, so the letters of an address are kept in Raw. It
// checks the shape alone: nothing is compared or verified.
//
// Every error is a *ShapeError, and the service answers invalid_payment_shape.
// A client parses its own header to get the hash of what it will send.
func ParsePayment(header string) (*Payment, error) {
	document, err := decodeHeader(HeaderSignature, header)
	if err != nil {
		return nil, err
	}
	payment := new(Payment)
	if err := strictjson.Decode(document, &payment.Payload); err != nil {
		return nil, paymentError(err)
	}
	switch {
	case payment.X402Version != Version:
		return nil, &ShapeError{
			Path: "x402Version", Pointer: "/x402Version", Message: fmt.Sprintf("must be %d", Version),
		}
	case len(payment.Extensions) > 0:
		return nil, errExtensions
	}
	if payment.Raw, err = strictjson.Canonical(document); err != nil {
		return nil, paymentError(err)
	}
	payment.Hash = sha256.Sum256(payment.Raw)
	return payment, nil
}

// ShapeError says what is wrong with a header and where.
type ShapeError struct {
	// Path names the field as a person reads it, payload.permit2Authorization.nonce
	// or accepts[0].asset, or the header when the fault is not in one field.
	Path    string
	Pointer string // the same as a JSON Pointer (RFC 6901); empty for the whole document
	Message string // follows the name of the field: "must be 2"
}

// Error returns a sentence that names the field and says what is wrong. It
// contains no value that was sent, so it can be the detail of an error response.
func (e *ShapeError) Error() string { return e.Path + " " + e.Message }

var errExtensions = &ShapeError{
	Path: "extensions", Pointer: "/extensions", Message: "must be empty: no extension is supported",
}

func paymentError(err error) error {
	shape := shapeError(HeaderSignature, err)
	if shape.Path != "extensions" && strings.HasPrefix(shape.Pointer, errExtensions.Pointer+"/") {
		return errExtensions
	}
	return shape
}

func shapeError(header string, err error) *ShapeError {
	fault, ok := errors.AsType[*strictjson.Error](err)
	if !ok {
		return &ShapeError{Path: header, Message: err.Error()}
	}
	return &ShapeError{Path: path(header, fault.Pointer), Pointer: fault.Pointer, Message: fault.Message}
}

// Limits of what an error repeats of names that the sender chose.
const (
	maxNameLength = 64
	maxPathLength = 256
)

// path writes a JSON Pointer with dots, and indices and odd names in brackets.
func path(header, pointer string) string {
	var b strings.Builder
	for name := range jsontext.Pointer(pointer).Tokens() {
		switch {
		case name != "" && strings.Trim(name, "0123456789") == "":
			name = "[" + name + "]"
		case !plain(name):
			name = "[" + strconv.QuoteToASCII(name) + "]"
		case b.Len() > 0:
			name = "." + name
		}
		if len(name) > maxNameLength {
			name = name[:maxNameLength] + "…"
		}
		if b.Len()+len(name) > maxPathLength {
			b.WriteString("…")
			break
		}
		b.WriteString(name)
	}
	if b.Len() == 0 {
		return header
	}
	return b.String()
}

// plain reports whether name is a word of letters, digits, _, - and $.
func plain(name string) bool {
	for _, c := range name {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && c != '_' && c != '-' && c != '$' {
			return false
		}
	}
	return name != ""
}
