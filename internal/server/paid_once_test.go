package server_test

import (
	"encoding/json"
	"math/big"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/httpapi"
	"boxoffice/internal/server"
	"boxoffice/internal/test/devchain"
	"boxoffice/internal/test/servertest"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// wantReceived checks that the recipient got the price of so many orders.
func wantReceived(t testing.TB, w *servertest.World, orders int64) {
	t.Helper()
	want := new(big.Int).Mul(servertest.Price.Big(), big.NewInt(orders))
	if got := w.Received(); got.Cmp(want) != 0 {
		t.Errorf("the recipient has %s for %d orders", got, orders)
	}
}

// One permit that is submitted for many orders at the same time pays for one of them.
func TestOnePermitForManyOrders(t *testing.T) {
	w := servertest.Start(t)
	payer := w.NewPayer()
	d := newRequester(t, w)
	statuses := make([]int, 12)
	var group sync.WaitGroup
	for i := range statuses {
		order := d.quote(boxoffice.ActionJobOpen, `{"objective":"Look"}`)
		header, body := newDraft(t, w, d.challenge(order), payer).sign()
		group.Go(func() { statuses[i] = d.submit(order, header, body).Status })
	}
	group.Wait()
	taken := 0
	for _, status := range statuses {
		switch status {
		case http.StatusOK:
			taken++
		case http.StatusConflict, http.StatusPaymentRequired: // refused by the store or, once it is settled, by the chain
		default:
			t.Errorf("answered %d", status)
		}
	}
	if taken != 1 {
		t.Errorf("%d orders were paid", taken)
	}
	wantReceived(t, w, 1)

	later := d.quote(boxoffice.ActionJobOpen, `{"objective":"Look"}`)
	header, body := newDraft(t, w, d.challenge(later), payer).sign()
	if r := d.submit(later, header, body); r.Status != http.StatusConflict && r.Status != http.StatusPaymentRequired {
		t.Errorf("the spent permit was answered %d %s", r.Status, r.Body)
	}
	wantReceived(t, w, 1)
}

// A payer whose balance is enough for one order pays for one of many that are
// submitted at once.
func TestBalanceForOne(t *testing.T) {
	w := servertest.Start(t)
	payer := w.NewKey()
	if err := w.Chain.Fund(t.Context(), crypto.PubkeyToAddress(payer.PublicKey), devchain.Ether(1),
		big.NewInt(1_500_000)); err != nil {
		t.Fatal(err)
	}
	if err := w.Chain.Approve(t.Context(), payer); err != nil {
		t.Fatal(err)
	}
	d := newRequester(t, w)
	orders := make([]boxoffice.Order, 6)
	var group sync.WaitGroup
	for i := range orders {
		orders[i] = d.quote(boxoffice.ActionJobOpen, `{"objective":"Look"}`)
		draft := newDraft(t, w, d.challenge(orders[i]), payer)
		draft.auth().Nonce = x402.NewUint256(uint64(i))
		header, body := draft.sign()
		group.Go(func() { d.submit(orders[i], header, body) })
	}
	group.Wait()
	paid := 0
	for _, order := range orders {
		status := decode[boxoffice.Status](t, d.send("GET", "/requests/"+string(order.ID), ""))
		switch status.Status {
		case boxoffice.Admitted:
			paid++
		case boxoffice.Quoted: // refused when it was submitted
		case boxoffice.PaymentFailed: // two were verified at the same time
			if status.Payment.Reason != string(x402.ReasonInsufficientBalance) {
				t.Errorf("failed for %s", status.Payment.Reason)
			}
		default:
			t.Errorf("an order is %s", status.Status)
		}
	}
	if paid != 1 {
		t.Errorf("%d orders were paid", paid)
	}
	wantReceived(t, w, 1)
}

// After a failure the payer signs again with the same Permit2 nonce. If somebody then
// settles the first signature, it pays for the order, and the second cannot settle.
func TestFirstSignatureSettledAfterTheSecond(t *testing.T) {
	w := servertest.Start(t, func(o *server.Options) { o.SubmitWait = 0 })
	payer := w.NewPayer()
	d := newRequester(t, w)
	order := d.quote(boxoffice.ActionJobOpen, `{"objective":"Look"}`)
	challenge := d.challenge(order)
	release := holdSettler(t, w)
	first := newDraft(t, w, challenge, payer)
	header, body := first.sign()
	d.accepts(order, header, body)
	setAllowance(t, w, payer, big.NewInt(0))
	release()
	d.until(order, boxoffice.PaymentFailed)
	setAllowance(t, w, payer, greatest.Big())

	release = holdSettler(t, w)
	second := newDraft(t, w, challenge, payer)
	second.auth().Deadline = x402.NewUint256(uint64(w.Now().Unix() + 200))
	header, body = second.sign()
	d.accepts(order, header, body)
	transaction := settleDirectly(t, w, first)
	release()
	status := d.until(order, boxoffice.Admitted)
	if *status.Payment.TransactionHash != transaction {
		t.Errorf("credited by %s, want %s", status.Payment.TransactionHash, transaction)
	}
	wantReceived(t, w, 1)
}

// A payment whose nonce the payer has invalidated fails. A payment with another nonce is
// accepted once no reorganisation can make the first one valid again.
func TestPayAgainWithAnotherNonce(t *testing.T) {
	w := servertest.Start(t, func(o *server.Options) {
		o.SubmitWait = 0
		o.Chain.ReorgDepth = 5
		o.Settlement.Recheck = server.Duration(10 * time.Millisecond)
	})
	payer := w.NewPayer()
	d := newRequester(t, w)
	order := d.quote(boxoffice.ActionJobOpen, `{"objective":"Look"}`)
	challenge := d.challenge(order)
	release := holdSettler(t, w)
	header, body := newDraft(t, w, challenge, payer).sign()
	d.accepts(order, header, body)
	invalidate(t, w, payer, 0, 1<<7)
	release()
	if failed := d.until(order, boxoffice.PaymentFailed); failed.Payment.Reason != string(x402.ReasonNonceSpent) {
		t.Errorf("failed for %s", failed.Payment.Reason)
	}
	other := newDraft(t, w, challenge, payer)
	other.auth().Nonce = x402.NewUint256(8)
	header, body = other.sign()
	d.submit(order, header, body).want(t, http.StatusConflict, boxoffice.PaymentConflict, "")
	for range 6 {
		if _, err := w.Chain.Mine(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for range time.Tick(10 * time.Millisecond) {
		if r := d.submit(order, header, body); r.Status != http.StatusConflict {
			break
		}
	}
	d.until(order, boxoffice.Admitted)
	wantReceived(t, w, 1)
}

// While the settlement wallet has no native coin, no payment is accepted, accepted ones
// wait, and /readyz says why. Everything continues when the wallet is funded.
func TestEmptySettlementWallet(t *testing.T) {
	w := servertest.Start(t, func(o *server.Options) {
		o.SubmitWait = 0
		o.Settlement.Recheck = server.Duration(10 * time.Millisecond)
	})
	payer := w.NewPayer()
	wallet := crypto.PubkeyToAddress(w.Options.Key.PublicKey)
	d := newRequester(t, w)
	saved := d.quote(boxoffice.ActionJobOpen, `{"objective":"Saved before"}`)
	header, body := newDraft(t, w, d.challenge(saved), payer).sign()
	release := holdSettler(t, w)
	d.accepts(saved, header, body)
	balance, err := w.Chain.Client().BalanceAt(t.Context(), wallet, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Chain.Transact(t.Context(), w.Options.Key, common.Address{0xdd}, balance.Sub(balance, big.NewInt(1e14)),
		nil); err != nil {
		t.Fatal(err)
	}
	release()
	awaitSettler(t, w, func(says string) bool { return strings.Contains(says, "native coin") })

	order := d.quote(boxoffice.ActionJobOpen, `{"objective":"Quoted meanwhile"}`)
	draft := newDraft(t, w, d.challenge(order), payer)
	draft.auth().Nonce = x402.NewUint256(8)
	header, body = draft.sign()
	d.defers(order, header, body)
	d.until(saved, boxoffice.PaymentPending)
	wantReceived(t, w, 0)

	if err := w.Chain.Fund(t.Context(), wallet, devchain.Ether(1), nil); err != nil {
		t.Fatal(err)
	}
	d.until(saved, boxoffice.Admitted)
	awaitSettler(t, w, func(says string) bool { return says == "ok" })
	d.accepts(order, header, body)
	d.until(order, boxoffice.Admitted)
	wantReceived(t, w, 2)
}

// awaitSettler reads /readyz until the state of the settler is wanted.
func awaitSettler(t testing.TB, w *servertest.World, wanted func(string) bool) {
	t.Helper()
	for range time.Tick(10 * time.Millisecond) {
		if wanted(readiness(t, w).Parts["settler"]) {
			return
		}
	}
}

// readiness reads /readyz of the operator's HTTP.
func readiness(t testing.TB, w *servertest.World) (body httpapi.Readiness) {
	t.Helper()
	response, err := http.Get("http://" + w.OperatorAddr() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&body); err != nil {
		t.Fatal(err)
	}
	if body.Ready != (response.StatusCode == http.StatusOK) {
		t.Errorf("/readyz answered %d with %+v", response.StatusCode, body)
	}
	return body
}
