package strictjson

import (
	"encoding"
	"errors"
	"io"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Error says what is wrong with a document and where. The message is for the sender of the document. It follows the
// name of the place, as in "payer must be a string".
type Error struct {
	Pointer string // JSON Pointer; empty for the document itself
	Message string
}

func (e *Error) Error() string {
	if e.Pointer == "" {
		return e.Message
	}
	return e.Pointer + ": " + e.Message
}

// located makes an *Error from an error of the decoder.
func located(err error) error {
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		if inner, ok := errors.AsType[*Error](semantic.Err); ok { // of a type that decodes itself
			return &Error{Pointer: string(semantic.JSONPointer) + inner.Pointer, Message: inner.Message}
		}
		return &Error{Pointer: string(semantic.JSONPointer), Message: meaning(semantic)}
	}
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return &Error{Pointer: string(syntactic.JSONPointer), Message: grammar(syntactic)}
	}
	if errors.Is(err, io.EOF) {
		return &Error{Message: "is empty"}
	}
	return &Error{Message: "cannot be read: " + err.Error()}
}

func meaning(err *json.SemanticError) string {
	switch {
	case errors.Is(err.Err, json.ErrUnknownName):
		return "is not a known member"
	case err.Err == nil, errors.Is(err.Err, strconv.ErrSyntax), errors.Is(err.Err, strconv.ErrRange),
		err.JSONKind > 0 && err.JSONKind != jsontext.KindString && readsText(err.GoType):
		return "must be " + kindName(err.GoType)
	}
	return err.Err.Error()
}

func grammar(err *jsontext.SyntacticError) string {
	switch {
	case errors.Is(err.Err, jsontext.ErrDuplicateName):
		return "appears twice"
	case errors.Is(err.Err, io.ErrUnexpectedEOF):
		return "ends too early"
	case err.Err == nil:
		return "is not JSON"
	}
	// The decoder exports no errors for the other faults. Their texts begin as follows, and quote what it could not
	// read.
	fault := strings.TrimPrefix(err.Err.Error(), "jsontext: ")
	switch {
	case strings.HasPrefix(fault, "invalid UTF-8"):
		return "is not valid UTF-8"
	case strings.HasPrefix(fault, "invalid surrogate pair"):
		return "has one half of a surrogate pair"
	case strings.HasPrefix(fault, "invalid escape sequence"):
		return "has an unknown escape sequence"
	}
	return "is not JSON: " + fault
}

func kindName(t reflect.Type) string {
	if t == nil {
		return "of another type"
	}
	if readsText(t) {
		return "a string"
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "a boolean"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "an integer of at most " + strconv.Itoa(t.Bits()) + " bits"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "an unsigned integer of at most " + strconv.Itoa(t.Bits()) + " bits"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Pointer:
		return kindName(t.Elem())
	default:
		return "an object"
	}
}

func readsText(t reflect.Type) bool {
	return t != nil && (t.Implements(textUnmarshaler) || reflect.PointerTo(t).Implements(textUnmarshaler))
}

var textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
