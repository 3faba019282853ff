package order_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/action"
	"boxoffice/internal/order"
	"boxoffice/internal/payment"
	"boxoffice/internal/store/sqlite"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
)

// world is a Flow over a real store. Its verifier accepts every payment, unless
// rejection is set: what a verifier checks is tested with the chain.
type world struct {
	*testing.T
	store     *sqlite.Store
	flow      *order.Flow
	now       atomic.Int64 // Unix seconds
	rejection *payment.Rejection
	verified  int
	requester boxoffice.Requester
	id        boxoffice.UUID // of the order
}

const chainID = 8453

func newWorld(t *testing.T) *world {
	w := &world{T: t, requester: boxoffice.NewToken().Requester()}
	w.now.Store(1_780_000_000)
	var err error
	w.store, err = sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "boxoffice.db")})
	w.must(err)
	t.Cleanup(func() { w.store.Close() })
	catalog, err := action.New(action.Config{
		Payment: boxoffice.Payment{
			Network: x402.Network(chainID), Asset: common.Address{1}, Amount: x402.NewUint256(300),
			PayTo: common.Address{2}, Decimals: 18,
		},
		Originals: w.store,
	})
	w.must(err)
	w.flow = order.New(order.Config{
		Store: w.store, Actions: catalog, Verifier: w, BaseURL: "https://example.com", ServiceName: "Test", ChainID: chainID,
		Token:      x402.Extra{AssetTransferMethod: x402.MethodPermit2, Name: "T", Version: "1"},
		MaxTimeout: time.Minute, Accepted: func() {}, Now: w.time, Log: slog.New(slog.DiscardHandler),
	})
	w.quote()
	return w
}

// quote makes a new order the order of the world.
func (w *world) quote() {
	w.Helper()
	response, err := w.flow.Quote(w.Context(), w.requester, boxoffice.QuoteRequest{
		Action: boxoffice.ActionJobOpen, Input: json.RawMessage(`{"objective":"Look"}`), RequestKey: boxoffice.NewUUID(),
	})
	w.must(err)
	w.id = response.Order.ID
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) time() time.Time { return time.Unix(w.now.Load(), 0) }

// Verify implements order.Verifier.
func (w *world) Verify(
	_ context.Context, _ payment.Demand, paid *x402.Payment, _ boxoffice.Signature,
) (payment.Verified, error) {
	w.verified++
	if w.rejection != nil {
		return payment.Verified{}, w.rejection
	}
	signed := paid.Payload.Payload
	permit := payment.Permit{Authorization: signed.Authorization, Signature: signed.Signature}
	return payment.Verified{Permit: permit, Block: 1}, nil
}

func (w *world) read() order.Record {
	w.Helper()
	record, err := w.store.Order(w.Context(), w.requester, w.id)
	w.must(err)
	return record
}

// payment returns a payment for the order with a Permit2 nonce; another version of
// it is another payload with the same nonce.
func (w *world) payment(nonce, version uint64) *x402.Payment {
	w.Helper()
	record := w.read()
	terms := record.Requirements
	header, err := x402.EncodeHeader(x402.Payload{
		X402Version: x402.Version, Accepted: terms,
		Payload: x402.Permit2Payload{
			Signature: make([]byte, 65),
			Authorization: x402.Authorization{
				From: common.Address{3}, Permitted: x402.Permitted{Token: terms.Asset, Amount: terms.Amount},
				Spender: x402.ExactProxy, Nonce: x402.NewUint256(nonce),
				Deadline: x402.NewUint256(uint64(record.Quote.ExpiresAt) - version), Witness: x402.Witness{To: terms.PayTo},
			},
		},
	})
	w.must(err)
	paid, err := x402.ParsePayment(header)
	w.must(err)
	return paid
}

