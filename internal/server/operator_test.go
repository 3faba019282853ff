package server_test

import (
	"encoding/json"
	"io"
	"math/big"
	"net/http"
	"strings"
	"testing"

	"boxoffice"
	"boxoffice/internal/httpapi"
	"boxoffice/internal/payment"
	"boxoffice/internal/server"
	"boxoffice/internal/test/servertest"
	"boxoffice/x402"
)

func payments(t *testing.T, w *servertest.World, query string) (httpapi.PaymentList, string) {
	t.Helper()
	response, err := http.Get("http://" + w.OperatorAddr() + "/payments" + query)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%d %s %v", response.StatusCode, text, err)
	}
	var listed httpapi.PaymentList
	if err := json.Unmarshal(text, &listed); err != nil {
		t.Fatal(err)
	}
	return listed, string(text)
}

// An operator sees each payment with its transactions and the reason of its failure, and
// what settling has cost, but nothing that a payer has signed.
func TestPayments(t *testing.T) {
	w := servertest.Start(t, func(o *server.Options) { o.SubmitWait = 0 })
	payer := w.NewPayer()
	d := newRequester(t, w)
	pay := func(nonce uint64) (boxoffice.Order, string) {
		order := d.quote(boxoffice.ActionJobOpen, `{"objective":"Look"}`)
		draft := newDraft(t, w, d.challenge(order), payer)
		draft.auth().Nonce = x402.NewUint256(nonce)
		header, body := draft.sign()
		d.accepts(order, header, body)
		return order, header
	}
	settled, _ := pay(1)
	paid := d.until(settled, boxoffice.Admitted)

	release := holdSettler(t, w)
	failed, header := pay(2)
	listed, _ := payments(t, w, "")
	if listed.Totals.Waiting != 1 || listed.Totals.OldestPending == nil {
		t.Errorf("totals %+v", listed.Totals)
	}
	setAllowance(t, w, payer, big.NewInt(0))
	release()
	d.until(failed, boxoffice.PaymentFailed)

	listed, text := payments(t, w, "")
	totals := listed.Totals
	if totals.Settled != 1 || totals.Failed != 1 || totals.Unsettled != 1 || totals.Waiting+totals.Sent != 0 {
		t.Errorf("totals %+v", totals)
	}
	if gas := totals.Gas; gas.Transactions != 1 || gas.Payments != 1 || gas.GasUsed < 50_000 || gas.GasUsed > 150_000 ||
		gas.FeesGwei == 0 {
		t.Errorf("gas %+v", gas)
	}
	if len(listed.Payments) != 2 {
		t.Fatalf("%d payments are listed", len(listed.Payments))
	}
	newest, oldest := listed.Payments[0], listed.Payments[1]
	if newest.OrderID != failed.ID || newest.State != payment.Failed ||
		newest.Reason != string(x402.ReasonAllowanceRequired) || newest.Final {
		t.Errorf("the failed payment reads %+v", newest)
	}
	if oldest.OrderID != settled.ID || *oldest.SettledBy != *paid.Payment.TransactionHash ||
		len(oldest.Transactions) != 1 || *oldest.Transactions[0].GasUsed != totals.Gas.GasUsed {
		t.Errorf("the settled payment reads %+v", oldest)
	}
	sent, err := x402.ParsePayment(header)
	if err != nil {
		t.Fatal(err)
	}
	if signature := sent.Payload.Payload.Signature.String(); strings.Contains(text, signature[2:]) {
		t.Error("a signature is listed")
	}

	if listed, _ := payments(t, w, "?state=settled&limit=1"); len(listed.Payments) != 1 ||
		listed.Payments[0].OrderID != settled.ID {
		t.Errorf("the settled ones are %+v", listed.Payments)
	}
	response, err := http.Get("http://" + w.OperatorAddr() + "/payments?state=lost")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusBadRequest {
		t.Errorf("an unknown state is answered %d", response.StatusCode)
	}
}
