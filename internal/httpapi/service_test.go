package httpapi_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/api"
	"boxoffice/api/apitest"
	"boxoffice/internal/action"
	"boxoffice/internal/httpapi"
	"boxoffice/internal/httpapi/ratelimit"
	"boxoffice/internal/order"
	"boxoffice/internal/test/testlog"
	"boxoffice/internal/work"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
)

const (
	baseURL = "https://tickets.example"
	anyID   = "0198f0a4-6c1e-7c3a-9f5e-2b7d1c4e8a90"
)

var token = strings.Repeat("ab", 32)

var _ httpapi.Flow = (*order.Flow)(nil)

// A flow calls the functions that a test sets, and panics where there is none.
type flow struct {
	quote     func(boxoffice.Requester, boxoffice.QuoteRequest) (boxoffice.QuoteResponse, error)
	challenge func(boxoffice.UUID) (order.SubmitResult, error)
	pay       func(boxoffice.UUID, *x402.Payment, boxoffice.Signature) (boxoffice.Status, error)
	status    func(boxoffice.UUID) (boxoffice.Status, error)
}

func (f *flow) Quote(_ context.Context, who boxoffice.Requester,
	request boxoffice.QuoteRequest) (boxoffice.QuoteResponse, error) {
	return f.quote(who, request)
}

func (f *flow) Challenge(_ context.Context, _ boxoffice.Requester, id boxoffice.UUID) (order.SubmitResult, error) {
	return f.challenge(id)
}

func (f *flow) Pay(_ context.Context, _ boxoffice.Requester, id boxoffice.UUID, payment *x402.Payment,
	approval boxoffice.Signature) (boxoffice.Status, error) {
	return f.pay(id, payment, approval)
}

func (f *flow) Status(_ context.Context, _ boxoffice.Requester, id boxoffice.UUID) (boxoffice.Status, error) {
	return f.status(id)
}

// fail makes every method return err.
func (f *flow) fail(err error) {
	f.quote = func(boxoffice.Requester, boxoffice.QuoteRequest) (boxoffice.QuoteResponse, error) {
		return boxoffice.QuoteResponse{}, err
	}
	f.challenge = func(boxoffice.UUID) (order.SubmitResult, error) { return order.SubmitResult{}, err }
	f.pay = func(boxoffice.UUID, *x402.Payment, boxoffice.Signature) (boxoffice.Status, error) {
		return boxoffice.Status{}, err
	}
	f.status = func(boxoffice.UUID) (boxoffice.Status, error) { return boxoffice.Status{}, err }
}

// storedWork is a work.Store with the records that a test sets.
type storedWork struct {
	listed    []work.Job
	query     work.JobQuery // the last one
	oracles   work.Oracle
	workflows work.Workflow
	schedules work.Schedule
	err       error
}

// A service is the handler on a test server. Every response is checked against the
// OpenAPI document.
type service struct {
	t         *testing.T
	flow      flow
	work      storedWork
	validator *apitest.Validator
	server    *httptest.Server
	log       testlog.Log
	now       time.Time
}

func serve(t *testing.T, change ...func(*httpapi.Config)) *service {
	t.Helper()
	s := &service{t: t, now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)}
	document := document(t)
	config := httpapi.Config{
		Flow: &s.flow, Work: &s.work, BaseURL: baseURL, Document: document,
		Capabilities: func(context.Context) boxoffice.Capabilities { return capabilities(t) },
		PerToken:     ratelimit.Rate{PerSecond: 1, Burst: 1000}, PerAddress: ratelimit.Rate{PerSecond: 1, Burst: 1000},
		Log: slog.New(slog.NewJSONHandler(&s.log, nil)),
		Now: func() time.Time { return s.now },
	}
	for _, apply := range change {
		apply(&config)
	}
	s.validator = apitest.New(t, document)
	s.server = httptest.NewServer(httpapi.New(config))
	s.server.Client().Transport = s.validator.Transport(s.server.Client().Transport)
	s.server.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	t.Cleanup(s.server.Close)
	return s
}

// An edit changes a request before it is sent.
type edit func(*http.Request)

func with(header string, values ...string) edit {
	return func(r *http.Request) { r.Header[http.CanonicalHeaderKey(header)] = values }
}

