// Package x402 speaks version 2 of the x402 payment protocol for the scheme
// "exact" with the asset transfer method "permit2": the wire types, the strict
// payload parser, the header codec, the Permit2 typed data and the recovery of
// its signer. It performs no I/O and knows nothing of quotes or orders.
package x402

import (
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
)

// The constants of the protocol as this package speaks it.
const (
	Version          = 2
	SchemeExact      = "exact"
	MethodPermit2    = "permit2"
	MaxHeaderLength  = 12288 // characters of a PAYMENT-SIGNATURE header, docs/protocol.md §8
	HeaderRequired   = "PAYMENT-REQUIRED"
	HeaderSignature  = "PAYMENT-SIGNATURE"
	HeaderResponse   = "PAYMENT-RESPONSE"
	MinDeadlineSlack = 6   // seconds a permit must still live when it is checked
	MaxDeadlineSlack = 300 // seconds a permit may live beyond maxTimeoutSeconds
)

// The canonical contracts, at the same address on every chain.
var (
	Permit2    = common.HexToAddress("0x000000000022D473030F116dDEE9F6B43aC78BA3")
	ExactProxy = common.HexToAddress("0x402085c248EeA27D92E8b30b2C58ed07f9E20001")
)

// Resource names what is paid for.
type Resource struct {
	URL         string `json:"url"`
	Description string `json:"description,omitempty"`
	MimeType    string `json:"mimeType,omitempty"`
}

// Requirements is one way to pay: an item of "accepts".
type Requirements struct {
	Scheme            string         `json:"scheme"`
	Network           string         `json:"network"` // CAIP-2, eip155:<chainId>
	Asset             common.Address `json:"asset"`
	Amount            Uint256        `json:"amount"` // atomic token units
	PayTo             common.Address `json:"payTo"`
	MaxTimeoutSeconds int64          `json:"maxTimeoutSeconds"`
	Extra             *Extra         `json:"extra,omitempty"`
}

// Extra is what the scheme needs beside the terms: how the asset moves, and
// the name and version of the token's EIP-712 domain.
type Extra struct {
	AssetTransferMethod string `json:"assetTransferMethod"`
	Name                string `json:"name"`
	Version             string `json:"version"`
}

// PaymentRequired is the challenge that the PAYMENT-REQUIRED header carries.
type PaymentRequired struct {
	X402Version int            `json:"x402Version"`
	Error       string         `json:"error,omitempty"`
	Resource    *Resource      `json:"resource,omitempty"`
	Accepts     []Requirements `json:"accepts"`
}

// Payload is a signed payment: what the PAYMENT-SIGNATURE header carries.
type Payload struct {
	X402Version int            `json:"x402Version"`
	Resource    *Resource      `json:"resource,omitempty"`
	Accepted    Requirements   `json:"accepted"`
	Payload     Permit2Payload `json:"payload"`
	// Extensions must be empty; the official clients send {} or nothing.
	Extensions map[string]struct{} `json:"extensions,omitempty"`
}

// Permit2Payload is the scheme's part of a Payload.
type Permit2Payload struct {
	Signature     hexutil.Bytes `json:"signature"`
	Authorization Authorization `json:"permit2Authorization"`
}

// Authorization is the Permit2 PermitWitnessTransferFrom that the payer signs.
type Authorization struct {
	From      common.Address `json:"from"`
	Permitted Permitted      `json:"permitted"`
	Spender   common.Address `json:"spender"`
	Nonce     Uint256        `json:"nonce"`    // of Permit2: word in the upper 248 bits, bit in the lower 8
	Deadline  Uint256        `json:"deadline"` // Unix seconds
	Witness   Witness        `json:"witness"`
}

// Permitted is the token and the amount that a permit lets the spender move.
type Permitted struct {
	Token  common.Address `json:"token"`
	Amount Uint256        `json:"amount"`
}

// Witness binds a permit to its recipient and to the time from which it holds.
type Witness struct {
	To         common.Address `json:"to"`
	ValidAfter Uint256        `json:"validAfter"` // Unix seconds
}
