package boxoffice

import (
	"cmp"
	"encoding/json"

	"github.com/ethereum/go-ethereum/common"
)

// State is where an order stands. An Order shows the first five; a Status
// shows admission_pending and admitted where its order is paid (docs/protocol.md §3).
type State string

// The states of an order and of a status.
const (
	Quoted         State = "quoted"
	Expired        State = "expired"
	PaymentPending State = "payment_pending"
	PaymentFailed  State = "payment_failed"
	Paid           State = "paid"

	AdmissionPending State = "admission_pending"
	Admitted         State = "admitted"
)

// Pending reports whether s can change without another request. A client polls
// an order while it is pending.
func (s State) Pending() bool { return s == PaymentPending || s == AdmissionPending }

// QuoteRequest asks for a priced quote (docs/protocol.md §4.3).
type QuoteRequest struct {
	Action     string          `json:"action"`
	Input      json.RawMessage `json:"input"`
	RequestKey UUID            `json:"requestKey"`
}

// Validate checks the request against docs/protocol.md §4.3. It does not check the
// input of the action.
func (r QuoteRequest) Validate() error {
	return cmp.Or(
		oneOf("/action", r.Action, Actions()...),
		rule(json.Valid(r.Input), "/input", "is required"),
		member("/requestKey", r.RequestKey),
	)
}

// QuoteResponse answers a QuoteRequest.
type QuoteResponse struct {
	Created bool  `json:"created"`
	Order   Order `json:"order"`
}

// Validate checks the order.
func (r QuoteResponse) Validate() error { return member("/order", r.Order) }

// Order is a saved quote and what became of it (docs/protocol.md §2.5).
type Order struct {
	ID         UUID       `json:"id"`
	RequestKey UUID       `json:"requestKey"`
	Status     State      `json:"status"`
	Quote      Quote      `json:"quote"`
	InputJSON  string     `json:"inputJson"` // the prepared input as canonical JSON
	CreatedAt  Timestamp  `json:"createdAt"`
	PaidAt     *Timestamp `json:"paidAt"`
}

// Validate checks the order against docs/protocol.md §2.5.
func (o Order) Validate() error {
	return cmp.Or(
		member("/id", o.ID),
		member("/requestKey", o.RequestKey),
		oneOf("/status", o.Status, Quoted, Expired, PaymentPending, PaymentFailed, Paid),
		member("/quote", o.Quote),
		rule(json.Valid([]byte(o.InputJSON)), "/inputJson", "must be JSON"),
		member("/createdAt", o.CreatedAt),
		moment("/paidAt", o.PaidAt),
		rule((o.PaidAt != nil) == (o.Status == Paid), "/paidAt", "must be null until the order is paid"),
	)
}

// Verify checks the order's rules, the quote's hash, and that inputJson is the
// canonical JSON whose hash the quote holds: what was priced is what was saved.
func (o Order) Verify() error {
	if err := o.Validate(); err != nil {
		return err
	}
	canonical, err := Canonical([]byte(o.InputJSON))
	return cmp.Or(
		nested("/quote", o.Quote.Verify()),
		rule(err == nil && string(canonical) == o.InputJSON, "/inputJson", "must be canonical JSON"),
		o.Quote.verifyInput("/inputJson", []byte(o.InputJSON)),
	)
}

func moment(pointer string, t *Timestamp) error {
	if t == nil {
		return nil
	}
	return member(pointer, *t)
}

// Status is an order with its payment and admission (docs/protocol.md §2.6).
type Status struct {
	Status    State          `json:"status"`
	Order     Order          `json:"order"`
	Payment   *PaymentStatus `json:"payment"`
	Admission *Admission     `json:"admission"`
}

// Validate checks the status against docs/protocol.md §2.6, and that its parts
// agree: an order is paid exactly if its payment settled, and admitted exactly
// if it has an admission.
func (s Status) Validate() error {
	return cmp.Or(
		oneOf("/status", s.Status, Quoted, Expired, PaymentPending, PaymentFailed, AdmissionPending, Admitted),
		member("/order", s.Order),
		rule(s.Order.Status == s.Status ||
			s.Order.Status == Paid && (s.Status == AdmissionPending || s.Status == Admitted),
			"/order/status", "must agree with the status"),
		s.validatePayment(),
		s.validateAdmission(),
	)
}

