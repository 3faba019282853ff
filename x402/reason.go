package x402

// Reason says why a payment was rejected: the reason beside payment_rejected
// in an answer, and errorReason in a SettleResponse. A value, once published,
// does not change.
type Reason string

// Reasons of the official x402 implementations (coinbase/x402: the facilitators
// of typescript/packages/mechanisms/evm and go/mechanisms/evm), with their
// meaning there.
const (
	ReasonNetwork             Reason = "invalid_exact_evm_network_mismatch" // accepted.network is not the network of the quote
	ReasonScheme              Reason = "unsupported_payload_type"           // accepted.scheme is not exact
	ReasonSpender             Reason = "invalid_permit2_spender"            // spender is not the exact proxy
	ReasonRecipient           Reason = "invalid_permit2_recipient_mismatch" // witness.to is not payTo
	ReasonToken               Reason = "permit2_token_mismatch"             // permitted.token is not the asset
	ReasonAmount              Reason = "permit2_amount_mismatch"            // permitted.amount is not the amount
	ReasonNotYetValid         Reason = "permit2_not_yet_valid"              // validAfter lies in the future
	ReasonDeadlineExpired     Reason = "permit2_deadline_expired"           // the deadline has passed, or is less than MinDeadlineSlack ahead
	ReasonSignature           Reason = "invalid_permit2_signature"          // the signature is not canonical, or not that of from
	ReasonInsufficientBalance Reason = "permit2_insufficient_balance"       // the payer has too little of the token, counting its pending payments
	ReasonAllowanceRequired   Reason = "permit2_allowance_required"         // the payer's allowance for Permit2 does not cover the amount
	ReasonSimulation          Reason = "permit2_simulation_failed"          // settle reverts, for a cause that none of the others names
	ReasonProxyNotDeployed    Reason = "permit2_proxy_not_deployed"         // the chain has no exact proxy
	ReasonTransactionFailed   Reason = "invalid_exact_evm_transaction_failed"
	// ReasonTransferMissing says that the transaction succeeded without the exact
	// Transfer that was signed. The official implementations use it for EIP-3009 only.
	ReasonTransferMissing Reason = "invalid_exact_evm_transfer_event_mismatch"
)

// ReasonRequirements is an error code of the x402 specification, version 2 §9:
// accepted differs from the requirement of the quote.
const ReasonRequirements Reason = "invalid_payment_requirements"

// Our own reasons, for checks that x402 does not have.
const (
	ReasonResource            Reason = "resource_mismatch"              // resource.url is not the order's resourceUrl
	ReasonDeadlineTooFar      Reason = "permit2_deadline_too_far"       // the deadline is later than maxTimeoutSeconds and MaxDeadlineSlack allow
	ReasonQuoteApproval       Reason = "quote_approval_invalid"         // quoteSignature is not canonical or recovers to no wallet
	ReasonQuoteApprovalWallet Reason = "quote_approval_wallet_mismatch" // the quote approval is not that of the paying wallet over this quote and this payment
	ReasonPayer               Reason = "payer_mismatch"                 // quote.payer names another wallet
	ReasonNonceSpent          Reason = "permit2_nonce_spent"            // the nonce was used, by a payment that was not this one
	ReasonTransferNotExact    Reason = "transfer_not_exact"             // the recipient would get more or less of the token than was signed
)
