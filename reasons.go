package boxoffice

import "boxoffice/x402"

// ReasonInfo is the row of a rejection's reason in the table of reasons.
type ReasonInfo struct {
	Reason  x402.Reason
	Meaning string
	Remedy  string // what the payer can do
}

// Reasons is the table of the reasons beside payment_rejected, and of those for
// which a submitted payment fails, in the order of the checks. docs/errors.md is
// generated from it.
var Reasons = []ReasonInfo{
	{x402.ReasonRequirements, "accepted differs from the requirement that the challenge offers.", "Sign the item of accepts unchanged."},
	{x402.ReasonScheme, "accepted.scheme is not exact.", "Sign the item of accepts unchanged."},
	{x402.ReasonNetwork, "accepted.network is not the network of the quote.", "Sign on the network of the quote."},
	{x402.ReasonResource, "resource.url is not the order's resourceUrl.", "Send the resource of this order's challenge, or none."},
	{x402.ReasonSpender, "The permit's spender is not the x402 exact proxy.", "Sign a permit for the proxy that capabilities name."},
	{x402.ReasonRecipient, "The permit's witness.to is not the recipient of the quote.", "Sign a permit to quote.payment.payTo."},
	{x402.ReasonToken, "The permit's token is not the asset of the quote.", "Sign a permit of quote.payment.asset."},
	{x402.ReasonAmount, "The permit's amount is not the amount of the quote.", "Sign a permit of exactly quote.payment.amount."},
	{x402.ReasonNotYetValid, "The permit's validAfter lies in the future.", "Sign with validAfter 0, or set the clock right."},
	{x402.ReasonDeadlineExpired, "The permit's deadline has passed, or passes too soon to settle.", "Sign again with a later deadline."},
	{x402.ReasonDeadlineTooFar, "The permit's deadline lies further ahead than the service takes.", "Sign with a deadline of now plus maxTimeoutSeconds."},
	{x402.ReasonPayer, "The quote names another wallet as its payer.", "Pay with the wallet in quote.payer."},
	{x402.ReasonSignature, "The permit's signature has not 65 bytes, is not canonical, or is not from's: not made by its key, or not accepted by its code.", "Sign with the wallet that from names: 65 bytes, v 27 or 28, s in the lower half; a contract wallet: deployed, 65 bytes that its isValidSignature accepts."},
	{x402.ReasonQuoteApproval, "quoteSignature is not a canonical signature, and the payer has no code that could accept it.", "Sign the QuoteApproval: 65 bytes, v 27 or 28, s in the lower half."},
	{x402.ReasonQuoteApprovalWallet, "quoteSignature was made by another wallet than the permit, or over other data; or the payer's code does not accept it within the gas of a payment.", "Sign both with one wallet, and the approval over the hash of the very payload that is sent."},
	{x402.ReasonInsufficientBalance, "The payer has too little of the token, counting what its pending payments will move.", "Fund the wallet, then sign again."},
	{x402.ReasonAllowanceRequired, "The payer's allowance for Permit2 does not cover the amount.", "Approve Permit2 for the token once, then submit again."},
	{x402.ReasonNonceSpent, "The permit's nonce was used by something other than this payment.", "Sign with a nonce that is free."},
	{x402.ReasonProxyNotDeployed, "The network has no x402 exact proxy.", "Nothing: the operator has to correct the network."},
	{x402.ReasonSimulation, "Settling would revert for a cause that no other reason names.", "Check that the token lets the wallet transfer, then sign again."},
	{x402.ReasonTransferNotExact, "The token would not bring the recipient the exact amount: it takes a fee on transfers, say.", "Nothing: the operator has to sell for a token that moves what it is asked to move."},
	{x402.ReasonTransactionFailed, "The settlement was mined and this payment in it reverted; or so did another of this contract wallet within the hour, which simulations had passed.", "Read the order; sign again while the quote lives, or with another wallet."},
	{x402.ReasonTransferMissing, "The nonce was spent without the transfer that was signed.", "Read the order; sign again with a free nonce while the quote lives."},
}
