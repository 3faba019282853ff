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
	permit := Permit{Authorization: paid.Payload.Payload.Authorization, Signature: paid.Payload.Payload.Signature}
	if rejection := demand.checkTerms(paid, v.Now().Unix()); rejection != nil {
		return Verified{}, rejection
	}
	signer, err := x402.Recover(permit.Digest(chainID), permit.Signature)
	if err != nil {
		return Verified{}, reject(x402.ReasonSignature, "payload.signature: %v", err)
	}
	if signer != permit.From {
		return Verified{}, reject(x402.ReasonSignature, "payload.signature does not recover to from")
	}
	if err := v.Ready(); err != nil {
		return Verified{}, err
	}
	block, err := v.checkChain(ctx, demand, permit)
	if err != nil {
		return Verified{}, err
	}
	return Verified{Permit: permit, Block: block}, nil
}
