package payment

import (
	"boxoffice"
	"boxoffice/x402"
)

// signatures is what the bytes of a payment say about its two signatures. A wallet
// with code (a contract, or an account that delegates, EIP-7702) decides itself
// which signatures are its own (EIP-1271), and only the chain can ask it. Permit2
// asks it about the permit, even if its own key made that signature. We ask it
// about the approval, unless its own key made that.
type signatures struct {
	permit   *Rejection // why the owner's key did not sign the permit; nil if it did
	approval *Rejection // the same for the approval; nil too if none is required
	asks     []Approval // what to ask the owner about, if it has code
}

// readSignatures recovers who made the two signatures. It returns a rejection only
// if no wallet, with or without code, could pay like that.
func (d Demand) readSignatures(paid *x402.Payment, permit Permit,
	approval *boxoffice.Signature) (found signatures, _ *Rejection) {
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
		found.approval = reject(x402.ReasonQuoteApprovalWallet,
			"quoteSignature does not recover to the paying wallet over this quote and this payment")
	}
	if found.approval != nil {
		found.asks = []Approval{{Digest: digest, Signature: *approval}}
	}
	return found, nil
}

// check returns what is wrong with the signatures, given the owner's standing. The
// permit's signature of an owner with code is checked by the simulation instead.
func (s signatures) check(owner Standing, permit Permit) *Rejection {
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
