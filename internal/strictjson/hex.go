package strictjson

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// hexTypes reads go-ethereum's types by one rule, with messages for the sender. It does not verify the checksum in the
// case of an address (EIP-55), because addresses are compared by their bytes.
var hexTypes = json.WithUnmarshalers(json.JoinUnmarshalers(
	json.UnmarshalFromFunc(func(decoder *jsontext.Decoder, address *common.Address) error {
		return fixedHex(decoder, address[:], "an address")
	}),
	json.UnmarshalFromFunc(func(decoder *jsontext.Decoder, hash *common.Hash) error {
		return fixedHex(decoder, hash[:], "a hash")
	}),
	json.UnmarshalFromFunc(func(decoder *jsontext.Decoder, bytes *hexutil.Bytes) error {
		digits, err := hexDigits(decoder)
		if err != nil {
			return err
		}
		if *bytes, err = hex.DecodeString(digits); err != nil {
			return errHex
		}
		return nil
	}),
))

var errHex = errors.New("must be a string of 0x and pairs of hex digits")

func fixedHex(decoder *jsontext.Decoder, into []byte, what string) error {
	digits, err := hexDigits(decoder)
	if err == nil && len(digits) == 2*len(into) {
		if _, err := hex.Decode(into, []byte(digits)); err == nil {
			return nil
		}
	}
	return fmt.Errorf("must be %s: a string of 0x and %d hex digits", what, 2*len(into))
}

// hexDigits reads a string and returns what follows its 0x.
func hexDigits(decoder *jsontext.Decoder) (string, error) {
	token, err := decoder.ReadToken()
	if err != nil {
		return "", err
	}
	if token.Kind() == jsontext.KindString {
		if digits, ok := strings.CutPrefix(token.String(), "0x"); ok {
			return digits, nil
		}
	}
	return "", errHex
}
