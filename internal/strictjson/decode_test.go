package strictjson_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"boxoffice/internal/strictjson"
)

type document struct {
	ID      int64             `json:"id"`
	Note    string            `json:"note,omitempty"`
	Owner   *person           `json:"owner,omitempty"`
	Payer   *string           `json:"payer"`
	People  []person          `json:"people"`
	Labels  map[string]person `json:"labels,omitempty"`
	Pair    [2]int            `json:"pair,omitzero"`
	Any     any               `json:"any,omitzero"`
	Raw     jsontext.Value    `json:"raw,omitzero"`
	Address common.Address    `json:"address,omitzero"`
	Hash    common.Hash       `json:"hash,omitzero"`
	Bytes   hexutil.Bytes     `json:"bytes,omitzero"`
	Level   level             `json:"level,omitempty"`
	Small   uint8             `json:"small,omitzero"`
	Ratio   float64           `json:"ratio,omitzero"`
	Flag    bool              `json:"flag,omitzero"`
	Unnamed string            `json:",omitempty"`
	Hidden  string            `json:"-"`
	embedded
	*Extra
}

type person struct {
	Name string `json:"name"`
}

type embedded struct {
	Inner string `json:"inner"`
}

type Extra struct {
	Outer *string `json:"outer,omitempty"`
}

type level string

func (l *level) UnmarshalText(text []byte) error {
	if *l = level(text); *l != "low" && *l != "high" {
		return errors.New("must be low or high")
	}
	return nil
}

const minimal = `{"id":1,"payer":null,"people":[],"inner":"i"}`

// with returns the minimal document with more members in front.
func with(members string) string { return strings.Replace(minimal, "{", "{"+members+",", 1) }

