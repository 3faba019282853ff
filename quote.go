package boxoffice

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
)

// The paid actions (docs/protocol.md §1.3).
const (
	ActionJobOpen        = "job.open"
	ActionJobContinue    = "job.continue"
	ActionLaunchOpen     = "launch.open"
	ActionOracleRequest  = "oracle.request"
	ActionWorkflowOpen   = "workflow.open"
	ActionScheduleCreate = "schedule.create"
	ActionScheduleTopUp  = "schedule.topup"
)

// Actions returns the paid actions in the order of docs/protocol.md §1.3.
func Actions() []string {
	return []string{
		ActionJobOpen, ActionJobContinue, ActionLaunchOpen, ActionOracleRequest,
		ActionWorkflowOpen, ActionScheduleCreate, ActionScheduleTopUp,
	}
}

// QuoteVersion is the constant v of a quote.
const QuoteVersion = 1

// Policy is what an action costs now and how long a quote for it lives
// (docs/protocol.md §2.1). The payment of a policy has no scheme.
type Policy struct {
	Action          string  `json:"action"`
	Version         string  `json:"version"`
	Payment         Payment `json:"payment"`
	QuoteTTLSeconds int64   `json:"quoteTtlSeconds"`
}

// Validate checks the policy against docs/protocol.md §2.1.
func (p Policy) Validate() error {
	return cmp.Or(
		action("/action", p.Action),
		text("/version", p.Version, 1, 64),
		member("/payment", p.Payment),
		rule(p.Payment.Scheme == "", "/payment/scheme", "must be absent from a policy"),
		integer("/quoteTtlSeconds", p.QuoteTTLSeconds, 1, MaxSafeInteger),
	)
}

// UnmarshalJSON accepts exactly what docs/protocol.md §2.1 allows: no unknown, missing,
// repeated or null member, and lowercase addresses.
func (p *Policy) UnmarshalJSON(data []byte) error {
	type plain Policy
	var decoded plain
	if err := decode(data, &decoded); err != nil {
		return err
	}
	*p = Policy(decoded)
	return p.Validate()
}

// Payment is the terms of a payment (docs/protocol.md §2.2).
type Payment struct {
	Scheme   string         `json:"scheme,omitempty"` // "exact" in a quote, absent in a policy
	Network  string         `json:"network"`          // eip155:<chainId>
	Asset    common.Address `json:"asset"`
	Amount   Amount         `json:"amount"`
	PayTo    common.Address `json:"payTo"`
	Decimals int            `json:"decimals"`
}

// Validate checks the terms against docs/protocol.md §2.2. Whether the scheme has to be
// there is for Quote and Policy to say.
func (p Payment) Validate() error {
	return cmp.Or(
		oneOf("/scheme", cmp.Or(p.Scheme, x402.SchemeExact), x402.SchemeExact),
		network("/network", p.Network),
		integer("/decimals", int64(p.Decimals), 0, 255),
	)
}

// UnmarshalJSON accepts exactly what docs/protocol.md §2.2 allows, as Quote does.
func (p *Payment) UnmarshalJSON(data []byte) error {
	type plain Payment
	var decoded plain
	if err := decode(data, &decoded); err != nil {
		return err
	}
	*p = Payment(decoded)
	return p.Validate()
}

// Quote is the read-only offer that a requester signs (docs/protocol.md §2.4).
type Quote struct {
	V             int             `json:"v"`
	ID            UUID            `json:"id"`
	Action        string          `json:"action"`
	PolicyVersion string          `json:"policyVersion"`
	InputHash     Hash            `json:"inputHash"` // SHA-256 of the canonical prepared input
	IssuedAt      int64           `json:"issuedAt"`  // Unix seconds
	ExpiresAt     int64           `json:"expiresAt"` // Unix seconds
	Payment       Payment         `json:"payment"`
	UnitAmount    *Amount         `json:"unitAmount,omitempty"` // run-priced actions: the price of one run
	Runs          int64           `json:"runs,omitempty"`       // run-priced actions: how many runs are bought
	Payer         *common.Address `json:"payer,omitempty"`      // the only wallet that may pay
	Terms         Terms           `json:"terms"`
	QuoteHash     Hash            `json:"quoteHash"` // SHA-256 of the canonical quote without this member
}

