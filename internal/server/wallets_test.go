package server_test

import (
	"bytes"
	"crypto/ecdsa"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"boxoffice"
	"boxoffice/client"
	"boxoffice/contracts"
	"boxoffice/internal/test/devchain"
	"boxoffice/internal/test/servertest"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// A contract wallet (EIP-1271) pays with its owner's signatures, and is the payer of a
// later quote.
func TestContractWalletBuys(t *testing.T) {
	w := servertest.Start(t)
	owner := w.NewKey()
	wallet := w.NewContract(contracts.Wallet(), owner)
	buyer := w.Client(owner, func(c *client.Config) {
		c.Signer = client.ContractSigner(wallet, client.KeySigner(owner))
	})
	if capabilities, err := buyer.Capabilities(t.Context()); err != nil || !capabilities.Payment.ContractWallets {
		t.Errorf("contract wallets do not pay, it says: %v", err)
	}
	opened := buy(t, buyer, boxoffice.ActionJobOpen, `{"objective":"Look"}`)
	if payer := opened.Payment.Payer; payer != wallet {
		t.Errorf("paid by %s, not by %s", payer, wallet)
	}
	continued := buy(t, buyer, boxoffice.ActionJobContinue,
		fmt.Sprintf(`{"jobId":%q,"input":"Look closer"}`, opened.Admission.Result.ID))
	if payer := continued.Order.Quote.Payer; payer == nil || *payer != wallet {
		t.Errorf("the quote for continuing is for %v", payer)
	}
	wantReceived(t, w, 2)
}

// The client signs nothing for a contract that does not accept it.
func TestClientAsksTheContract(t *testing.T) {
	w := servertest.Start(t)
	owner := w.NewKey()
	wallet := w.NewContract(contracts.Wallet(), owner)
	stranger := w.Client(owner,
		func(c *client.Config) { c.Signer = client.ContractSigner(wallet, client.KeySigner(w.NewKey())) })
	status, err := stranger.Buy(t.Context(),
		client.Purchase{Input: boxoffice.JobOpen{Objective: "Look"}, Max: greatest})
	if err == nil || !strings.Contains(err.Error(), "does not accept") || status.Status != boxoffice.Quoted {
		t.Errorf("the order is %s: %v", status.Status, err)
	}
	if _, err := client.Approve(t.Context(), w.Chain.Client(), client.ContractSigner(wallet, client.KeySigner(owner)),
		w.Chain.Token()); err != client.ErrContractApproves {
		t.Errorf("approving: %v", err)
	}
	wantReceived(t, w, 0)
}

// An account that delegates (EIP-7702) buys through its delegate. Its own key is
// enough for the approval, whatever the delegate says; for the permit it is not,
// since Permit2 asks the delegate alone.
func TestDelegatedAccountBuys(t *testing.T) {
	w := servertest.Start(t)
	payer := w.NewPayer()
	delegate := func(to *contracts.Contract) {
		if err := w.Chain.Delegate(t.Context(), payer, w.NewContract(to, w.NewKey())); err != nil {
			t.Fatal(err)
		}
	}
	delegate(contracts.Wallet())
	buy(t, w.Client(payer), boxoffice.ActionJobOpen, `{"objective":"Look"}`)
	wantReceived(t, w, 1)

	account := crypto.PubkeyToAddress(payer.PublicKey)
	delegate(contracts.HostileWallet())
	setAnswers(t, w, account, contracts.Accept, contracts.Refuse)
	buy(t, w.Client(payer), boxoffice.ActionJobOpen, `{"objective":"Look"}`)
	wantReceived(t, w, 2)

	setAnswers(t, w, account, contracts.Refuse, contracts.Accept)
	d := newRequester(t, w)
	order := d.quote(boxoffice.ActionJobOpen, `{"objective":"Look"}`)
	header, body := newDraft(t, w, d.challenge(order), payer).sign()
	d.submit(order, header, body).want(t, http.StatusPaymentRequired, boxoffice.PaymentRejected,
		string(x402.ReasonSignature))

	// A key that only the delegate knows approves as well.
	setAnswers(t, w, account, contracts.Accept, contracts.Accept)
	draft := newDraft(t, w, d.challenge(order), payer)
	draft.key, draft.approver = w.NewKey(), w.NewKey()
	draft.auth().From, draft.auth().Nonce = account, x402.NewUint256(1000)
	header, body = draft.sign()
	if status := decode[boxoffice.Status](t, d.submit(order, header, body)); status.Status != boxoffice.Admitted {
		t.Errorf("the order is %s", status.Status)
	}
	wantReceived(t, w, 3)
}

// setAnswers sets what a hostile wallet answers to Permit2 and to others.
func setAnswers(t testing.TB, w *servertest.World, wallet common.Address, toPermit2, toOthers uint8) {
	t.Helper()
	data, err := contracts.HostileWallet().ABI.Pack("answer", toPermit2, toOthers)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Chain.Transact(t.Context(), devchain.PayerKey(), wallet, nil, data); err != nil {
		t.Fatal(err)
	}
}

// A signature that a contract wallet refuses is refused, however the wallet does it. A
// signature that it accepts may be any 65 bytes.
func TestContractWalletChecks(t *testing.T) {
	w := servertest.Start(t)
	owner, stranger := w.NewKey(), w.NewKey()
	wallet, hostile := w.NewContract(contracts.Wallet(), owner), w.NewContract(contracts.HostileWallet(), owner)
	wrapped := append(make([]byte, 96), bytes.Repeat([]byte{0x64, 0x92}, 16)...)
	answers := func(toPermit2, toOthers uint8) func(*draft) {
		return func(d *draft) {
			d.auth().From = hostile
			setAnswers(t, w, hostile, toPermit2, toOthers)
		}
	}
	signature := func(bytes []byte) func(*draft) {
		return func(d *draft) {
			d.auth().From = wallet
			d.sealed = func(d *draft) { d.payload.Payload.Signature = bytes }
		}
	}
	for _, test := range []struct {
		name   string
		reason x402.Reason
		detail string
		change func(*draft)
	}{
		{"permit by another", x402.ReasonSignature, "does not accept",
			func(d *draft) { d.auth().From, d.key, d.approver = wallet, stranger, owner }},
		{"approval by another", x402.ReasonQuoteApprovalWallet, "EIP-1271",
			func(d *draft) { d.auth().From, d.approver = wallet, stranger }},
		{"approval of another amount", x402.ReasonQuoteApprovalWallet, "EIP-1271", func(d *draft) {
			d.auth().From = wallet
			d.approval = func(a *boxoffice.QuoteApproval) { a.Amount = x402.NewUint256(1) }
		}},
		{"the owner's own wallet approves", x402.ReasonSignature, "does not recover",
			func(d *draft) { d.key, d.approver = stranger, owner }},
		{"no contract is there", x402.ReasonSignature, "does not recover",
			func(d *draft) { d.auth().From = common.Address{19: 9} }},
		{"wrapped (ERC-6492)", x402.ReasonSignature, "deploy the wallet", signature(wrapped)},
		{"longer", x402.ReasonSignature, "65 bytes", signature(make([]byte, 130))},
		{"compact", x402.ReasonSignature, "65 bytes", signature(make([]byte, 64))},
		{"permit refused", x402.ReasonSignature, "", answers(contracts.Refuse, contracts.Accept)},
		{"permit burns gas", x402.ReasonSimulation, "", answers(contracts.BurnGas, contracts.Accept)},
		{"approval refused", x402.ReasonQuoteApprovalWallet, "", answers(contracts.Accept, contracts.Refuse)},
		{"approval reverts", x402.ReasonQuoteApprovalWallet, "", answers(contracts.Accept, contracts.Revert)},
		{"approval burns gas", x402.ReasonQuoteApprovalWallet, "gas", answers(contracts.Accept, contracts.BurnGas)},
		{"approval of no opcode", x402.ReasonQuoteApprovalWallet, "",
			answers(contracts.Accept, contracts.InvalidOpcode)},
		{"approval without an answer", x402.ReasonQuoteApprovalWallet, "",
			answers(contracts.Accept, contracts.Nothing)},
		{"approval in 4 bytes", x402.ReasonQuoteApprovalWallet, "", answers(contracts.Accept, contracts.Short)},
		{"approval in 64 bytes", x402.ReasonQuoteApprovalWallet, "", answers(contracts.Accept, contracts.Long)},
		{"approval in a dirty word", x402.ReasonQuoteApprovalWallet, "", answers(contracts.Accept, contracts.Dirty)},
		{"approval in a flood", x402.ReasonQuoteApprovalWallet, "", answers(contracts.Accept, contracts.Flood)},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := newRequester(t, w)
			order := d.quote(boxoffice.ActionJobOpen, `{"objective":"Look"}`)
			draft := newDraft(t, w, d.challenge(order), owner)
			test.change(draft)
			header, body := draft.sign()
			answer := d.submit(order, header, body)
			answer.want(t, http.StatusPaymentRequired, boxoffice.PaymentRejected, string(test.reason))
			if !bytes.Contains(answer.Body, []byte(test.detail)) {
				t.Errorf("%s does not say %q", answer.Body, test.detail)
			}
		})
	}
	wantReceived(t, w, 0)

	d := newRequester(t, w)
	order := d.quote(boxoffice.ActionJobOpen, `{"objective":"Look"}`)
	any65 := newDraft(t, w, d.challenge(order), owner)
	answers(contracts.Accept, contracts.Accept)(any65)
	any65.sealed = func(d *draft) { d.payload.Payload.Signature = bytes.Repeat([]byte{0xff}, 65) }
	header, _ := any65.sign()
	wrappedApproval := fmt.Sprintf(`{"quoteSignature":"0x%s"}`, hex.EncodeToString(wrapped))
	if answer := d.submit(order, header, wrappedApproval); answer.Status != http.StatusBadRequest ||
		!bytes.Contains(answer.Body, []byte("deployed")) {
		t.Errorf("a wrapped approval is answered %d %s", answer.Status, answer.Body)
	}
	anything := fmt.Sprintf(`{"quoteSignature":"0x%s"}`, strings.Repeat("00", 65))
	if status := decode[boxoffice.Status](t, d.submit(order, header, anything)); status.Status != boxoffice.Admitted {
		t.Errorf("the order is %s", status.Status)
	}
	wantReceived(t, w, 1)
}

