package evm

import (
	"boxoffice/internal/payment"

	"github.com/ethereum/go-ethereum/common"
)

// approvalCall asks a wallet with code whether a signature is its own (EIP-1271).
// The call gets the gas of one payment: Permit2 asks the same question within
// that gas, so a wallet that needs more could not pay either.
func (c *Chain) approvalCall(owner common.Address, approval payment.Approval) call {
	return call{to: owner, data: pack("isValidSignature", approval.Digest, approval.Signature[:]),
		gas: c.cfg.GasPerSettle, isolated: true}
}

// isOwn is the ABI word by which a wallet says that the signature is its own: the
// selector of isValidSignature, padded with zeros.
var isOwn = [32]byte{0x16, 0x26, 0xba, 0x7e}

// approves reports whether a wallet returned exactly that word. A revert is a no,
// and so is any other answer. It fails if the node did not answer.
func approves(result callResult) (bool, error) {
	if result.err != nil {
		return false, result.err
	}
	word, err := result.word()
	return err == nil && word == isOwn, nil
}
