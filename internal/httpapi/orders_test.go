package httpapi_test

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"boxoffice"
	"boxoffice/internal/httpapi"
	"boxoffice/internal/order"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/google/go-cmp/cmp"
)

const quoteBody = `{"action":"job.open","input":{"objective":"count"},"requestKey":"` + anyID + `"}`

var (
	submitPath = "/requests/" + anyID + "/submit"
	approval   = `{"quoteSignature":"0x` + strings.Repeat("1f", 65) + `"}`
)

func quotedOrder(t *testing.T) boxoffice.Order {
	t.Helper()
	payment := terms
	payment.Scheme = x402.SchemeExact
	quote := boxoffice.Quote{
		V: 1, ID: anyID, Action: "job.open", PolicyVersion: "job-1", IssuedAt: 1_795_000_000, ExpiresAt: 1_795_000_600,
		Payment: payment, Terms: boxoffice.AdmissionTerms(),
	}
	sealed, err := quote.Seal()
	if err != nil {
		t.Fatal(err)
	}
	quote.QuoteHash = sealed
	return boxoffice.Order{
		ID: anyID, RequestKey: anyID, Status: boxoffice.Quoted, Quote: quote, InputJSON: `{"objective":"count"}`,
		CreatedAt: moment,
	}
}

func requirements() x402.Requirements {
	return x402.Requirements{
		Scheme: x402.SchemeExact, Network: terms.Network, Asset: terms.Asset, Amount: terms.Amount, PayTo: terms.PayTo,
		MaxTimeoutSeconds: 60,
		Extra:             &x402.Extra{AssetTransferMethod: x402.MethodPermit2, Name: "Token", Version: "1"},
	}
}

