package boxoffice_test

import (
	"encoding/json"
	"testing"

	"boxoffice"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/go-cmp/cmp"
)

func TestQuoteRequestRules(t *testing.T) {
	valid := func() boxoffice.QuoteRequest {
		return boxoffice.QuoteRequest{Action: "job.open", Input: json.RawMessage(`{}`), RequestKey: otherID}
	}
	checkRules(t, valid, []breach[boxoffice.QuoteRequest]{
		{"last action", func(r *boxoffice.QuoteRequest) { r.Action = "schedule.topup" }, "ok"},
		{"another action", func(r *boxoffice.QuoteRequest) { r.Action = "job.close" }, "/action"},
		{"no action", func(r *boxoffice.QuoteRequest) { r.Action = "" }, "/action"},
		{"any input", func(r *boxoffice.QuoteRequest) { r.Input = json.RawMessage(`7`) }, "ok"},
		{"no input", func(r *boxoffice.QuoteRequest) { r.Input = nil }, "/input"},
		{"broken input", func(r *boxoffice.QuoteRequest) { r.Input = json.RawMessage(`{`) }, "/input"},
		{"no key", func(r *boxoffice.QuoteRequest) { r.RequestKey = "" }, "/requestKey"},
		{"another key", func(r *boxoffice.QuoteRequest) { r.RequestKey = "key" }, "/requestKey"},
	})
}

func TestOrderRules(t *testing.T) {
	type change = func(*boxoffice.Order)
	to := func(state boxoffice.State) change { return func(o *boxoffice.Order) { o.Status = state } }
	checkRules(t, someOrder, []breach[boxoffice.Order]{
		{"id", func(o *boxoffice.Order) { o.ID = "1" }, "/id"},
		{"requestKey", func(o *boxoffice.Order) { o.RequestKey = "" }, "/requestKey"},
		{"expired", to(boxoffice.Expired), "ok"},
		{"payment pending", to(boxoffice.PaymentPending), "ok"},
		{"payment failed", to(boxoffice.PaymentFailed), "ok"},
		{"paid without a time", to(boxoffice.Paid), "/paidAt"},
		{"paid", func(o *boxoffice.Order) { *o = paidOrder() }, "ok"},
		{"a time without paying", func(o *boxoffice.Order) { o.PaidAt = some(someTime) }, "/paidAt"},
		{"a status's admission_pending", to(boxoffice.AdmissionPending), "/status"},
		{"a status's admitted", to(boxoffice.Admitted), "/status"},
		{"no status", to(""), "/status"},
		{"quote", func(o *boxoffice.Order) { o.Quote.V = 3 }, "/quote/v"},
		{"quote's payment", func(o *boxoffice.Order) { o.Quote.Payment.Decimals = -1 }, "/quote/payment/decimals"},
		{"inputJson", func(o *boxoffice.Order) { o.InputJSON = "" }, "/inputJson"},
		{"createdAt", func(o *boxoffice.Order) { o.CreatedAt = 1 << 60 }, "/createdAt"},
	})
	response := boxoffice.QuoteResponse{Order: someOrder()}
	wantField(t, response.Validate(), "ok")
	response.Order.ID = ""
	wantField(t, response.Validate(), "/order/id")
}

func TestOrderVerify(t *testing.T) {
	wantField(t, someOrder().Verify(), "ok")
	for _, tc := range []breach[boxoffice.Order]{
		{"other input", func(o *boxoffice.Order) { o.InputJSON = `{"objective":"other"}` }, "/inputJson"},
		{"the input in other words", func(o *boxoffice.Order) { o.InputJSON += " " }, "/inputJson"},
		{"a repeated member", func(o *boxoffice.Order) { o.InputJSON = `{"a":1,"a":1}` }, "/inputJson"},
		{"other quote", func(o *boxoffice.Order) { o.Quote.ExpiresAt++ }, "/quote/quoteHash"},
		{"a rule", func(o *boxoffice.Order) { o.Status = "" }, "/status"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			order := someOrder()
			tc.change(&order)
			wantField(t, order.Verify(), tc.pointer)
		})
	}
}

