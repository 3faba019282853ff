package strictjson

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Canonical returns the canonical form of a JSON document (RFC 8785). Every
// error is an *Error. A number that the canonical form would change, because
// an IEEE 754 double does not carry all its digits, is an error: two documents
// that mean different things never share a canonical form.
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

// exactNumbers checks the syntax of a document, and each of its numbers.
func exactNumbers(data []byte) error {
	decoder := jsontext.NewDecoder(bytes.NewBuffer(data))
	for {
		token, err := decoder.ReadToken()
		if err != nil {
			return located(err)
		}
		if token.Kind() == jsontext.KindNumber && !exact(token.String()) {
			return &Error{Pointer: string(decoder.StackPointer()), Message: "must be a number that a double carries exactly"}
		}
		if decoder.StackDepth() == 0 {
			return ended(decoder)
		}
	}
}

// exact reports whether the shortest decimal that names the double nearest to
// literal, which is what the canonical form writes, has the value of literal.
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

// decimal returns the size of a number as digits × 10^exponent, where digits
// neither begin nor end with a zero.
func decimal(literal string) (digits string, exponent int) {
	mantissa, power, _ := strings.Cut(strings.ToLower(literal), "e")
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(mantissa, "-"), ".")
	all := whole + fraction
	digits = strings.TrimRight(all, "0")
	if digits == "" {
		return "", 0
	}
	// A power that does not fit an int belongs to a number that is no double.
	exponent, _ = strconv.Atoi(power)
	exponent += len(all) - len(digits) - len(fraction)
	return strings.TrimLeft(digits, "0"), exponent
}
