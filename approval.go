package boxoffice

import (
	"slices"
	"strings"

	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// QuoteApproval is the typed data (EIP-712) with which a wallet approves one
// quote and exactly the payment that it sends for it (docs/protocol.md §6.5). A payment
// without it is not accepted.
type QuoteApproval struct {
	ServiceName        string // the domain's name is this and " Paid Action"
	ChainID            uint64
	Resource           string // resourceUrl of the challenge
	RequesterScopeHash Hash
	QuoteID            UUID
	QuoteHash          Hash
	PaymentHash        Hash // SHA-256 of the canonical payment payload
	Action             string
	Asset              common.Address
	Amount             Amount
	PayTo              common.Address
	ExpiresAt          int64 // Unix seconds
}

// The struct types of the typed data, in the order in which they are hashed
// (EIP-712; docs/protocol.md §6.5). What capabilities publish and what Digest hashes
// both come from here.
const (
	quoteApprovalName = "QuoteApproval"
	domainName        = "EIP712Domain"
	domainVersion     = "1"
)

var (
	domainFields = []TypedDataField{
		{"name", "string"}, {"version", "string"}, {"chainId", "uint256"},
	}
	quoteApprovalFields = []TypedDataField{
		{"resource", "string"},
		{"requesterScopeHash", "bytes32"},
		{"quoteId", "string"},
		{"quoteHash", "bytes32"},
		{"paymentHash", "bytes32"},
		{"action", "string"},
		{"asset", "address"},
		{"amount", "uint256"},
		{"payTo", "address"},
		{"expiresAt", "uint256"},
	}
	domainTypeHash        = typeHash(domainName, domainFields)
	quoteApprovalTypeHash = typeHash(quoteApprovalName, quoteApprovalFields)
)

func typeHash(name string, fields []TypedDataField) []byte {
	members := make([]string, len(fields))
	for i, field := range fields {
		members[i] = field.Type + " " + field.Name
	}
	return crypto.Keccak256([]byte(name + "(" + strings.Join(members, ",") + ")"))
}

// QuoteApprovalTemplate is the EIP-712 domain and types of a QuoteApproval in
// the form that eth_signTypedData_v4 takes: with a message it is complete. Some
// libraries want types without EIP712Domain.
type QuoteApprovalTemplate struct {
	Domain      TypedDataDomain             `json:"domain"`
	PrimaryType string                      `json:"primaryType"`
	Types       map[string][]TypedDataField `json:"types"`
}

// TypedDataDomain is the EIP-712 domain of a QuoteApproval.
type TypedDataDomain struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	ChainID uint64 `json:"chainId"`
}

// TypedDataField is a member of an EIP-712 struct type.
type TypedDataField struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// NewQuoteApprovalTemplate returns the typed data that approvals of quotes of
// the named service on the given chain are made of.
func NewQuoteApprovalTemplate(serviceName string, chainID uint64) QuoteApprovalTemplate {
	return QuoteApprovalTemplate{
		Domain:      TypedDataDomain{Name: serviceName + " Paid Action", Version: domainVersion, ChainID: chainID},
		PrimaryType: quoteApprovalName,
		Types: map[string][]TypedDataField{
			domainName:        slices.Clone(domainFields),
			quoteApprovalName: slices.Clone(quoteApprovalFields),
		},
	}
}

// Approve returns the approval that a challenge asks for, given the hash of
// the payment that will answer it.
func (c *Challenge) Approve(serviceName string, paymentHash Hash) (QuoteApproval, error) {
	chainID, err := x402.ChainID(c.Quote.Payment.Network)
	if err != nil {
		return QuoteApproval{}, err
	}
	return QuoteApproval{
		ServiceName:        serviceName,
		ChainID:            chainID,
		Resource:           c.ResourceURL,
		RequesterScopeHash: c.RequesterScopeHash,
		QuoteID:            c.Quote.ID,
		QuoteHash:          c.Quote.QuoteHash,
		PaymentHash:        paymentHash,
		Action:             c.Quote.Action,
		Asset:              c.Quote.Payment.Asset,
		Amount:             c.Quote.Payment.Amount,
		PayTo:              c.Quote.Payment.PayTo,
		ExpiresAt:          c.Quote.ExpiresAt,
	}, nil
}

// Digest returns the hash that the wallet signs (EIP-712).
func (a QuoteApproval) Digest() [32]byte {
	domain := NewQuoteApprovalTemplate(a.ServiceName, a.ChainID).Domain
	separator := crypto.Keccak256(
		domainTypeHash,
		crypto.Keccak256([]byte(domain.Name)),
		crypto.Keccak256([]byte(domain.Version)),
		word(x402.NewUint256(domain.ChainID)),
	)
	message := crypto.Keccak256(
		quoteApprovalTypeHash,
		crypto.Keccak256([]byte(a.Resource)),
		a.RequesterScopeHash[:],
		crypto.Keccak256([]byte(a.QuoteID)),
		a.QuoteHash[:],
		a.PaymentHash[:],
		crypto.Keccak256([]byte(a.Action)),
		common.LeftPadBytes(a.Asset[:], 32),
		word(a.Amount),
		common.LeftPadBytes(a.PayTo[:], 32),
		word(x402.NewUint256(uint64(a.ExpiresAt))), // a valid quote's is not negative
	)
	return crypto.Keccak256Hash([]byte{0x19, 0x01}, separator, message)
}

func word(n x402.Uint256) []byte {
	w := n.Bytes32()
	return w[:]
}
