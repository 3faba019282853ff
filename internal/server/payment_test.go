package server_test

import (
	"crypto/ecdsa"
	"fmt"
	"math/big"
	"net/http"
	"sync"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/contracts"
	"boxoffice/internal/server"
	"boxoffice/internal/test/devchain"
	"boxoffice/internal/test/servertest"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// A draft is a payment that is not signed yet. Its hooks change it before the permit is
// signed, between the two signatures, and before the approval is signed.
type draft struct {
	t         testing.TB
	challenge boxoffice.Challenge
	key       *ecdsa.PrivateKey // signs the permit
	approver  *ecdsa.PrivateKey // signs the approval; nil is key
	payload   x402.Payload
	permit    func(*draft)
	sealed    func(*draft)
	approval  func(*boxoffice.QuoteApproval)
	name      string // of the service, in the approval's domain
}

func newDraft(t testing.TB, w *servertest.World, challenge boxoffice.Challenge, key *ecdsa.PrivateKey) *draft {
	accepted := challenge.Accepts[0]
	resource := challenge.Resource
	return &draft{t: t, challenge: challenge, key: key, name: w.Options.ServiceName, payload: x402.Payload{
		X402Version: x402.Version, Resource: &resource, Accepted: accepted,
		Payload: x402.Permit2Payload{Authorization: x402.Authorization{
			From:      crypto.PubkeyToAddress(key.PublicKey),
			Permitted: x402.Permitted{Token: accepted.Asset, Amount: accepted.Amount},
			Spender:   x402.ExactProxy,
			Nonce:     x402.NewUint256(7),
			Deadline:  x402.NewUint256(uint64(w.Now().Unix() + accepted.MaxTimeoutSeconds)),
			Witness:   x402.Witness{To: accepted.PayTo},
		}},
	}}
}

func (d *draft) auth() *x402.Authorization { return &d.payload.Payload.Authorization }

// sign returns the header and the body to submit.
func (d *draft) sign() (header, body string) {
	d.t.Helper()
	if d.permit != nil {
		d.permit(d)
	}
	chainID, err := x402.ChainID(d.challenge.Quote.Payment.Network)
	if err != nil {
		d.t.Fatal(err)
	}
	signature, err := x402.Sign(d.auth().Digest(chainID), d.key)
	if err != nil {
		d.t.Fatal(err)
	}
	d.payload.Payload.Signature = signature
	if d.sealed != nil {
		d.sealed(d)
	}
	header, err = x402.EncodeHeader(d.payload)
	if err != nil {
		d.t.Fatal(err)
	}
	sent, err := x402.ParsePayment(header)
	if err != nil {
		d.t.Fatal(err)
	}
	approval, err := d.challenge.Approve(d.name, sent.Hash)
	if err != nil {
		d.t.Fatal(err)
	}
	if d.approval != nil {
		d.approval(&approval)
	}
	approver := d.approver
	if approver == nil {
		approver = d.key
	}
	approved, err := x402.Sign(approval.Digest(), approver)
	if err != nil {
		d.t.Fatal(err)
	}
	return header, asJSON(d.t, boxoffice.Submission{QuoteSignature: boxoffice.Signature(approved)})
}

func (d *requester) submit(order boxoffice.Order, header, body string) reply {
	d.t.Helper()
	return d.send("POST", "/requests/"+string(order.ID)+"/submit", body, x402.HeaderSignature, header)
}

// accepts submits a payment that is accepted and not settled at once.
func (d *requester) accepts(order boxoffice.Order, header, body string) {
	d.t.Helper()
	if r := d.submit(order, header, body); r.Status != http.StatusAccepted {
		d.t.Fatalf("answered %d %s", r.Status, r.Body)
	}
}

// defers submits a payment that is refused with 503 and not saved.
func (d *requester) defers(order boxoffice.Order, header, body string) {
	d.t.Helper()
	r := d.submit(order, header, body)
	r.want(d.t, http.StatusServiceUnavailable, boxoffice.TemporarilyUnavailable, "")
	if r.Header.Get("Retry-After") == "" {
		d.t.Error("no Retry-After")
	}
	if status := d.until(order, boxoffice.Quoted); status.Payment != nil {
		d.t.Errorf("a payment was saved: %+v", status.Payment)
	}
}

// Every check of a payment refuses with its own reason and leaves the order unchanged.
func TestPaymentChecks(t *testing.T) {
	w := servertest.Start(t)
	payer, poor, stranger := w.NewPayer(), w.NewKey(), w.NewKey()
	noAllowance := w.NewKey()
	if err := w.Chain.Fund(t.Context(), crypto.PubkeyToAddress(noAllowance.PublicKey),
		nil, big.NewInt(1e12)); err != nil {
		t.Fatal(err)
	}
	invalidate(t, w, payer, 0, 1<<9)
	now := func(seconds int64) x402.Uint256 { return x402.NewUint256(uint64(w.Now().Unix() + seconds)) }

	for _, test := range []struct {
		name   string
		reason x402.Reason
		change func(*draft)
	}{
		{"another amount accepted", x402.ReasonRequirements,
			func(d *draft) { d.payload.Accepted.Amount = x402.NewUint256(1) }},
		{"another token name accepted", x402.ReasonRequirements,
			func(d *draft) { d.payload.Accepted.Extra.Name = "X" }},
		{"another resource", x402.ReasonResource, func(d *draft) { d.payload.Resource.URL += "/x" }},
		{"another spender", x402.ReasonSpender, func(d *draft) { d.auth().Spender = contracts.Multicall3Address }},
		{"another recipient", x402.ReasonRecipient, func(d *draft) { d.auth().Witness.To = contracts.Multicall3Address }},
		{"another token", x402.ReasonToken, func(d *draft) { d.auth().Permitted.Token = contracts.Multicall3Address }},
		{"less", x402.ReasonAmount, func(d *draft) { d.auth().Permitted.Amount = x402.NewUint256(999_999) }},
		{"more", x402.ReasonAmount, func(d *draft) { d.auth().Permitted.Amount = x402.NewUint256(1_000_001) }},
		{"valid later", x402.ReasonNotYetValid, func(d *draft) { d.auth().Witness.ValidAfter = now(60) }},
		{"valid in the far future", x402.ReasonNotYetValid, func(d *draft) { d.auth().Witness.ValidAfter = greatest }},
		{"deadline passed", x402.ReasonDeadlineExpired, func(d *draft) { d.auth().Deadline = now(-1) }},
		{"deadline too near", x402.ReasonDeadlineExpired, func(d *draft) { d.auth().Deadline = now(3) }},
		{"deadline too far", x402.ReasonDeadlineTooFar, func(d *draft) { d.auth().Deadline = now(660) }},
		{"no deadline", x402.ReasonDeadlineTooFar, func(d *draft) { d.auth().Deadline = greatest }},
		{"permit of another wallet", x402.ReasonSignature, func(d *draft) { d.key = stranger }},
		{"permit over another nonce", x402.ReasonSignature, func(d *draft) {
			d.sealed = func(d *draft) { d.auth().Nonce = x402.NewUint256(8) }
		}},
		{"v of 0 or 1", x402.ReasonSignature, func(d *draft) {
			d.sealed = func(d *draft) { d.payload.Payload.Signature[64] -= 27 }
		}},
		{"high s", x402.ReasonSignature, func(d *draft) { d.sealed = flipS }},
		{"short signature", x402.ReasonSignature, func(d *draft) {
			d.sealed = func(d *draft) { d.payload.Payload.Signature = d.payload.Payload.Signature[:64] }
		}},
		{"approval by another wallet", x402.ReasonQuoteApprovalWallet, func(d *draft) { d.approver = stranger }},
		{"approval of another amount", x402.ReasonQuoteApprovalWallet, func(d *draft) {
			d.approval = func(a *boxoffice.QuoteApproval) { a.Amount = x402.NewUint256(1) }
		}},
		{"approval of another payment", x402.ReasonQuoteApprovalWallet, func(d *draft) {
			d.approval = func(a *boxoffice.QuoteApproval) { a.PaymentHash[0] ^= 1 }
		}},
		{"approval for another service", x402.ReasonQuoteApprovalWallet, func(d *draft) { d.name = "Another" }},
		{"no balance", x402.ReasonInsufficientBalance, func(d *draft) { d.pays(poor) }},
		{"no allowance", x402.ReasonAllowanceRequired, func(d *draft) { d.pays(noAllowance) }},
		{"nonce spent", x402.ReasonNonceSpent, func(d *draft) { d.auth().Nonce = x402.NewUint256(9) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := newRequester(t, w)
			order := d.quote(boxoffice.ActionJobOpen, `{"objective":"Look"}`)
			draft := newDraft(t, w, d.challenge(order), payer)
			test.change(draft)
			header, body := draft.sign()
			d.submit(order, header, body).
				want(t, http.StatusPaymentRequired, boxoffice.PaymentRejected, string(test.reason))
			status := decode[boxoffice.Status](t, d.send("GET", "/requests/"+string(order.ID), ""))
			if status.Status != boxoffice.Quoted || status.Payment != nil {
				t.Errorf("the order is %s with payment %+v", status.Status, status.Payment)
			}
		})
	}
	if got := w.Received(); got.Sign() != 0 {
		t.Errorf("the recipient has %s", got)
	}
}

func (d *draft) pays(key *ecdsa.PrivateKey) {
	d.key, d.auth().From = key, crypto.PubkeyToAddress(key.PublicKey)
}

// flipS gives a signature its form with the high s, which recovers the same wallet.
func flipS(d *draft) {
	signature := d.payload.Payload.Signature
	s := new(big.Int).Sub(crypto.S256().Params().N, new(big.Int).SetBytes(signature[32:64]))
	s.FillBytes(signature[32:64])
	signature[64] = 27 + 28 - signature[64]
}

func invalidate(t testing.TB, w *servertest.World, key *ecdsa.PrivateKey, word, mask int64) {
	t.Helper()
	data, err := contracts.Permit2().ABI.Pack("invalidateUnorderedNonces", big.NewInt(word), big.NewInt(mask))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Chain.Transact(t.Context(), key, x402.Permit2, nil, data); err != nil {
		t.Fatal(err)
	}
}

// Only the wallet that paid for a job can pay to continue it.
func TestOnlyThePayerContinues(t *testing.T) {
	w := servertest.Start(t)
	payer, other := w.NewPayer(), w.NewPayer()
	d := newRequester(t, w)
	order := d.quote(boxoffice.ActionJobOpen, `{"objective":"Look"}`)
	header, body := newDraft(t, w, d.challenge(order), payer).sign()
	paid := decode[boxoffice.Status](t, d.submit(order, header, body))

	next := d.quote(boxoffice.ActionJobContinue, fmt.Sprintf(`{"jobId":%q,"input":"more"}`, paid.Admission.Result.ID))
	header, body = newDraft(t, w, d.challenge(next), other).sign()
	d.submit(next, header, body).
		want(t, http.StatusPaymentRequired, boxoffice.PaymentRejected, string(x402.ReasonPayer))
}

// Of many payments for one order that arrive at the same time, one is accepted. A payment
// that is sent again gets the same response.
func TestOnePaymentPerOrder(t *testing.T) {
	w := servertest.Start(t)
	payer := w.NewPayer()
	d := newRequester(t, w)
	order := d.quote(boxoffice.ActionJobOpen, `{"objective":"Look"}`)
	challenge := d.challenge(order)
	const different, copies = 10, 2
	statuses := make([]int, different*copies)
	var group sync.WaitGroup
	for i := range different {
		draft := newDraft(t, w, challenge, payer)
		draft.auth().Nonce = x402.NewUint256(uint64(100 + i))
		header, body := draft.sign()
		for j := range copies {
			group.Go(func() { statuses[i*copies+j] = d.submit(order, header, body).Status })
		}
	}
	group.Wait()
	taken := 0
	for i := range different {
		a, b := statuses[i*copies], statuses[i*copies+1]
		switch {
		case a == http.StatusOK && b == http.StatusOK:
			taken++
		case a != http.StatusConflict || b != http.StatusConflict:
			t.Errorf("the copies of payment %d were answered %d and %d", i, a, b)
		}
	}
	if taken != 1 {
		t.Errorf("%d payments were taken", taken)
	}
	if got := w.Received(); got.Cmp(servertest.Price.Big()) != 0 {
		t.Errorf("the recipient has %s", got)
	}
}

// A balance that an accepted payment will spend cannot pay for another order.
func TestCommittedBalance(t *testing.T) {
	w := servertest.Start(t, func(o *server.Options) {
		o.SubmitWait = 0
		o.Settlement.Poll = server.Duration(time.Hour) // nothing settles
		o.Settlement.Gather = server.Duration(time.Hour)
	})
	payer := w.NewKey()
	address := crypto.PubkeyToAddress(payer.PublicKey)
	if err := w.Chain.Fund(t.Context(), address, devchain.Ether(1), big.NewInt(1_500_000)); err != nil {
		t.Fatal(err)
	}
	if err := w.Chain.Approve(t.Context(), payer); err != nil {
		t.Fatal(err)
	}
	d := newRequester(t, w)
	pay := func(nonce uint64) reply {
		order := d.quote(boxoffice.ActionJobOpen, `{"objective":"Look"}`)
		draft := newDraft(t, w, d.challenge(order), payer)
		draft.auth().Nonce = x402.NewUint256(nonce)
		header, body := draft.sign()
		return d.submit(order, header, body)
	}
	if r := pay(1); r.Status != http.StatusAccepted {
		t.Fatalf("answered %d %s", r.Status, r.Body)
	}
	pay(2).want(t, http.StatusPaymentRequired, boxoffice.PaymentRejected, string(x402.ReasonInsufficientBalance))
}

// An order whose accepted payment failed can be paid again: at once with the same nonce,
// with another nonce only when the first permit can never settle.
func TestPayAgainAfterFailure(t *testing.T) {
	w := servertest.Start(t, func(o *server.Options) {
		o.SubmitWait = 0
		o.Settlement.Gather = server.Duration(0)
		o.Chain.Timeout = server.Duration(time.Second)
	})
	payer := w.NewPayer()
	d := newRequester(t, w)
	order := d.quote(boxoffice.ActionJobOpen, `{"objective":"Look"}`)
	challenge := d.challenge(order)
	header, body := newDraft(t, w, challenge, payer).sign()

	// The allowance is removed between verification and settlement. Until then another
	// process holds the lease of the settler.
	release := holdSettler(t, w)
	d.accepts(order, header, body)
	setAllowance(t, w, payer, big.NewInt(0))
	release()
	failed := d.until(order, boxoffice.PaymentFailed)
	if failed.Payment.Reason != string(x402.ReasonAllowanceRequired) {
		t.Errorf("it failed for %s", failed.Payment.Reason)
	}
	if r := d.submit(order, header, body); r.Status != http.StatusOK {
		t.Errorf("the same payment again is answered %d %s", r.Status, r.Body)
	}
	setAllowance(t, w, payer, greatest.Big())

	other := newDraft(t, w, challenge, payer)
	other.auth().Nonce = x402.NewUint256(8)
	header, body = other.sign()
	r := d.submit(order, header, body)
	r.want(t, http.StatusConflict, boxoffice.PaymentConflict, "")
	if r.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}

	same := newDraft(t, w, challenge, payer)
	same.auth().Deadline = x402.NewUint256(uint64(w.Now().Unix() + 200))
	header, body = same.sign()
	d.accepts(order, header, body)
	d.until(order, boxoffice.Admitted)
	if got := w.Received(); got.Cmp(servertest.Price.Big()) != 0 {
		t.Errorf("the recipient has %s", got)
	}
}