// A facilitator also settles payments of contract wallets and delegating accounts, and
// refuses what they refuse.
func TestFacilitatorTakesWallets(t *testing.T) {
	w, c := startWithFacilitator(t)
	owner, payer := w.NewKey(), w.NewPayer()
	wallet := w.NewContract(contracts.Wallet(), owner)
	if err := w.Chain.Delegate(t.Context(), payer, wallet); err != nil {
		t.Fatal(err)
	}
	pay := func(key *ecdsa.PrivateKey, from common.Address, nonce uint64, signature []byte) (x402.Verification,
		x402.Settlement) {
		payload, terms := foreignPayment(t, w, key, nonce)
		payload.Payload.Authorization.From = from
		if signature != nil {
			payload.Payload.Signature = signature
		}
		var verified x402.Verification
		var settled x402.Settlement
		_, body := c.call(x402.PathVerify, payload, terms)
		if err := json.Unmarshal(body, &verified); err != nil {
			t.Fatal(err)
		}
		_, body = c.call(x402.PathSettle, payload, terms)
		if err := json.Unmarshal(body, &settled); err != nil {
			t.Fatal(err)
		}
		return verified, settled
	}
	for nonce, who := range []struct {
		key  *ecdsa.PrivateKey
		from common.Address
	}{{owner, wallet}, {payer, crypto.PubkeyToAddress(payer.PublicKey)}} {
		verified, settled := pay(who.key, who.from, uint64(nonce), nil)
		if !verified.IsValid || !settled.Success {
			t.Errorf("%+v, %+v", verified, settled)
		}
	}
	wantReceived(t, w, 2)
	wrapped := append(make([]byte, 96), bytes.Repeat([]byte{0x64, 0x92}, 16)...)
	for name, try := range map[string]struct {
		key       *ecdsa.PrivateKey
		from      common.Address
		signature []byte
	}{
		"signed by another": {w.NewKey(), wallet, nil},
		"not deployed":      {owner, common.Address{19: 9}, nil},
		"wrapped":           {owner, wallet, wrapped},
	} {
		verified, settled := pay(try.key, try.from, 50, try.signature)
		if verified.InvalidReason != x402.ReasonSignature || settled.ErrorReason != x402.ReasonSignature {
			t.Errorf("%s: %+v, %+v", name, verified, settled)
		}
	}
	wantReceived(t, w, 2)
}

