package facilitator_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/facilitator"
	"boxoffice/internal/httpapi"
	"boxoffice/internal/httpapi/ratelimit"
	"boxoffice/internal/order"
	"boxoffice/internal/payment"
	"boxoffice/internal/store/sqlite"
	"boxoffice/internal/test/testdb"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
)

// An answer that could not be sent is left to the next caller, unless its caller
// has an Idempotency-Key: that one repeats its call.
func TestAnswerNotSent(t *testing.T) {
	f, store, terms := openFacilitator(t)
	broken := errors.New("the connection broke")
	for nonce, test := range []struct {
		first, second string // Idempotency-Key
		success       bool   // whether the second caller gets the answer "settled"
	}{
		{"", "", true}, {"", "sale 7", true}, {"sale 7", "sale 7", true}, {"sale 7", "", false},
	} {
		request := settledPayment(t, store, terms, uint64(nonce))
		err := f.Settle(t.Context(), request, facilitator.Named(test.first), func(answer x402.Settlement) error {
			if !answer.Success {
				t.Errorf("answered %+v", answer)
			}
			return broken
		})
		if !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
		verified, err := f.Verify(t.Context(), request, facilitator.Named(test.second))
		if err != nil || verified.IsValid != test.success {
			t.Errorf("%+v: verified as %+v, %v", test, verified, err)
		}
		if err := f.Settle(t.Context(), request, facilitator.Named(test.second), func(answer x402.Settlement) error {
			if answer.Success != test.success {
				t.Errorf("%+v: answered %+v", test, answer)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
}

// openFacilitator returns a facilitator without a chain.
func openFacilitator(t *testing.T) (*facilitator.Facilitator, *sqlite.Store, x402.Requirements) {
	t.Helper()
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: testdb.Path(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	terms := x402.Requirements{
		Scheme: x402.SchemeExact, Network: x402.Network(1), Asset: common.Address{1}, Amount: x402.NewUint256(7),
		PayTo: common.Address{2}, MaxTimeoutSeconds: 60, Extra: &x402.Extra{AssetTransferMethod: x402.MethodPermit2},
	}
	return facilitator.New(facilitator.Config{
		ChainID: 1, Store: store, Assets: []common.Address{terms.Asset}, TellOnce: true, Wait: time.Minute,
		Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}), store, terms
}

// settledPayment saves a payment that is settled and returns the call about it.
func settledPayment(t *testing.T, store *sqlite.Store, terms x402.Requirements, nonce uint64) x402.FacilitatorRequest {
	t.Helper()
	authorization := x402.Authorization{
		From: common.Address{3}, Permitted: x402.Permitted{Token: terms.Asset, Amount: terms.Amount},
		Spender: x402.ExactProxy, Nonce: x402.NewUint256(nonce), Deadline: x402.NewUint256(9),
		Witness: x402.Witness{To: terms.PayTo},
	}
	signature := make([]byte, 65)
	payload := marshal(t, x402.Payload{
		X402Version: 2, Accepted: terms, Payload: x402.Permit2Payload{Authorization: authorization, Signature: signature},
	})
	hash, err := boxoffice.HashJSON(payload)
	if err != nil {
		t.Fatal(err)
	}
	saved, err := store.Submit(t.Context(), payment.Intent{
		ID: boxoffice.NewUUID(), SubmissionID: boxoffice.NewUUID(), ChainID: 1, SubmittedAt: 1,
		Progress: payment.Progress{State: payment.Waiting},
		Permit:   payment.Permit{Authorization: authorization, Signature: signature}, Payload: payload, PayloadHash: hash,
	})
	if err != nil {
		t.Fatal(err)
	}
	settlement := order.Settlement{Store: store}
	if err := settlement.SaveDecisions(t.Context(), nil, []payment.Decision{{
		Intent: saved, Outcome: payment.OutcomeSettled,
		Evidence: &payment.Evidence{TxHash: common.Hash{1}, LogIndex: uint(nonce), SettledAt: 2},
	}}, 2); err != nil {
		t.Fatal(err)
	}
	return x402.FacilitatorRequest{X402Version: 2, PaymentPayload: payload, PaymentRequirements: marshal(t, terms)}
}

func marshal(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// hasty is a caller that closes its connection as soon as it has the answer. That
// cancels the context of the call, possibly before the handler returns.
type hasty struct {
	*httptest.ResponseRecorder
	close func()
}

func (h hasty) Write(text []byte) (int, error) {
	defer h.close()
	return h.ResponseRecorder.Write(text)
}

// A caller that closes the connection after the answer has received it; one that
// closed it before has not.
func TestConnectionClosed(t *testing.T) {
	f, store, terms := openFacilitator(t)
	h := httpapi.NewFacilitator(httpapi.FacilitatorConfig{
		Facilitator: f, PerAddress: ratelimit.Rate{PerSecond: 1000, Burst: 1000},
		Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	call := func(request x402.FacilitatorRequest, ctx context.Context, close func()) (answer x402.Settlement) {
		w := hasty{httptest.NewRecorder(), close}
		body := bytes.NewReader(marshal(t, request))
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, x402.PathSettle, body))
		json.Unmarshal(w.Body.Bytes(), &answer)
		return answer
	}
	for nonce, before := range []bool{false, true} {
		request := settledPayment(t, store, terms, uint64(nonce))
		ctx, close := context.WithCancel(t.Context())
		if before {
			close()
		}
		if answer := call(request, ctx, close); answer.Success == before {
			t.Errorf("closed before: %t, and the answer is %+v", before, answer)
		}
		if answer := call(request, t.Context(), func() {}); answer.Success != before {
			t.Errorf("closed before: %t, and the next call got %+v", before, answer)
		}
	}
}
