package payment_test

import (
	"testing"

	"boxoffice"
	"boxoffice/internal/payment"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/go-cmp/cmp"
)

// Resend sends again what a transaction of the slot had settled, and leaves every
// other intent that the slot carried once.
func TestResend(t *testing.T) {
	slot, other := boxoffice.NewUUID(), boxoffice.NewUUID()
	ours := &payment.Evidence{TxHash: common.Hash{2}, BlockNumber: 7}
	stranger := &payment.Evidence{TxHash: common.Hash{9}, BlockNumber: 7}
	intents := map[string]payment.Progress{
		"settled by the slot":         {State: payment.Settled, Evidence: ours, Reverts: 1},
		"settled by a stranger":       {State: payment.Settled, Evidence: stranger},
		"undone, waiting":             {State: payment.Waiting, Evidence: ours},
		"undone, failed":              {State: payment.Failed, Evidence: ours, Reason: "expired", Final: true},
		"released, waiting":           {State: payment.Waiting, Reverts: 1},
		"released, sent in another":   {State: payment.Sent, SlotID: &other},
		"undone, sent in another":     {State: payment.Sent, SlotID: &other, Evidence: ours},
		"released, failed, not final": {State: payment.Failed, Reason: "balance"},
	}
	for name, progress := range intents {
		t.Run(name, func(t *testing.T) {
			intent := payment.Intent{ID: boxoffice.NewUUID(), Progress: progress}
			var want []payment.Change
			if name == "settled by the slot" {
				sent := payment.Progress{State: payment.Sent, SlotID: &slot, Evidence: ours, Reverts: 1}
				want = []payment.Change{{IntentID: intent.ID, From: progress, To: sent}}
			}
			got := payment.Resend([]payment.Slot{{
				ID: slot, Txs: []payment.Tx{{Hash: common.Hash{1}}, {Hash: common.Hash{2}}}, Intents: []payment.Intent{intent},
			}})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
		})
	}
}
