package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"boxoffice"
	"boxoffice/client"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
)

// word returns the Permit2 word of a nonce.
func word(nonce x402.Uint256) *big.Int { return new(big.Int).Rsh(nonce.Big(), 8) }

func nonceOf(payment *x402.Payment) x402.Uint256 { return payment.Payload.Payload.Authorization.Nonce }

// buyMany buys under as many fresh request keys as are asked for.
func buyMany(t *testing.T, c *client.Client, count int) {
	t.Helper()
	for range count {
		purchase := job()
		purchase.RequestKey = boxoffice.NewUUID()
		if _, err := c.Buy(t.Context(), purchase); err != nil {
			t.Fatal(err)
		}
	}
}

// A vault counts through a random word of its own, and then through the next one.
func TestNoncesFollowEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		for range 2 {
			s.sent = nil
			buyMany(t, s.client(func(cfg *client.Config) { cfg.Chain = goodChain() }), 258)
			first := nonceOf(s.sent[0])
			// A random word of 64 bits has fewer than 33 bits once in 2^32 runs.
			if bits := word(first).BitLen(); bits > 64 || bits < 33 || first.Bytes32()[31] != 0 {
				t.Errorf("the first nonce is %v, want the first of a random word of 64 bits", first)
			}
			for i, payment := range s.sent {
				if want, _ := first.Add(x402.NewUint256(uint64(i))); nonceOf(payment) != want {
					t.Fatalf("nonce %d is %v, want %v", i, nonceOf(payment), want)
				}
			}
		}
	})
}

// copyVault returns a vault that knows what another one does: a restored backup.
func copyVault(t *testing.T, vault *client.MemoryVault, names ...string) *client.MemoryVault {
	t.Helper()
	other := client.NewMemoryVault()
	for _, name := range names {
		data, err := vault.Get(t.Context(), name)
		if err == nil {
			err = other.Put(t.Context(), name, data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return other
}

const noncesName = "nonces-8453-0x70997970c51812dc3a010c7d01b50e0d17dc79c8"

// Two copies of a vault count in the same word. The service takes a nonce for one
// order alone; the other order is paid with a nonce of a new word.
func TestTakenNonceIsReplaced(t *testing.T) {
	for name, seen := range map[string]*chain{"with the chain": goodChain(), "without": nil} {
		for _, refusal := range []*boxoffice.Problem{
			{Code: boxoffice.PaymentConflict,
				Detail: "this Permit2 nonce pays for another order; sign with another nonce"},
			{Code: boxoffice.PaymentRejected, Reason: string(x402.ReasonNonceSpent)},
		} {
			t.Run(name+" "+string(refusal.Code), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, vault := newService(t), client.NewMemoryVault()
					s.taken = refusal
					with := func(vault client.Vault) *client.Client {
						return s.client(func(cfg *client.Config) {
							cfg.Vault = vault
							if seen != nil {
								cfg.Chain = seen
							}
						})
					}
					buyMany(t, with(vault), 1)
					copied := copyVault(t, vault, noncesName)
					buyMany(t, with(vault), 3)
					buyMany(t, with(copied), 3)
					if s.transfers != 7 || len(s.sent) != 8 {
						t.Errorf("%d transfers of %d payments, want 7 of 8", s.transfers, len(s.sent))
					}
					refused, replacement, last := nonceOf(s.sent[4]), nonceOf(s.sent[5]), nonceOf(s.sent[7])
					if word(refused).Cmp(word(replacement)) == 0 || word(replacement).Cmp(word(last)) != 0 {
						t.Errorf("nonce %v was refused, then come %v and %v, want both in one new word", refused,
							replacement, last)
					}
				})
			})
		}
	}
}

// Only the call that signed with a nonce first may replace it. A payment from an
// earlier call may have been taken by a service that forgot it.
func TestNonceOfAnEarlierCallIsNotReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, vault := newService(t), client.NewMemoryVault()
		s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if isPayment(r) {
				w.WriteHeader(http.StatusBadGateway)
			}
			return isPayment(r)
		}
		share := func(cfg *client.Config) { cfg.Vault, cfg.Retry.Attempts = vault, 1 }
		if _, err := s.client(share).Buy(t.Context(), job()); client.OutcomeOf(err) != client.Unknown {
			t.Fatalf("error %v, want an unknown outcome", err)
		}
		s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if isPayment(r) {
				s.problem(w, &boxoffice.Problem{Code: boxoffice.PaymentConflict})
				payment, _ := x402.ParsePayment(r.Header.Get(x402.HeaderSignature))
				s.sent = append(s.sent, payment)
			}
			return isPayment(r)
		}
		for range 2 {
			_, err := s.client(share).Buy(t.Context(), job())
			if client.OutcomeOf(err) != client.Refused {
				t.Errorf("error %v, want a refusal", err)
			}
		}
		if len(s.sent) != 2 || nonceOf(s.sent[0]) != nonceOf(s.sent[1]) {
			t.Errorf("%d payments, want the same one twice", len(s.sent))
		}
	})
}

