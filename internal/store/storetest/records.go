package storetest

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"boxoffice"
	"boxoffice/internal/order"
	"boxoffice/internal/payment"
	"boxoffice/x402"
)

const (
	chainID = 8453
	now     = boxoffice.Timestamp(1_780_000_000_000)
	minute  = boxoffice.Timestamp(60_000)
)

var (
	alice  = requester("alice")
	bob    = requester("bob")
	wallet = address("wallet")
	other  = address("another wallet")
	token  = address("token")
	payTo  = address("recipient")
	sender = address("settlement key")
)

func requester(name string) boxoffice.Requester {
	return boxoffice.Requester(crypto.Keccak256Hash([]byte("requester " + name)))
}

func address(name string) common.Address {
	return common.BytesToAddress(crypto.Keccak256([]byte("address " + name)))
}

// digest returns a hash that is different for every n.
func digest(n uint64) common.Hash {
	return crypto.Keccak256Hash(binary.BigEndian.AppendUint64(nil, n))
}

func amount(n uint64) boxoffice.Amount { return x402.NewUint256(n) }

// most is the largest Amount.
var most = x402.MaxUint256()

func pointer[T any](v T) *T { return &v }

// quoted returns an order as the Flow would save it.
func quoted(t testing.TB, owner boxoffice.Requester) order.Record {
	t.Helper()
	id := boxoffice.NewUUID()
	input := `{"objective":"compare É, \"quotes\" and 'ticks'","template":"research"}`
	inputHash, err := boxoffice.HashJSON([]byte(input))
	fatal(t, err)
	quote := boxoffice.Quote{
		V: boxoffice.QuoteVersion, ID: id, InputHash: inputHash,
		Action: boxoffice.ActionScheduleCreate, PolicyVersion: "schedule-1",
		IssuedAt: int64(now) / 1000, ExpiresAt: int64(now)/1000 + 600,
		Payment: boxoffice.Payment{
			Scheme: x402.SchemeExact, Network: x402.Network(chainID),
			Asset: token, Amount: amount(300), PayTo: payTo, Decimals: 18,
		},
		UnitAmount: pointer(amount(100)), Runs: 3, Payer: &wallet, Terms: boxoffice.AdmissionTerms(),
	}
	quote.QuoteHash, err = quote.Seal()
	fatal(t, err)
	return order.Record{
		Order: boxoffice.Order{
			ID: id, RequestKey: boxoffice.NewUUID(), Status: boxoffice.Quoted, Quote: quote, InputJSON: input, CreatedAt: now,
		},
		Requester:     owner,
		SubmittedHash: boxoffice.Hash(digest(1)),
		Requirements: x402.Requirements{
			Scheme: x402.SchemeExact, Network: quote.Payment.Network, Asset: token, Amount: quote.Payment.Amount, PayTo: payTo,
			MaxTimeoutSeconds: 300, Extra: &x402.Extra{AssetTransferMethod: x402.MethodPermit2, Name: "Dollar", Version: "2"},
		},
	}
}

// paying returns a payment for an order with a Permit2 nonce of the wallet.
func paying(t testing.TB, record order.Record, from common.Address, nonce uint64) payment.Intent {
	t.Helper()
	return payingWith(t, record, from, amount(nonce))
}

func payingWith(t testing.TB, record order.Record, from common.Address, nonce boxoffice.Amount) payment.Intent {
	t.Helper()
	id := boxoffice.NewUUID()
	signature := slices.Concat(digest(1).Bytes(), crypto.Keccak256([]byte(id)), []byte{27})
	payload := x402.Payload{
		X402Version: x402.Version,
		Resource:    &x402.Resource{URL: "https://example.com/requests/" + string(record.ID) + "/submit"},
		Accepted:    record.Requirements,
		Payload: x402.Permit2Payload{
			Signature: signature,
			Authorization: x402.Authorization{
				From: from, Permitted: x402.Permitted{Token: record.Requirements.Asset, Amount: record.Requirements.Amount},
				Spender: x402.ExactProxy, Nonce: nonce, Deadline: amount(uint64(now)/1000 + 300),
				Witness: x402.Witness{To: record.Requirements.PayTo},
			},
		},
	}
	header, err := x402.EncodeHeader(payload)
	fatal(t, err)
	sent, err := x402.ParsePayment(header)
	fatal(t, err)
	return payment.Intent{
		ID: id, OrderID: record.ID, ChainID: chainID,
		Permit:  payment.Permit{Authorization: payload.Payload.Authorization, Signature: signature},
		Payload: sent.Raw, PayloadHash: sent.Hash, QuoteSignature: boxoffice.Signature(signature),
		SubmittedAt: now, Progress: payment.Progress{State: payment.Waiting},
	}
}

