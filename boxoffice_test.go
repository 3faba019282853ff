package boxoffice_test

import (
	"strings"
	"testing"
	"time"

	"boxoffice"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestParseUUID(t *testing.T) {
	for sent, want := range map[string]boxoffice.UUID{
		"6f9619ff-8b86-4d01-b42d-00c04fc964ff":          otherID,
		"6F9619FF-8B86-4D01-B42D-00C04FC964FF":          otherID,
		"6f9619ff-8B86-4d01-b42d-00c04fc964ff":          otherID,
		"00000000-0000-0000-0000-000000000000":          "00000000-0000-0000-0000-000000000000",
		"FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF":          "ffffffff-ffff-ffff-ffff-ffffffffffff",
		"00000000-0000-0000-0000-000000000001":          "",
		"6f9619ff-8b86-9d01-b42d-00c04fc964ff":          "", // version 9
		"6f9619ff-8b86-4d01-742d-00c04fc964ff":          "", // another variant
		"{6f9619ff-8b86-4d01-b42d-00c04fc964ff}":        "",
		"urn:uuid:6f9619ff-8b86-4d01-b42d-00c04fc964ff": "",
		"6f9619ff-8b86-4d01-b42d-00c04fc964f":           "",
		"6f9619ff-8b86-4d01-b42d-00c04fc964ff\n":        "",
		"6f9619ff-8b86-4d01-b42d-00c04fc964f\u212a":     "", // a character whose lowercase is ASCII
		"":                                     "",
		"6f9619ff-8b86-4d01-b42d-00c04fc964fg": "",
	} {
		got, err := boxoffice.ParseUUID(sent)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("ParseUUID(%q) = %q, %v, want %q", sent, got, err, want)
		}
		if err == nil && got.Validate() != nil {
			t.Errorf("%q is not valid", got)
		}
	}
	if boxoffice.UUID(strings.ToUpper(string(otherID))).Validate() == nil {
		t.Error("an uppercase UUID is valid")
	}
}

func TestNewUUID(t *testing.T) {
	last := boxoffice.UUID("")
	for range 1000 {
		id := boxoffice.NewUUID()
		if err := id.Validate(); err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		if id <= last {
			t.Fatalf("%s came after %s", id, last)
		}
		last = id
	}
}

func TestTimestamps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const firstOfYear10000 = 253402300800000
		stamp := boxoffice.Timestamp(rapid.Int64Range(-62167219200000, firstOfYear10000-1).Draw(t, "milliseconds"))
		if err := stamp.Validate(); err != nil {
			t.Fatal(err)
		}
		var read boxoffice.Timestamp
		if err := read.UnmarshalText([]byte(stamp.String())); err != nil || read != stamp {
			t.Fatalf("%s is read as %s, %v", stamp, read, err)
		}
	})
	at := boxoffice.At(time.Date(2026, 11, 20, 13, 0, 0, 999_999, time.FixedZone("CET", 3600)))
	if diff := cmp.Diff("2026-11-20T12:00:00.000Z", at.String()); diff != "" {
		t.Error(diff)
	}
	for _, sent := range []string{
		"", "2026-11-20", "2026-11-20T12:00:00Z", "2026-11-20T12:00:00.00Z", "2026-11-20T12:00:00.0000Z",
		"2026-11-20T12:00:00,000Z",
		"2026-11-20T12:00:00.000+00:00", "2026-11-20 12:00:00.000Z", "2026-11-20T1:00:00.000Z",
		"2026-02-29T12:00:00.000Z",
		"2026-11-20T24:00:00.000Z", "2026-11-20t12:00:00.000z",
	} {
		var read boxoffice.Timestamp
		if err := read.UnmarshalText([]byte(sent)); err == nil {
			t.Errorf("%q is read as %s", sent, read)
		}
	}
}
