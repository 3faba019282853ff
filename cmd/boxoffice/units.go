package main

import (
	"fmt"
	"math/big"
	"strings"
	"time"

	"boxoffice"
	"boxoffice/x402"
)

// units writes an amount of atomic units as a decimal number.
func units(amount boxoffice.Amount, decimals int) string {
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

// parseUnits reads a decimal number, such as 2.5, as atomic units.
func parseUnits(text string, decimals int) (boxoffice.Amount, error) {
	whole, part, point := strings.Cut(text, ".")
	if len(part) > decimals || whole == "" || point && part == "" || strings.Trim(whole+part, "0123456789") != "" {
		return boxoffice.Amount{}, fmt.Errorf("%q is not an amount with at most %d decimals", text, decimals)
	}
	n, ok := new(big.Int).SetString(whole+part+strings.Repeat("0", decimals-len(part)), 10)
	if !ok {
		return boxoffice.Amount{}, fmt.Errorf("%q is not an amount", text)
	}
	return x402.Uint256FromBig(n)
}

// price writes an amount with its symbol, where the asset is the one that is listed.
func price(payment boxoffice.Payment, capabilities *boxoffice.Capabilities) string {
	symbol := "of token " + lowerHex(payment.Asset)
	if capabilities != nil && capabilities.Payment.Asset.Address == payment.Asset {
		symbol = capabilities.Payment.Asset.Symbol
	}
	return units(payment.Amount, payment.Decimals) + " " + printable(symbol)
}

// moment writes a time here and how far it is from now.
func moment(t, now time.Time) string {
	return t.Local().Format("2006-01-02 15:04:05 MST") + " (" + distance(t.Sub(now)) + ")"
}

func distance(d time.Duration) string {
	switch {
	case d > 0:
		return "in " + span(d)
	case d > -time.Second:
		return "now"
	}
	return span(-d) + " ago"
}

// span writes the two greatest units of a duration.
func span(d time.Duration) string {
	d = d.Round(time.Second)
	const day = 24 * time.Hour
	switch {
	case d >= 2*day:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}
