package evm

import (
	"boxoffice/internal/payment"

	"github.com/ethereum/go-ethereum/common"
)

// approvalCall asks a wallet whether a signature is its own (EIP-1271). It is
// given the gas of a payment alone, and gets it alone: Permit2 asks the same
// question within that gas, so a wallet that takes more could not pay either.
func (c *Chain) approvalCall(owner common.Address, approval payment.Approval) call {
	return call{to: owner, data: pack("isValidSignature", approval.Digest, approval.Signature[:]), gas: c.cfg.GasPerSettle, alone: true}
}

// approved is the one word that says yes: the function's selector, and nothing
// after it.
var approved = [32]byte{0x16, 0x26, 0xba, 0x7e}

// approves reports whether a wallet said yes in exactly one word. What an
// address without code answers means nothing: the chain's own contracts are
// such, and fail in words of their own.
func approves(answer outcome) (bool, error) {
	if answer.trouble != nil {
		return false, answer.trouble
	}
	word, err := answer.word()
	return err == nil && word == approved, nil
}
