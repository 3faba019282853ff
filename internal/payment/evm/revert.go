package evm

import (
	"fmt"
	"strings"
	"time"

	"boxoffice/internal/payment"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// fault says what an error with which settle can revert means for the payer.
type fault struct {
	reason x402.Reason
	detail func(p payment.Permit, chainID uint64) string
}

// faults are the custom errors of Permit2 (SignatureTransfer.sol and its
// libraries), of the exact proxy (x402BasePermit2Proxy.sol) and of OpenZeppelin's
// ERC-20 (ERC-6093), by selector.
var faults = map[[4]byte]fault{
	selector("InvalidNonce()"): {x402.ReasonNonceSpent, func(p payment.Permit, _ uint64) string {
		return fmt.Sprintf("Permit2 nonce %s of %s is used already; sign again with a free nonce", p.Nonce,
			hexOf(p.From))
	}},
	selector("SignatureExpired(uint256)"): {x402.ReasonDeadlineExpired, func(p payment.Permit, _ uint64) string {
		return fmt.Sprintf("the newest block is later than the deadline %s; sign again with a later one", p.Deadline)
	}},
	selector("InvalidSigner()"):          {x402.ReasonSignature, signatureDetail},
	selector("InvalidSignature()"):       {x402.ReasonSignature, signatureDetail},
	selector("InvalidSignatureLength()"): {x402.ReasonSignature, signatureDetail},
	selector("InvalidContractSignature()"): {x402.ReasonSignature, func(p payment.Permit, _ uint64) string {
		return fmt.Sprintf("the contract wallet at %s does not accept the signature", hexOf(p.From))
	}},
	selector("InvalidAmount(uint256)"): {x402.ReasonAmount, amountDetail},
	selector("InvalidAmount()"):        {x402.ReasonAmount, amountDetail},
	selector("PaymentTooEarly()"): {x402.ReasonNotYetValid, func(p payment.Permit, _ uint64) string {
		return fmt.Sprintf("the newest block is earlier than validAfter %s; send the payment again then, or sign "+
			"with an earlier one", p.Witness.ValidAfter)
	}},
	selector("InvalidOwner()"): {x402.ReasonSignature, func(payment.Permit, uint64) string {
		return "the payment comes from the zero address"
	}},
	selector("InvalidDestination()"): {x402.ReasonRecipient, func(payment.Permit, uint64) string {
		return "the payment goes to the zero address"
	}},
	selector("ERC20InsufficientBalance(address,uint256,uint256)"): {x402.ReasonInsufficientBalance,
		func(p payment.Permit, _ uint64) string {
			return fmt.Sprintf("%s holds less than %s of token %s, in atomic units", hexOf(p.From), p.Permitted.Amount,
				hexOf(p.Permitted.Token))
		}},
	selector("ERC20InsufficientAllowance(address,uint256,uint256)"): {x402.ReasonAllowanceRequired,
		func(p payment.Permit, _ uint64) string {
			return fmt.Sprintf("%s lets Permit2 move less than %s of token %s, in atomic units; approve Permit2 as a "+
				"spender of the token first",
				hexOf(p.From), p.Permitted.Amount, hexOf(p.Permitted.Token))
		}},
}

func signatureDetail(p payment.Permit, chainID uint64) string {
	return fmt.Sprintf("the signature is not that of %s over this Permit2 transfer on chain %d", hexOf(p.From), chainID)
}

func amountDetail(p payment.Permit, _ uint64) string {
	return fmt.Sprintf("the amount %s cannot be settled", p.Permitted.Amount)
}

// transferFailed is the text with which Permit2 reverts when the token reverts, for
// any reason of the token.
const transferFailed = "TRANSFER_FROM_FAILED"

// maxTrail is how much older than our clock the newest block may be.
const maxTrail = 2 * time.Minute

// rejection returns what the revert data of a settle means for the payer. code says
// that the owner has code. Such an owner can revert with any data, also with the
// errors of Permit2 and the proxy. PaymentTooEarly is the only error for which a
// payment waits instead of failing. So that an owner with code cannot keep its payment
// waiting, this error of such an owner is ignored once validAfter has passed.
func (c *Chain) rejection(data []byte, p payment.Permit, code bool) *payment.Rejection {
	if len(data) >= 4 {
		fault, known := faults[[4]byte(data)]
		if code && fault.reason == x402.ReasonNotYetValid {
			after, fits := p.Witness.ValidAfter.Uint64()
			known = !fits || after > uint64(c.cfg.Now().Add(-maxTrail).Unix())
		}
		if known {
			return &payment.Rejection{Reason: fault.reason, Detail: fault.detail(p, c.cfg.ChainID)}
		}
	}
	detail := "settling the payment would fail"
	text, err := abi.UnpackRevert(data)
	switch {
	case err == nil && text == transferFailed:
		detail = fmt.Sprintf("token %s refuses to move %s from %s to %s though balance and allowance suffice: it "+
			"may be paused, or one of the accounts blocked",
			hexOf(p.Permitted.Token), p.Permitted.Amount, hexOf(p.From), hexOf(p.Witness.To))
	case err == nil:
		detail += fmt.Sprintf(": the contract says %q", c.redact(text))
	case len(data) >= 4:
		detail += fmt.Sprintf(": the contract reverts with error 0x%x", data[:4])
	default:
		detail += fmt.Sprintf(" without saying why; it may need more than the %d gas that a payment is given",
			c.cfg.GasPerSettle)
	}
	return &payment.Rejection{Reason: x402.ReasonSimulation, Detail: detail}
}

func selector(signature string) [4]byte { return [4]byte(crypto.Keccak256([]byte(signature))) }

// hexOf formats an address as our API does, in lowercase.
func hexOf(a common.Address) string { return strings.ToLower(a.Hex()) }
