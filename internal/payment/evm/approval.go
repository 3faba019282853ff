package evm

import (
	"boxoffice/internal/payment"

	"github.com/ethereum/go-ethereum/common"
)

// approvalCall returns the call that asks a wallet with code whether it accepts a
// signature (EIP-1271). The call gets the gas of one payment: Permit2 asks the same
// question within that gas, so a wallet that needs more could not pay either. It gets
// the gas of an empty transaction besides, as a call in a transaction does.
func (c *Chain) approvalCall(owner common.Address, approval payment.Approval) call {
	return call{to: owner, data: pack("isValidSignature", approval.Digest, approval.Signature[:]),
		gas: GasBase + c.cfg.GasPerSettle}
}

// accepted is the ABI word that isValidSignature returns if the wallet accepts the
// signature: its own selector, padded with zeros.
var accepted = [32]byte{0x16, 0x26, 0xba, 0x7e}

// approves reports whether a wallet returned exactly that word. After a revert or any
// other answer it returns false. It fails if the node did not answer.
func (c *Chain) approves(op string, refusal error, answer []byte) (bool, error) {
	if refusal != nil && !reverted(refusal) {
		return false, c.fail(op, refusal)
	}
	return refusal == nil && len(answer) == len(accepted) && [32]byte(answer) == accepted, nil
}
