package client_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/client"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

const (
	baseURL     = "https://boxoffice.example"
	serviceName = "Example"
	network     = "eip155:8453"
)

var (
	asset    = common.HexToAddress("0x833589fcd6edb6e08f4c7c32d4f71b54bda02913")
	payTo    = common.HexToAddress("0x00000000000000000000000000000000000000ab")
	stranger = common.HexToAddress("0x1111111111111111111111111111111111111111")
	price    = x402.NewUint256(1_000_000)
	token    = boxoffice.Token{31: 7}
	key, _   = crypto.HexToECDSA("59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d")
	payer    = crypto.PubkeyToAddress(key.PublicKey)
	askedJob = boxoffice.JobOpen{Objective: "  Weigh & compare "}
)

// service stands for a service that lies or fails, which the real one does not do
// on demand. It checks requests as the real one does, and settles a payment by
// counting a transfer.
type service struct {
	t  *testing.T
	mu sync.Mutex

	orders    map[boxoffice.UUID]*boxoffice.Status // by request key
	bound     map[boxoffice.UUID]string            // by order: the payment that was taken
	sent      []*x402.Payment                      // every payment that arrived
	spent     map[x402.Uint256]boxoffice.UUID      // by nonce: the order that it paid
	nonces    map[x402.Uint256]boxoffice.UUID      // by nonce: the order that it is bound to
	transfers int

	// Lies: each changes a response before it is written.
	capabilities func(*boxoffice.Capabilities)
	quote        func(*boxoffice.QuoteResponse) // before its hashes are computed
	order        func(*boxoffice.QuoteResponse) // after its hashes are computed
	challenge    func(*boxoffice.Challenge)
	required     func(*x402.PaymentRequired)
	admitted     func(*boxoffice.Status)
	// Faults: intercept answers the request itself if it returns true; lose drops the
	// response after the request was served.
	intercept func(w http.ResponseWriter, r *http.Request) bool
	lose      func(r *http.Request) bool
	outcome   func(boxoffice.UUID) boxoffice.State // of a payment that is taken; nil admits
	reason    x402.Reason                          // rejects payments
	taken     *boxoffice.Problem                   // refuses payments whose nonce another order has
}

func newService(t *testing.T) *service {
	return &service{
		t: t, orders: make(map[boxoffice.UUID]*boxoffice.Status), bound: make(map[boxoffice.UUID]string),
		spent: make(map[x402.Uint256]boxoffice.UUID), nonces: make(map[x402.Uint256]boxoffice.UUID),
	}
}

// RoundTrip serves a request in the caller's goroutine, because a test under
// synctest cannot wait for the network.
func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	recorder := httptest.NewRecorder()
	s.ServeHTTP(recorder, r)
	if s.lose != nil && s.lose(r) {
		return nil, io.ErrUnexpectedEOF
	}
	return recorder.Result(), nil
}

