package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"boxoffice"
	"boxoffice/client"
	"boxoffice/x402"

	"github.com/google/go-cmp/cmp"
)

const requestKey boxoffice.UUID = "0198a5c2-7b3e-7c11-9a4d-2f6b8e0c1d23"

func job() client.Purchase {
	return client.Purchase{Input: askedJob, RequestKey: requestKey, Max: price}
}

func isPayment(r *http.Request) bool { return r.Header.Get(x402.HeaderSignature) != "" }

func TestBuy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		var shown boxoffice.Challenge
		purchase := job()
		purchase.Confirm = func(_ context.Context, challenge boxoffice.Challenge) error {
			shown = challenge
			return nil
		}
		status, err := s.client().Buy(t.Context(), purchase)
		if err != nil {
			t.Fatal(err)
		}
		if status.Status != boxoffice.Admitted || status.Admission == nil || s.transfers != 1 {
			t.Errorf("status %s after %d transfers, want admitted after 1", status.Status, s.transfers)
		}
		if diff := cmp.Diff(`{"objective":"Weigh & compare","template":"research"}`, string(shown.Input)); diff != "" {
			t.Errorf("shown before signing (-want +got):\n%s", diff)
		}
	})
}

func TestBuyChargesEachRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		purchase := job()
		purchase.Input = boxoffice.ScheduleTopUp{ScheduleID: "0198a5c2-7b3e-7c11-9a4d-2f6b8e0c1d23", Runs: 12}
		purchase.Max = x402.NewUint256(12_000_000)
		if _, err := s.client().Buy(t.Context(), purchase); err != nil {
			t.Fatal(err)
		}
		if paid := s.sent[0].Payload.Payload.Authorization.Permitted.Amount; paid != purchase.Max {
			t.Errorf("paid %v, want %v", paid, purchase.Max)
		}
	})
}

// The service takes a payment, its answer is lost and the client ends. A new client
// with the same vault and key sends the same bytes, and pays once.
func TestBuyAgainAfterALostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		dir := t.TempDir()
		open := func(cfg *client.Config) {
			vault, err := client.OpenFileVault(dir)
			if err != nil {
				t.Fatal(err)
			}
			cfg.Vault, cfg.Retry.Attempts = vault, 1
		}
		s.lose = isPayment
		if _, err := s.client(open).Buy(t.Context(), job()); err == nil {
			t.Fatal("bought without an answer")
		}
		s.lose = nil
		status, err := s.client(open).Buy(t.Context(), job())
		if err != nil || status.Status != boxoffice.Admitted || s.transfers != 1 {
			t.Errorf("status %s, %d transfers, error %v; want admitted, 1, none", status.Status, s.transfers, err)
		}
	})
}

// The payment is saved, and the process ends before the service has it.
func TestBuyAgainSendsTheSameBytes(t *testing.T) {
	for _, vaultOf := range []func(*testing.T) client.Vault{
		func(*testing.T) client.Vault { return client.NewMemoryVault() },
		func(t *testing.T) client.Vault {
			vault, err := client.OpenFileVault(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			return vault
		},
	} {
		vault := vaultOf(t)
		t.Run(fmt.Sprintf("%T", vault), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(t)
				var headers []string
				s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
					if !isPayment(r) {
						return false
					}
					headers = append(headers, r.Header.Get(x402.HeaderSignature))
					if len(headers) == 3 {
						return false
					}
					w.WriteHeader(http.StatusBadGateway)
					return true
				}
				share := func(cfg *client.Config) { cfg.Vault, cfg.Retry.Attempts = vault, 1 }
				for range 2 {
					_, err := s.client(share).Buy(t.Context(), job())
					if failure, ok := errors.AsType[*client.ResponseError](err); !ok ||
						failure.Status != http.StatusBadGateway {
						t.Fatalf("error %v, want a bad gateway", err)
					}
					time.Sleep(20 * time.Second)
				}
				if _, err := s.client(share).Buy(t.Context(), job()); err != nil {
					t.Fatal(err)
				}
				if headers[0] != headers[1] || headers[1] != headers[2] || s.transfers != 1 {
					t.Errorf("%d transfers; the payments sent are not all the same", s.transfers)
				}
			})
		})
	}
}

