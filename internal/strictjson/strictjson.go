// Package strictjson decodes JSON documents that have exactly one reading. Duplicate and unknown members, missing
// members, null instead of a value, invalid UTF-8 and trailing data are errors, which carry a JSON Pointer (RFC 6901)
// to the place.
package strictjson

import (
	"bytes"
	stdjson "encoding/json"
	"io"
	"reflect"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Decode reads data into v, which is a non-nil pointer. The case of names counts. A struct field is required unless its
// tag says omitempty or omitzero. A field may be null only if it is required and a pointer or an interface, so that an
// optional field has one way to be absent. Addresses, hashes and bytes in hex start with 0x and have digits of either
// case. Options go to the decoder. With json.RejectUnknownMembers(false), unknown members are ignored.
//
// Every error is an *Error. Errors never repeat a value of the document.
func Decode(data []byte, v any, opts ...json.Options) error {
	options := json.JoinOptions(append([]json.Options{json.RejectUnknownMembers(true), hexTypes}, opts...)...)
	closed, _ := json.GetOption(options, json.RejectUnknownMembers)
	walk := walker{decoder: jsontext.NewDecoder(bytes.NewBuffer(data)), closed: closed}
	if err := walk.document(reflect.TypeOf(v).Elem()); err != nil {
		return err
	}
	if err := json.Unmarshal(data, v, options); err != nil {
		return located(err)
	}
	return nil
}

// A walker reads a document along with the type that the document fills. It finds what the decoder accepts: missing
// members and nulls.
type walker struct {
	decoder *jsontext.Decoder
	closed  bool // unknown members are errors
}

func (w walker) document(t reflect.Type) error {
	if err := w.value(t, false); err != nil {
		return err
	}
	return ended(w.decoder)
}

// ended checks that a document has nothing after its value.
func ended(decoder *jsontext.Decoder) error {
	if _, err := decoder.ReadToken(); err != io.EOF {
		return &Error{Message: "has more data after its end"}
	}
	return nil
}

func (w walker) value(t reflect.Type, omittable bool) error {
	kind := w.decoder.PeekKind()
	if kind == jsontext.KindNull && (omittable || !nullable(t)) {
		if err := w.skip(); err != nil {
			return err
		}
		return w.problem("must not be null")
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case decodesItself(t):
		return w.skip()
	case kind == jsontext.KindBeginObject && t.Kind() == reflect.Struct:
		return w.object(membersOf(t))
	case kind == jsontext.KindBeginObject && t.Kind() == reflect.Map,
		kind == jsontext.KindBeginArray && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array):
		return w.elements(t.Elem())
	default:
		return w.skip()
	}
}

func (w walker) object(known *members) error {
	if _, err := w.decoder.ReadToken(); err != nil {
		return located(err)
	}
	present := make([]bool, len(known.list))
	for w.decoder.PeekKind() != jsontext.KindEndObject {
		name, err := w.decoder.ReadToken()
		if err != nil {
			return located(err)
		}
		i, ok := known.index[name.String()]
		if !ok {
			if w.closed {
				return w.problem("is not a known member")
			}
			if err := w.skip(); err != nil {
				return err
			}
			continue
		}
		present[i] = true
		if err := w.value(known.list[i].t, known.list[i].omittable); err != nil {
			return err
		}
	}
	if _, err := w.decoder.ReadToken(); err != nil {
		return located(err)
	}
	for i, member := range known.list {
		if !present[i] && !member.omittable {
			at := w.decoder.StackPointer().AppendToken(member.name)
			return &Error{Pointer: string(at), Message: "is required"}
		}
	}
	return nil
}

// elements reads the items of an array or the values of a map.
func (w walker) elements(t reflect.Type) error {
	open, err := w.decoder.ReadToken()
	if err != nil {
		return located(err)
	}
	named := open.Kind() == jsontext.KindBeginObject
	for {
		switch w.decoder.PeekKind() {
		case jsontext.KindEndObject, jsontext.KindEndArray:
			return w.skipToken()
		}
		if named {
			if err := w.skipToken(); err != nil {
				return err
			}
		}
		if err := w.value(t, false); err != nil {
			return err
		}
	}
}

func (w walker) skip() error {
	if err := w.decoder.SkipValue(); err != nil {
		return located(err)
	}
	return nil
}

func (w walker) skipToken() error {
	if _, err := w.decoder.ReadToken(); err != nil {
		return located(err)
	}
	return nil
}

func (w walker) problem(message string) error {
	return &Error{Pointer: string(w.decoder.StackPointer()), Message: message}
}

// members are the members of the JSON object of a struct.
type members struct {
	list  []member
	index map[string]int
}

type member struct {
	name      string
	t         reflect.Type
	omittable bool
}

var knownMembers sync.Map // reflect.Type to *members

func membersOf(t reflect.Type) *members {
	if known, ok := knownMembers.Load(t); ok {
		return known.(*members)
	}
	known := &members{index: make(map[string]int)}
	known.add(t)
	knownMembers.Store(t, known)
	return known
}

func (m *members) add(t reflect.Type) {
	for field := range t.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		embedded := field.Type
		if embedded.Kind() == reflect.Pointer {
			embedded = embedded.Elem()
		}
		switch {
		case name == "-" && options == "":
			continue
		case field.Anonymous && name == "" && embedded.Kind() == reflect.Struct && !decodesItself(embedded):
			m.add(embedded)
			continue
		case !field.IsExported():
			continue
		case name == "":
			name = field.Name
		}
		omittable := strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")
		if i, shadowed := m.index[name]; shadowed {
			m.list[i] = member{name, field.Type, omittable}
			continue
		}
		m.index[name] = len(m.list)
		m.list = append(m.list, member{name, field.Type, omittable})
	}
}

func nullable(t reflect.Type) bool {
	return t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface || isRaw(t)
}

// isRaw reports whether t keeps JSON unread, null included.
func isRaw(t reflect.Type) bool {
	return t == reflect.TypeFor[jsontext.Value]() || t == reflect.TypeFor[stdjson.RawMessage]()
}

func decodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return t.Kind() == reflect.Interface ||
		p.Implements(reflect.TypeFor[json.Unmarshaler]()) ||
		p.Implements(reflect.TypeFor[json.UnmarshalerFrom]()) ||
		p.Implements(textUnmarshaler)
}