func (s *service) client(adjust ...func(*client.Config)) *client.Client {
	s.t.Helper()
	cfg := client.Config{
		BaseURL: baseURL,
		Token:   token,
		HTTP:    &http.Client{Transport: s},
		Signer:  client.KeySigner(key),
	}
	for _, change := range adjust {
		change(&cfg)
	}
	c, err := client.New(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.intercept != nil && s.intercept(w, r) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.URL.Path == "/requests/capabilities" {
		s.answer(w, http.StatusOK, s.terms())
		return
	}
	if r.Header.Get("Authorization") != "Bearer "+token.Reveal() {
		s.problem(w, &boxoffice.Problem{Code: boxoffice.InvalidRequestToken})
		return
	}
	id, submit := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/requests/"), "/submit")
	switch {
	case id == "quote":
		s.serveQuote(w, r)
	case submit:
		s.serveSubmit(w, r, boxoffice.UUID(id))
	default:
		s.serveStatus(w, boxoffice.UUID(id), http.StatusOK)
	}
}

func (s *service) terms() boxoffice.Capabilities {
	terms := boxoffice.Capabilities{Payment: boxoffice.PaymentCapabilities{
		X402Version: x402.Version, Scheme: x402.SchemeExact, AssetTransferMethod: x402.MethodPermit2, Network: network,
		Asset: boxoffice.Asset{Address: asset, Symbol: "USDX", Name: "Dollar X", Version: "2", Decimals: 6},
		PayTo: payTo, Permit2: x402.Permit2, Proxy: x402.ExactProxy, MaxTimeoutSeconds: 120, ServiceName: serviceName,
		QuoteApproval: boxoffice.NewQuoteApprovalTemplate(serviceName, 8453),
	}}
	for _, action := range boxoffice.Actions() {
		terms.Actions = append(terms.Actions, boxoffice.Policy{
			Action: action, Version: "v-1", QuoteTTLSeconds: 600,
			Payment: boxoffice.Payment{Network: network, Asset: asset, Amount: price, PayTo: payTo, Decimals: 6},
		})
	}
	if s.capabilities != nil {
		s.capabilities(&terms)
	}
	return terms
}

func (s *service) serveQuote(w http.ResponseWriter, r *http.Request) {
	var request boxoffice.QuoteRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		s.t.Errorf("quote: %v", err)
	}
	if saved, ok := s.orders[request.RequestKey]; ok {
		s.answer(w, http.StatusOK, boxoffice.QuoteResponse{Order: saved.Order})
		return
	}
	response := boxoffice.QuoteResponse{Created: true, Order: s.newOrder(request)}
	if s.order != nil {
		s.order(&response)
	}
	s.orders[request.RequestKey] = &boxoffice.Status{Status: boxoffice.Quoted, Order: response.Order}
	s.answer(w, http.StatusCreated, response)
}

func (s *service) newOrder(request boxoffice.QuoteRequest) boxoffice.Order {
	var input map[string]any
	if err := json.Unmarshal(request.Input, &input); err != nil {
		s.t.Errorf("input: %v", err)
	}
	if objective, ok := input["objective"].(string); ok {
		input["objective"] = strings.TrimSpace(objective)
		input["template"] = "research"
	}
	prepared, _ := json.Marshal(input)
	prepared, _ = boxoffice.Canonical(prepared)
	now := time.Now()
	response := boxoffice.QuoteResponse{Created: true, Order: boxoffice.Order{
		ID: boxoffice.NewUUID(), RequestKey: request.RequestKey, Status: boxoffice.Quoted,
		InputJSON: string(prepared), CreatedAt: boxoffice.At(now),
		Quote: boxoffice.Quote{
			V: 1, ID: boxoffice.NewUUID(), Action: request.Action, PolicyVersion: "v-1", IssuedAt: now.Unix(),
			ExpiresAt: now.Unix() + 600,
			Payment: boxoffice.Payment{
				Scheme:   "exact",
				Network:  network,
				Asset:    asset,
				Amount:   price,
				PayTo:    payTo,
				Decimals: 6,
			},
			Terms: boxoffice.AdmissionTerms(),
		},
	}}
	order := &response.Order
	if runs, ok := input["runs"].(float64); ok {
		unit := price
		order.Quote.UnitAmount, order.Quote.Runs = &unit, int64(runs)
		order.Quote.Payment.Amount, _ = unit.Mul(x402.NewUint256(uint64(runs)))
	}
	if s.quote != nil {
		s.quote(&response)
	}
	order.Quote.InputHash, _ = boxoffice.HashJSON([]byte(order.InputJSON))
	order.Quote.QuoteHash, _ = order.Quote.Seal()
	return *order
}

func (s *service) find(id boxoffice.UUID) *boxoffice.Status {
	for _, status := range s.orders {
		if status.Order.ID == id {
			return status
		}
	}
	return nil
}