func (s Status) validatePayment() error {
	if s.Payment == nil {
		return rule(s.Status == Quoted || s.Status == Expired, "/payment", "is required once a payment was submitted")
	}
	expected := map[State]string{
		PaymentPending: PaymentStatusPending, PaymentFailed: PaymentStatusFailed,
		AdmissionPending: PaymentStatusSettled, Admitted: PaymentStatusSettled,
	}[s.Status]
	paid, quoted := s.Payment, s.Order.Quote.Payment
	return cmp.Or(
		member("/payment", s.Payment),
		rule(paid.Status == expected, "/payment/status", "must agree with the status"),
		rule(paid.Network == quoted.Network && paid.Asset == quoted.Asset && paid.Amount == quoted.Amount &&
			paid.PayTo == quoted.PayTo, "/payment", "must be on the terms of the quote"),
		rule(s.Order.Quote.Payer == nil || paid.Payer == *s.Order.Quote.Payer, "/payment/payer",
			"must be the payer of the quote"),
	)
}

func (s Status) validateAdmission() error {
	if s.Admission == nil {
		return rule(s.Status != Admitted, "/admission", "is required once admitted")
	}
	return cmp.Or(
		rule(s.Status == Admitted, "/admission", "must be null until admitted"),
		member("/admission", s.Admission),
	)
}

// PaymentStatus is what is known of an order's payment. It never holds the
// signed payload.
type PaymentStatus struct {
	Status          string         `json:"status"` // pending, settled or failed
	Paid            bool           `json:"paid"`
	TransactionHash *common.Hash   `json:"transactionHash"`
	Payer           common.Address `json:"payer"`
	Network         string         `json:"network"`
	Asset           common.Address `json:"asset"`
	Amount          Amount         `json:"amount"`
	PayTo           common.Address `json:"payTo"`
	BlockNumber     *uint64        `json:"blockNumber"`
	Reason          string         `json:"reason,omitempty"` // why it failed
	SubmittedAt     Timestamp      `json:"submittedAt"`
	SettledAt       *Timestamp     `json:"settledAt"`
}

// The values of PaymentStatus.Status.
const (
	PaymentStatusPending = "pending"
	PaymentStatusSettled = "settled"
	PaymentStatusFailed  = "failed"
)

// Validate checks that the payment is paid exactly if it settled, and that a
// settled one names the transaction and the time.
func (p *PaymentStatus) Validate() error {
	settled := p.Status == PaymentStatusSettled
	return cmp.Or(
		oneOf("/status", p.Status, PaymentStatusPending, PaymentStatusSettled, PaymentStatusFailed),
		rule(p.Paid == settled, "/paid", "must be true exactly if the payment settled"),
		rule(p.TransactionHash != nil || !settled, "/transactionHash", "is required of a settled payment"),
		network("/network", p.Network),
		rule(p.Reason == "" || p.Status == PaymentStatusFailed, "/reason", "must be absent unless the payment failed"),
		member("/submittedAt", p.SubmittedAt),
		moment("/settledAt", p.SettledAt),
		rule((p.SettledAt != nil) == settled, "/settledAt", "must be null unless the payment settled"),
	)
}

// Admission is what paying bought: the reference to the created work.
type Admission struct {
	Status     State     `json:"status"` // always admitted
	AdmittedAt Timestamp `json:"admittedAt"`
	Result     Result    `json:"result"`
}

// Validate checks the admission.
func (a *Admission) Validate() error {
	return cmp.Or(
		oneOf("/status", a.Status, Admitted),
		member("/admittedAt", a.AdmittedAt),
		member("/result", a.Result),
	)
}

// Result names the work that an admission created or changed.
type Result struct {
	Kind   string `json:"kind"` // job, oracle, workflow or schedule
	ID     UUID   `json:"id"`
	URL    string `json:"url"`
	JobURL string `json:"jobUrl,omitempty"` // the job that carries a workflow
}

// Validate checks the result.
func (r Result) Validate() error {
	err := cmp.Or(
		oneOf("/kind", r.Kind, "job", "oracle", "workflow", "schedule"),
		member("/id", r.ID),
		uri("/url", r.URL),
	)
	if err == nil && r.JobURL != "" {
		err = uri("/jobUrl", r.JobURL)
	}
	return err
}