// Terms says what paying buys: admission of the action, never its result.
type Terms struct {
	Purchase         string `json:"purchase"`
	ResultGuaranteed bool   `json:"resultGuaranteed"`
}

// AdmissionTerms returns the only Terms there is.
func AdmissionTerms() Terms { return Terms{Purchase: "action-admission"} }

// Validate checks the constants of docs/protocol.md §2.4.
func (t Terms) Validate() error {
	return cmp.Or(
		oneOf("/purchase", t.Purchase, AdmissionTerms().Purchase),
		rule(!t.ResultGuaranteed, "/resultGuaranteed", "must be false"),
	)
}

// Validate checks the quote against docs/protocol.md §2.4, and that a run-priced quote
// charges its unit amount once for each run (docs/protocol.md §8). It does not compute
// the hash: Verify does.
func (q Quote) Validate() error {
	return cmp.Or(
		rule(q.V == QuoteVersion, "/v", "must be 1"),
		member("/id", q.ID),
		action("/action", q.Action),
		text("/policyVersion", q.PolicyVersion, 1, 64),
		integer("/issuedAt", q.IssuedAt, 0, MaxSafeInteger),
		integer("/expiresAt", q.ExpiresAt, 0, MaxSafeInteger),
		rule(q.Payment.Scheme == x402.SchemeExact, "/payment/scheme", "must be "+x402.SchemeExact),
		member("/payment", q.Payment),
		q.validateRuns(),
		member("/terms", q.Terms),
	)
}

func (q Quote) validateRuns() error {
	switch {
	case q.UnitAmount == nil:
		return rule(q.Runs == 0, "/unitAmount", "is required beside runs")
	case q.Runs < 1 || q.Runs > MaxSafeInteger:
		return integer("/runs", q.Runs, 1, MaxSafeInteger)
	}
	total, fits := q.UnitAmount.Mul(x402.NewUint256(uint64(q.Runs)))
	return rule(fits && total == q.Payment.Amount, "/payment/amount", "must be unitAmount times runs")
}

// UnmarshalJSON accepts exactly what docs/protocol.md §2.4 allows: no unknown, missing,
// repeated or null member, and addresses and UUIDs in lowercase. What it
// accepts encodes to the same canonical JSON again, so that a hash computed
// from the decoded quote is that of the quote that was sent.
func (q *Quote) UnmarshalJSON(data []byte) error {
	type plain Quote
	var decoded plain
	if err := decode(data, &decoded); err != nil {
		return err
	}
	*q = Quote(decoded)
	return q.Validate()
}

// Seal computes the quote's hash: SHA-256 of its canonical JSON (RFC 8785)
// without quoteHash.
func (q Quote) Seal() (Hash, error) {
	document, err := json.Marshal(q)
	if err != nil {
		return Hash{}, fmt.Errorf("quote: %w", err)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(document, &members); err != nil {
		return Hash{}, fmt.Errorf("quote: %w", err)
	}
	delete(members, "quoteHash")
	if document, err = json.Marshal(members); err != nil {
		return Hash{}, fmt.Errorf("quote: %w", err)
	}
	canonical, err := Canonical(document)
	if err != nil {
		return Hash{}, fmt.Errorf("quote: %w", err)
	}
	return sha256.Sum256(canonical), nil
}

// Verify checks the quote's rules and that its hash is the one that Seal
// computes. A client does so before it signs.
func (q Quote) Verify() error {
	if err := q.Validate(); err != nil {
		return err
	}
	sealed, err := q.Seal()
	if err != nil {
		return err
	}
	return rule(sealed == q.QuoteHash, "/quoteHash", "is not the hash of the quote")
}

// verifyInput checks that input, a JSON document at pointer in a resource, is
// what the quote prices.
func (q Quote) verifyInput(pointer string, input []byte) error {
	hash, err := HashJSON(input)
	if err != nil {
		return &FieldError{Pointer: pointer, Message: err.Error()}
	}
	return rule(hash == q.InputHash, pointer, "is not the input whose hash the quote holds")
}

// Live reports whether the quote can still be paid at the given Unix second.
func (q Quote) Live(unix int64) bool { return unix < q.ExpiresAt }