func (s *service) serveStatus(w http.ResponseWriter, id boxoffice.UUID, code int) {
	status := s.find(id)
	if status == nil {
		s.problem(w, &boxoffice.Problem{Code: boxoffice.OrderNotFound})
		return
	}
	if status.Status == boxoffice.PaymentPending { // it is settled before the next request
		defer s.resolve(status)
	}
	s.answer(w, code, status)
}

func (s *service) resolve(status *boxoffice.Status) {
	taken, err := x402.ParsePayment(s.bound[status.Order.ID])
	if err != nil {
		s.t.Fatalf("payment: %v", err)
	}
	payment := taken.Payload.Payload.Authorization
	state := boxoffice.Admitted
	if s.outcome != nil {
		state = s.outcome(status.Order.ID)
	}
	status.Status, status.Order.Status = state, state
	if state == boxoffice.PaymentFailed {
		status.Payment = &boxoffice.PaymentStatus{
			Status: boxoffice.PaymentStatusFailed,
			Reason: string(x402.ReasonSimulation),
		}
		return
	}
	now, terms := boxoffice.At(time.Now()), status.Order.Quote.Payment
	status.Order.Status, status.Order.PaidAt = boxoffice.Paid, &now
	if _, ok := s.spent[payment.Nonce]; ok {
		s.t.Errorf("nonce %v is spent twice", payment.Nonce)
	}
	s.spent[payment.Nonce] = status.Order.ID
	s.transfers++
	status.Payment = &boxoffice.PaymentStatus{
		Status:          boxoffice.PaymentStatusSettled,
		Paid:            true,
		TransactionHash: &common.Hash{1},
		SettledAt:       &now,
		Payer:           payment.From,
		Network:         terms.Network,
		Asset:           terms.Asset,
		Amount:          terms.Amount,
		PayTo:           terms.PayTo,
	}
	status.Admission = &boxoffice.Admission{
		Status: boxoffice.Admitted,
		Result: boxoffice.Result{Kind: "job", ID: boxoffice.NewUUID(), URL: baseURL + "/jobs/1"},
	}
	if s.admitted != nil {
		s.admitted(status)
	}
}

func (s *service) serveSubmit(w http.ResponseWriter, r *http.Request, id boxoffice.UUID) {
	status := s.find(id)
	header := r.Header.Get(x402.HeaderSignature)
	switch {
	case status == nil:
		s.problem(w, &boxoffice.Problem{Code: boxoffice.OrderNotFound})
	case header != "" && header == s.bound[id]:
		s.serveStatus(w, id, http.StatusAccepted)
	case status.Status != boxoffice.Quoted && status.Status != boxoffice.PaymentFailed && header != "":
		s.problem(w, &boxoffice.Problem{Code: boxoffice.PaymentConflict})
	case status.Status != boxoffice.Quoted && status.Status != boxoffice.PaymentFailed:
		s.serveStatus(w, id, http.StatusAccepted)
	case !status.Order.Quote.Live(time.Now().Unix()):
		s.problem(w, &boxoffice.Problem{Code: boxoffice.QuoteExpired})
	case header == "":
		s.serveChallenge(w, status)
	default:
		s.take(w, r, status, header)
	}
}

