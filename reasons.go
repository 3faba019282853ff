package boxoffice

import "boxoffice/x402"

// ReasonInfo is the row of a rejection's reason in the table of reasons.
type ReasonInfo struct {
	Reason  x402.Reason
	Meaning string
	Remedy  string // what the payer can do
}

// Reasons returns the table of the reasons beside payment_rejected, and of those for
// which a submitted payment fails, in the order of the checks. docs/errors.md is
// generated from it.
func Reasons() []ReasonInfo {
	return []ReasonInfo{
		{x402.ReasonRequirements,
			"accepted differs from the item of accepts in the challenge.",
			"Sign the item of accepts unchanged."},
		{x402.ReasonScheme, "accepted.scheme is not exact.", "Sign the item of accepts unchanged."},
		{x402.ReasonNetwork,
			"accepted.network is not the network of the quote.", "Sign on the network of the quote."},
		{x402.ReasonResource,
			"resource.url is not the resourceUrl of the order.",
			"Send the resource of this order's challenge, or none."},
		{x402.ReasonSpender,
			"The spender of the permit is not the x402 exact proxy.",
			"Sign a permit for payment.proxy of the capabilities."},
		{x402.ReasonRecipient,
			"witness.to of the permit is not the recipient of the quote.",
			"Sign a permit to quote.payment.payTo."},
		{x402.ReasonToken,
			"The token of the permit is not the asset of the quote.",
			"Sign a permit of quote.payment.asset."},
		{x402.ReasonAmount,
			"The amount of the permit is not the amount of the quote.",
			"Sign a permit of exactly quote.payment.amount."},
		{x402.ReasonNotYetValid,
			"validAfter of the permit is in the future.",
			"Sign with validAfter 0, or correct the clock."},
		{x402.ReasonDeadlineExpired,
			"The deadline of the permit has passed, or is too near to settle before it.",
			"Sign again with a later deadline."},
		{x402.ReasonDeadlineTooFar,
			"The deadline of the permit is later than the service takes.",
			"Sign with a deadline of now plus maxTimeoutSeconds."},
		{x402.ReasonPayer, "quote.payer is another wallet.", "Pay with the wallet in quote.payer."},
		{x402.ReasonSignature,
			"The signature of the permit does not have 65 bytes, is not canonical, or does not belong to from: its " +
				"key did not make it, or its code does not accept it.",
			"Sign with the wallet in from: 65 bytes, v 27 or 28, s in the lower half. A contract wallet has to be " +
				"deployed and to accept 65 bytes in isValidSignature."},
		{x402.ReasonQuoteApproval,
			"quoteSignature is not a canonical signature, and the payer has no code that could accept it.",
			"Sign the QuoteApproval: 65 bytes, v 27 or 28, s in the lower half."},
		{x402.ReasonQuoteApprovalWallet,
			"quoteSignature was made by another wallet than the permit, or over other data; or the payer's code does " +
				"not accept it within the gas of one payment.",
			"Sign both with one wallet, and the approval over the hash of exactly the payload that is sent."},
		{x402.ReasonInsufficientBalance,
			"The payer's balance does not cover the amount and the amounts of its pending payments.",
			"Fund the wallet, then sign again."},
		{x402.ReasonAllowanceRequired,
			"The payer's allowance for Permit2 does not cover the amount.",
			"Approve Permit2 for the token once, then submit again."},
		{x402.ReasonNonceSpent,
			"The nonce of the permit was spent, and not by this payment.",
			"Sign with a free nonce."},
		{x402.ReasonProxyNotDeployed,
			"The network has no x402 exact proxy.",
			"Nothing: the operator has to correct the network."},
		{x402.ReasonSimulation,
			"Settling would revert, for a cause that no other reason names.",
			"Check that the token lets the wallet transfer, then sign again."},
		{x402.ReasonTransferNotExact,
			"The recipient would not get exactly the amount, for example because the token takes a fee on transfers.",
			"Nothing: the operator has to choose a token that transfers exact amounts."},
		{x402.ReasonTransactionFailed,
			"The transaction was mined and this payment in it reverted; or another payment of this contract wallet " +
				"did so in the last hour, although simulations had passed.",
			"Read the order. Sign again before the quote expires, or with another wallet."},
		{x402.ReasonTransferMissing,
			"The nonce was spent without the transfer that was signed.",
			"Read the order. Sign again with a free nonce before the quote expires."},
	}
}