// A service that refuses every nonce gets two payments for the order in one call,
// not more.
func TestNonceIsReplacedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		var headers []string
		s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if isPayment(r) {
				headers = append(headers, r.Header.Get(x402.HeaderSignature))
				s.problem(w, &boxoffice.Problem{Code: boxoffice.PaymentConflict})
			}
			return isPayment(r)
		}
		_, err := s.client().Buy(t.Context(), job())
		if problem, _ := errors.AsType[*boxoffice.Problem](err); problem == nil ||
			problem.Code != boxoffice.PaymentConflict {
			t.Errorf("error %v, want payment_conflict", err)
		}
		if len(headers) != 2 {
			t.Errorf("%d payments were sent, want 2", len(headers))
		}
	})
}

// The service refused the nonce of a payment, and then makes another offer for the
// replacement: that is not signed. The outcome is that of the refused payment, which
// was signed.
func TestRefusedOfferOfAReplacement(t *testing.T) {
	for _, test := range []struct {
		refusal boxoffice.Problem
		want    client.Outcome
	}{
		{boxoffice.Problem{Code: boxoffice.PaymentConflict}, client.Refused},
		{boxoffice.Problem{Code: boxoffice.PaymentRejected, Reason: string(x402.ReasonNonceSpent)}, client.NotPaid},
	} {
		t.Run(string(test.refusal.Code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(t)
				s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
					if isPayment(r) {
						s.challenge = func(c *boxoffice.Challenge) { c.ResourceURL += "/other" }
						s.problem(w, &test.refusal)
					}
					return isPayment(r)
				}
				_, err := s.client().Buy(t.Context(), job())
				if err == nil || client.OutcomeOf(err) != test.want || !strings.Contains(err.Error(), "resourceUrl") {
					t.Errorf("error %v is %v, want %v and the field", err, client.OutcomeOf(err), test.want)
				}
			})
		})
	}
}

// Pay is called without a request key, and the service names another one for the order
// each time. A payment under another key would have another nonce, and both could
// settle.
func TestAnotherRequestKeyDoesNotPayAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		vault := client.NewMemoryVault()
		c := s.client(func(cfg *client.Config) { cfg.Vault, cfg.Retry.Attempts = vault, 1 })
		quoted, err := c.Quote(t.Context(), askedJob, requestKey)
		if err != nil {
			t.Fatal(err)
		}
		headers := map[string]bool{}
		s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if isPayment(r) {
				headers[r.Header.Get(x402.HeaderSignature)] = true
				w.WriteHeader(http.StatusBadGateway)
			}
			return isPayment(r)
		}
		for _, want := range []client.Outcome{client.Unknown, client.NotSigned, client.NotSigned} {
			_, err := c.Pay(t.Context(), quoted.Order.ID, client.Purchase{Max: price})
			if client.OutcomeOf(err) != want {
				t.Errorf("error %v is %v, want %v", err, client.OutcomeOf(err), want)
			}
			s.find(quoted.Order.ID).Order.RequestKey = boxoffice.NewUUID()
		}
		if len(headers) != 1 {
			t.Errorf("%d different payments were sent, want 1", len(headers))
		}
	})
}

// A payment was signed before, and the chain shows its nonce as spent: it may have
// paid, so the order is not signed again, with this nonce or another.
func TestSpentNonceIsNotReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, seen := newService(t), goodChain()
		s.reason = x402.ReasonSimulation
		c := s.client(func(cfg *client.Config) { cfg.Chain = seen })
		if _, err := c.Buy(t.Context(), job()); err == nil {
			t.Fatal("a rejected payment bought something")
		}
		s.reason = ""
		seen.spend(nonceOf(s.sent[0]))
		_, err := c.Buy(t.Context(), job())
		if !errors.Is(err, client.ErrNonceSpent) || client.OutcomeOf(err) != client.NotSigned || len(s.sent) != 1 {
			t.Errorf("error %v after %d payments, want ErrNonceSpent after 1", err, len(s.sent))
		}
	})
}

// The wallet failed to sign with a reserved nonce, and another order spends it:
// nothing was signed with it that could have paid, so the order gets another one.
func TestUnsignedNonceIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, seen, vault := newService(t), goodChain(), client.NewMemoryVault()
		buy := func(signer client.Signer) error {
			c := s.client(func(cfg *client.Config) { cfg.Chain, cfg.Vault, cfg.Signer = seen, vault, signer })
			_, err := c.Buy(t.Context(), job())
			return err
		}
		if err := buy(brokenWallet{}); !errors.Is(err, errBroken) || client.OutcomeOf(err) != client.Failed ||
			len(s.sent) != 0 {
			t.Fatalf("error %v", err)
		}
		var reserved struct{ Next x402.Uint256 }
		if data, err := vault.Get(t.Context(), noncesName); err != nil || json.Unmarshal(data, &reserved) != nil {
			t.Fatalf("%s, %v", data, err)
		}
		seen.spent[word(reserved.Next).String()] = big.NewInt(1)
		if err := buy(client.KeySigner(key)); err != nil {
			t.Fatal(err)
		}
		if nonce := nonceOf(s.sent[0]); word(nonce).Cmp(word(reserved.Next)) == 0 {
			t.Errorf("nonce %v is in the word of the spent one", nonce)
		}
	})
}

var errBroken = errors.New("the wallet is broken")

type brokenWallet struct{}

func (brokenWallet) Address() common.Address { return payer }

func (brokenWallet) SignDigest(context.Context, [32]byte) ([]byte, error) { return nil, errBroken }
