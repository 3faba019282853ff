package client_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"boxoffice"
	"boxoffice/client"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
)

func wantMismatch(t *testing.T, err error, field string) {
	t.Helper()
	refusal, ok := errors.AsType[*client.MismatchError](err)
	if !ok || !strings.Contains(refusal.Field, field) {
		t.Errorf("error %v, want a MismatchError at %s", err, field)
	}
}

// The client refuses each lie of a service with the name of the field, and signs nothing.
func TestBuyRefusesLies(t *testing.T) {
	quote := func(lie func(*boxoffice.Quote)) func(*service) {
		return func(s *service) { s.quote = func(r *boxoffice.QuoteResponse) { lie(&r.Order.Quote) } }
	}
	forged := func(lie func(*boxoffice.Order)) func(*service) {
		return func(s *service) { s.order = func(r *boxoffice.QuoteResponse) { lie(&r.Order) } }
	}
	challenge := func(lie func(*boxoffice.Challenge)) func(*service) {
		return func(s *service) { s.challenge = lie }
	}
	required := func(lie func(*x402.PaymentRequired)) func(*service) {
		return func(s *service) { s.required = lie }
	}
	terms := func(lie func(*boxoffice.Capabilities)) func(*service) {
		return func(s *service) { s.capabilities = lie }
	}
	otherQuote := func(c *boxoffice.Challenge) {
		c.Quote.ID = boxoffice.NewUUID()
		c.Quote.QuoteHash, _ = c.Quote.Seal()
	}
	tests := []struct {
		name  string
		lie   func(*service)
		field string
	}{
		{
			"dearer than the limit",
			quote(func(q *boxoffice.Quote) { q.Payment.Amount = x402.NewUint256(1_000_001) }),
			"order/quote/payment/amount",
		},
		{
			"cheaper than listed",
			quote(func(q *boxoffice.Quote) { q.Payment.Amount = x402.NewUint256(999_999) }),
			"order/quote/payment/amount",
		},
		{"other asset", quote(func(q *boxoffice.Quote) { q.Payment.Asset = stranger }), "order/quote/payment/asset"},
		{
			"other recipient",
			quote(func(q *boxoffice.Quote) { q.Payment.PayTo = stranger }),
			"order/quote/payment/payTo",
		},
		{
			"other network",
			quote(func(q *boxoffice.Quote) { q.Payment.Network = "eip155:1" }),
			"order/quote/payment/network",
		},
		{"other decimals", quote(func(q *boxoffice.Quote) { q.Payment.Decimals = 18 }), "order/quote/payment/decimals"},
		{
			"other action",
			quote(func(q *boxoffice.Quote) { q.Action = boxoffice.ActionLaunchOpen }),
			"order/quote/action",
		},
		{"other policy", quote(func(q *boxoffice.Quote) { q.PolicyVersion = "v-2" }), "order/quote/policyVersion"},
		{"other payer", quote(func(q *boxoffice.Quote) { q.Payer = &stranger }), "order/quote/payer"},
		{"lives too long", quote(func(q *boxoffice.Quote) { q.ExpiresAt++ }), "order/quote/expiresAt"},
		{"charges runs of an action without", quote(func(q *boxoffice.Quote) {
			unit := x402.NewUint256(500_000)
			q.UnitAmount, q.Runs = &unit, 2
		}), "order/quote/runs"},
		{"guarantees", forged(func(o *boxoffice.Order) { o.Quote.Terms.ResultGuaranteed = true }), "order/terms"},
		{"forged quote hash", forged(func(o *boxoffice.Order) { o.Quote.QuoteHash[0]++ }), "order/quote/quoteHash"},
		{
			"quote changed under its hash",
			forged(func(o *boxoffice.Order) { o.Quote.ExpiresAt++ }),
			"order/quote/quoteHash",
		},
		{
			"input changed under its hash",
			forged(func(o *boxoffice.Order) { o.InputJSON = `{"objective":"Other"}` }),
			"order/inputJson",
		},
		{
			"input not canonical",
			forged(func(o *boxoffice.Order) { o.InputJSON = " " + o.InputJSON }),
			"order/inputJson",
		},
		{
			"other request key",
			forged(func(o *boxoffice.Order) { o.RequestKey = boxoffice.NewUUID() }),
			"order/requestKey",
		},
		{"rewritten input", func(s *service) {
			s.quote = func(r *boxoffice.QuoteResponse) { r.Order.InputJSON = `{"objective":"Other","template":"research"}` }
		}, "input/objective"},
		{"shortened input", func(s *service) {
			s.quote = func(r *boxoffice.QuoteResponse) { r.Order.InputJSON = `{"template":"research"}` }
		}, "input/objective"},

		{"challenge for another quote", challenge(otherQuote), "challenge/quote/id"},
		{
			"challenge with a forged hash",
			challenge(func(c *boxoffice.Challenge) { c.Quote.QuoteHash[31]++ }),
			"challenge/quote/quoteHash",
		},
		{
			"challenge with another input",
			challenge(func(c *boxoffice.Challenge) { c.Input = json.RawMessage(`{"objective":"Other"}`) }),
			"challenge/input",
		},
		{"challenge for another resource", challenge(func(c *boxoffice.Challenge) {
			c.ResourceURL = "https://other.example/requests/x/submit"
			c.Resource.URL = c.ResourceURL
		}), "challenge/resourceUrl"},
		{
			"resource of another address",
			challenge(func(c *boxoffice.Challenge) { c.Resource.URL += "/more" }),
			"challenge/resource/url",
		},
		{
			"other requester",
			challenge(func(c *boxoffice.Challenge) { c.RequesterScopeHash[0]++ }),
			"challenge/requesterScopeHash",
		},
		{"x402 version", challenge(func(c *boxoffice.Challenge) { c.X402Version = 1 }), "challenge/x402Version"},
		{"nothing accepted", challenge(func(c *boxoffice.Challenge) { c.Accepts = nil }), "challenge/accepts"},
		{
			"accepts a higher amount",
			challenge(func(c *boxoffice.Challenge) { c.Accepts[0].Amount = x402.NewUint256(9_000_000) }),
			"challenge/accepts",
		},
		{
			"accepts for another recipient",
			challenge(func(c *boxoffice.Challenge) { c.Accepts[0].PayTo = stranger }),
			"challenge/accepts",
		},
		{
			"accepts another asset",
			challenge(func(c *boxoffice.Challenge) { c.Accepts[0].Asset = stranger }),
			"challenge/accepts",
		},
		{
			"accepts on another network",
			challenge(func(c *boxoffice.Challenge) { c.Accepts[0].Network = "eip155:1" }),
			"challenge/accepts",
		},
		{
			"accepts another transfer method",
			challenge(func(c *boxoffice.Challenge) { c.Accepts[0].Extra.AssetTransferMethod = "eip3009" }),
			"challenge/accepts",
		},
		{
			"accepts for a day",
			challenge(func(c *boxoffice.Challenge) { c.Accepts[0].MaxTimeoutSeconds = 86_400 }),
			"challenge/accepts/maxTimeoutSeconds",
		},
		{
			"accepts another token name",
			challenge(func(c *boxoffice.Challenge) { c.Accepts[0].Extra.Name = "Euro X" }),
			"challenge/accepts/extra/name",
		},

		{
			"header for another amount",
			required(func(r *x402.PaymentRequired) { r.Accepts[0].Amount = x402.NewUint256(1) }),
			"PAYMENT-REQUIRED/accepts/0/amount",
		},
		{
			"header for another recipient",
			required(func(r *x402.PaymentRequired) { r.Accepts[0].PayTo = stranger }),
			"PAYMENT-REQUIRED/accepts/0/payTo",
		},
		{
			"header with another choice",
			required(func(r *x402.PaymentRequired) { r.Accepts = append(r.Accepts, r.Accepts[0]) }),
			"PAYMENT-REQUIRED/accepts",
		},
		{
			"header for another resource",
			required(func(r *x402.PaymentRequired) { r.Resource = &x402.Resource{URL: "https://other.example"} }),
			"PAYMENT-REQUIRED/resource",
		},
		{
			"header of another version",
			required(func(r *x402.PaymentRequired) { r.X402Version = 1 }),
			"PAYMENT-REQUIRED/x402Version",
		},

		{
			"other spender",
			terms(func(c *boxoffice.Capabilities) { c.Payment.Proxy = stranger }),
			"capabilities/payment/proxy",
		},
		{
			"other Permit2",
			terms(func(c *boxoffice.Capabilities) { c.Payment.Permit2 = stranger }),
			"capabilities/payment/permit2",
		},
		{
			"approval for another service",
			terms(func(c *boxoffice.Capabilities) { c.Payment.QuoteApproval.Domain.Name = "Other Paid Action" }),
			"capabilities/payment/quoteApproval",
		},
		{
			"approval on another chain",
			terms(func(c *boxoffice.Capabilities) { c.Payment.QuoteApproval.Domain.ChainID = 1 }),
			"capabilities/payment/quoteApproval",
		},
		{
			"settles for ever",
			terms(func(c *boxoffice.Capabilities) { c.Payment.MaxTimeoutSeconds = 1 << 40 }),
			"capabilities/payment/maxTimeoutSeconds",
		},
		{
			"action is not sold",
			terms(func(c *boxoffice.Capabilities) { c.Actions = c.Actions[1:] }),
			"capabilities/actions",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(t)
				test.lie(s)
				vault := client.NewMemoryVault()
				_, err := s.client(func(cfg *client.Config) { cfg.Vault = vault }).Buy(t.Context(), job())
				wantMismatch(t, err, test.field)
				if len(s.sent) != 0 {
					t.Error("a payment was sent")
				}
				// The client reserves its nonce before it signs: none was, so nothing is signed.
				if _, err := vault.Get(t.Context(), "nonces-8453-"+strings.ToLower(payer.Hex())); err == nil {
					t.Error("a payment was begun")
				}
			})
		})
	}
}

func TestExpiredQuoteIsNotSigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		late := func(cfg *client.Config) { cfg.Now = func() time.Time { return time.Now().Add(10 * time.Minute) } }
		_, err := s.client(late).Buy(t.Context(), job())
		wantMismatch(t, err, "order/quote/expiresAt")
	})
}

func TestPins(t *testing.T) {
	tests := []struct {
		name  string
		pins  client.Pins
		field string
	}{
		{
			"all right",
			client.Pins{
				Networks:    []string{network},
				Assets:      []common.Address{stranger, asset},
				PayTo:       []common.Address{payTo},
				ServiceName: serviceName,
			},
			"",
		},
		{"network", client.Pins{Networks: []string{"eip155:1"}}, "order/quote/payment/network"},
		{"asset", client.Pins{Assets: []common.Address{stranger}}, "order/quote/payment/asset"},
		{"recipient", client.Pins{PayTo: []common.Address{stranger}}, "order/quote/payment/payTo"},
		{"service", client.Pins{ServiceName: "Other"}, "capabilities/payment/serviceName"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(t)
				_, err := s.client(func(cfg *client.Config) { cfg.Pins = test.pins }).Buy(t.Context(), job())
				if test.field != "" {
					wantMismatch(t, err, test.field)
				} else if err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A quote keeps its terms when the capabilities change (docs/protocol.md §1.4); a new one
// has to have those of today.
func TestOldQuoteKeepsItsPrice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		c := s.client()
		if _, err := c.Quote(t.Context(), askedJob, requestKey); err != nil {
			t.Fatal(err)
		}
		s.capabilities = func(c *boxoffice.Capabilities) { c.Actions[0].Payment.Amount = x402.NewUint256(5_000_000) }
		if _, err := c.Buy(t.Context(), job()); err != nil {
			t.Errorf("the old quote: %v", err)
		}
	})
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	s := newService(t)
	asked := 0
	s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
		asked++
		http.Redirect(w, r, "https://other.example/", http.StatusTemporaryRedirect)
		return true
	}
	_, err := s.client().Quote(t.Context(), askedJob, requestKey)
	if failure, ok := errors.AsType[*client.ResponseError](err); !ok ||
		failure.Status != http.StatusTemporaryRedirect ||
		asked != 1 {
		t.Errorf("error %v after %d requests, want one answer of 307", err, asked)
	}
}
