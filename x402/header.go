package x402

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"

	"boxoffice/internal/strictjson"
)

// EncodeHeader returns v as JSON in padded standard base64, the form of all
// three headers. It fails if the result is longer than MaxHeaderLength.
func EncodeHeader(v any) (string, error) {
	document, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("encode header: %w", err)
	}
	if length := base64.StdEncoding.EncodedLen(len(document)); length > MaxHeaderLength {
		return "", fmt.Errorf("encode header: %d characters are more than %d", length, MaxHeaderLength)
	}
	return base64.StdEncoding.EncodeToString(document), nil
}

// DecodeRequired reads a PAYMENT-REQUIRED header. It ignores members that this
// package does not know: what a newer server adds to its challenge does not
// change what the payer signs. Every error is a *ShapeError.
func DecodeRequired(header string) (*PaymentRequired, error) {
	return decodeAnswer[PaymentRequired](HeaderRequired, header)
}

// DecodeResponse reads a PAYMENT-RESPONSE header, with the rules of DecodeRequired.
func DecodeResponse(header string) (*Settlement, error) {
	return decodeAnswer[Settlement](HeaderResponse, header)
}

func decodeAnswer[T any](name, header string) (*T, error) {
	document, err := decodeHeader(name, header)
	if err != nil {
		return nil, err
	}
	answer := new(T)
	if err := strictjson.Decode(document, answer, json.RejectUnknownMembers(false)); err != nil {
		return nil, shapeError(name, err)
	}
	return answer, nil
}

var headerEncoding = base64.StdEncoding.Strict()

// decodeHeader returns the document in a header. It reads only padded
// standard base64, which all official clients send, so that a document has one
// header.
func decodeHeader(name, header string) ([]byte, error) {
	switch {
	case header == "":
		return nil, &ShapeError{Path: name, Message: "is empty"}
	case len(header) > MaxHeaderLength:
		return nil, &ShapeError{Path: name, Message: fmt.Sprintf("is longer than %d characters", MaxHeaderLength)}
	}
	document, err := headerEncoding.DecodeString(header)
	if err != nil || strings.ContainsAny(header, "\r\n") { // the decoder ignores line breaks
		return nil, &ShapeError{Path: name, Message: "must be padded standard base64"}
	}
	return document, nil
}
