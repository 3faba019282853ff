package server_test

import (
	"bytes"
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/server"
	"boxoffice/internal/test/devchain"
	"boxoffice/internal/test/servertest"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// as sets the Idempotency-Key of a call.
func as(key string) func(map[string]any) { return func(wire map[string]any) { wire["key"] = key } }

// call posts to the facilitator as another server would.
func (c *facilitator) call(path string, payload x402.Payload, terms x402.Requirements,
	change ...func(map[string]any)) (int, []byte) {
	c.t.Helper()
	var wire map[string]any
	if err := json.Unmarshal([]byte(asJSON(c.t, payload)), &wire); err != nil {
		c.t.Fatal(err)
	}
	for _, with := range change {
		with(wire)
	}
	key, _ := wire["key"].(string)
	delete(wire, "key")
	body := asJSON(c.t, map[string]any{"x402Version": 2, "paymentPayload": wire, "paymentRequirements": terms})
	request, err := http.NewRequest(http.MethodPost, c.proxy.URL+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return response.StatusCode, text
}

// foreignPayment returns a payment that a customer of another server has signed.
func foreignPayment(t testing.TB, w *servertest.World, key *ecdsa.PrivateKey, nonce uint64) (x402.Payload,
	x402.Requirements) {
	t.Helper()
	terms := x402.Requirements{
		Scheme: x402.SchemeExact, Network: x402.Network(w.Options.Chain.ID),
		Asset: w.Chain.Token(), Amount: servertest.Price,
		PayTo: devchain.PayTo(), MaxTimeoutSeconds: 60,
		Extra: &x402.Extra{AssetTransferMethod: x402.MethodPermit2, Name: "Boxoffice Test Token", Version: "1"},
	}
	payload := x402.Payload{X402Version: 2, Accepted: terms,
		Payload: x402.Permit2Payload{Authorization: x402.Authorization{
			From:      crypto.PubkeyToAddress(key.PublicKey),
			Permitted: x402.Permitted{Token: terms.Asset, Amount: terms.Amount},
			Spender:   x402.ExactProxy, Nonce: x402.NewUint256(nonce),
			Deadline: x402.NewUint256(uint64(w.Now().Unix()) + 60),
			Witness:  x402.Witness{To: terms.PayTo},
		}}}
	signature, err := x402.Sign(payload.Payload.Authorization.Digest(w.Options.Chain.ID), key)
	if err != nil {
		t.Fatal(err)
	}
	payload.Payload.Signature = signature
	return payload, terms
}

// Twenty equal calls at the same time are one payment with one outcome, also after a
// restart. Another payload with the same nonce is refused. A payment whose outcome one
// caller knows is not valid for another caller. With tell_once only one call learns of
// the success, so a server that keeps no record serves once; a caller that repeats its
// Idempotency-Key learns it again.
func TestFacilitatorIsIdempotent(t *testing.T) {
	for name, test := range map[string]repeated{
		"without a key":              {},
		"tell_once":                  {once: true},
		"tell_once, with one key":    {once: true, key: "sale 7"},
		"without tell_once, one key": {key: "sale 7"},
	} {
		t.Run(name, test.settle)
	}
}

type repeated struct {
	once bool   // tell_once
	key  string // the Idempotency-Key
}

func (r repeated) settle(t *testing.T) {
	key := r.key
	var c *facilitator
	w := servertest.Start(t, func(o *server.Options) {
		c = newFacilitator(t, o, func(o *server.Options) { o.Facilitator.TellOnce = r.once })
	})
	payer := w.NewKey()
	if err := w.Chain.Fund(t.Context(), crypto.PubkeyToAddress(payer.PublicKey), devchain.Ether(1),
		servertest.Price.Big()); err != nil {
		t.Fatal(err) // enough for one
	}
	if err := w.Chain.Approve(t.Context(), payer); err != nil {
		t.Fatal(err)
	}
	payload, terms := foreignPayment(t, w, payer, 5)
	resource := func(url string) func(map[string]any) {
		return func(wire map[string]any) {
			wire["resource"] = map[string]any{"url": url, "unknownMember": true}
			wire["extensions"] = map[string]any{"bazaar": map[string]any{"info": "x"}}
		}
	}
	here := resource("https://a.example")
	verify := func(key string) (said x402.Verification) {
		t.Helper()
		status, body := c.call(x402.PathVerify, payload, terms, here, as(key))
		if err := json.Unmarshal(body, &said); err != nil || status != http.StatusOK {
			t.Fatalf("answered %d %s", status, body)
		}
		return said
	}
	settle := func(key string) (said x402.Settlement) {
		status, body := c.call(x402.PathSettle, payload, terms, here, as(key))
		if err := json.Unmarshal(body, &said); err != nil || status != http.StatusOK {
			t.Errorf("answered %d %s", status, body)
		}
		return said
	}
	if said := verify(key); !said.IsValid {
		t.Fatalf("verified as %+v", said)
	}
	answers := make([]x402.Settlement, 20)
	var group sync.WaitGroup
	for i := range answers {
		group.Go(func() { answers[i] = settle(key) })
	}
	group.Wait()
	wantReceived(t, w, 1)
	successes := slices.DeleteFunc(slices.Clone(answers), func(a x402.Settlement) bool { return !a.Success })
	want := len(answers)
	if r.once && key == "" {
		want = 1
	}
	if len(successes) != want || successes[0] != successes[len(successes)-1] {
		t.Fatalf("%d of %d calls succeeded, as %+v", len(successes), len(answers), answers)
	}
	for _, answer := range answers {
		if !answer.Success && answer.ErrorReason != x402.ReasonInvalidNonce {
			t.Errorf("answered %+v", answer)
		}
	}

	_, body := c.call(x402.PathSettle, payload, terms, resource("https://b.example"), as(key))
	var other x402.Settlement
	if json.Unmarshal(body, &other); other.Success || other.ErrorReason != x402.ReasonOtherPayload {
		t.Errorf("another payload was answered %s", body)
	}
	c.halt()
	c.start()
	for _, caller := range []string{"", key, "sale 8"} {
		mine := caller != "" && caller == key
		if said := verify(caller); said.IsValid != mine || !mine && said.InvalidReason != x402.ReasonInvalidNonce {
			t.Errorf("%q: verified as %+v", caller, said)
		}
		said := settle(caller)
		if knows := mine || !r.once; knows && said != successes[0] || !knows &&
			(said.Success || said.ErrorReason != x402.ReasonInvalidNonce) {
			t.Errorf("%q: after a restart answered %+v", caller, said)
		}
	}
	wantReceived(t, w, 1)
}

// The facilitator settles only the tokens and recipients that its operator lists, and
// only for callers with the token.
func TestFacilitatorLimits(t *testing.T) {
	t.Setenv("BOXOFFICE_FACILITATOR_TOKEN", "sesame")
	t.Setenv("BOXOFFICE_FACILITATOR_AUTHORIZATION", "Bearer sesame")
	var c *facilitator
	w := servertest.Start(t, func(o *server.Options) {
		c = newFacilitator(t, o, func(o *server.Options) {
			o.Facilitator.Recipients = []common.Address{devchain.PayTo()}
		})
	})
	payer := w.NewPayer()
	payload, terms := foreignPayment(t, w, payer, 5)
	if status, body := c.call(x402.PathSettle, payload, terms); status != http.StatusUnauthorized {
		t.Errorf("without the token answered %d %s", status, body)
	}
	// A refusal reaches a caller that sends its whole body first, on a connection that closes.
	conn, err := net.Dial("tcp", c.backend.Load().Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.0\r\nContent-Length: 12000\r\n\r\n%12000d", x402.PathSettle, 0)
	if response, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(response), "HTTP/1.0 401 ") {
		t.Errorf("response %q, %v", response, err)
	}
	// The service has the token and settles.
	awaitReady(t, w)
	d := newRequester(t, w)
	order, _ := buyOne(t, w, d, payer, 9)
	d.until(order, boxoffice.Admitted)

	ask := func(change func(*x402.Payload, *x402.Requirements)) x402.Settlement {
		payload, terms := foreignPayment(t, w, payer, 5)
		change(&payload, &terms)
		body := asJSON(t, map[string]any{"x402Version": 2, "paymentPayload": payload, "paymentRequirements": terms})
		request, err := http.NewRequest(http.MethodPost, c.proxy.URL+x402.PathSettle, bytes.NewReader([]byte(body)))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer sesame")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var answer x402.Settlement
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("answered %d, %v", response.StatusCode, err)
		}
		return answer
	}
	for want, change := range map[x402.Reason]func(*x402.Payload, *x402.Requirements){
		x402.ReasonAssetRefused: func(p *x402.Payload,
			r *x402.Requirements) {
			r.Asset = x402.Permit2
			p.Accepted.Asset = x402.Permit2
		},
		x402.ReasonRecipientRefused: func(p *x402.Payload,
			r *x402.Requirements) {
			r.PayTo = x402.Permit2
			p.Accepted.PayTo = x402.Permit2
		},
		x402.ReasonInvalidNetwork: func(p *x402.Payload,
			r *x402.Requirements) {
			r.Network = "eip155:1"
			p.Accepted.Network = "eip155:1"
		},
		x402.ReasonUnsupported: func(p *x402.Payload,
			r *x402.Requirements) {
			r.Scheme = "upto"
			p.Accepted.Scheme = "upto"
		},
		x402.ReasonRequirements: func(_ *x402.Payload, r *x402.Requirements) { r.Amount = x402.NewUint256(1) },
		x402.ReasonSignature:    func(p *x402.Payload, _ *x402.Requirements) { p.Payload.Signature[5] ^= 1 },
		x402.ReasonVersion:      func(p *x402.Payload, _ *x402.Requirements) { p.X402Version = 1 },
	} {
		if answer := ask(change); answer.Success || answer.ErrorReason != want {
			t.Errorf("answered %+v, want %s", answer, want)
		}
	}
	wantReceived(t, w, 1)
}

// While a payment is not decided, /settle answers settlement_pending with the transaction,
// as @x402/core 2.27 expects, and a later call answers the outcome.
func TestFacilitatorPending(t *testing.T) {
	var c *facilitator
	w := servertest.Start(t, func(o *server.Options) {
		c = newFacilitator(t, o, func(o *server.Options) {
			o.Facilitator.Wait = server.Duration(time.Millisecond)
			o.Chain.Confirmations = 3
		})
		o.OperatorListen = ""
	})
	payload, terms := foreignPayment(t, w, w.NewPayer(), 5)
	var answer x402.Settlement
	for answer.Transaction == "" {
		_, body := c.call(x402.PathSettle, payload, terms)
		if err := json.Unmarshal(body, &answer); err != nil || answer.Success ||
			answer.ErrorReason != x402.ReasonPending {
			t.Fatalf("answered %s", body)
		}
	}
	_, body := c.call(x402.PathVerify, payload, terms)
	var verified x402.Verification
	if json.Unmarshal(body, &verified); !verified.IsValid {
		t.Errorf("verified as %s, and its server could not learn the outcome", body)
	}
	for !answer.Success {
		// The transaction is in the response once it is saved; it may not be broadcast yet.
		if _, err := w.Chain.Mine(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, body := c.call(x402.PathSettle, payload, terms)
		if err := json.Unmarshal(body, &answer); err != nil ||
			!answer.Success && answer.ErrorReason != x402.ReasonPending {
			t.Fatalf("answered %s", body)
		}
	}
	wantReceived(t, w, 1)
}

// A facilitator that uses the database and the key of a service: one of them settles for
// both, no permit pays for two things, and submissions are not admitted as orders.
func TestFacilitatorBesideService(t *testing.T) {
	w := servertest.Start(t)
	c := openFacilitator(t, w.Options)
	payer := w.NewPayer()
	d := newRequester(t, w)
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			order, _ := buyOne(t, w, d, payer, uint64(i))
			d.until(order, boxoffice.Admitted)
		})
		group.Go(func() {
			payload, terms := foreignPayment(t, w, payer, uint64(100+i))
			if _, body := c.call(x402.PathSettle, payload, terms); !bytes.Contains(body, []byte(`"success":true`)) {
				t.Errorf("answered %s", body)
			}
		})
	}
	group.Wait()
	wantReceived(t, w, 8)
	listed, _ := payments(t, w, "?state=settled")
	ordered, submitted := 0, 0
	for _, payment := range listed.Payments {
		switch {
		case payment.OrderID != "" && payment.SubmissionID == "":
			ordered++
		case payment.OrderID == "" && payment.SubmissionID != "":
			submitted++
		}
	}
	if ordered != 4 || submitted != 4 {
		t.Errorf("%d payments of orders and %d submissions are listed", ordered, submitted)
	}

	// The permit of an order cannot be submitted as a payment, not even before it settles.
	release := holdSettler(t, w)
	order := d.quote(boxoffice.ActionJobOpen, `{"objective":"Look"}`)
	draft := newDraft(t, w, d.challenge(order), payer)
	header, body := draft.sign()
	var paying sync.WaitGroup
	paying.Go(func() { d.submit(order, header, body) })
	d.until(order, boxoffice.PaymentPending)
	payload, terms := foreignPayment(t, w, payer, 7)
	if _, said := c.call(x402.PathSettle, payload, terms); !bytes.Contains(said, []byte(x402.ReasonOtherPayload)) {
		t.Errorf("answered %s", said)
	}
	release()
	paying.Wait()
	d.until(order, boxoffice.Admitted)
	wantReceived(t, w, 9)
	if logged := w.Log.String(); strings.Contains(logged, "could not be admitted") {
		t.Error("the service tried to admit a submission")
	}
}
