package payment

import (
	"boxoffice"
	"boxoffice/x402"
)

// signatures is what can be found out about the two signatures of a payment without
// the chain: whether the key of the owner's address made them. The code of a wallet
// with code (a contract, or an account that delegates, EIP-7702) decides which
// signatures it accepts (EIP-1271), and only a call on the chain can ask it:
//
//   - about the permit: Permit2 always asks it, also if the key signed the permit;
//   - about the approval: we ask it only if the key did not sign the approval.
type signatures struct {
	permit    *Rejection // says that the owner's key did not sign the permit; nil if it did
	approval  *Rejection // the same for the approval; nil too if none is required
	approvals []Approval // the approval, if only an owner with code can accept it
}

// readSignatures recovers which keys made the two signatures. It returns a rejection
// only if the payment is wrong for every owner, with or without code.
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
		found.approvals = []Approval{{Digest: digest, Signature: *approval}}
	}
	return found, nil
}

// check returns what is wrong with the signatures of an owner with this standing. If
// the owner has code, it does not check the permit's signature: the simulation does.
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
