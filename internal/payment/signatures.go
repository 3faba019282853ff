package payment

import (
	"boxoffice"
	"boxoffice/x402"
)

// signatures is what the bytes of a payment say of who signed it, and what they
// leave to the chain. A wallet with code (a contract, or an account that
// delegates, EIP-7702) says itself what its signatures are (EIP-1271): Permit2
// asks it about the permit, whatever key made that, and we ask it about the
// approval unless its own key made it.
type signatures struct {
	permit   *Rejection // why the permit is not signed by the key of its owner; nil: it is
	approval *Rejection // the same of the approval; nil too where none is needed
	asks     []Approval // what the owner is asked, if it has code
}

// readSignatures tells from the bytes what they tell. Its error is a rejection
// that no chain could change.
func (d Demand) readSignatures(paid *x402.Payment, permit Permit, approval *boxoffice.Signature) (found signatures, _ *Rejection) {
	if d.Payer != nil && *d.Payer != permit.From {
		return found, reject(x402.ReasonPayer, "only %s may pay this quote", *d.Payer)
	}
	if err := x402.CheckLength(permit.Signature); err != nil {
		return found, reject(x402.ReasonSignature, "payload.signature: %v", err)
	}
	switch signer, err := x402.Recover(permit.Digest(d.Approval.ChainID), permit.Signature); {
	case err != nil:
		found.permit = reject(x402.ReasonSignature, "payload.signature: %v", err)
	case signer != permit.From:
		found.permit = reject(x402.ReasonSignature, "payload.signature does not recover to from")
	}
	if approval == nil {
		return found, nil
	}
	d.Approval.PaymentHash = paid.Hash
	digest := d.Approval.Digest()
	switch signer, err := x402.Recover(digest, approval[:]); {
	case err != nil:
		found.approval = reject(x402.ReasonQuoteApproval, "quoteSignature: %v", err)
	case signer != permit.From:
		found.approval = reject(x402.ReasonQuoteApprovalWallet, "quoteSignature does not recover to the paying wallet over this quote and this payment")
	}
	if found.approval != nil {
		found.asks = []Approval{{Digest: digest, Signature: *approval}}
	}
	return found, nil
}

// judge says what is wrong with the signatures, now that the chain has answered.
// Of a permit whose owner has code only settling tells, so its simulation does.
func (s signatures) judge(owner Standing, permit Permit) *Rejection {
	switch {
	case !owner.Code && s.permit != nil:
		return s.permit
	case !owner.Code:
		return s.approval
	case s.approval != nil && !owner.Approved:
		return reject(x402.ReasonQuoteApprovalWallet, "the wallet %s has code, and its isValidSignature (EIP-1271) "+
			"does not accept quoteSignature over this quote and this payment within the gas of a payment", permit.From)
	}
	return nil
}
