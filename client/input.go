package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"boxoffice"

	"golang.org/x/text/unicode/norm"
)

// SameInput returns nil if a prepared input is the one that was asked for: it has
// every member that was asked for, with the same value. The service may add
// defaults, trim strings and normalise them (NFC), leave out empty members, and
// change the form of UUIDs and timestamps. Any other change, such as a text that
// the operator's judge rewrote, is a *MismatchError whose Field is "input" and a
// JSON Pointer.
func SameInput(asked, prepared json.RawMessage) error {
	want, err := decodeAny(asked)
	if err != nil {
		return fmt.Errorf("input: %w", err)
	}
	got, err := decodeAny(prepared)
	if err != nil {
		return &MismatchError{Field: "input", Want: "is not JSON"}
	}
	return sameValue("input", want, got)
}

func decodeAny(document []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	err = decoder.Decode(&value)
	return value, err
}

func sameValue(at string, want, got any) error {
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		if !ok {
			break
		}
		for name, value := range want {
			kept, present := object[name]
			if !present && empty(value) {
				continue
			}
			if err := sameValue(at+"/"+pointerToken(name), value, kept); err != nil {
				return err
			}
		}
		return nil
	case []any:
		list, ok := got.([]any)
		if !ok || len(list) != len(want) {
			break
		}
		for i := range want {
			if err := sameValue(fmt.Sprint(at, "/", i), want[i], list[i]); err != nil {
				return err
			}
		}
		return nil
	case string:
		if text, ok := got.(string); ok && sameText(want, text) {
			return nil
		}
	case json.Number:
		if number, ok := got.(json.Number); ok && sameNumber(want, number) {
			return nil
		}
	default: // bool and null
		if want == got {
			return nil
		}
	}
	return &MismatchError{Field: at, Want: brief(want), Got: brief(got)}
}

func empty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case string:
		return strings.TrimSpace(value) == ""
	case []any:
		return len(value) == 0
	case map[string]any:
		return len(value) == 0
	}
	return false
}

func sameText(want, got string) bool {
	if tidy(want) == tidy(got) {
		return true
	}
	if id, err := boxoffice.ParseUUID(tidy(want)); err == nil {
		return string(id) == got
	}
	if moment, err := time.Parse(time.RFC3339, tidy(want)); err == nil {
		kept, err := time.Parse(time.RFC3339, got)
		return err == nil && moment.Truncate(time.Millisecond).Equal(kept)
	}
	return false
}

func tidy(s string) string {
	return norm.NFC.String(strings.TrimSpace(strings.ReplaceAll(s, "\r\n", "\n")))
}

// sameNumber compares doubles, because canonical JSON has no other numbers.
func sameNumber(want, got json.Number) bool {
	a, errA := strconv.ParseFloat(string(want), 64)
	b, errB := strconv.ParseFloat(string(got), 64)
	return errA == nil && errB == nil && a == b
}

func pointerToken(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// brief shows a value on one line of an error.
func brief(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprintf("%T", value)
	}
	const most = 80
	if runes := []rune(string(text)); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return string(text)
}