func TestDecodeRefuses(t *testing.T) {
	const (
		notAddress = "must be an address: a string of 0x and 40 hex digits"
		notInteger = "must be an integer of at most 64 bits"
	)
	tests := map[string]struct {
		document         string
		pointer, message string
	}{
		"nothing":           {"", "", "is empty"},
		"white space":       {" \n", "", "is empty"},
		"an array":          {"[]", "", "must be an object"},
		"a string":          {`"{}"`, "", "must be an object"},
		"null":              {"null", "", "must not be null"},
		"a cut document":    {`{"id":1`, "", "ends too early"},
		"a cut string":      {`{"id":1,"note":"ab`, "/note", "ends too early"},
		"not JSON":          {`{"id":x}`, "/id", "is not JSON: invalid character 'x' at start of value"},
		"a second document": {minimal + "{}", "", "has more data after its end"},
		"a trailing comma":  {minimal + ",", "", "has more data after its end"},
		"a byte order mark": {"\ufeff" + minimal, "",
			`is not JSON: invalid character '\ufeff' at start of value`},
		"a trailing zero byte":  {minimal + "\x00", "", "has more data after its end"},
		"invalid UTF-8":         {with("\"note\":\"\xff\""), "/note", "is not valid UTF-8"},
		"a lone high surrogate": {with(`"note":"\ud800"`), "/note", "has one half of a surrogate pair"},
		"a lone low surrogate":  {with(`"note":"\udc00x"`), "/note", "has one half of a surrogate pair"},
		"an unknown escape":     {with(`"note":"\x41"`), "/note", "has an unknown escape sequence"},
		"a control character": {with("\"note\":\"\n\""), "/note",
			"is not JSON: invalid character '\\n' in string (expecting non-control character)"},
		"an unknown member":        {with(`"nope":1`), "/nope", "is not a known member"},
		"another case":             {with(`"Note":"n"`), "/Note", "is not a known member"},
		"a hidden member":          {with(`"Hidden":"n"`), "/Hidden", "is not a known member"},
		"an unknown member deeper": {with(`"owner":{"name":"a","age":1}`), "/owner/age", "is not a known member"},
		"a member twice":           {with(`"id":1`), "/id", "appears twice"},
		"a member twice, escaped":  {with(`"\u0069d":1`), "/id", "appears twice"},
		"a member twice, deeper":   {with(`"owner":{"name":"a","name":"a"}`), "/owner/name", "appears twice"},
		"a member twice in any":    {with(`"any":{"a":[{"b":1,"b":1}]}`), "/any/a/0/b", "appears twice"},
		"a member twice in raw":    {with(`"raw":{"b":1,"b":1}`), "/raw/b", "appears twice"},
		"a missing member":         {`{"payer":null,"people":[],"inner":"i"}`, "/id", "is required"},
		"a missing nullable":       {`{"id":1,"people":[],"inner":"i"}`, "/payer", "is required"},
		"a missing embedded":       {`{"id":1,"payer":null,"people":[]}`, "/inner", "is required"},
		"missing in an item": {`{"id":1,"payer":null,"people":[{"name":"a"},{}],"inner":"i"}`, "/people/1/name",
			"is required"},
		"missing in a map":        {with(`"labels":{"a/b":{}}`), "/labels/a~1b/name", "is required"},
		"null for an integer":     {strings.Replace(minimal, "1", "null", 1), "/id", "must not be null"},
		"null for an array":       {strings.Replace(minimal, "[]", "null", 1), "/people", "must not be null"},
		"null for an item":        {strings.Replace(minimal, "[]", "[null]", 1), "/people/0", "must not be null"},
		"null in a map":           {with(`"labels":{"a":null}`), "/labels/a", "must not be null"},
		"null in a fixed array":   {with(`"pair":[1,null]`), "/pair/1", "must not be null"},
		"null for an address":     {with(`"address":null`), "/address", "must not be null"},
		"null for an omittable":   {with(`"owner":null`), "/owner", "must not be null"},
		"a string for an integer": {strings.Replace(minimal, "1", `"1"`, 1), "/id", notInteger},
		"a fraction":              {strings.Replace(minimal, "1", "1.0", 1), "/id", notInteger},
		"an exponent":             {strings.Replace(minimal, "1", "1e0", 1), "/id", notInteger},
		"a large integer":         {strings.Replace(minimal, "1", "9223372036854775808", 1), "/id", notInteger},
		"a negative":              {with(`"small":-1`), "/small", "must be an unsigned integer of at most 8 bits"},
		"a string for a number":   {with(`"ratio":"1"`), "/ratio", "must be a number"},
		"a number for a string":   {with(`"note":1`), "/note", "must be a string"},
		"a number for a boolean":  {with(`"flag":0`), "/flag", "must be a boolean"},
		"an array for an object":  {with(`"owner":[]`), "/owner", "must be an object"},
		"an object for an array":  {strings.Replace(minimal, "[]", "{}", 1), "/people", "must be an array"},
		"a number for a text":     {with(`"level":1`), "/level", "must be a string"},
		"a text's own rule":       {with(`"level":"middle"`), "/level", "must be low or high"},
		"a long fixed array":      {with(`"pair":[1,2,3]`), "/pair", "too many array elements"},
		"an address without 0x":   {with(`"address":"` + strings.Repeat("ab", 20) + `"`), "/address", notAddress},
		"an address with 0X":      {with(`"address":"0X` + strings.Repeat("ab", 20) + `"`), "/address", notAddress},
		"a short address":         {with(`"address":"0x` + strings.Repeat("ab", 19) + `"`), "/address", notAddress},
		"an address of no digits": {with(`"address":"0x` + strings.Repeat("xy", 20) + `"`), "/address", notAddress},
		"an address as an array":  {with(`"address":[1]`), "/address", notAddress},
		"a long hash": {with(`"hash":"0x` + strings.Repeat("ab", 33) + `"`), "/hash",
			"must be a hash: a string of 0x and 64 hex digits"},
		"bytes of half a pair": {with(`"bytes":"0xabc"`), "/bytes",
			"must be a string of 0x and pairs of hex digits"},
		"bytes as a number": {with(`"bytes":7`), "/bytes", "must be a string of 0x and pairs of hex digits"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got document
			err := strictjson.Decode([]byte(test.document), &got)
			fault, ok := errors.AsType[*strictjson.Error](err)
			if !ok {
				t.Fatalf("got %v, want an *Error", err)
			}
			want := strictjson.Error{Pointer: test.pointer, Message: test.message}
			if diff := cmp.Diff(want, *fault); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDecodeReads(t *testing.T) {
	const address = "0xABCDEFabcdef00000000000000000000000000Ff"
	text := `{ "people":[{"name":"a"}], "inner":"i", "outer":"o", "payer":"p", "id":-9007199254740993,
		"labels":{"x":{"name":"b"}}, "pair":[1,2], "any":{"a":null}, "raw":{"a": null}, "address":"` + address + `",
		"hash":"0x` + strings.Repeat("0A", 32) + `", "bytes":"0x", "level":"low", "small":255, "ratio":1.5, "flag":true,
		"Unnamed":"\ud83d\ude00", "owner":{"name":""}, "note":"\u0000" }`
	payer, outer := "p", "o"
	want := document{
		ID: -9007199254740993, Note: "\x00", Owner: &person{}, Payer: &payer, People: []person{{"a"}},
		Labels: map[string]person{"x": {"b"}}, Pair: [2]int{1, 2},
		Any: map[string]any{"a": nil}, Raw: jsontext.Value(`{"a": null}`),
		Address: common.HexToAddress(address), Hash: common.HexToHash(strings.Repeat("0a", 32)), Bytes: hexutil.Bytes{},
		Level: "low", Small: 255, Ratio: 1.5, Flag: true, Unnamed: "😀", embedded: embedded{"i"}, Extra: &Extra{&outer},
	}
	var got document
	if err := strictjson.Decode([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(document{})); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeTakesNullWhereItIsAValue(t *testing.T) {
	type nullable struct {
		Pointer *person          `json:"pointer"`
		Any     any              `json:"any"`
		Raw     jsontext.Value   `json:"raw"`
		Message json.RawMessage  `json:"message"`
		Items   []*person        `json:"items"`
		Map     map[string]*bool `json:"map"`
	}
	document := `{"pointer":null,"any":null,"raw":null,"message":null,"items":[null],"map":{"a":null}}`
	var got nullable
	if err := strictjson.Decode([]byte(document), &got); err != nil {
		t.Fatal(err)
	}
	want := nullable{
		Raw: jsontext.Value("null"), Message: json.RawMessage("null"),
		Items: []*person{nil}, Map: map[string]*bool{"a": nil},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeWithUnknownMembers(t *testing.T) {
	var got person
	open := jsonv2.RejectUnknownMembers(false)
	err := strictjson.Decode([]byte(`{"x":{"y":[1]},"name":"a","z":null}`), &got, open)
	if err != nil || got.Name != "a" {
		t.Errorf("got %v, %v", got, err)
	}
	if err := strictjson.Decode([]byte(`{"x":{"y":1,"y":2},"name":"a"}`), &got, open); err == nil {
		t.Error("a duplicate inside an unknown member was taken")
	}
}

// A type may contain itself.
func TestDecodeRecursiveType(t *testing.T) {
	type tree struct {
		Name     string `json:"name"`
		Children []tree `json:"children,omitempty"`
	}
	var got tree
	err := strictjson.Decode([]byte(`{"name":"a","children":[{"name":"b","children":[{}]}]}`), &got)
	if want := "/children/0/children/0/name: is required"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestErrorNamesThePlace(t *testing.T) {
	for want, fault := range map[string]strictjson.Error{
		"/a/0: is required": {Pointer: "/a/0", Message: "is required"},
		"is empty":          {Message: "is empty"},
	} {
		if got := fault.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(minimal))
	f.Add([]byte(with(`"owner":{"name":"a"},"any":[1,{"a":null}],"raw":[],"labels":{"~/":{"name":""}}`)))
	f.Add([]byte(with(`"address":"0x402085c248EeA27D92E8b30b2C58ed07f9E20001","level":"low","pair":[1,2]`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		var got document
		if err := strictjson.Decode(data, &got); err != nil {
			if _, ok := errors.AsType[*strictjson.Error](err); !ok {
				t.Fatalf("%T is not an *Error", err)
			}
			return
		}
		// What was read says everything that the document said.
		text, err := jsonv2.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		var again document
		if err := strictjson.Decode(text, &again); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if diff := cmp.Diff(got, again, cmp.AllowUnexported(document{}), cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
	})
}
