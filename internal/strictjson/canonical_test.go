package strictjson_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"
	"pgregory.net/rapid"

	"boxoffice/internal/strictjson"
)

// The vectors were made by the JavaScript package canonicalize.
func TestCanonicalVectors(t *testing.T) {
	data, err := os.ReadFile("testdata/canonical.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Vectors []struct{ Name, JSON, Canonical, SHA256 string }
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Vectors) == 0 {
		t.Fatal("no vectors")
	}
	for _, vector := range file.Vectors {
		t.Run(vector.Name, func(t *testing.T) {
			got, err := strictjson.Canonical([]byte(vector.JSON))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != vector.Canonical {
				t.Errorf("got  %q\nwant %q", got, vector.Canonical)
			}
			if sum := sha256.Sum256(got); hex.EncodeToString(sum[:]) != vector.SHA256 {
				t.Errorf("the hash of %q is not %s", got, vector.SHA256)
			}
		})
	}
}

func TestCanonicalRefuses(t *testing.T) {
	const inexact = "must be a number that a double carries exactly"
	tests := map[string]struct{ document, pointer, message string }{
		"2^53+1":                   {`{"a":[0,9007199254740993]}`, "/a/1", inexact},
		"-2^53-1":                  {`-9007199254740993`, "", inexact},
		"2^60, not the shortest":   {`1152921504606846976`, "", inexact},
		"many digits":              {`0.1000000000000000055511151231257827`, "", inexact},
		"a long fraction":          {"0." + strings.Repeat("0", 15000) + "1e-10", "", inexact},
		"one digit too many":       {strings.Repeat("9", 16000) + "e-15990", "", inexact},
		"too large":                {`1e309`, "", inexact},
		"too small":                {`{"a":1e-400}`, "/a", inexact},
		"an endless exponent":      {`1e-99999999999999999999`, "", inexact},
		"nothing":                  {``, "", "is empty"},
		"a second document":        {`1 2`, "", "has more data after its end"},
		"a cut document":           {`[1,`, "", "ends too early"},
		"a name twice":             {`{"a":1,"\u0061":1}`, "/a", "appears twice"},
		"a lone surrogate":         {`{"a":"\udead"}`, "/a", "has one half of a surrogate pair"},
		"invalid UTF-8":            {"{\"a\":\"\xc3\"}", "/a", "is not valid UTF-8"},
		"a leading zero":           {`01`, "", "has more data after its end"},
		"a value of no known kind": {`NaN`, "", "is not JSON: invalid character 'N' at start of value"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := strictjson.Canonical([]byte(test.document))
			fault, ok := errors.AsType[*strictjson.Error](err)
			if !ok {
				t.Fatalf("got %q, %v", got, err)
			}
			if fault.Pointer != test.pointer || fault.Message != test.message {
				t.Errorf("got %q %q, want %q %q", fault.Pointer, fault.Message, test.pointer, test.message)
			}
		})
	}
}

func TestCanonicalNumbers(t *testing.T) {
	tests := map[string]string{
		"0e99999999999999999999": "0", "-0.00e-7": "0", "1e400e": "",
		"0." + strings.Repeat("0", 15000) + "1e15001": "1", "1" + strings.Repeat("0", 300): "1e+300",
		"123000000000000000000000e-3": "123000000000000000000", "1152921504606847000": "1152921504606847000",
	}
	for literal, want := range tests {
		if got, err := strictjson.Canonical([]byte(literal)); string(got) != want || (err == nil) != (want != "") {
			t.Errorf("%.30s became %q, %v", literal, got, err)
		}
	}
}

// A value written in any way has the canonical form that gowebpki/jcs gives it.
func TestCanonicalAgreesWithJCS(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		document := values(4).Draw(t, "document")
		indent := rapid.SampledFrom([]string{"", " ", "\t"}).Draw(t, "indent")
		text, err := json.MarshalIndent(document, "", indent)
		if err != nil {
			t.Fatal(err)
		}
		agree(t, text)
	})
}

func values(depth int) *rapid.Generator[any] {
	kinds := []*rapid.Generator[any]{
		rapid.Just[any](nil),
		rapid.Bool().AsAny(),
		rapid.String().AsAny(),
		rapid.Int64Range(-1<<53, 1<<53).AsAny(),
		rapid.Float64().Filter(func(f float64) bool { return !math.IsInf(f, 0) && !math.IsNaN(f) }).AsAny(),
	}
	if depth > 0 {
		kinds = append(kinds,
			rapid.Custom(func(t *rapid.T) any { return rapid.SliceOfN(values(depth-1), 0, 5).Draw(t, "items") }),
			rapid.Custom(func(t *rapid.T) any {
				return rapid.MapOfN(rapid.String(), values(depth-1), 0, 5).Draw(t, "members")
			}))
	}
	return rapid.OneOf(kinds...)
}

// Numbers that mean different things never share a canonical form.
func TestCanonicalKeepsNumbersApart(t *testing.T) {
	digits := rapid.StringMatching(`[1-9][0-9]{14,19}`)
	rapid.Check(t, func(t *rapid.T) {
		literal := digits.Draw(t, "literal")
		got, err := strictjson.Canonical([]byte(literal))
		if err != nil {
			return
		}
		n, err := strconv.ParseUint(string(got), 10, 64)
		if err != nil || strconv.FormatUint(n, 10) != literal {
			t.Errorf("%s became %s", literal, got)
		}
	})
}

func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{
		minimal, `[1e30,0.000001,-0,1E+2]`, `{"\ud83d\ude00":1,"\ufb33":2,"a\u0000":"\u2028"}`, `"\\\"\/"`,
		`9007199254740993`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := strictjson.Canonical(data); err != nil {
			if _, ok := errors.AsType[*strictjson.Error](err); !ok {
				t.Fatalf("%T is not an *Error", err)
			}
			return
		}
		agree(t, data)
	})
}

type reporter interface {
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// agree checks that Canonical takes a document, gives it the form that the
// other implementation gives it, and changes nothing of that form.
func agree(t reporter, document []byte) {
	got, err := strictjson.Canonical(document)
	if err != nil {
		t.Fatalf("%s: %v", document, err)
	}
	if again, err := strictjson.Canonical(got); err != nil || !bytes.Equal(again, got) {
		t.Errorf("the canonical form %s becomes %s, %v", got, again, err)
	}
	if want, err := jcs.Transform(document); err == nil && !bytes.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
