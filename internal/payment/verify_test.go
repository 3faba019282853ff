package payment_test

import (
	"errors"
	"testing"

	"boxoffice/internal/payment"
	"boxoffice/x402"
)

// Another server names any maxTimeoutSeconds. A permit that lives longer than a day is
// refused all the same: a failed payment is looked at again until its deadline.
func TestDeadlineOfSubmission(t *testing.T) {
	w := newWorld(t)
	verifier := payment.NewVerifier(payment.VerifierConfig{
		Standings: w.chain, Pending: w.store, Ready: func() error { return nil }, Now: w.now,
	})
	for seconds, want := range map[uint64]x402.Reason{
		60: "", 86_400: "", 90_000: x402.ReasonDeadlineTooFar, 1 << 45: x402.ReasonDeadlineTooFar,
	} {
		record := w.order()
		record.Requirements.MaxTimeoutSeconds = 1 << 50
		intent := w.intent(record, w.permit(1, seconds, func(p *payment.Permit) {
			p.Deadline = x402.NewUint256(uint64(w.now().Unix()) + seconds)
		}))
		paid := &x402.Payment{Raw: intent.Payload, Hash: intent.PayloadHash, Payload: x402.Payload{
			Accepted: record.Requirements,
			Payload:  x402.Permit2Payload{Signature: intent.Permit.Signature, Authorization: intent.Permit.Authorization},
		}}
		var got x402.Reason
		_, err := verifier.VerifyPermit(t.Context(), record.Requirements, paid)
		if rejection, ok := errors.AsType[*payment.Rejection](err); ok {
			got = rejection.Reason
		} else if err != nil {
			t.Errorf("a deadline in %d seconds: %v", seconds, err)
		}
		if got != want {
			t.Errorf("a deadline in %d seconds: %q, want %q", seconds, got, want)
		}
	}
}
