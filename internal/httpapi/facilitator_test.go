package httpapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"boxoffice/internal/facilitator"
	"boxoffice/internal/httpapi"
	"boxoffice/internal/httpapi/ratelimit"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/go-cmp/cmp"
)

// newFacilitator returns the handler of a facilitator without a chain and a store.
func newFacilitator(chainID uint64, change ...func(*httpapi.FacilitatorConfig)) http.Handler {
	now := time.Now()
	config := httpapi.FacilitatorConfig{
		Facilitator: facilitator.New(facilitator.Config{
			ChainID: chainID, Signer: common.HexToAddress("0x857b06519E91e3A54538791bDbb0E22373e36b66"),
			Now: func() time.Time { return now }, Log: discard,
		}),
		PerAddress: unlimited, Log: discard, Now: func() time.Time { return now },
	}
	for _, apply := range change {
		apply(&config)
	}
	return httpapi.NewFacilitator(config)
}

func post(h http.Handler, path, body string, headers ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request)
	return w
}

// The payloads of the official clients are read. They are refused only because no
// token is allowed here.
func TestFacilitatorReadsOfficialPayloads(t *testing.T) {
	data, err := os.ReadFile("../../x402/testdata/permit2.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Vectors []struct {
			Name      string
			ChainID   uint64
			Canonical string
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, vector := range file.Vectors {
		var payload struct {
			Accepted json.RawMessage `json:"accepted"`
		}
		if json.Unmarshal([]byte(vector.Canonical), &payload) != nil || payload.Accepted == nil {
			continue
		}
		read++
		for _, path := range []string{x402.PathVerify, x402.PathSettle} {
			w := post(newFacilitator(vector.ChainID), path,
				`{"x402Version":2,"paymentPayload":`+vector.Canonical+
					`,"paymentRequirements":`+string(payload.Accepted)+`}`)
			if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), string(x402.ReasonAssetRefused)) {
				t.Errorf("%s: %s answered %d %s", vector.Name, path, w.Code, w.Body)
			}
		}
	}
	if read == 0 {
		t.Error("no payloads")
	}
}

// A request that cannot be read is refused in the shape that the caller expects.
func TestMalformedFacilitatorRequest(t *testing.T) {
	h := newFacilitator(1)
	for body, want := range map[string]struct {
		status int
		reason x402.Reason
	}{
		``:                                    {400, x402.ReasonPayload},
		`[]`:                                  {400, x402.ReasonPayload},
		`{"x402Version":1}`:                   {400, x402.ReasonVersion},
		`{"x402Version":2} {"x402Version":2}`: {400, x402.ReasonPayload},
		`{"x402Version":2}`:                   {200, x402.ReasonPayload},
		`{"x402Version":2,"paymentPayload":{"a":1,"a":2},"paymentRequirements":{}}`: {
			200, x402.ReasonPayload,
		},
		`{"x402Version":2,"paymentPayload":{"payload":{"signature":5}},"paymentRequirements":{}}`: {
			200, x402.ReasonPayload,
		},
		`{"x402Version":2,"paymentPayload":{"x402Version":2},"paymentRequirements":{"amount":"-1"}}`: {
			200, x402.ReasonRequirements,
		},
		`{"x402Version":2,"paymentPayload":{"x402Version":2},"paymentRequirements":{"scheme":"upto"}}`: {
			200, x402.ReasonUnsupported,
		},
		`{"x402Version":2,"paymentPayload":{"x402Version":2},` +
			`"paymentRequirements":{"scheme":"exact","network":"sol"}}`: {200, x402.ReasonInvalidNetwork},
		`"` + strings.Repeat("x", 70<<10) + `"`: {400, x402.ReasonPayload},
	} {
		w := post(h, x402.PathSettle, body)
		var said x402.Settlement
		if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil || w.Code != want.status || said.Success ||
			said.ErrorReason != want.reason {
			t.Errorf("settle %.80s answered %d %s, want %d %s", body, w.Code, w.Body, want.status, want.reason)
		}
		w = post(h, x402.PathVerify, body)
		var verified x402.Verification
		if err := json.Unmarshal(w.Body.Bytes(), &verified); err != nil || w.Code != want.status || verified.IsValid ||
			verified.InvalidReason != want.reason {
			t.Errorf("verify %.80s answered %d %s, want %d %s", body, w.Code, w.Body, want.status, want.reason)
		}
	}
}

func TestFacilitatorTokenAndRate(t *testing.T) {
	h := newFacilitator(1, func(c *httpapi.FacilitatorConfig) {
		c.Token, c.PerAddress = "sesame", ratelimit.Rate{PerSecond: 0.5, Burst: 3}
	})
	if w := post(h, x402.PathSettle, "{}"); w.Code != http.StatusUnauthorized ||
		w.Header().Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("without the token answered %d", w.Code)
	}
	if w := post(h, x402.PathSettle, "{}", "Authorization", "Bearer sesam"); w.Code != http.StatusUnauthorized {
		t.Errorf("with another token answered %d", w.Code)
	}
	if w := post(h, x402.PathSettle, "{}", "Authorization", "Bearer sesame"); w.Code != http.StatusBadRequest {
		t.Errorf("with the token answered %d", w.Code)
	}
	if w := post(h, x402.PathSettle, "{}", "Authorization", "Bearer sesame"); w.Code != http.StatusTooManyRequests ||
		w.Header().Get("Retry-After") != "2" {
		t.Errorf("the fourth call was answered %d, Retry-After %s", w.Code, w.Header().Get("Retry-After"))
	}
}

// The facilitator counts the address that a trusted proxy names.
func TestFacilitatorBehindProxy(t *testing.T) {
	h := newFacilitator(1, func(c *httpapi.FacilitatorConfig) {
		c.PerAddress = ratelimit.Rate{PerSecond: 0.5, Burst: 1}
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}
	})
	for _, call := range []struct {
		forwarded string
		status    int
	}{{"203.0.113.7", 400}, {"203.0.113.8", 400}, {"203.0.113.7", 429}, {"203.0.113.9, 203.0.113.8", 429}} {
		// httptest's address is 192.0.2.1
		if w := post(h, x402.PathSettle, "{}", "X-Forwarded-For", call.forwarded); w.Code != call.status {
			t.Errorf("for %s answered %d, want %d", call.forwarded, w.Code, call.status)
		}
	}
}

func TestFacilitatorSupported(t *testing.T) {
	w := httptest.NewRecorder()
	newFacilitator(8453).ServeHTTP(w, httptest.NewRequest(http.MethodGet, x402.PathSupported, nil))
	want := `{"kinds":[{"x402Version":2,"scheme":"exact","network":"eip155:8453",` +
		`"extra":{"assetTransferMethod":"permit2"}}],` +
		`"extensions":[],"signers":{"eip155:*":["0x857b06519E91e3A54538791bDbb0E22373e36b66"]}}` + "\n"
	if diff := cmp.Diff(want, w.Body.String()); diff != "" {
		t.Error(diff)
	}
}
