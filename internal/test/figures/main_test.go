package main

import (
	"strings"
	"testing"
	"time"
)

func TestGas(t *testing.T) {
	figures, err := gas(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range figures {
		t.Logf("%s: %s", f.what, f.measured)
		if !f.met {
			t.Errorf("%s: %s, want %s", f.what, f.measured, f.target)
		}
	}
}

func TestPrintFailsForMissedFigure(t *testing.T) {
	var page strings.Builder
	err := print(&page, []figure{{"gas", "at most 1", "1", true}, {"time", "within 12s", "13.0 s", false}}, time.Unix(0, 0))
	if err == nil || !strings.Contains(err.Error(), "time") || strings.Contains(err.Error(), "gas") {
		t.Errorf("print returned %v, want an error about time alone", err)
	}
	for _, line := range []string{"| gas | at most 1 | 1 |\n", "| time | within 12s | 13.0 s |\n", "\nMeasured on 1970-01-01 with "} {
		if !strings.Contains(page.String(), line) {
			t.Errorf("the page has no %q:\n%s", line, page.String())
		}
	}
}