func (s *service) serveChallenge(w http.ResponseWriter, status *boxoffice.Status) {
	quote := status.Order.Quote
	url := baseURL + "/requests/" + string(status.Order.ID) + "/submit"
	challenge := boxoffice.Challenge{
		X402Version: x402.Version,
		Resource:    x402.Resource{URL: url, Description: quote.Action, MimeType: "application/json"},
		Accepts: []x402.Requirements{{
			Scheme: "exact", Network: network, Asset: quote.Payment.Asset, Amount: quote.Payment.Amount,
			PayTo: quote.Payment.PayTo, MaxTimeoutSeconds: 120,
			Extra: &x402.Extra{AssetTransferMethod: "permit2", Name: "Dollar X", Version: "2"},
		}},
		Quote: quote, RequesterScopeHash: token.Requester().ScopeHash(baseURL), ResourceURL: url,
		Input: json.RawMessage(status.Order.InputJSON),
	}
	required := x402.PaymentRequired{
		X402Version: x402.Version,
		Error:       "payment required",
		Resource:    &challenge.Resource,
	}
	required.Accepts = append(required.Accepts, challenge.Accepts...)
	if s.challenge != nil {
		resource := challenge.Resource
		required.Resource = &resource
		s.challenge(&challenge)
	}
	if s.required != nil {
		s.required(&required)
	}
	header, err := x402.EncodeHeader(required)
	if err != nil {
		s.t.Errorf("PAYMENT-REQUIRED: %v", err)
	}
	w.Header().Set(x402.HeaderRequired, header)
	s.answer(w, http.StatusPaymentRequired, challenge)
}

// take verifies both signatures as the service does and binds the payment to its order.
func (s *service) take(w http.ResponseWriter, r *http.Request, status *boxoffice.Status, header string) {
	var submission boxoffice.Submission
	if err := json.NewDecoder(r.Body).Decode(&submission); err != nil {
		s.t.Errorf("submission: %v", err)
	}
	payment, err := x402.ParsePayment(header)
	if err != nil {
		s.t.Fatalf("payment: %v", err)
	}
	s.sent = append(s.sent, payment)
	if s.reason != "" {
		s.problem(w, &boxoffice.Problem{Code: boxoffice.PaymentRejected, Reason: string(s.reason)})
		return
	}
	permit, quote := payment.Payload.Payload.Authorization, status.Order.Quote
	if signer, err := x402.Recover(permit.Digest(8453), payment.Payload.Payload.Signature); err != nil ||
		signer != permit.From ||
		signer != payer {
		s.t.Errorf("the payment was signed by %v, %v", signer, err)
	}
	url := baseURL + "/requests/" + string(status.Order.ID) + "/submit"
	challenge := boxoffice.Challenge{
		Quote:              quote,
		ResourceURL:        url,
		RequesterScopeHash: token.Requester().ScopeHash(baseURL),
	}
	approval, err := challenge.Approve(serviceName, payment.Hash)
	if err != nil {
		s.t.Errorf("approval: %v", err)
	}
	if signer, err := x402.Recover(approval.Digest(), submission.QuoteSignature[:]); err != nil || signer != payer {
		s.t.Errorf("the quote was approved by %v, %v", signer, err)
	}
	deadline, _ := permit.Deadline.Uint64()
	now := uint64(time.Now().Unix())
	if permit.Spender != x402.ExactProxy || permit.Witness.To != quote.Payment.PayTo ||
		permit.Permitted.Token != quote.Payment.Asset || permit.Permitted.Amount != quote.Payment.Amount || !permit.Witness.ValidAfter.IsZero() ||
		deadline < now+6 ||
		deadline > now+120+300 {
		s.t.Errorf("permit %+v does not pay for %+v at %d", permit, quote.Payment, now)
	}
	if other, ok := s.nonces[permit.Nonce]; ok && other != status.Order.ID {
		if s.taken == nil {
			s.t.Errorf("nonce %v of order %s is that of order %s", permit.Nonce, status.Order.ID, other)
			return
		}
		s.problem(w, s.taken)
		return
	}
	s.nonces[permit.Nonce] = status.Order.ID
	s.bound[status.Order.ID] = header
	status.Status, status.Order.Status = boxoffice.PaymentPending, boxoffice.PaymentPending
	s.answer(w, http.StatusAccepted, status)
}

func (s *service) answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		s.t.Errorf("answer: %v", err)
	}
}

func (s *service) problem(w http.ResponseWriter, problem *boxoffice.Problem) {
	s.answer(w, problem.Code.Info().Status, problem)
}
