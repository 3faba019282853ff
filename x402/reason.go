package x402

// Reason says why a payment was rejected: the reason beside payment_rejected
// in an answer, and errorReason in a Settlement. A value, once published,
// does not change. docs/errors.md says what each means and what the payer can do.
type Reason string

// Reasons of the official x402 implementations (coinbase/x402: the facilitators
// of typescript/packages/mechanisms/evm and go/mechanisms/evm), with their
// meaning there.
const (
	ReasonNetwork             Reason = "invalid_exact_evm_network_mismatch"
	ReasonScheme              Reason = "unsupported_payload_type"
	ReasonSpender             Reason = "invalid_permit2_spender"
	ReasonRecipient           Reason = "invalid_permit2_recipient_mismatch"
	ReasonToken               Reason = "permit2_token_mismatch"
	ReasonAmount              Reason = "permit2_amount_mismatch"
	ReasonNotYetValid         Reason = "permit2_not_yet_valid"
	ReasonDeadlineExpired     Reason = "permit2_deadline_expired"
	ReasonSignature           Reason = "invalid_permit2_signature"
	ReasonInsufficientBalance Reason = "permit2_insufficient_balance"
	ReasonAllowanceRequired   Reason = "permit2_allowance_required"
	ReasonSimulation          Reason = "permit2_simulation_failed"
	ReasonProxyNotDeployed    Reason = "permit2_proxy_not_deployed"
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
	ReasonResource            Reason = "resource_mismatch"
	ReasonDeadlineTooFar      Reason = "permit2_deadline_too_far"
	ReasonQuoteApproval       Reason = "quote_approval_invalid"
	ReasonQuoteApprovalWallet Reason = "quote_approval_wallet_mismatch"
	ReasonPayer               Reason = "payer_mismatch"
	ReasonNonceSpent          Reason = "permit2_nonce_spent"
	ReasonTransferNotExact    Reason = "transfer_not_exact"
)
