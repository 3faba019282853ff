package main

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/client"
)

func TestSpan(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for offset, want := range map[time.Duration]string{
		0: "now", 9*time.Minute + 58*time.Second: "in 9m58s", -30 * time.Second: "30s ago",
		-90 * time.Minute: "1h30m ago",
		50 * time.Hour:    "in 2d2h", -500 * time.Millisecond: "now",
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
	for _, test := range []struct {
		err  error
		want int
	}{
		{nil, exitDone},
		{errors.New("disk full"), exitError},
		{usage("no"), exitUsage},
		{errDeclined, exitUnsigned},
		{&client.MismatchError{}, exitUnsigned},
		{&client.PaymentError{}, exitUnpaid},
		{&client.PendingError{Cause: &boxoffice.Problem{Code: boxoffice.RateLimited}}, exitPending},
		{fmt.Errorf("%w: it is running", errUnended), exitPending},
		{&boxoffice.Problem{Code: boxoffice.RateLimited}, exitUnavailable},
		{&boxoffice.Problem{Code: boxoffice.OrderNotFound}, exitRefused},
		{errBlocked, exitBlocked},
		{errUndelivered, exitUndelivered},
	} {
		if got := exitCode(test.err); got != test.want {
			t.Errorf("%v exits with %d, want %d", test.err, got, test.want)
		}
	}
}
