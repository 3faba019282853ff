package client_test

import (
	"net/http"
	"testing"
	"testing/synctest"

	"boxoffice"
	"boxoffice/client"
	"boxoffice/x402"
)

// answerPayments answers the n-th payment that arrives, counted from 0, with the n-th
// function, and all later ones with the last. A nil function leaves it to the service.
func (s *service) answerPayments(answers ...func(w http.ResponseWriter)) {
	arrived := 0
	s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if !isPayment(r) {
			return false
		}
		answer := answers[min(arrived, len(answers)-1)]
		arrived++
		if answer != nil {
			answer(w)
		}
		return answer != nil
	}
}

// loseFirst drops the answer of the first payment after the service took it.
func (s *service) loseFirst() {
	lost := false
	s.lose = func(r *http.Request) bool {
		if !isPayment(r) || lost {
			return false
		}
		lost = true
		return true
	}
}

// proxy returns an answer without the service's error body.
func proxy(status int) func(w http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(status)
		_, _ = w.Write([]byte("<h1>" + http.StatusText(status) + "</h1>"))
	}
}

// The service took the payment and its answer was lost. What the repeated request is
// answered instead says nothing about the first one, so the outcome is unknown. The
// next call with the same key finds the order paid.
func TestRefusalAfterALostAnswer(t *testing.T) {
	refuse := func(s *service, code boxoffice.Code, reason x402.Reason) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { s.problem(w, &boxoffice.Problem{Code: code, Reason: string(reason)}) }
	}
	for name, answer := range map[string]func(s *service) func(http.ResponseWriter){
		"a proxy's 403":  func(*service) func(http.ResponseWriter) { return proxy(http.StatusForbidden) },
		"a proxy's 404":  func(*service) func(http.ResponseWriter) { return proxy(http.StatusNotFound) },
		"a redirect":     func(*service) func(http.ResponseWriter) { return proxy(http.StatusFound) },
		"another 2xx":    func(*service) func(http.ResponseWriter) { return proxy(http.StatusNoContent) },
		"another server": func(s *service) func(http.ResponseWriter) { return refuse(s, boxoffice.OrderNotFound, "") },
		"no token":       func(s *service) func(http.ResponseWriter) { return refuse(s, boxoffice.InvalidRequestToken, "") },
		"an expired quote": func(s *service) func(http.ResponseWriter) {
			return refuse(s, boxoffice.QuoteExpired, "")
		},
		"a rejection": func(s *service) func(http.ResponseWriter) {
			return refuse(s, boxoffice.PaymentRejected, x402.ReasonSimulation)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, vault := newService(t), client.NewMemoryVault()
				c := s.client(func(cfg *client.Config) { cfg.Vault = vault })
				s.loseFirst()
				s.answerPayments(nil, answer(s))
				if _, err := c.Buy(t.Context(), job()); client.OutcomeOf(err) != client.Unknown {
					t.Errorf("error %v is %v, want an unknown outcome", err, client.OutcomeOf(err))
				}
				s.intercept = nil
				if _, err := c.Buy(t.Context(), job()); err != nil || s.transfers != 1 || len(s.sent) != 1 {
					t.Errorf("error %v after %d transfers of %d payments, want 1 of 1", err, s.transfers, len(s.sent))
				}
			})
		})
	}
}

// Something between the client and the service answers a payment. It does not say
// whether it handed the payment on.
func TestPaymentAnsweredByAProxy(t *testing.T) {
	for _, status := range []int{
		http.StatusNoContent, http.StatusFound, http.StatusPaymentRequired, http.StatusForbidden,
		http.StatusNotFound, http.StatusRequestTimeout, http.StatusConflict, http.StatusGone,
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(t)
				c := s.client()
				s.answerPayments(proxy(status), nil)
				if _, err := c.Buy(t.Context(), job()); client.OutcomeOf(err) != client.Unknown {
					t.Errorf("error %v is %v, want an unknown outcome", err, client.OutcomeOf(err))
				}
				if _, err := c.Buy(t.Context(), job()); err != nil || s.transfers != 1 || len(s.sent) != 1 {
					t.Errorf("error %v after %d transfers of %d payments, want 1 of 1", err, s.transfers, len(s.sent))
				}
			})
		})
	}
}

// The service took the payment, its answer was lost, and the service lost its memory
// before the repeated request: it refuses the nonce, which its own transaction spent.
// A new nonce would pay twice.
func TestNoNewNonceAfterALostAnswer(t *testing.T) {
	for name, refusal := range map[string]*boxoffice.Problem{
		"conflict": {Code: boxoffice.PaymentConflict},
		"spent":    {Code: boxoffice.PaymentRejected, Reason: string(x402.ReasonNonceSpent)},
	} {
		for how, first := range map[string]func(w http.ResponseWriter){
			"a closed connection": nil,
			"a proxy's 504":       proxy(http.StatusGatewayTimeout),
		} {
			t.Run(name+" after "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newService(t)
					headers := map[string]bool{}
					s.lose = func(r *http.Request) bool { return isPayment(r) && first == nil && len(headers) == 0 }
					arrived := 0
					s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
						if !isPayment(r) {
							return false
						}
						arrived++
						switch {
						case arrived == 1 && first != nil:
							first(w)
						case arrived > 1:
							s.problem(w, refusal)
						}
						if arrived > 1 || first != nil {
							headers[r.Header.Get(x402.HeaderSignature)] = true
						}
						return true // the service forgot the payment
					}
					_, err := s.client().Buy(t.Context(), job())
					if client.OutcomeOf(err) != client.Unknown {
						t.Errorf("error %v is %v, want an unknown outcome", err, client.OutcomeOf(err))
					}
					if len(headers) != 1 {
						t.Errorf("%d different payments were sent, want 1", len(headers))
					}
				})
			})
		}
	}
}

// The service says that the order is admitted, and names no work or no transaction. A
// caller that reads them after Succeeded would end with a nil pointer.
func TestAdmittedWithoutAdmission(t *testing.T) {
	for name, change := range map[string]func(*boxoffice.Status){
		"admission": func(s *boxoffice.Status) { s.Admission = nil },
		"payment":   func(s *boxoffice.Status) { s.Payment = nil },
		"hash":      func(s *boxoffice.Status) { s.Payment.TransactionHash = nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(t)
				s.admitted = change
				if _, err := s.client().Buy(t.Context(), job()); client.OutcomeOf(err) != client.Unknown {
					t.Errorf("error %v is %v, want an unknown outcome", err, client.OutcomeOf(err))
				}
			})
		})
	}
}

// Submit, called by itself, sent a payment whose answer was lost: Unavailable would
// say that no payment was sent.
func TestSubmitWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		c := s.client(func(cfg *client.Config) { cfg.Retry.Attempts = 1 })
		quoted, err := c.Quote(t.Context(), askedJob, requestKey)
		if err != nil {
			t.Fatal(err)
		}
		payment, err := c.Sign(t.Context(), quoted.Order.ID, job())
		if err != nil {
			t.Fatal(err)
		}
		for name, fault := range map[string]func(){
			"lost": func() { s.lose = isPayment },
			"503":  func() { s.answerPayments(proxy(http.StatusServiceUnavailable)) },
			"unreadable": func() {
				s.answerPayments(func(w http.ResponseWriter) { _, _ = w.Write([]byte("{")) })
			},
		} {
			s.lose, s.intercept = nil, nil
			fault()
			if _, err := c.Submit(t.Context(), payment); client.OutcomeOf(err) != client.Unknown {
				t.Errorf("%s: error %v is %v, want an unknown outcome", name, err, client.OutcomeOf(err))
			}
		}
	})
}