// A payment with another nonce is accepted once the chain proves that the failed permit
// can never settle.
func TestPayAgainWhenThePermitHasExpired(t *testing.T) {
	w := servertest.Start(t, func(o *server.Options) { o.SubmitWait, o.Chain.ReorgDepth = 0, 0 })
	payer := w.NewPayer()
	d := newRequester(t, w)
	order := d.quote(boxoffice.ActionJobOpen, `{"objective":"Look"}`)
	challenge := d.challenge(order)
	first := newDraft(t, w, challenge, payer)
	first.auth().Deadline = x402.NewUint256(uint64(w.Now().Unix() + 60))
	header, body := first.sign()
	release := holdSettler(t, w)
	d.accepts(order, header, body)
	setAllowance(t, w, payer, big.NewInt(0))
	release()
	d.until(order, boxoffice.PaymentFailed)
	setAllowance(t, w, payer, greatest.Big())

	anew := func() reply {
		draft := newDraft(t, w, challenge, payer)
		draft.auth().Nonce = x402.NewUint256(8)
		header, body := draft.sign()
		return d.submit(order, header, body)
	}
	w.Advance(2 * time.Minute) // the deadline has passed, but no block is that late yet
	anew().want(t, http.StatusConflict, boxoffice.PaymentConflict, "")
	if _, err := w.Chain.Mine(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range time.Tick(5 * time.Millisecond) {
		w.Advance(time.Second)
		r := anew()
		if r.Status == http.StatusAccepted {
			break
		}
		r.want(t, http.StatusConflict, boxoffice.PaymentConflict, "")
	}
	d.until(order, boxoffice.Admitted)
	if got := w.Received(); got.Cmp(servertest.Price.Big()) != 0 {
		t.Errorf("the recipient has %s", got)
	}
}

func setAllowance(t testing.TB, w *servertest.World, key *ecdsa.PrivateKey, amount *big.Int) {
	t.Helper()
	data, err := contracts.TestToken().ABI.Pack("approve", x402.Permit2, amount)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Chain.Transact(t.Context(), key, w.Chain.Token(), nil, data); err != nil {
		t.Fatal(err)
	}
}

// A payment that somebody else settles pays for its order.
func TestSettledBySomebodyElse(t *testing.T) {
	w := servertest.Start(t, func(o *server.Options) { o.SubmitWait = 0 })
	payer := w.NewPayer()
	d := newRequester(t, w)
	order := d.quote(boxoffice.ActionJobOpen, `{"objective":"Look"}`)
	draft := newDraft(t, w, d.challenge(order), payer)
	header, body := draft.sign()
	release := holdSettler(t, w)
	d.accepts(order, header, body)
	transaction := settleDirectly(t, w, draft)
	release()
	status := d.until(order, boxoffice.Admitted)
	if *status.Payment.TransactionHash != transaction {
		t.Errorf("credited by %s, want %s", status.Payment.TransactionHash, transaction)
	}
	if got := w.Received(); got.Cmp(servertest.Price.Big()) != 0 {
		t.Errorf("the recipient has %s", got)
	}
}

func settleDirectly(t testing.TB, w *servertest.World, d *draft) common.Hash {
	t.Helper()
	data, err := contracts.SettleCall(*d.auth(), d.payload.Payload.Signature)
	if err != nil {
		t.Fatal(err)
	}
	receipt, err := w.Chain.Transact(t.Context(), devchain.PayerKey(), x402.ExactProxy, nil, data)
	if err != nil {
		t.Fatal(err)
	}
	return receipt.TxHash
}
