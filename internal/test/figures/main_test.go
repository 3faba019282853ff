package main

import (
	"io"
	"strings"
	"testing"
	"time"
)

func TestGasMeetsItsTargets(t *testing.T) {
	measured, err := gas(t.Context(), t.TempDir(), options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range measured.figures {
		t.Logf("%s: %s", f.what, f.measured)
		if !f.met {
			t.Errorf("%s: %s, want %s", f.what, f.measured, f.target)
		}
	}
}

func TestMissedTargetIsAnError(t *testing.T) {
	page, err := section{
		figures: []figure{{"gas", "at most 1", "1", true}, {"time", "within 12s", "13.0 s", false}},
		report:  "| Crash suite | |\n",
	}.render(time.Unix(0, 0))
	if err == nil || !strings.Contains(err.Error(), "time") || strings.Contains(err.Error(), "gas") {
		t.Errorf("the error is %v, want one about time alone", err)
	}
	for _, line := range []string{
		"| gas | at most 1 | 1 |\n", "| time | within 12s | 13.0 s |\n",
		"\nMeasured on 1970-01-01 with ", "| Crash suite | |\n",
	} {
		if !strings.Contains(page, line) {
			t.Errorf("the page does not contain %q:\n%s", line, page)
		}
	}
}

func TestRefusedOptions(t *testing.T) {
	for want, o := range map[string]options{
		"want gas, burst or crash": {only: "speed"},
		"--write needs all":        {only: "gas", write: "page.md"},
	} {
		if err := run(t.Context(), o, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
}
