package payment_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/test/devchain"
)

// rotate restarts the settler with another settlement key.
func (w *world) rotate() {
	w.Helper()
	w.wallet = w.chain.Wallet(devchain.PayerKey())
	w.config.Wallet = w.wallet
	w.restart()
}

// What a settlement key sent is followed after another key has taken its place,
// whether it was mined before or after that.
func TestKeyRotation(t *testing.T) {
	for name, minedBefore := range map[string]bool{"mined before": true, "mined after": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			old := w.pay(1, 1)
			w.round()
			if minedBefore {
				w.mine()
			}
			w.rotate()
			fresh := w.pay(2, 1)
			w.round()
			w.mine()
			w.round()
			w.want(old, boxoffice.Paid, "")
			w.want(fresh, boxoffice.Paid, "")
			w.audit()
		})
	}
}

// A transaction of the old key that nobody mines is broadcast again. Its fee cannot be
// raised, and the health of the settler says so.
func TestKeyRotationWithLowFee(t *testing.T) {
	w := newWorld(t)
	old := w.pay(1, 1)
	w.round()
	signer := w.wallet.Address()
	w.dev.DropPending()
	w.rotate()
	w.advance(31 * time.Second)
	err := w.settler.Round(t.Context())
	if err == nil || !strings.Contains(err.Error(), strings.ToLower(signer.Hex())) {
		t.Errorf("the round says %v", err)
	}
	w.mine() // what was broadcast again
	w.round()
	w.want(old, boxoffice.Paid, "")
	w.audit()
}

// If it is never mined, its payments fail when their permits can settle no more, and
// nothing stays pending for ever.
func TestKeyRotationNeverMined(t *testing.T) {
	w := newWorld(t)
	old := w.pay(1, 1)
	w.round()
	w.dev.DropPending()
	w.rotate()
	w.advance(2 * time.Hour)
	for range 20 {
		w.dev.DropPending()
		w.mine()
	}
	w.round()
	w.finish()
	w.want(old, boxoffice.PaymentFailed, "permit2_deadline_expired")
	w.audit()
}

// While a process with the old key runs, only that one touches its slots.
func TestKeyRotationWhileTheOldKeyRuns(t *testing.T) {
	w := newWorld(t)
	old := w.pay(1, 1)
	w.round()
	name := fmt.Sprintf("settler/%d/%s", w.config.ChainID, w.wallet.Address())
	hold := func(length time.Duration) {
		now := w.now()
		held, err := w.store.HoldLease(t.Context(), name, "another", boxoffice.At(now), boxoffice.At(now.Add(length)))
		if err != nil || !held {
			t.Fatal(held, err)
		}
	}
	w.dev.DropPending()
	w.rotate()
	w.advance(2 * time.Hour)
	for range 20 {
		w.dev.DropPending()
		w.mine()
	}
	w.advance(time.Minute) // the lease of the first round has expired
	hold(time.Hour)
	w.round()
	if n := len(w.slots()); n != 1 {
		t.Errorf("%d slots are open", n)
	}
	hold(0)
	w.round()
	w.finish()
	w.want(old, boxoffice.PaymentFailed, "permit2_deadline_expired")
	w.audit()
}

// What the old key's open slot will move is not spent twice by the new key.
func TestKeyRotationAndBalance(t *testing.T) {
	w := newWorld(t)
	w.spend(1, wealth-price-price/2)
	old := w.pay(1, 1)
	w.round()
	w.rotate()
	overdrawn := w.pay(1, 2)
	w.round()
	if n := len(w.slots()); n != 1 {
		t.Errorf("%d slots", n)
	}
	w.finish()
	w.want(old, boxoffice.Paid, "")
	w.want(overdrawn, boxoffice.PaymentFailed, "permit2_insufficient_balance")
	w.audit()
}
