package boxoffice

import (
	"fmt"
	"math/big"
	"strings"

	"boxoffice/x402"
)

// FormatUnits writes an amount of atomic units as a decimal number of whole
// tokens: 2.5.
func FormatUnits(amount Amount, decimals int) string {
	digits := amount.String()
	if missing := decimals + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	whole, part := digits[:len(digits)-decimals], strings.TrimRight(digits[len(digits)-decimals:], "0")
	if part == "" {
		return whole
	}
	return whole + "." + part
}

// ParseUnits reads a decimal number of whole tokens, such as 2.5, as atomic units.
// It fails if that takes more decimals than there are.
func ParseUnits(text string, decimals int) (Amount, error) {
	whole, part, point := strings.Cut(text, ".")
	if len(part) > decimals || whole == "" || point && part == "" || strings.Trim(whole+part, "0123456789") != "" {
		return Amount{}, fmt.Errorf("%q is not an amount with at most %d decimals", text, decimals)
	}
	n, ok := new(big.Int).SetString(whole+part+strings.Repeat("0", decimals-len(part)), 10)
	if !ok {
		return Amount{}, fmt.Errorf("%q is not an amount", text)
	}
	return x402.Uint256FromBig(n)
}
