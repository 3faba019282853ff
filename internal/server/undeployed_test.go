package server_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"boxoffice"
	"boxoffice/contracts/settlement"
	"boxoffice/internal/server"
)

// A service that settles through a facilitator needs no settlement contract on the chain: it simulates a payment with
// one that the simulation deploys.
func TestFacilitatorWithoutTheContract(t *testing.T) {
	var hidden atomic.Int64
	w, _ := startWithFacilitator(t, func(o *server.Options) {
		o.Chain.RPCURL = withoutContract(t, o.Chain.RPCURL, &hidden)
	})
	awaitReady(t, w)
	payer := w.NewPayer()
	d := newRequester(t, w)
	order, r := buyOne(t, w, d, payer, 7)
	if r.Status != http.StatusOK {
		t.Fatalf("answered %d %s", r.Status, r.Body)
	}
	d.until(order, boxoffice.Admitted)
	if _, r := buyOne(t, w, d, payer, 7); r.Status != http.StatusPaymentRequired {
		t.Errorf("a payment with the same nonce: %d %s", r.Status, r.Body)
	}
	wantReceived(t, w, 1)
	if hidden.Load() == 0 {
		t.Error("the service never asked for the contract")
	}
}

// withoutContract is an RPC node that has no settlement contract: it asks another node for another address instead.
func withoutContract(t testing.TB, node string, hidden *atomic.Int64) string {
	t.Helper()
	target, err := url.Parse(node)
	if err != nil {
		t.Fatal(err)
	}
	through := httputil.NewSingleHostReverseProxy(target)
	contract := []byte(strings.ToLower(settlement.Address.Hex()))
	nothing := []byte("0x00000000000000000000000000000000000c0de2")
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		hidden.Add(int64(bytes.Count(body, contract)))
		body = bytes.ReplaceAll(body, contract, nothing)
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		through.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	return proxy.URL
}