// carrying returns a slot of the sender that carries the intents.
func carrying(walletNonce uint64, intents ...payment.Intent) payment.Slot {
	return payment.Slot{
		ID: boxoffice.NewUUID(), ChainID: chainID, Sender: sender, WalletNonce: walletNonce,
		Txs: []payment.Tx{signed(walletNonce << 32)}, Intents: intents, OpenedAt: now,
	}
}

// signed returns a transaction that is different for every n.
func signed(n uint64) payment.Tx {
	hash := digest(n)
	return payment.Tx{
		Hash: hash, Raw: append([]byte{2, 0, 0xff}, hash[:]...), GasLimit: 100_000 + n%7,
		FeeCap: amount(30_000_000_000 + n), TipCap: amount(n), SignedAt: now,
	}
}

// transfer returns evidence that is different for every n.
func transfer(n uint64) *payment.Evidence {
	return &payment.Evidence{TxHash: digest(n), LogIndex: uint(n % 5), BlockNumber: 1000 + n, SettledAt: now + minute}
}

func settledBy(intent payment.Intent, evidence *payment.Evidence) payment.Decision {
	return payment.Decision{Intent: intent, Outcome: payment.OutcomeSettled, Evidence: evidence}
}

func failed(intent payment.Intent, final bool) payment.Decision {
	return payment.Decision{
		Intent: intent, Outcome: payment.OutcomeFailed, Reason: "permit2_simulation_failed", Final: final,
	}
}

// sent returns an intent as it is in an open slot.
func sent(intent payment.Intent, slot payment.Slot) payment.Intent {
	intent.State, intent.SlotID, intent.Reason = payment.Sent, &slot.ID, ""
	return intent
}

// after returns an intent as a decision on it leaves it.
func after(decision payment.Decision) payment.Intent {
	change, err := decision.Change()
	if err != nil {
		panic(err)
	}
	decision.Intent.Progress = change.To
	return decision.Intent
}

// beginPayment saves a payment for an order that is quoted, or whose last payment
// has failed and is replaced.
func beginPayment(ctx context.Context, store Store, intent payment.Intent, replaces *boxoffice.UUID) error {
	change := order.Change{
		OrderID: intent.OrderID, From: order.Stage{Status: boxoffice.Quoted},
		To: order.Stage{Status: boxoffice.PaymentPending, IntentID: &intent.ID},
	}
	if replaces != nil {
		change.From = order.Stage{Status: boxoffice.PaymentFailed, IntentID: replaces}
	}
	return store.BeginPayment(ctx, intent, change)
}

// openSlot saves a slot whose intents are waiting.
func openSlot(ctx context.Context, store Store, slot payment.Slot) error {
	changes, err := payment.Send(&slot)
	if err != nil {
		return err
	}
	return store.OpenSlot(ctx, slot, changes)
}

type decisions = []payment.Decision

// settle saves decisions as a settler does.
func settle(
	ctx context.Context, store Store, slotID *boxoffice.UUID, decisions decisions, at boxoffice.Timestamp,
) error {
	return order.Settlement{Store: store}.SaveDecisions(ctx, slotID, decisions, at)
}

// admission returns what admitting the order changes, as if it were paid and not
// admitted.
func admission(t testing.TB, store Store, record order.Record, at boxoffice.Timestamp) order.Change {
	t.Helper()
	stored, err := store.Order(t.Context(), record.Requester, record.ID)
	if err != nil && !errors.Is(err, order.ErrNotFound) {
		t.Fatal(err)
	}
	paid := order.Stage{Status: boxoffice.Paid, PaidAt: stored.PaidAt}
	if stored.Payment != nil {
		paid.IntentID = &stored.Payment.ID
	}
	admitted := paid
	admitted.AdmittedAt = &at
	return order.Change{OrderID: record.ID, From: paid, To: admitted}
}

func undo(intent payment.Intent) payment.Decision {
	return payment.Decision{Intent: intent, Outcome: payment.OutcomeUndone}
}

func reverted(intent payment.Intent) payment.Decision {
	return payment.Decision{Intent: intent, Outcome: payment.OutcomeReverted}
}

func released(intent payment.Intent) payment.Decision {
	return payment.Decision{Intent: intent, Outcome: payment.OutcomeReleased}
}