// Without an RPC node the service cannot ask a contract wallet whether it approves: its
// payment is refused, and capabilities say so. A delegating account approves with its
// own key.
func TestWalletsWithoutNode(t *testing.T) {
	w, c := startWithFacilitator(t, withoutNode)
	awaitReady(t, w)
	owner, payer := w.NewKey(), w.NewPayer()
	wallet := w.NewContract(contracts.Wallet(), owner)
	if err := w.Chain.Delegate(t.Context(), payer, wallet); err != nil {
		t.Fatal(err)
	}
	buyer := w.Client(owner, func(c *client.Config) {
		c.Signer = client.ContractSigner(wallet, client.KeySigner(owner))
	})
	_, err := buyer.Buy(t.Context(), client.Purchase{Input: boxoffice.JobOpen{Objective: "Look"}, Max: greatest})
	if mismatch, ok := errors.AsType[*client.MismatchError](err); !ok ||
		mismatch.Field != "capabilities/payment/contractWallets" {
		t.Errorf("the client signs: %v", err)
	}
	d := newRequester(t, w)
	order := d.quote(boxoffice.ActionJobOpen, `{"objective":"Look"}`)
	attempt := newDraft(t, w, d.challenge(order), owner)
	attempt.auth().From = wallet
	header, body := attempt.sign()
	var asked atomic.Int64
	count := interceptor(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if r.URL.Path == x402.PathVerify {
			asked.Add(1)
		}
		return false
	})
	c.intercept.Store(&count)
	d.submit(order, header, body).want(t, http.StatusPaymentRequired, boxoffice.PaymentRejected,
		string(x402.ReasonSignature))
	if n := asked.Load(); n != 0 {
		t.Errorf("the facilitator was asked %d times about an invalid signature", n)
	}
	wantReceived(t, w, 0)
	buy(t, w.Client(payer), boxoffice.ActionJobOpen, `{"objective":"Look"}`)
	wantReceived(t, w, 1)
}
