package boxoffice_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"boxoffice"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
)

// The input and the hashes of the quotes below, computed with Python's hashlib
// over json.dumps(…, sort_keys=True, separators=(",", ":"), ensure_ascii=False).
const (
	someInput     = `{"objective":"Wägen & prüfen <1 €>","template":"research"}`
	someInputHash = "f48674c29c02abbe9904789421909e27274766a2b3ba79e4238b794acfc4e8ae"
	quoteHash     = "c59d4f2e8d87a8957aeed8cbeaabe16945019a04a88e50f1dfad9ff29c7feab9"
	runsQuoteHash = "b57d0352c9095b27bc970a6a6f113dcdb65a8067cf3c0eaa90feb77a89f483a2"
)

const (
	someID    boxoffice.UUID = "0198a5c2-7b3e-7c11-9a4d-2f6b8e0c1d23"
	otherID   boxoffice.UUID = "6f9619ff-8b86-4d01-b42d-00c04fc964ff"
	submitURL                = "https://boxoffice.example/requests/0198a5c2-7b3e-7c11-9a4d-2f6b8e0c1d23/submit"
)

var (
	someAsset = common.HexToAddress("0x833589fcd6edb6e08f4c7c32d4f71b54bda02913")
	somePayTo = common.HexToAddress("0x00000000000000000000000000000000000000ab")
	somePayer = common.HexToAddress("0x1111111111111111111111111111111111111111")
)

const someTime boxoffice.Timestamp = 1795168800000

func amountOf(s string) boxoffice.Amount {
	amount, err := x402.ParseUint256(s)
	if err != nil {
		panic(err)
	}
	return amount
}

func hashOf(s string) (h boxoffice.Hash) {
	if err := h.UnmarshalText([]byte(s)); err != nil {
		panic(err)
	}
	return h
}

func some[T any](v T) *T { return &v }

func somePayment() boxoffice.Payment {
	return boxoffice.Payment{
		Scheme: "exact", Network: "eip155:8453", Asset: someAsset, Amount: amountOf("1000000000000000000"),
		PayTo: somePayTo, Decimals: 18,
	}
}

func somePolicy() boxoffice.Policy {
	payment := somePayment()
	payment.Scheme = ""
	return boxoffice.Policy{Action: "job.open", Version: "job-1", Payment: payment, QuoteTTLSeconds: 600}
}

func someQuote() boxoffice.Quote {
	return boxoffice.Quote{
		V: 1, ID: someID, Action: "job.open", PolicyVersion: "job-1", InputHash: hashOf(someInputHash),
		IssuedAt: 1795168800, ExpiresAt: 1795169400, Payment: somePayment(), Terms: boxoffice.AdmissionTerms(),
		QuoteHash: hashOf(quoteHash),
	}
}

func runsQuote() boxoffice.Quote {
	quote := someQuote()
	quote.Action, quote.PolicyVersion = "schedule.create", "schedule-1"
	quote.UnitAmount, quote.Runs, quote.Payer = some(amountOf("250000000000000000")), 4, &somePayer
	quote.QuoteHash = hashOf(runsQuoteHash)
	return quote
}

func someOrder() boxoffice.Order {
	return boxoffice.Order{
		ID: someID, RequestKey: otherID, Status: boxoffice.Quoted, Quote: someQuote(), InputJSON: someInput,
		CreatedAt: someTime,
	}
}

func paidOrder() boxoffice.Order {
	order := someOrder()
	order.Status, order.PaidAt = boxoffice.Paid, some(someTime+2000)
	return order
}

func settledPayment() *boxoffice.PaymentStatus {
	return &boxoffice.PaymentStatus{
		Status: boxoffice.PaymentStatusSettled, Paid: true, TransactionHash: &common.Hash{1}, Payer: somePayer,
		Network: "eip155:8453", Asset: someAsset, Amount: amountOf("1000000000000000000"), PayTo: somePayTo,
		BlockNumber: some(uint64(7)), SubmittedAt: someTime, SettledAt: some(someTime + 2000),
	}
}

func admittedStatus() boxoffice.Status {
	return boxoffice.Status{
		Status: boxoffice.Admitted, Order: paidOrder(), Payment: settledPayment(),
		Admission: &boxoffice.Admission{
			Status:     boxoffice.Admitted,
			AdmittedAt: someTime + 2001,
			Result: boxoffice.Result{
				Kind: "job", ID: otherID, URL: "https://boxoffice.example/jobs/" + string(otherID),
			},
		},
	}
}

func someChallenge() *boxoffice.Challenge {
	return &boxoffice.Challenge{
		X402Version: 2,
		Resource: x402.Resource{
			URL:         submitURL,
			Description: "Admission of job.open",
			MimeType:    "application/json",
		},
		Accepts: []x402.Requirements{{
			Scheme: "exact", Network: "eip155:8453", Asset: someAsset, Amount: amountOf("1000000000000000000"),
			PayTo:             somePayTo,
			MaxTimeoutSeconds: 300, Extra: &x402.Extra{AssetTransferMethod: "permit2", Name: "Token", Version: "1"},
		}},
		Quote: someQuote(), ResourceURL: submitURL, Input: json.RawMessage(someInput),
	}
}

func someJob() boxoffice.Job {
	return boxoffice.Job{
		ID: someID, State: boxoffice.JobCompleted, Template: "skill:build-website", Objective: "A site for the fair",
		LaunchKind: some("evm_project"), CreatedAt: someTime, UpdatedAt: someTime,
		Delivery: &boxoffice.Delivery{
			RepoURL: "https://boxoffice.example/git/1.git", Commit: strings.Repeat("0aF9", 10),
			DeliveredAt: some(someTime),
		},
		Project: &boxoffice.Project{ID: otherID, Version: 2, Of: 3},
	}
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	document, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return document
}

// edited returns the JSON of v after edit changed its members.
func edited(t testing.TB, v any, edit func(members map[string]any)) []byte {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(string(marshal(t, v))))
	decoder.UseNumber()
	var members map[string]any
	if err := decoder.Decode(&members); err != nil {
		t.Fatal(err)
	}
	edit(members)
	return marshal(t, members)
}

// wantField checks that err names the place at pointer, or is nil if pointer
// is "ok".
func wantField(t *testing.T, err error, pointer string) {
	t.Helper()
	if pointer == "ok" {
		if err != nil {
			t.Errorf("got the error %v", err)
		}
		return
	}
	field, ok := errors.AsType[*boxoffice.FieldError](err)
	if !ok {
		t.Fatalf("got %v, want a FieldError at %q", err, pointer)
	}
	if field.Pointer != pointer || field.Message == "" {
		t.Errorf("got %q: %q, want the place %q", field.Pointer, field.Message, pointer)
	}
}

// A breach is a change that makes a resource valid or breaks one of its rules.
type breach[T any] struct {
	name    string
	change  func(*T)
	pointer string // of the error, or "ok"
}

func checkRules[T any, P interface {
	*T
	Validate() error
}](t *testing.T, valid func() T, breaches []breach[T]) {
	t.Helper()
	resource := valid()
	if err := P(&resource).Validate(); err != nil {
		t.Fatalf("the unchanged resource is not valid: %v", err)
	}
	for _, b := range breaches {
		t.Run(b.name, func(t *testing.T) {
			resource := valid()
			b.change(&resource)
			wantField(t, P(&resource).Validate(), b.pointer)
		})
	}
}
