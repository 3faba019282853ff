package evm

import (
	"fmt"
	"strings"

	"boxoffice/internal/payment"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// faults says what an error means for the payer with which settle can revert after
// the settlement contract has checked times and nonce: a custom error of Permit2
// (SignatureTransfer.sol and its libraries) or of the exact proxy
// (x402BasePermit2Proxy.sol), by selector.
var faults = map[[4]byte]func(p payment.Permit, chainID uint64) *payment.Rejection{
	selector("InvalidSigner()"):            signatureFault,
	selector("InvalidSignature()"):         signatureFault,
	selector("InvalidSignatureLength()"):   signatureFault,
	selector("InvalidContractSignature()"): walletFault,
	selector("InvalidAmount(uint256)"):     amountFault,
	selector("InvalidAmount()"):            amountFault,
	selector("InvalidOwner()"): func(payment.Permit, uint64) *payment.Rejection {
		return refuse(x402.ReasonSignature, "the payment comes from the zero address")
	},
	selector("InvalidDestination()"): func(payment.Permit, uint64) *payment.Rejection {
		return refuse(x402.ReasonRecipient, "the payment goes to the zero address")
	},
}

func signatureFault(p payment.Permit, chainID uint64) *payment.Rejection {
	return refuse(x402.ReasonSignature, "the signature is not that of %s over this Permit2 transfer on chain %d",
		hexOf(p.From), chainID)
}

func walletFault(p payment.Permit, _ uint64) *payment.Rejection {
	return refuse(x402.ReasonSignature, "the contract wallet at %s does not accept the signature", hexOf(p.From))
}

func amountFault(p payment.Permit, _ uint64) *payment.Rejection {
	return refuse(x402.ReasonAmount, "the amount %s cannot be settled", p.Permitted.Amount)
}

func refuse(reason x402.Reason, format string, args ...any) *payment.Rejection {
	return &payment.Rejection{Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

// transferFailed is the text with which Permit2 reverts when the token reverts, for
// any reason of the token.
const transferFailed = "TRANSFER_FROM_FAILED"

// rejection returns what the report of a simulated payment means for the payer, nil if
// it settles. A wallet with code can revert with any error. It cannot make the payment
// look too early, expired or spent, which the settlement contract checks itself.
func (c *Chain) rejection(p payment.Permit, r report) *payment.Rejection {
	token := hexOf(p.Permitted.Token)
	switch r.outcome() {
	case payment.CallSettled:
		// A signature that only the form for owners with code can carry is not taken of an
		// owner without: the contract would not skip it if the owner had got code meanwhile.
		if _, canonical := compact(p.Signature); !canonical && !r.Code {
			return signatureFault(p, c.cfg.ChainID)
		}
		return nil
	case payment.TooEarly:
		return refuse(x402.ReasonNotYetValid,
			"the newest block is earlier than validAfter %s; send the payment again then, or sign with an earlier one",
			p.Witness.ValidAfter)
	case payment.Expired:
		return refuse(x402.ReasonDeadlineExpired,
			"the newest block is later than the deadline %s; sign again with a later one", p.Deadline)
	case payment.NonceSpent:
		return refuse(x402.ReasonNonceSpent, "Permit2 nonce %s of %s is used already; sign again with a free nonce",
			p.Nonce, hexOf(p.From))
	case payment.NotExact:
		return refuse(x402.ReasonTransferNotExact,
			"token %s would not bring %s exactly %s, in atomic units: it does not move what it is asked to move",
			token, hexOf(p.Witness.To), p.Permitted.Amount)
	}
	switch need := p.Permitted.Amount.Big(); {
	case r.Balance.Cmp(need) < 0:
		return refuse(x402.ReasonInsufficientBalance, "%s holds %s of token %s and needs %s, in atomic units",
			hexOf(p.From), r.Balance, token, need)
	case r.Allowance.Cmp(need) < 0:
		return refuse(x402.ReasonAllowanceRequired, "%s lets Permit2 move %s of token %s and needs %s, in atomic "+
			"units; approve Permit2 (%s) as a spender of the token first",
			hexOf(p.From), r.Allowance, token, need, hexOf(x402.Permit2))
	}
	return c.revertFault(p, r.Data)
}

// revertFault returns what the revert data of a payment means for the payer.
func (c *Chain) revertFault(p payment.Permit, data []byte) *payment.Rejection {
	if len(data) >= 4 {
		if fault := faults[[4]byte(data)]; fault != nil {
			return fault(p, c.cfg.ChainID)
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