// After a failure the same nonce is signed again with a later deadline, once in a
// Buy, so that only one of all signed payments can move money.
func TestBuyAgainAfterFailureKeepsTheNonce(t *testing.T) {
	tests := []struct {
		name  string
		first func(*service) // what becomes of the first payment
		then  func(*service)
		err   func(error) bool
	}{
		{
			"failed on the chain",
			func(s *service) {
				s.outcome = func(boxoffice.UUID) boxoffice.State { return boxoffice.PaymentFailed }
			},
			func(s *service) { s.outcome = nil },
			func(err error) bool {
				failure, ok := errors.AsType[*client.PaymentError](err)
				return ok && failure.Reason() == string(x402.ReasonSimulation)
			},
		},
		{
			"rejected",
			func(s *service) { s.reason = x402.ReasonAllowanceRequired },
			func(s *service) { s.reason = "" },
			func(err error) bool {
				problem, ok := errors.AsType[*boxoffice.Problem](err)
				return ok && problem.Code == boxoffice.PaymentRejected &&
					problem.Reason == string(x402.ReasonAllowanceRequired)
			},
		},
		{
			"never arrived, and its deadline passed",
			func(s *service) {
				s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
					if isPayment(r) {
						payment, _ := x402.ParsePayment(r.Header.Get(x402.HeaderSignature))
						s.sent = append(s.sent, payment)
						w.WriteHeader(http.StatusBadGateway)
						return true
					}
					return false
				}
			},
			func(s *service) {
				s.intercept = nil
				time.Sleep(115 * time.Second)
			},
			func(err error) bool { _, ok := errors.AsType[*client.ResponseError](err); return ok },
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(t)
				c := s.client(func(cfg *client.Config) { cfg.Retry.Attempts = 1 })
				test.first(s)
				if _, err := c.Buy(t.Context(), job()); !test.err(err) {
					t.Fatalf("first error %v", err)
				}
				time.Sleep(2 * time.Second)
				test.then(s)
				if _, err := c.Buy(t.Context(), job()); err != nil {
					t.Fatal(err)
				}
				first, last := s.sent[0], s.sent[len(s.sent)-1]
				a, b := first.Payload.Payload.Authorization, last.Payload.Payload.Authorization
				if a.Nonce != b.Nonce || a.Deadline.Cmp(b.Deadline) >= 0 || s.transfers != 1 {
					t.Errorf("nonce %v then %v, deadline %v then %v, %d transfers", a.Nonce, b.Nonce, a.Deadline,
						b.Deadline, s.transfers)
				}
			})
		})
	}
}

// A service that lost an order does not get a second signature for its key.
func TestBuySignsOneOrderForAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		c := s.client()
		if _, err := c.Buy(t.Context(), job()); err != nil {
			t.Fatal(err)
		}
		clear(s.orders)
		_, err := c.Buy(t.Context(), job())
		wantMismatch(t, err, "order/id")
		if len(s.sent) != 1 {
			t.Errorf("%d payments were sent, want 1", len(s.sent))
		}
	})
}

func TestBuyAtOnce(t *testing.T) {
	s := newService(t)
	dir := t.TempDir()
	const keys, buyers = 6, 3
	var group sync.WaitGroup
	for i := range keys * buyers {
		group.Go(func() {
			vault, err := client.OpenFileVault(dir)
			if err != nil {
				t.Error(err)
				return
			}
			c := s.client(func(cfg *client.Config) { cfg.Vault, cfg.Retry.First = vault, time.Millisecond })
			purchase := job()
			purchase.RequestKey = boxoffice.UUID(fmt.Sprintf("0198a5c2-7b3e-7c11-9a4d-2f6b8e0c1d%02d", i%keys))
			if status, err := c.Buy(t.Context(), purchase); err != nil || status.Status != boxoffice.Admitted {
				t.Errorf("status %s, %v", status.Status, err)
			}
		})
	}
	group.Wait()
	if s.transfers != keys || len(s.spent) != keys {
		t.Errorf("%d transfers with %d nonces, want %d", s.transfers, len(s.spent), keys)
	}
	words := make(map[string]bool)
	for nonce := range s.spent {
		words[nonce.Big().Rsh(nonce.Big(), 8).String()] = true
	}
	if len(words) != 1 {
		t.Errorf("the nonces are scattered over %d words", len(words))
	}
}