func TestStatusRules(t *testing.T) {
	type status = boxoffice.Status
	at := func(state boxoffice.State, order boxoffice.State, payment string) func(*status) {
		return func(s *status) {
			s.Status, s.Order.Status, s.Admission = state, order, nil
			if order != boxoffice.Paid {
				s.Order.PaidAt = nil
			}
			if s.Payment = settledPayment(); payment == "" {
				s.Payment = nil
			} else if payment != boxoffice.PaymentStatusSettled {
				s.Payment.Status, s.Payment.Paid, s.Payment.SettledAt = payment, false, nil
			}
		}
	}
	with := func(change func(*boxoffice.PaymentStatus)) func(*status) {
		return func(s *status) { change(s.Payment) }
	}
	checkRules(t, admittedStatus, []breach[status]{
		{"quoted", at(boxoffice.Quoted, boxoffice.Quoted, ""), "ok"},
		{"expired", at(boxoffice.Expired, boxoffice.Expired, ""), "ok"},
		{"payment_pending", at(boxoffice.PaymentPending, boxoffice.PaymentPending, "pending"), "ok"},
		{"payment_failed", at(boxoffice.PaymentFailed, boxoffice.PaymentFailed, "failed"), "ok"},
		{"admission_pending", at(boxoffice.AdmissionPending, boxoffice.Paid, "settled"), "ok"},
		{"an order's paid", at(boxoffice.Paid, boxoffice.Paid, "settled"), "/status"},
		{"none", at("", boxoffice.Quoted, ""), "/status"},
		{"quoted but its order expired", at(boxoffice.Quoted, boxoffice.Expired, ""), "/order/status"},
		{"quoted but its order paid", at(boxoffice.Quoted, boxoffice.Paid, ""), "/order/status"},
		{
			"admission_pending but its order quoted",
			at(boxoffice.AdmissionPending, boxoffice.Quoted, "settled"),
			"/order/status",
		},
		{"quoted with a payment", at(boxoffice.Quoted, boxoffice.Quoted, "pending"), "/payment/status"},
		{"payment_pending without a payment", at(boxoffice.PaymentPending, boxoffice.PaymentPending, ""), "/payment"},
		{
			"payment_pending with a failed one",
			at(boxoffice.PaymentPending, boxoffice.PaymentPending, "failed"),
			"/payment/status",
		},
		{"paid with a pending one", at(boxoffice.AdmissionPending, boxoffice.Paid, "pending"), "/payment/status"},
		{"admitted without an admission", func(s *status) { s.Admission = nil }, "/admission"},
		{"an admission while pending", func(s *status) { s.Status = boxoffice.AdmissionPending }, "/admission"},
		{"order", func(s *status) { s.Order.Quote.PolicyVersion = "" }, "/order/quote/policyVersion"},

		{"payment status", with(func(p *boxoffice.PaymentStatus) { p.Status = "paid" }), "/payment/status"},
		{"settled and not paid", with(func(p *boxoffice.PaymentStatus) { p.Paid = false }), "/payment/paid"},
		{
			"settled without a transaction",
			with(func(p *boxoffice.PaymentStatus) { p.TransactionHash = nil }),
			"/payment/transactionHash",
		},
		{
			"settled without a time",
			with(func(p *boxoffice.PaymentStatus) { p.SettledAt = nil }),
			"/payment/settledAt",
		},
		{
			"settled with a reason to fail",
			with(func(p *boxoffice.PaymentStatus) { p.Reason = "x" }),
			"/payment/reason",
		},
		{"on no network", with(func(p *boxoffice.PaymentStatus) { p.Network = "" }), "/payment/network"},
		{"on another network", with(func(p *boxoffice.PaymentStatus) { p.Network = "eip155:1" }), "/payment"},
		{"of another asset", with(func(p *boxoffice.PaymentStatus) { p.Asset = common.Address{} }), "/payment"},
		{"of another amount", with(func(p *boxoffice.PaymentStatus) { p.Amount = amountOf("1") }), "/payment"},
		{"to someone else", with(func(p *boxoffice.PaymentStatus) { p.PayTo = common.Address{} }), "/payment"},
		{"by another than the quote's payer", func(s *status) { s.Order.Quote.Payer = &somePayTo }, "/payment/payer"},
		{"by the quote's payer", func(s *status) { s.Order.Quote.Payer = &somePayer }, "ok"},

		{
			"admission status",
			func(s *status) { s.Admission.Status = boxoffice.AdmissionPending },
			"/admission/status",
		},
		{"admission time", func(s *status) { s.Admission.AdmittedAt = -1 << 60 }, "/admission/admittedAt"},
		{"result kind", func(s *status) { s.Admission.Result.Kind = "launch" }, "/admission/result/kind"},
		{"result id", func(s *status) { s.Admission.Result.ID = "" }, "/admission/result/id"},
		{"result url", func(s *status) { s.Admission.Result.URL = "/jobs/1" }, "/admission/result/url"},
		{"result job url", func(s *status) { s.Admission.Result.JobURL = "jobs" }, "/admission/result/jobUrl"},
		{"result with its job", func(s *status) { s.Admission.Result.JobURL = s.Admission.Result.URL }, "ok"},
	})
	failed := settledPayment()
	failed.Status, failed.Reason = boxoffice.PaymentStatusFailed, "permit2_nonce_spent"
	failed.Paid, failed.SettledAt = false, nil
	wantField(t, failed.Validate(), "ok")
}

