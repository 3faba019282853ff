package main

import (
	"fmt"
	"time"

	"boxoffice"
)

// price writes an amount with its symbol, or its token if the capabilities have another one.
func price(payment boxoffice.Payment, capabilities *boxoffice.Capabilities) string {
	symbol := "of token " + lowerHex(payment.Asset)
	if capabilities != nil && capabilities.Payment.Asset.Address == payment.Asset {
		symbol = capabilities.Payment.Asset.Symbol
	}
	return boxoffice.FormatUnits(payment.Amount, payment.Decimals) + " " + printable(symbol)
}

// moment writes a time in the local time zone, and how far it is from now.
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
