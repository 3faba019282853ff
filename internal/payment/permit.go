package payment

import (
	"context"

	"boxoffice"
	"boxoffice/x402"
)

// VerifyPermit checks a payment that another server sells for: everything that
// Verify checks but the approval of a quote, which only ours have. A payment
// that fails a check is a *Rejection; any other error means that the chain or
// the store did not answer, or that nothing can be settled now.
func (v *Verifier) VerifyPermit(ctx context.Context, requirements x402.Requirements, paid *x402.Payment) (Verified, error) {
	chainID, err := x402.ChainID(requirements.Network)
	if err != nil {
		return Verified{}, reject(x402.ReasonInvalidNetwork, "%v", err)
	}
	demand := Demand{Requirements: requirements, Approval: boxoffice.QuoteApproval{ChainID: chainID}}
	if paid.Resource != nil {
		demand.ResourceURL = paid.Resource.URL // whatever it is, it is the other server's
	}
	return v.verify(ctx, demand, paid, nil)
}
