package x402

import "encoding/json"

// The paths of a facilitator (x402 specification, version 2 §7).
const (
	PathVerify    = "/verify"
	PathSettle    = "/settle"
	PathSupported = "/supported"
)

// FacilitatorRequest is the body of /verify and of /settle. Payload and
// requirements stay as they were written, because a facilitator may know members
// that this package does not, and a repeated request has to be the same.
type FacilitatorRequest struct {
	X402Version         int             `json:"x402Version"`
	PaymentPayload      json.RawMessage `json:"paymentPayload"`
	PaymentRequirements json.RawMessage `json:"paymentRequirements"`
}

// Verification is the response of /verify.
type Verification struct {
	IsValid        bool   `json:"isValid"`
	InvalidReason  Reason `json:"invalidReason,omitempty"`
	InvalidMessage string `json:"invalidMessage,omitempty"`
	Payer          string `json:"payer,omitempty"` // an address, or empty
}

// Settlement is the response of /settle, and what the PAYMENT-RESPONSE header carries.
type Settlement struct {
	Success      bool   `json:"success"`
	ErrorReason  Reason `json:"errorReason,omitempty"`
	ErrorMessage string `json:"errorMessage,omitempty"`
	Payer        string `json:"payer,omitempty"` // an address, or empty
	Transaction  string `json:"transaction"`     // a hash or empty; the last broadcast one if pending
	Network      string `json:"network"`
	Amount       string `json:"amount,omitempty"` // what was moved, in atomic token units
}

// Supported is the response of /supported.
type Supported struct {
	Kinds      []Kind              `json:"kinds"`
	Extensions []string            `json:"extensions"`
	Signers    map[string][]string `json:"signers"` // by CAIP-2 pattern: who pays the gas
}

// Kind is one way to pay that a facilitator settles.
type Kind struct {
	X402Version int            `json:"x402Version"`
	Scheme      string         `json:"scheme"`
	Network     string         `json:"network"`
	Extra       map[string]any `json:"extra,omitempty"`
}

// Reasons that a facilitator gives for a call rather than for a payment.
const (
	// ReasonPending says that the payment is not decided yet: the same call, sent
	// again, returns its outcome (@x402/core 2.27).
	ReasonPending Reason = "settlement_pending"
	// The specification's codes, version 2 §9.
	ReasonPayload          Reason = "invalid_payload"
	ReasonVersion          Reason = "invalid_x402_version"
	ReasonUnsupported      Reason = "unsupported_scheme"
	ReasonInvalidNetwork   Reason = "invalid_network"
	ReasonUnexpectedVerify Reason = "unexpected_verify_error"
	ReasonUnexpectedSettle Reason = "unexpected_settle_error"
	// ReasonInvalidNonce is the code of the official facilitators for a spent nonce.
	ReasonInvalidNonce Reason = "permit2_invalid_nonce"
	// Our facilitator's own.
	ReasonAssetRefused     Reason = "asset_not_allowed"     // the token is not in the operator's list
	ReasonRecipientRefused Reason = "recipient_not_allowed" // payTo is not in the operator's list
	ReasonOtherPayload     Reason = "permit2_nonce_in_use"  // another payload with this nonce was submitted
)
