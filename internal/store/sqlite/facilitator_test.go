package sqlite_test

import (
	"errors"
	"path/filepath"
	"testing"

	"boxoffice"
	"boxoffice/internal/facilitator"
	"boxoffice/internal/order"
	"boxoffice/internal/payment"
	"boxoffice/internal/store/sqlite"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
)

func foreignIntent(nonce uint64, digest byte) payment.Intent {
	auth := x402.Authorization{From: common.Address{0xaa}, Nonce: x402.NewUint256(nonce)}
	return payment.Intent{
		ID: boxoffice.NewUUID(), OrderID: boxoffice.NewUUID(), ChainID: 1, SubmittedAt: 1,
		Permit:      payment.Permit{Authorization: auth, Signature: make([]byte, 65)},
		PayloadHash: boxoffice.Hash{digest},
		Progress:    payment.Progress{State: payment.Waiting},
		Payload: []byte(`{"accepted":{"amount":"0","asset":"0x0000000000000000000000000000000000000000","maxTimeoutSeconds":1,"network":"eip155:1","payTo":"0x0000000000000000000000000000000000000000","scheme":"exact"},` +
			`"payload":{"permit2Authorization":{"deadline":"0","from":"0xaa00000000000000000000000000000000000000","nonce":"` + auth.Nonce.String() + `","permitted":{"amount":"0","token":"0x0000000000000000000000000000000000000000"},"spender":"0x0000000000000000000000000000000000000000","witness":{"to":"0x0000000000000000000000000000000000000000","validAfter":"0"}},"signature":"0x00"},"x402Version":2}`),
	}
}

// A payment of another server is saved once for its permit, settles as any
// other, and is never there to be admitted.
func TestSubmit(t *testing.T) {
	store := open(t, filepath.Join(t.TempDir(), "boxoffice.db"))
	ctx := t.Context()
	first := foreignIntent(5, 1)
	if _, err := store.Submitted(ctx, 1, first.Permit); !errors.Is(err, facilitator.ErrNotFound) {
		t.Fatalf("got %v", err)
	}
	for _, again := range []payment.Intent{first, foreignIntent(5, 1), foreignIntent(5, 2)} {
		saved, err := store.Submit(ctx, again, []byte(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		if saved.ID != first.ID || saved.PayloadHash != first.PayloadHash {
			t.Errorf("saved %s", saved.ID)
		}
	}
	if other, err := store.Submit(ctx, foreignIntent(6, 1), []byte(`{}`)); err != nil || other.ID == first.ID {
		t.Errorf("another nonce is %s, %v", other.ID, err)
	}
	recorder := order.Settlement{Store: store}
	if err := recorder.Record(ctx, nil, []payment.Decision{{
		Intent: first, Outcome: payment.OutcomeSettled, Evidence: &payment.Evidence{TxHash: common.Hash{1}, LogIndex: 1<<63 - 1, SettledAt: 2},
	}}, 2); err != nil {
		t.Fatal(err)
	}
	settled, err := store.Submitted(ctx, 1, first.Permit)
	if err != nil || settled.State != payment.Settled || settled.Evidence.LogIndex != 1<<63-1 {
		t.Errorf("got %+v, %v", settled.Evidence, err)
	}
	if paid, err := store.Unadmitted(ctx, 10); err != nil || len(paid) != 0 {
		t.Errorf("%d orders to admit, %v", len(paid), err)
	}
}

// An exposure outlives the process.
func TestExpose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "boxoffice.db")
	store := open(t, path)
	saved, err := store.Submit(t.Context(), foreignIntent(5, 1), []byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	expose := func(want bool) {
		t.Helper()
		if before, err := store.MarkExposed(t.Context(), saved.ID); err != nil || before != want {
			t.Errorf("noted before: %t, %v", before, err)
		}
	}
	expose(false)
	expose(true)
	store.Close()
	if store, err = sqlite.Open(t.Context(), sqlite.Config{Path: path}); err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	expose(true)
	if err := store.ClearExposed(t.Context(), saved.ID); err != nil {
		t.Fatal(err)
	}
	expose(false)
}

// One caller is told, as often as it asks, until it is taken back.
func TestAnswer(t *testing.T) {
	store := open(t, filepath.Join(t.TempDir(), "boxoffice.db"))
	saved, err := store.Submit(t.Context(), foreignIntent(5, 1), []byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	answer := func(caller string, want bool, told string) {
		t.Helper()
		if taken, err := store.Answer(t.Context(), saved.ID, caller); err != nil || taken != want {
			t.Errorf("%s may be told: %t, %v", caller, taken, err)
		}
		if was, err := store.Answered(t.Context(), saved.ID); err != nil || was != told {
			t.Errorf("told %q, %v", was, err)
		}
	}
	unanswer := func(caller string) {
		t.Helper()
		if err := store.Unanswer(t.Context(), saved.ID, caller); err != nil {
			t.Fatal(err)
		}
	}
	answer("a", true, "a")
	answer("b", false, "a")
	answer("a", true, "a")
	unanswer("b")
	answer("b", false, "a")
	unanswer("a")
	answer("b", true, "b")
}