// TestStatusOnTheWire: a status has exactly the members of docs/protocol.md §2.6 and the
// orders in it those of §2.5, null where there is nothing.
func TestStatusOnTheWire(t *testing.T) {
	status := boxoffice.Status{Status: boxoffice.Quoted, Order: someOrder()}
	want := `{"status":"quoted","order":{"id":"` + string(someID) + `",` +
		`"requestKey":"` + string(otherID) + `","status":"quoted",` +
		`"quote":` + string(marshal(t, someQuote())) + `,"inputJson":` + string(marshal(t, someInput)) +
		`,"createdAt":"2026-11-20T10:00:00.000Z","paidAt":null},"payment":null,"admission":null}`
	if diff := cmp.Diff(want, string(marshal(t, status))); diff != "" {
		t.Error(diff)
	}
	for _, status := range []boxoffice.Status{status, admittedStatus()} {
		var decoded boxoffice.Status
		if err := json.Unmarshal(marshal(t, status), &decoded); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(marshal(t, status)), string(marshal(t, decoded))); diff != "" {
			t.Error(diff)
		}
	}
	// A client takes members that it does not know, except in what is signed.
	grown := edited(t, status, func(members map[string]any) { members["refund"] = nil })
	var decoded boxoffice.Status
	if err := json.Unmarshal(grown, &decoded); err != nil {
		t.Error(err)
	}
	grown = edited(t, status, func(members map[string]any) {
		members["order"].(map[string]any)["quote"].(map[string]any)["refund"] = true
	})
	wantField(t, json.Unmarshal(grown, &decoded), "/refund")
}

func TestPending(t *testing.T) {
	pending := map[boxoffice.State]bool{boxoffice.PaymentPending: true, boxoffice.AdmissionPending: true}
	for _, state := range []boxoffice.State{
		boxoffice.Quoted, boxoffice.Expired, boxoffice.PaymentPending, boxoffice.PaymentFailed, boxoffice.Paid,
		boxoffice.AdmissionPending, boxoffice.Admitted,
	} {
		if state.Pending() != pending[state] {
			t.Errorf("%s is pending: %v", state, state.Pending())
		}
	}
}
