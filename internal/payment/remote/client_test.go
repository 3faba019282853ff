package remote_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"boxoffice/internal/payment"
	"boxoffice/internal/payment/remote"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/go-cmp/cmp"
)

var (
	owner = common.HexToAddress("0x857b06519E91e3A54538791bDbb0E22373e36b66")
	hash  = "0x" + strings.Repeat("ab", 32)
	terms = x402.Requirements{Scheme: "exact", Network: "eip155:31337", Amount: x402.NewUint256(7),
		MaxTimeoutSeconds: 60, Extra: &x402.Extra{AssetTransferMethod: "permit2"}}
	intent = func() payment.Intent {
		auth := x402.Authorization{From: owner, Permitted: x402.Permitted{Amount: terms.Amount}}
		payload, err := json.Marshal(x402.Payload{X402Version: 2, Accepted: terms,
			Payload: x402.Permit2Payload{Authorization: auth, Signature: []byte{1}}})
		if err != nil {
			panic(err)
		}
		return payment.Intent{ID: "3c5c1f0a-9d5c-4c0e-8f0c-1d2b3a4c5d6e", Payload: payload,
			Permit: payment.Permit{Authorization: auth}}
	}()
)

func facilitator(t *testing.T, answer http.HandlerFunc) *remote.Client {
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return remote.NewClient(remote.ClientConfig{URL: server.URL + "/", ChainID: 31337, Authorization: "Bearer x",
		Timeout: 10 * time.Second})
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// Only a clear yes is ReplySettled, and only a clear no is ReplyRefused.
func TestReplies(t *testing.T) {
	no := func(reason string) string {
		return `{"success":false,"errorReason":"` + reason + `","transaction":"","network":"eip155:31337"}`
	}
	yes := func(members string) string { return `{"success":true,"transaction":"` + hash + `"` + members + `}` }
	for _, test := range []struct {
		name   string
		status int
		body   string
		kind   remote.ReplyKind
		reason x402.Reason
	}{
		{"TypeScript", 200, yes(`,"network":"eip155:31337","payer":"0x857b06519E91e3A54538791bDbb0E22373e36b66","extensions":null`), remote.ReplySettled, ""},
		{"Go in lower case", 200, yes(`,"network":"eip155:31337","payer":"0x857b06519e91e3a54538791bdbb0e22373e36b66","amount":"7"`), remote.ReplySettled, ""},
		{"another network", 200, yes(`,"network":"eip155:1"`), remote.ReplyUnknown, x402.ReasonPending},
		{"another payer", 200, yes(`,"network":"eip155:31337","payer":"0x0000000000000000000000000000000000000001"`),
			remote.ReplyUnknown, x402.ReasonPending},
		{"another amount", 200, yes(`,"network":"eip155:31337","amount":"6"`), remote.ReplyUnknown, x402.ReasonPending},
		{"no hash", 200, `{"success":true,"transaction":"","network":"eip155:31337"}`, remote.ReplyUnknown,
			x402.ReasonPending},
		{"success of an error", 500, yes(""), remote.ReplyUnknown, x402.ReasonPending},
		{"garbage", 200, "<html>", remote.ReplyUnknown, x402.ReasonPending},
		{"a list", 200, "[]", remote.ReplyUnknown, x402.ReasonPending},
		{"without success", 200, `{"transaction":"` + hash + `"}`, remote.ReplyUnknown, x402.ReasonPending},
		{"garbage of a proxy", 400, "<html>", remote.ReplyNotTaken, "facilitator_unavailable"},
		{"too many", 429, "{}", remote.ReplyNotTaken, "facilitator_unavailable"},
		{"forbidden", 403, "{}", remote.ReplyNotTaken, "facilitator_unavailable"},
		{"timeout of a proxy", 408, "", remote.ReplyUnknown, x402.ReasonPending},
		{"bad gateway", 502, "", remote.ReplyUnknown, x402.ReasonPending},
		{"TypeScript refuses", 200, no("permit2_allowance_required"), remote.ReplyRefused,
			x402.ReasonAllowanceRequired},
		{"Go refuses", 400, no("invalid_permit2_spender"), remote.ReplyRefused, x402.ReasonSpender},
		{"Rust refuses for the allowance", 412, no("permit2_allowance_required"), remote.ReplyRefused,
			x402.ReasonAllowanceRequired},
		{"Rust refuses", 400, no("invalid_payment_expired"), remote.ReplyRefused, x402.ReasonDeadlineExpired},
		{"the nonce is spent", 200, no("permit2_invalid_nonce"), remote.ReplyUnknown, x402.ReasonNonceSpent},
		{"a message after the reason", 200, no("invalid_exact_evm_transaction_failed: nonce too low"),
			remote.ReplyUnknown, x402.ReasonTransactionFailed},
		{"refused with a transaction", 200, `{"success":false,"errorReason":"insufficient_funds","transaction":"` +
			hash + `","network":""}`, remote.ReplyUnknown, x402.ReasonInsufficientBalance},
		{"pending", 200, no("settlement_pending"), remote.ReplyUnknown, x402.ReasonPending},
		{"unknown reason", 200, no("Mercury in <retrograde>"), remote.ReplyNotTaken, "Mercury_in_retrograde"},
		{"no reason", 200, `{"success":false,"errorReason":null,"transaction":"","network":""}`, remote.ReplyNotTaken,
			"facilitator_gave_no_reason"},
		{"a redirect", 307, "", remote.ReplyNotTaken, "facilitator_unavailable"},
	} {
		t.Run(test.name, func(t *testing.T) {
			answer := facilitator(t, says(test.status, test.body)).Settle(t.Context(), intent)
			if answer.Kind != test.kind || answer.Reason != test.reason {
				t.Errorf("read as %s %s, want %s %s", answer.Kind, answer.Reason, test.kind, test.reason)
			}
			if (answer.Kind == remote.ReplySettled) != (answer.Transaction == common.HexToHash(hash)) {
				t.Errorf("the transaction is %s", answer.Transaction)
			}
		})
	}
}

// A call for which there was no connection sent nothing.
func TestNoConnection(t *testing.T) {
	server := httptest.NewServer(says(200, ""))
	server.Close()
	client := remote.NewClient(remote.ClientConfig{URL: server.URL, ChainID: 31337, Timeout: time.Second})
	if answer := client.Settle(t.Context(), intent); answer.Kind != remote.ReplyNotTaken {
		t.Errorf("read as %s", answer.Kind)
	}
}

// Every call sends the same bytes, as the x402 specification requires, and
// Retry-After is read from the response.
func TestSameBytes(t *testing.T) {
	var bodies []string
	client := facilitator(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies = append(bodies, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization")+" "+r.Header.Get("Idempotency-Key")+" "+string(body))
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	for range 2 {
		if answer := client.Settle(t.Context(), intent); answer.RetryAfter != 7*time.Second {
			t.Errorf("asks again after %s", answer.RetryAfter)
		}
	}
	requirements, err := json.Marshal(terms)
	if err != nil {
		t.Fatal(err)
	}
	want := `POST /settle Bearer x ` + string(intent.ID) + ` {"x402Version":2,"paymentPayload":` + string(intent.Payload) + `,"paymentRequirements":` + string(requirements) + `}`
	if diff := cmp.Diff([]string{want, want}, bodies); diff != "" {
		t.Error(diff)
	}
}

func TestVerify(t *testing.T) {
	for _, test := range []struct {
		name   string
		status int
		body   string
		reason x402.Reason
		away   bool
	}{
		{"valid", 200, `{"isValid":true,"payer":"0x"}`, "", false},
		{"invalid", 200, `{"isValid":false,"invalidReason":"insufficient_funds"}`, x402.ReasonInsufficientBalance,
			false},
		{"Rust", 412, `{"isValid":false,"invalidReason":"permit2_allowance_required","invalidReasonDetails":"","payer":""}`, x402.ReasonAllowanceRequired, false},
		{"unknown reason", 200, `{"isValid":false,"invalidReason":"because"}`, "because", false},
		{"its own fault", 200, `{"isValid":false,"invalidReason":"unexpected_verify_error"}`, "", true},
		{"an error", 500, `{"isValid":false,"invalidReason":"insufficient_funds"}`, "", true},
		{"too many", 429, `{"error":"later"}`, "", true},
		{"garbage", 200, `no`, "", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			rejection, err := facilitator(t, says(test.status, test.body)).Verify(t.Context(), intent.Payload, terms)
			if (err != nil) != test.away {
				t.Fatalf("got %v", err)
			}
			if got := rejection; (got != nil) != (test.reason != "") || got != nil && got.Reason != test.reason {
				t.Errorf("refused as %v, want %s", got, test.reason)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	for body, fine := range map[string]bool{
		`{"kinds":[{"x402Version":1,"scheme":"exact","network":"base"},{"x402Version":2,"scheme":"exact","network":"eip155:31337"}],"extensions":[],"signers":{}}`: true,
		`{"kinds":[{"x402Version":2,"scheme":"exact","network":"eip155:*"}]}`:                                                                                      true,
		`{"kinds":[{"x402Version":2,"scheme":"upto","network":"eip155:31337"}]}`:                                                                                   false,
		`{"kinds":[{"x402Version":2,"scheme":"exact","network":"eip155:1"}]}`:                                                                                      false,
		`{}`: false, `no`: false,
	} {
		if err := facilitator(t, says(200, body)).Check(t.Context()); (err == nil) != fine {
			t.Errorf("%s: %v", body, err)
		}
	}
}