// submit submits a payment, or none if it is nil, and returns what was answered:
// "challenge", a status or the code of a problem.
func (w *world) submit(paid *x402.Payment) string {
	w.Helper()
	var status boxoffice.Status
	var err error
	if paid != nil {
		status, err = w.flow.Pay(w.Context(), w.requester, w.id, paid, boxoffice.Signature{})
	} else {
		var result order.SubmitResult
		if result, err = w.flow.Challenge(w.Context(), w.requester, w.id); result.Challenge != nil {
			return "challenge"
		} else if result.Status != nil {
			status = *result.Status
		}
	}
	if problem, ok := errors.AsType[*boxoffice.Problem](err); ok {
		if problem.Code == boxoffice.PaymentConflict && problem.RetryAfter > 0 {
			return string(problem.Code) + " with Retry-After"
		}
		return string(problem.Code)
	}
	w.must(err)
	return string(status.Status)
}

// decide saves what a settler decided about the order's payment.
func (w *world) decide(decision payment.Decision) {
	w.Helper()
	decision.Intent = *w.read().Payment
	settlement := order.Settlement{Store: w.store}
	w.must(settlement.SaveDecisions(w.Context(), nil, []payment.Decision{decision}, boxoffice.At(w.time())))
}

// admit has the flow admit what is paid.
func (w *world) admit() {
	w.Helper()
	ctx, stop := context.WithCancel(w.Context())
	stopped := make(chan struct{})
	go func() {
		w.flow.Run(ctx)
		close(stopped)
	}()
	w.flow.Wait = time.Minute
	if got := w.submit(w.payment(1, 1)); got != string(boxoffice.Admitted) {
		w.Errorf("the paid order is answered %s", got)
	}
	w.flow.Wait = 0
	stop()
	<-stopped
}

// TestSubmit is the table of docs/states.md: what an order answers to what is
// sent. The payment of an order that has one is number 1.
func TestSubmit(t *testing.T) {
	expire := func(w *world) { w.now.Add(601) }
	pay := func(w *world) { w.submit(w.payment(1, 1)) }
	fail := func(w *world) { pay(w); w.decide(outcomes["failed"]) }
	die := func(w *world) { pay(w); w.decide(outcomes["failed, final"]) }
	settle := func(w *world) { pay(w); w.decide(outcomes["settled"]) }
	admit := func(w *world) { settle(w); w.admit() }
	undo := func(w *world) { settle(w); w.decide(outcomes["undone"]) }

	none := func(*world) *x402.Payment { return nil }
	same := func(w *world) *x402.Payment { return w.payment(1, 1) }
	sameNonce := func(w *world) *x402.Payment { return w.payment(1, 2) }
	another := func(w *world) *x402.Payment { return w.payment(2, 1) }

	const (
		pending   = string(boxoffice.PaymentPending)
		failed    = string(boxoffice.PaymentFailed)
		admission = string(boxoffice.AdmissionPending)
		admitted  = string(boxoffice.Admitted)
		expired   = string(boxoffice.QuoteExpired)
		conflict  = string(boxoffice.PaymentConflict)
		later     = conflict + " with Retry-After"
	)
	type step = func(*world)
	for _, test := range []struct {
		name    string
		prepare []step
		send    func(*world) *x402.Payment
		want    string
		stored  boxoffice.State
	}{
		{"quoted, no payment", nil, none, "challenge", boxoffice.Quoted},
		{"quoted, a payment", nil, same, pending, boxoffice.PaymentPending},
		{"expired, no payment", []step{expire}, none, expired, boxoffice.Quoted},
		{"expired, a payment", []step{expire}, same, expired, boxoffice.Quoted},
		{"payment_pending, no payment", []step{pay}, none, pending, boxoffice.PaymentPending},
		{"payment_pending, the same payment", []step{pay}, same, pending, boxoffice.PaymentPending},
		{"payment_pending, quote expired, the same payment", []step{pay, expire}, same, pending, boxoffice.PaymentPending},
		{"payment_pending, another payment", []step{pay}, another, conflict, boxoffice.PaymentPending},
		{"payment_failed, no payment", []step{fail}, none, "challenge", boxoffice.PaymentFailed},
		{"payment_failed, the same payment", []step{fail}, same, failed, boxoffice.PaymentFailed},
		{"payment_failed, quote expired, the same payment", []step{fail, expire}, same, failed, boxoffice.PaymentFailed},
		{"payment_failed, another payment with the same nonce", []step{fail}, sameNonce, pending, boxoffice.PaymentPending},
		{"payment_failed, another payment", []step{fail}, another, later, boxoffice.PaymentFailed},
		{"payment_failed and final, another payment", []step{die}, another, pending, boxoffice.PaymentPending},
		{"payment_failed, quote expired, no payment", []step{die, expire}, none, expired, boxoffice.PaymentFailed},
		{"payment_failed, quote expired, another payment", []step{die, expire}, another, expired, boxoffice.PaymentFailed},
		{"paid, no payment", []step{settle}, none, admission, boxoffice.Paid},
		{"paid, the same payment", []step{settle}, same, admission, boxoffice.Paid},
		{"paid, another payment", []step{settle}, another, conflict, boxoffice.Paid},
		{"paid and undone, the same payment", []step{undo}, same, admission, boxoffice.Paid},
		{"paid and undone, another payment", []step{undo}, another, conflict, boxoffice.Paid},
		{"admitted, no payment", []step{admit}, none, admitted, boxoffice.Paid},
		{"admitted, the same payment", []step{admit}, same, admitted, boxoffice.Paid},
		{"admitted, quote expired, the same payment", []step{admit, expire}, same, admitted, boxoffice.Paid},
		{"admitted, another payment", []step{admit}, another, conflict, boxoffice.Paid},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			for _, step := range test.prepare {
				step(w)
			}
			if got := w.submit(test.send(w)); got != test.want {
				t.Errorf("answered %s, want %s", got, test.want)
			}
			if got := w.read().Status; got != test.stored {
				t.Errorf("the order is %s, want %s", got, test.stored)
			}
		})
	}
}

