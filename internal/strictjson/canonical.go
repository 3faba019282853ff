package strictjson

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Canonical returns the canonical form of a JSON document (RFC 8785). A number of which an IEEE 754 double does not
// hold all digits is an error, because the canonical form would change it: then two documents with different meanings
// could have the same canonical form. Every error is an *Error.
func Canonical(data []byte) ([]byte, error) {
	if err := exactNumbers(data); err != nil {
		return nil, err
	}
	value := jsontext.Value(bytes.Clone(data))
	if err := value.Canonicalize(); err != nil {
		return nil, located(err)
	}
	return value, nil
}

// exactNumbers checks the syntax of a document and that a double holds each of its numbers exactly.
func exactNumbers(data []byte) error {
	decoder := jsontext.NewDecoder(bytes.NewBuffer(data))
	for {
		token, err := decoder.ReadToken()
		if err != nil {
			return located(err)
		}
		if token.Kind() == jsontext.KindNumber && !exact(token.String()) {
			at := string(decoder.StackPointer())
			return &Error{Pointer: at, Message: "must be a number that a double carries exactly"}
		}
		if decoder.StackDepth() == 0 {
			return ended(decoder)
		}
	}
}

// exact reports whether the canonical form of a number has the same value. The canonical form is the shortest decimal
// of the double that is nearest to literal.
func exact(literal string) bool {
	if len(literal) <= 15 && !strings.ContainsAny(literal, ".eE") {
		return true
	}
	double, err := strconv.ParseFloat(literal, 64)
	if err != nil {
		return false
	}
	digits, exponent := decimal(literal)
	carriedDigits, carriedExponent := decimal(strconv.FormatFloat(double, 'e', -1, 64))
	return digits == carriedDigits && exponent == carriedExponent
}

// decimal returns the absolute value of a number as digits × 10^exponent. The digits neither begin nor end with zero.
func decimal(literal string) (digits string, exponent int) {
	mantissa, power, _ := strings.Cut(strings.ToLower(literal), "e")
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(mantissa, "-"), ".")
	all := whole + fraction
	digits = strings.TrimRight(all, "0")
	if digits == "" {
		return "", 0
	}
	// If the power does not fit an int, the number is outside of the range of a double.
	exponent, _ = strconv.Atoi(power)
	exponent += len(all) - len(digits) - len(fraction)
	return strings.TrimLeft(digits, "0"), exponent
}
