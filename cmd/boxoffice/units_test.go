package main

import (
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/client"
	"boxoffice/x402"

	"pgregory.net/rapid"
)

func TestUnits(t *testing.T) {
	tests := []struct {
		atomic   uint64
		decimals int
		text     string
	}{
		{0, 18, "0"}, {1, 0, "1"}, {1, 6, "0.000001"}, {1_500_000, 6, "1.5"}, {1_000_000, 6, "1"},
		{12_345_678, 6, "12.345678"}, {100, 2, "1"}, {10, 2, "0.1"}, {7, 255, "0." + zeros(254) + "7"},
	}
	for _, test := range tests {
		amount := x402.NewUint256(test.atomic)
		if got := units(amount, test.decimals); got != test.text {
			t.Errorf("%d with %d decimals is %s, want %s", test.atomic, test.decimals, got, test.text)
		}
		if got, err := parseUnits(test.text, test.decimals); err != nil || got != amount {
			t.Errorf("%s with %d decimals reads as %v, %v", test.text, test.decimals, got, err)
		}
	}
	for _, text := range []string{"", ".", "1.", ".5", "-1", "+1", "1e3", "1,5", " 1", "0x1", "1.2.3", "0.0000001", "١", "1" + zeros(80)} {
		if got, err := parseUnits(text, 6); err == nil {
			t.Errorf("%q reads as %v", text, got)
		}
	}
}

func zeros(n int) string { return fmt.Sprintf("%0*d", n, 0) }

func TestUnitsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount, err := x402.Uint256FromBig(new(big.Int).SetBytes(rapid.SliceOfN(rapid.Byte(), 0, 32).Draw(t, "amount")))
		if err != nil {
			t.Fatal(err)
		}
		decimals := rapid.IntRange(0, 255).Draw(t, "decimals")
		if got, err := parseUnits(units(amount, decimals), decimals); err != nil || got != amount {
			t.Errorf("%v with %d decimals came back as %v, %v", amount, decimals, got, err)
		}
	})
}

func TestSpan(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for offset, want := range map[time.Duration]string{
		0: "now", 9*time.Minute + 58*time.Second: "in 9m58s", -30 * time.Second: "30s ago", -90 * time.Minute: "1h30m ago",
		50 * time.Hour: "in 2d2h", -500 * time.Millisecond: "now",
	} {
		if got := distance(now.Add(offset).Sub(now)); got != want {
			t.Errorf("%v is %q, want %q", offset, got, want)
		}
	}
}

// What a service sends cannot steer the terminal that shows it.
func TestPrintable(t *testing.T) {
	if got, want := printable("a\x1b[2Jb\r\n\tc\u202ed\u0085é"), "a [2Jb   c d é"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestExitCodes(t *testing.T) {
	problem := func(code boxoffice.Code) error {
		return fmt.Errorf("wrapped: %w", &client.ResponseError{Problem: &boxoffice.Problem{Code: code}})
	}
	for _, test := range []struct {
		err  error
		want int
	}{
		{nil, exitDone},
		{errors.New("disk full"), exitError},
		{usage("no"), exitUsage},
		{&client.MismatchError{}, exitUnsigned},
		{&client.ShortfallError{}, exitUnsigned},
		{fmt.Errorf("not confirmed: %w", errDeclined), exitUnsigned},
		{client.ErrNonceSpent, exitUnsigned},
		{problem(boxoffice.PaymentRejected), exitUnpaid},
		{problem(boxoffice.QuoteExpired), exitUnpaid},
		{errors.Join(&client.PaymentError{}, errors.New("vault")), exitUnpaid},
		{&client.PendingError{Cause: problem(boxoffice.TemporarilyUnavailable)}, exitPending},
		{problem(boxoffice.TemporarilyUnavailable), exitUnavailable},
		{problem(boxoffice.RateLimited), exitUnavailable},
		{&url.Error{Op: "Get", URL: "http://127.0.0.1", Err: errors.New("refused")}, exitUnavailable},
		{problem(boxoffice.OrderNotFound), exitRefused},
		{problem(boxoffice.ActionRefused), exitRefused},
		{problem(boxoffice.RequestKeyConflict), exitRefused},
	} {
		if got := exitCode(test.err); got != test.want {
			t.Errorf("%v exits with %d, want %d", test.err, got, test.want)
		}
	}
}