// paymentHeader returns a payload of the right shape, which pays nothing.
func paymentHeader(t *testing.T) string {
	t.Helper()
	header, err := x402.EncodeHeader(x402.Payload{
		X402Version: 2, Accepted: requirements(),
		Payload: x402.Permit2Payload{
			Signature: hexutil.MustDecode("0x" + strings.Repeat("ab", 65)),
			Authorization: x402.Authorization{
				From: common.Address{0xcc}, Permitted: x402.Permitted{Token: terms.Asset, Amount: terms.Amount},
				Spender: x402.ExactProxy, Deadline: x402.NewUint256(1_795_000_100),
				Witness: x402.Witness{To: terms.PayTo},
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return header
}

func status(t *testing.T, state boxoffice.State, paymentStatus string) boxoffice.Status {
	t.Helper()
	s := boxoffice.Status{Status: state, Order: quotedOrder(t)}
	if paymentStatus == "" {
		return s
	}
	s.Payment = &boxoffice.PaymentStatus{
		Status: paymentStatus, Payer: common.Address{0xcc}, Network: terms.Network, Asset: terms.Asset,
		Amount: terms.Amount, PayTo: terms.PayTo, SubmittedAt: moment,
	}
	switch paymentStatus {
	case boxoffice.PaymentStatusSettled:
		at := moment
		s.Payment.Paid, s.Payment.TransactionHash, s.Payment.BlockNumber, s.Payment.SettledAt = true, &common.Hash{1},
			new(uint64), &at
		s.Order.Status, s.Order.PaidAt = boxoffice.Paid, &at
	case boxoffice.PaymentStatusFailed:
		s.Payment.Reason = string(x402.ReasonSimulation)
		s.Order.Status = boxoffice.PaymentFailed
	default:
		s.Order.Status = boxoffice.PaymentPending
	}
	if state == boxoffice.Admitted {
		s.Admission = &boxoffice.Admission{Status: state, AdmittedAt: moment,
			Result: boxoffice.Result{Kind: "job", ID: anyID, URL: baseURL + "/jobs/" + anyID}}
	}
	return s
}

func TestQuote(t *testing.T) {
	s := serve(t)
	for _, created := range []bool{true, false} {
		s.flow.quote = func(_ boxoffice.Requester, request boxoffice.QuoteRequest) (boxoffice.QuoteResponse, error) {
			if request.Action != "job.open" || string(request.Input) != `{"objective":"count"}` ||
				request.RequestKey != anyID {
				t.Errorf("request is %+v", request)
			}
			return boxoffice.QuoteResponse{Created: created, Order: quotedOrder(t)}, nil
		}
		answer := s.do("POST", "/requests/quote", quoteBody)
		var response boxoffice.QuoteResponse
		answer.decode(t, &response)
		if diff := cmp.Diff(boxoffice.QuoteResponse{Created: created, Order: quotedOrder(t)}, response); diff != "" {
			t.Error(diff)
		}
		want := map[bool]int{true: http.StatusCreated, false: http.StatusOK}[created]
		if answer.StatusCode != want || (answer.Header.Get("Location") == baseURL+"/requests/"+anyID) != created {
			t.Errorf("answered %d, Location %q", answer.StatusCode, answer.Header.Get("Location"))
		}
	}
}

func TestQuoteBodyRefused(t *testing.T) {
	s := serve(t)
	for body, place := range map[string]string{
		``:                                 "",
		`null`:                             "",
		`[]`:                               "",
		`{`:                                "",
		quoteBody + `x`:                    "",
		quoteBody + `{}`:                   "",
		`{"action":"job.open","input":{}}`: "/requestKey",
		`{"action":"job.open","requestKey":"` + anyID + `"}`:                                    "/input",
		`{"input":{},"requestKey":"` + anyID + `"}`:                                             "/action",
		`{"action":"job.open","input":{},"requestKey":"` + anyID + `","extra":1}`:               "/extra",
		`{"action":"job.open","action":"job.open","input":{},"requestKey":"` + anyID + `"}`:     "/action",
		`{"Action":"job.open","input":{},"requestKey":"` + anyID + `"}`:                         "/Action",
		`{"action":1,"input":{},"requestKey":"` + anyID + `"}`:                                  "/action",
		`{"action":null,"input":{},"requestKey":"` + anyID + `"}`:                               "/action",
		`{"action":"job.open","input":{},"requestKey":"1"}`:                                     "/requestKey",
		`{"action":"job.open","input":{},"requestKey":"0198f0a4-6c1e-9c3a-9f5e-2b7d1c4e8a90"}`:  "/requestKey",
		`{"action":"job.open","input":{"a":1,"a":2},"requestKey":"` + anyID + `"}`:              "/input/a",
		"{\"action\":\"job.open\",\"input\":{\"a\":\"\xff\"},\"requestKey\":\"" + anyID + "\"}": "/input/a",
		`{"action":"job.open","input":{"a":"\ud800"},"requestKey":"` + anyID + `"}`:             "/input/a",
	} {
		answer := s.do("POST", "/requests/quote", body)
		problem := answer.wantProblem(t, boxoffice.InvalidRequest)
		if len(problem.Problems) != 1 || !strings.HasPrefix(problem.Problems[0].Path, place) {
			t.Errorf("%s: problems %+v, want %q", body, problem.Problems, place)
		}
	}
}

func TestChallenge(t *testing.T) {
	s := serve(t)
	want := boxoffice.Challenge{
		X402Version: 2, Resource: x402.Resource{URL: baseURL + submitPath, Description: "job.open",
			MimeType: "application/json"},
		Accepts: []x402.Requirements{requirements()}, Quote: quotedOrder(t).Quote, ResourceURL: baseURL + submitPath,
		Input: []byte(`{"objective":"<a> & b"}`),
	}
	s.flow.challenge = func(id boxoffice.UUID) (order.SubmitResult, error) {
		if id != anyID {
			t.Errorf("id is %s", id)
		}
		return order.SubmitResult{Challenge: &want}, nil
	}
	for _, body := range []string{"", "{}", " {\n} "} {
		answer := s.do("POST", submitPath, body)
		answer.wantStatus(t, http.StatusPaymentRequired)
		var got boxoffice.Challenge
		answer.decode(t, &got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		required, err := x402.DecodeRequired(answer.Header.Get("PAYMENT-REQUIRED"))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&x402.PaymentRequired{
			X402Version: 2, Error: "PAYMENT-SIGNATURE header is required",
			Resource: &want.Resource, Accepts: want.Accepts,
		}, required); diff != "" {
			t.Error(diff)
		}
	}
	for _, body := range []string{"null", "[]", "x", "{}{}", `{"a":1}`, approval} {
		problem := s.do("POST", submitPath, body).wantProblem(t, boxoffice.InvalidRequest)
		if !strings.Contains(problem.Detail, "PAYMENT-SIGNATURE") {
			t.Errorf("detail %q does not say which header is missing", problem.Detail)
		}
	}
}

// A submit answers by the state of the order, with or without a payment, and its
// PAYMENT-RESPONSE says what became of the payment.
func TestOutcomes(t *testing.T) {
	s := serve(t)
	for _, test := range []struct {
		state   boxoffice.State
		payment string
		status  int
		settled *x402.Settlement
	}{
		{boxoffice.PaymentPending, boxoffice.PaymentStatusPending, 202, nil},
		{boxoffice.AdmissionPending, boxoffice.PaymentStatusSettled, 202, &x402.Settlement{Success: true}},
		{boxoffice.Admitted, boxoffice.PaymentStatusSettled, 200, &x402.Settlement{Success: true}},
		{boxoffice.PaymentFailed, boxoffice.PaymentStatusFailed, 200,
			&x402.Settlement{ErrorReason: x402.ReasonSimulation}},
	} {
		want := status(t, test.state, test.payment)
		s.flow.challenge = func(boxoffice.UUID) (order.SubmitResult, error) {
			return order.SubmitResult{Status: &want}, nil
		}
		s.flow.status = func(boxoffice.UUID) (boxoffice.Status, error) { return want, nil }
		s.flow.pay = func(
			_ boxoffice.UUID, payment *x402.Payment, signature boxoffice.Signature,
		) (boxoffice.Status, error) {
			if payment.Payload.Payload.Authorization.From != (common.Address{0xcc}) || signature[64] != 0x1f {
				t.Errorf("payment %+v, signature %v", payment, signature)
			}
			return want, nil
		}
		for _, answer := range []reply{
			s.do("POST", submitPath, "{}"),
			s.do("POST", submitPath, approval, with("PAYMENT-SIGNATURE", paymentHeader(t))),
		} {
			answer.wantStatus(t, test.status)
			var got boxoffice.Status
			if answer.decode(t, &got); cmp.Diff(want, got) != "" {
				t.Error(cmp.Diff(want, got))
			}
			header := answer.Header.Get("PAYMENT-RESPONSE")
			if test.settled == nil {
				if header != "" {
					t.Errorf("%s has a PAYMENT-RESPONSE", test.state)
				}
				continue
			}
			response, err := x402.DecodeResponse(header)
			if err != nil {
				t.Fatal(err)
			}
			expected := *test.settled
			expected.Payer, expected.Network = hexutil.Encode(common.Address{0xcc}.Bytes()), terms.Network
			if expected.Success {
				expected.Amount, expected.Transaction = want.Payment.Amount.String(), common.Hash{1}.Hex()
			}
			if diff := cmp.Diff(&expected, response); diff != "" {
				t.Error(diff)
			}
		}
		read := s.do("GET", "/requests/"+anyID, "")
		read.wantStatus(t, http.StatusOK)
	}
}

func TestPaymentRefused(t *testing.T) {
	s := serve(t)
	header := paymentHeader(t)
	encoded := func(change func(*x402.Payload)) string {
		payment, err := x402.ParsePayment(header)
		if err != nil {
			t.Fatal(err)
		}
		change(&payment.Payload)
		text, err := x402.EncodeHeader(payment.Payload)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for name, test := range map[string]struct {
		headers []string
		detail  string
	}{
		"empty":      {[]string{""}, "PAYMENT-SIGNATURE"},
		"not base64": {[]string{"%"}, "PAYMENT-SIGNATURE"},
		"too long":   {[]string{strings.Repeat("A", x402.MaxHeaderLength+1)}, "PAYMENT-SIGNATURE"},
		"twice":      {[]string{header, header}, "PAYMENT-SIGNATURE"},
		"version":    {[]string{encoded(func(p *x402.Payload) { p.X402Version = 1 })}, "x402Version"},
		"extensions": {[]string{encoded(func(p *x402.Payload) { p.Extensions = map[string]struct{}{"bazaar": {}} })},
			"extensions"},
	} {
		t.Run(name, func(t *testing.T) {
			problem := s.do("POST", submitPath, approval, with("PAYMENT-SIGNATURE", test.headers...)).wantProblem(t,
				boxoffice.InvalidPaymentShape)
			if !strings.Contains(problem.Detail, test.detail) {
				t.Errorf("detail %q does not name %s", problem.Detail, test.detail)
			}
		})
	}
	for body, place := range map[string]string{
		``:                          "/quoteSignature",
		`{}`:                        "/quoteSignature",
		`{"quoteSignature":null}`:   "/quoteSignature",
		`{"quoteSignature":"0x1f"}`: "/quoteSignature",
		`{"quoteSignature":"` + strings.Repeat("1f", 65) + `"}`:   "/quoteSignature",
		`{"quoteSignature":"0X` + strings.Repeat("1f", 65) + `"}`: "/quoteSignature",
		`{"quoteSignature":"0x` + strings.Repeat("1f", 66) + `"}`: "/quoteSignature",
		`{"quoteSignature":"0x` + strings.Repeat("zz", 65) + `"}`: "/quoteSignature",
		approval[:len(approval)-1] + `,"x":1}`:                    "/x",
	} {
		s.do("POST", submitPath, body, with("PAYMENT-SIGNATURE", header)).
			wantProblem(t, boxoffice.InvalidRequest, place)
	}
}

func TestPaymentRejectedTellsX402Clients(t *testing.T) {
	s := serve(t)
	s.flow.fail(&boxoffice.Problem{Code: boxoffice.PaymentRejected, Reason: string(x402.ReasonAllowanceRequired)})
	for network, shown := range map[string]string{terms.Network: terms.Network, strings.Repeat("\x01", 1000): ""} {
		payment, err := x402.ParsePayment(paymentHeader(t))
		if err != nil {
			t.Fatal(err)
		}
		payment.Accepted.Network = network
		header, err := x402.EncodeHeader(payment.Payload)
		if err != nil {
			t.Fatal(err)
		}
		answer := s.do("POST", submitPath, approval, with("PAYMENT-SIGNATURE", header))
		if problem := answer.wantProblem(t,
			boxoffice.PaymentRejected); problem.Reason != string(x402.ReasonAllowanceRequired) {
			t.Errorf("reason %q", problem.Reason)
		}
		response, err := x402.DecodeResponse(answer.Header.Get("PAYMENT-RESPONSE"))
		if err != nil || response.Success || response.ErrorReason != x402.ReasonAllowanceRequired ||
			response.Network != shown {
			t.Errorf("PAYMENT-RESPONSE %+v, %v", response, err)
		}
		if answer.Header.Get("PAYMENT-REQUIRED") != "" {
			t.Error("a rejection offers payment")
		}
	}
}

// Every code of the table is sent with its status and its Retry-After. What the flow
// wraps around it, and its cause, is only logged.
func TestProblemsAreAnsweredByTheTable(t *testing.T) {
	for _, info := range boxoffice.Codes() {
		if info.Code == boxoffice.MethodNotAllowed {
			continue // no operation of the document has it
		}
		s := serve(t)
		problem := &boxoffice.Problem{Code: info.Code, Detail: "why", Reason: "because", RetryAfter: 7,
			Cause:    errors.New("secret cause"),
			Problems: []boxoffice.FieldProblem{{Path: "/input", Message: "is odd"}}}
		s.flow.fail(errors.Join(errors.New("outer"), problem))
		path, method, body := submitPath, "POST", "{}"
		if info.Code == boxoffice.NotFound {
			path, method, body = "/requests/"+anyID, "GET", ""
		}
		var edits []edit
		if info.Status == http.StatusUnauthorized {
			continue // sent by httpapi itself, with WWW-Authenticate
		}
		answer := s.do(method, path, body, edits...)
		got := answer.wantProblem(t, info.Code)
		if got.Detail != "why" || got.Reason != "because" || len(got.Problems) != 1 ||
			answer.Header.Get("Retry-After") != "7" {
			t.Errorf("%s: %s, Retry-After %q", info.Code, answer.body, answer.Header.Get("Retry-After"))
		}
		if strings.Contains(string(answer.body), "secret") || !strings.Contains(s.log.String(), "secret cause") {
			t.Errorf("%s: the cause belongs in the log, not in the answer", info.Code)
		}
	}
}

// Every 503 says when to ask again, also one of the handler of callbacks.
func TestUnavailableSaysWhenToComeBack(t *testing.T) {
	unavailable := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", http.StatusServiceUnavailable) }
	s := serve(t, func(c *httpapi.Config) { c.Callbacks = http.HandlerFunc(unavailable) })
	s.flow.fail(&boxoffice.Problem{Code: boxoffice.TemporarilyUnavailable})
	s.do("GET", "/requests/"+anyID, "").wantProblem(t, boxoffice.TemporarilyUnavailable)
	s.server.Client().Transport = nil // the document does not describe callbacks
	for _, path := range []string{"/requests/" + anyID, "/callbacks/" + anyID} {
		answer := s.do("GET", path, "")
		answer.wantStatus(t, http.StatusServiceUnavailable)
		if seconds, err := strconv.Atoi(answer.Header.Get("Retry-After")); err != nil || seconds < 1 {
			t.Errorf("%s: Retry-After %q", path, answer.Header.Get("Retry-After"))
		}
	}
}