func TestBuyRetries(t *testing.T) {
	tests := []struct {
		name   string
		status int
		after  string
		pause  time.Duration // at least
	}{
		{"rate limit", http.StatusTooManyRequests, "7", 7 * time.Second},
		{"unavailable", http.StatusServiceUnavailable, "3", 3 * time.Second},
		{"gateway", http.StatusBadGateway, "", 100 * time.Millisecond},
	}
	for _, test := range tests {
		for _, path := range []string{"/requests/capabilities", "/requests/quote", "/submit", "payment", "status"} {
			t.Run(test.name+" "+path, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newService(t)
					failures := 0
					s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
						hit := strings.HasSuffix(r.URL.Path, path) && !isPayment(r) ||
							path == "payment" && isPayment(r) ||
							path == "status" && r.Method == http.MethodGet &&
								!strings.HasSuffix(r.URL.Path, "capabilities")
						if !hit || failures == 2 {
							return false
						}
						failures++
						w.Header().Set("Retry-After", test.after)
						w.WriteHeader(test.status)
						return true
					}
					start := time.Now()
					if _, err := s.client().Buy(t.Context(), job()); err != nil {
						t.Fatal(err)
					}
					if took := time.Since(start); failures != 2 || took < 2*test.pause ||
						took > 2*test.pause+5*time.Second ||
						s.transfers != 1 {
						t.Errorf("%d failures, %d transfers, after %v", failures, s.transfers, took)
					}
				})
			})
		}
	}
}

func TestBuyGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		asked := 0
		s.intercept = func(w http.ResponseWriter, _ *http.Request) bool {
			asked++
			w.Header().Set("Retry-After", "3600")
			s.problem(w, &boxoffice.Problem{Code: boxoffice.RateLimited})
			return true
		}
		_, err := s.client().Buy(t.Context(), job())
		problem, ok := errors.AsType[*boxoffice.Problem](err)
		if !ok || problem.Code != boxoffice.RateLimited || asked != 1 {
			t.Errorf("error %v after %d requests, want rate_limited after 1", err, asked)
		}
	})
}

// A payment was sent, and then the order cannot be read, or the context ends
// before the first answer: the outcome is not known.
func TestBuyCannotReadTheOutcome(t *testing.T) {
	for _, lost := range []string{"time", "service", "rate"} {
		t.Run(lost, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(t)
				s.outcome = func(boxoffice.UUID) boxoffice.State { return boxoffice.PaymentPending }
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
					if r.Method != http.MethodGet || len(s.orders) == 0 {
						return false
					}
					if lost == "time" {
						cancel()
					}
					if lost == "rate" {
						s.problem(w, &boxoffice.Problem{Code: boxoffice.RateLimited, RetryAfter: 86400})
						return true
					}
					s.problem(w, &boxoffice.Problem{Code: boxoffice.TemporarilyUnavailable})
					return true
				}
				_, err := s.client().Buy(ctx, job())
				if _, ok := errors.AsType[*client.PendingError](err); !ok {
					t.Errorf("error %v; want a PendingError", err)
				}
			})
		})
	}
}

// The answer to a payment is lost, and the next attempt is answered 429: the
// service may have the payment.
func TestRateLimitAfterALostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		lost := 0
		s.lose = func(r *http.Request) bool {
			if isPayment(r) {
				lost++
			}
			return isPayment(r) && lost == 1
		}
		s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if isPayment(r) && lost == 1 {
				s.problem(w, &boxoffice.Problem{Code: boxoffice.RateLimited})
				return true
			}
			return false
		}
		_, err := s.client(func(cfg *client.Config) { cfg.Retry.Attempts = 2 }).Buy(t.Context(), job())
		if client.OutcomeOf(err) != client.Unknown {
			t.Errorf("error %v is %v, want an unknown outcome", err, client.OutcomeOf(err))
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		s.outcome = func(boxoffice.UUID) boxoffice.State { return boxoffice.PaymentPending }
		s.spent = nil // resolving would write to it
		s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodGet && !strings.HasSuffix(r.URL.Path, "capabilities") {
				s.answer(w, http.StatusOK, s.orders[requestKey])
				return true
			}
			return false
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		status, err := s.client().Buy(ctx, job())
		pending, ok := errors.AsType[*client.PendingError](err)
		if !ok || pending.Status.Status != boxoffice.PaymentPending || status.Status != boxoffice.PaymentPending ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("status %s, error %v; want a PendingError", status.Status, err)
		}
	})
}