// A payment that the verifier rejects changes nothing. One that conflicts is
// refused before it is verified.
func TestRejectedPayment(t *testing.T) {
	w := newWorld(t)
	w.rejection = &payment.Rejection{Reason: x402.ReasonInsufficientBalance}
	before := w.read()
	if got := w.submit(w.payment(1, 1)); got != string(boxoffice.PaymentRejected) {
		t.Errorf("answered %s", got)
	}
	if after := w.read(); after.Status != before.Status || after.Payment != nil {
		t.Errorf("the order is %s", after.Status)
	}
	w.rejection = nil
	w.submit(w.payment(1, 1))
	verified := w.verified
	w.submit(w.payment(2, 1))
	if w.verified != verified {
		t.Error("a payment that conflicts was verified")
	}
}

// A Permit2 nonce belongs to one order for ever: another order refuses it, also
// after the payment of the first one has failed for good.
func TestNonceOfAnotherOrder(t *testing.T) {
	w := newWorld(t)
	w.submit(w.payment(1, 1))
	first := w.id
	w.quote()
	if got := w.submit(w.payment(1, 2)); got != string(boxoffice.PaymentConflict) {
		t.Errorf("the nonce of a pending payment is answered %s", got)
	}
	second := w.id
	w.id = first
	w.decide(outcomes["failed, final"])
	w.id = second
	if got := w.submit(w.payment(1, 2)); got != string(boxoffice.PaymentConflict) {
		t.Errorf("the nonce of a failed payment is answered %s", got)
	}
	if record := w.read(); record.Status != boxoffice.Quoted || record.Payment != nil {
		t.Errorf("the order is %s with payment %v", record.Status, record.Payment)
	}
	if got := w.submit(w.payment(2, 1)); got != string(boxoffice.PaymentPending) {
		t.Errorf("a new nonce is answered %s", got)
	}
}
