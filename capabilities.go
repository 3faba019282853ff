package boxoffice

import (
	"cmp"
	"slices"

	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
)

// Capabilities is what the service sells now and how to pay for it, in enough
// detail to build a payment from it alone (docs/protocol.md §2.10).
type Capabilities struct {
	Actions        []Policy            `json:"actions"`
	Limits         Limits              `json:"limits"`
	Launches       *Launches           `json:"launches,omitempty"`
	Authentication Authentication      `json:"authentication"`
	Payment        PaymentCapabilities `json:"payment"`
}

// Validate checks what docs/protocol.md §2.10 says of the actions, the payment and the
// launches.
func (c *Capabilities) Validate() error {
	err := cmp.Or(
		rule(len(c.Actions) > 0, "/actions", "must have at least one item"),
		items("/actions", c.Actions),
		member("/payment", &c.Payment),
	)
	if err == nil && c.Launches != nil {
		err = member("/launches", c.Launches)
	}
	return err
}

// PaidAction is an element of the discovery document's list of actions: a
// policy with its limits (docs/protocol.md §2.1).
type PaidAction struct {
	Action          string       `json:"action"`
	Version         string       `json:"version"`
	Payment         Payment      `json:"payment"`
	QuoteTTLSeconds int64        `json:"quoteTtlSeconds"`
	Limits          ActionLimits `json:"limits"`
	PricedPer       string       `json:"pricedPer,omitempty"` // PricedPerRun, or absent
	Note            string       `json:"note,omitempty"`      // of a run-priced action
}

// Validate checks the policy's part against docs/protocol.md §2.1, and that a run-priced
// action says how it is priced.
func (a PaidAction) Validate() error {
	policy := Policy{Action: a.Action, Version: a.Version, Payment: a.Payment, QuoteTTLSeconds: a.QuoteTTLSeconds}
	return cmp.Or(
		policy.Validate(),
		oneOf("/pricedPer", a.PricedPer, "", PricedPerRun),
		rule((a.Note != "") == (a.PricedPer != ""), "/note", "must stand beside pricedPer"),
	)
}

// PricedPerRun marks an action whose quotes charge payment.amount once for each
// run bought.
const PricedPerRun = "run"

// RunPricedNote is the note of a run-priced action.
const RunPricedNote = "payment.amount is the price of one unit; a quote charges it once per unit bought"

// NewPaidAction returns the element for a policy. An action that limits how
// many runs can be bought is priced per run.
func NewPaidAction(policy Policy, limits ActionLimits) PaidAction {
	element := PaidAction{
		Action: policy.Action, Version: policy.Version, Payment: policy.Payment,
		QuoteTTLSeconds: policy.QuoteTTLSeconds, Limits: limits,
	}
	if limits.MaxRuns > 0 {
		element.PricedPer, element.Note = PricedPerRun, RunPricedNote
	}
	return element
}

// Limits bounds what a request may carry.
type Limits struct {
	BodyBytes               int                     `json:"bodyBytes"`
	PaymentHeaderCharacters int                     `json:"paymentHeaderCharacters"`
	Actions                 map[string]ActionLimits `json:"actions"`
	RepositoryHosts         []string                `json:"repositoryHosts"` // that a repoUrl may name
}

// ActionLimits is the limits of one action (docs/protocol.md §2.3); absent ones do not apply.
type ActionLimits struct {
	MinPanelSize             int   `json:"minPanelSize,omitempty"`
	MaxPanelSize             int   `json:"maxPanelSize,omitempty"`
	MinRuns                  int64 `json:"minRuns,omitempty"`
	MaxRuns                  int64 `json:"maxRuns,omitempty"`
	MinOracleIntervalMinutes int64 `json:"minOracleIntervalMinutes,omitempty"`
	MinJobIntervalMinutes    int64 `json:"minJobIntervalMinutes,omitempty"`
}

// Launches lists the chains that a launch can deploy on now.
type Launches struct {
	DefaultChainID uint64        `json:"defaultChainId"`
	Chains         []LaunchChain `json:"chains"`
}

// LaunchChain is one chain of Launches.
type LaunchChain struct {
	ChainID  uint64    `json:"chainId"`
	Name     string    `json:"name"`
	Testnet  bool      `json:"testnet"`
	Kinds    []string  `json:"kinds"`
	Pairings []Pairing `json:"pairings"`
}

// Validate checks that the chains are distinct and that the default is one of
// them.
func (l *Launches) Validate() error {
	listed := make([]uint64, len(l.Chains))
	for i, chain := range l.Chains {
		listed[i] = chain.ChainID
	}
	slices.Sort(listed)
	return cmp.Or(
		rule(slices.Contains(listed, l.DefaultChainID), "/defaultChainId", "must be one of the chains"),
		rule(len(slices.Compact(listed)) == len(l.Chains), "/chains", "must not list a chain twice"),
	)
}

// Pairing is a currency that a launched token can be paired with.
type Pairing struct {
	PairWith string   `json:"pairWith"`
	Currency string   `json:"currency"` // address, all zeros for the native coin
	Symbol   string   `json:"symbol"`
	Name     string   `json:"name"`
	Decimals int      `json:"decimals"`
	Kinds    []string `json:"kinds"`
}

// Authentication says how a requester identifies itself.
type Authentication struct {
	Scheme       string `json:"scheme"`       // bearer
	Header       string `json:"header"`       // Authorization
	TokenFormat  string `json:"tokenFormat"`  // what the client generates
	TokenPattern string `json:"tokenPattern"` // regular expression
	Registration bool   `json:"registration"` // always false
}

// PaymentCapabilities says how to pay.
type PaymentCapabilities struct {
	X402Version         int                   `json:"x402Version"`
	Scheme              string                `json:"scheme"`
	AssetTransferMethod string                `json:"assetTransferMethod"`
	Network             string                `json:"network"`
	Asset               Asset                 `json:"asset"`
	PayTo               common.Address        `json:"payTo"`
	Permit2             common.Address        `json:"permit2"`
	Proxy               common.Address        `json:"proxy"` // the spender of the permit
	MaxTimeoutSeconds   int64                 `json:"maxTimeoutSeconds"`
	ContractWallets     bool                  `json:"contractWallets"` // EIP-1271, signatures of 65 bytes
	ServiceName         string                `json:"serviceName"`
	QuoteApproval       QuoteApprovalTemplate `json:"quoteApproval"`
}

// Validate checks the constants of the protocol (docs/protocol.md §9) and the network.
func (p *PaymentCapabilities) Validate() error {
	chainID, _ := x402.ChainID(p.Network)
	return cmp.Or(
		rule(p.X402Version == x402.Version, "/x402Version", "must be 2"),
		oneOf("/scheme", p.Scheme, x402.SchemeExact),
		oneOf("/assetTransferMethod", p.AssetTransferMethod, x402.MethodPermit2),
		network("/network", p.Network),
		integer("/asset/decimals", int64(p.Asset.Decimals), 0, 255),
		integer("/maxTimeoutSeconds", p.MaxTimeoutSeconds, 1, MaxSafeInteger),
		rule(p.ServiceName != "", "/serviceName", "is required"),
		rule(p.QuoteApproval.Domain == NewQuoteApprovalTemplate(p.ServiceName, chainID).Domain,
			"/quoteApproval/domain", "must be that of the service on the network"),
	)
}

// Asset is the token that payments are made in.
type Asset struct {
	Address  common.Address `json:"address"`
	Symbol   string         `json:"symbol"`
	Name     string         `json:"name"`    // of its EIP-712 domain
	Version  string         `json:"version"` // of its EIP-712 domain
	Decimals int            `json:"decimals"`
}