func without(header string) edit { return func(r *http.Request) { r.Header.Del(header) } }

// chunked sends the body without announcing its length.
func chunked(r *http.Request) { r.ContentLength = -1 }

// A reply is a response with its whole body.
type reply struct {
	*http.Response
	body []byte
}

// do sends a request with the token.
func (s *service) do(method, path, body string, edits ...edit) reply {
	s.t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	request, err := http.NewRequest(method, s.server.URL+path, reader)
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	for _, change := range edits {
		change(request)
	}
	response, err := s.server.Client().Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return reply{response, text}
}

// wantProblem checks that the response is an error with the code, the status of the
// table and, if one is given, this place among its problems.
func (r reply) wantProblem(t *testing.T, code boxoffice.Code, place ...string) boxoffice.Problem {
	t.Helper()
	var problem boxoffice.Problem
	if err := json.Unmarshal(r.body, &problem); err != nil {
		t.Fatalf("%s: %v", r.body, err)
	}
	if problem.Code != code || r.StatusCode != code.Info().Status {
		t.Errorf("answered %d %s, want %d %s", r.StatusCode, r.body, code.Info().Status, code)
	}
	for _, path := range place {
		if len(problem.Problems) != 1 || problem.Problems[0].Path != path {
			t.Errorf("problems %+v do not name %q", problem.Problems, path)
		}
	}
	return problem
}

func (r reply) wantStatus(t *testing.T, status int) {
	t.Helper()
	if r.StatusCode != status {
		t.Errorf("answered %d %s, want %d", r.StatusCode, r.body, status)
	}
}

func (r reply) decode(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal(r.body, v); err != nil {
		t.Fatalf("%s: %v", r.body, err)
	}
}

var terms = boxoffice.Payment{
	Network: "eip155:31337", Asset: common.Address{0xaa}, PayTo: common.Address{0xbb},
	Amount: x402.NewUint256(1_000_000), Decimals: 18,
}

func catalog(t *testing.T) *action.Catalog {
	t.Helper()
	catalog, err := action.New(action.Config{Payment: terms, Originals: struct{ action.Originals }{}})
	if err != nil {
		t.Fatal(err)
	}
	return catalog
}

func document(t *testing.T) []byte {
	t.Helper()
	catalog := catalog(t)
	document, err := api.Document(api.Options{
		BaseURL: baseURL, ServiceName: "Tickets",
		Policies: catalog.Policies(), Limits: catalog.Limits(), Schemas: action.Schemas(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return document
}

func capabilities(t *testing.T) boxoffice.Capabilities {
	catalog := catalog(t)
	return boxoffice.Capabilities{
		Actions: catalog.Policies(),
		Limits: boxoffice.Limits{
			BodyBytes: boxoffice.MaxBodyBytes, PaymentHeaderCharacters: x402.MaxHeaderLength, Actions: catalog.Limits(),
			RepositoryHosts: []string{},
		},
		Launches: &boxoffice.Launches{DefaultChainID: 31337, Chains: []boxoffice.LaunchChain{{
			ChainID: 31337, Name: "Dev", Testnet: true, Kinds: []string{"custom_token"},
			Pairings: []boxoffice.Pairing{{PairWith: "native", Currency: common.Address{}.Hex(),
				Symbol: "ETH", Name: "Ether",
				Decimals: 18, Kinds: []string{"custom_token"}}},
		}}},
		Authentication: boxoffice.Authentication{
			Scheme: "bearer", Header: "Authorization",
			TokenFormat: "32 random bytes in hex", TokenPattern: "^[0-9a-fA-F]{64}$",
		},
		Payment: boxoffice.PaymentCapabilities{
			X402Version: x402.Version, Scheme: x402.SchemeExact, AssetTransferMethod: x402.MethodPermit2,
			Network: terms.Network,
			Asset: boxoffice.Asset{Address: terms.Asset, Symbol: "TT", Name: "Token", Version: "1",
				Decimals: 18},
			PayTo: terms.PayTo, Permit2: x402.Permit2, Proxy: x402.ExactProxy,
			MaxTimeoutSeconds: 60, ServiceName: "Tickets",
			QuoteApproval: boxoffice.NewQuoteApprovalTemplate("Tickets", 31337),
		},
	}
}
