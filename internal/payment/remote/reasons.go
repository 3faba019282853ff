package remote

import (
	"strings"

	"boxoffice/x402"
)

// meaning is what a facilitator's reason says about whether the payment may settle.
type meaning int

const (
	notSent   meaning = iota // this call sent nothing, and a later one may; also of a reason in no table
	refused                  // the facilitator checked the payment and will not send it
	maybeSent                // a transaction may be sent, or another one spent the nonce
)

// knownReason is a facilitator's reason in our words.
type knownReason struct {
	reason  x402.Reason
	meaning meaning
}

// knownReasons has the reasons of the official facilitators: those of
// typescript/packages/mechanisms/evm and go/mechanisms/evm (coinbase/x402,
// @x402/evm 2.27), of the specification's §9, and ErrorReason of x402-rs
// (crates/x402-types/src/proto/mod.rs).
var knownReasons = map[string]knownReason{
	// TypeScript and Go, permit2.
	"invalid_permit2_spender":            {x402.ReasonSpender, refused},
	"invalid_permit2_recipient_mismatch": {x402.ReasonRecipient, refused},
	"permit2_deadline_expired":           {x402.ReasonDeadlineExpired, refused},
	"permit2_not_yet_valid":              {x402.ReasonNotYetValid, notSent}, // it is only early
	"permit2_payment_too_early":          {x402.ReasonNotYetValid, notSent},
	"permit2_amount_mismatch":            {x402.ReasonAmount, refused},
	"permit2_token_mismatch":             {x402.ReasonToken, refused},
	"invalid_permit2_signature":          {x402.ReasonSignature, refused},
	"permit2_allowance_required":         {x402.ReasonAllowanceRequired, refused},
	"permit2_insufficient_balance":       {x402.ReasonInsufficientBalance, refused},
	"permit2_simulation_failed":          {x402.ReasonSimulation, notSent}, // also if its node did not answer
	"permit2_proxy_not_deployed":         {x402.ReasonProxyNotDeployed, refused},
	"permit2_invalid_amount":             {x402.ReasonAmount, refused},
	"permit2_invalid_destination":        {x402.ReasonRecipient, refused},
	"permit2_invalid_owner":              {x402.ReasonSignature, refused},
	"permit2_invalid_nonce":              {x402.ReasonNonceSpent, maybeSent},
	// TypeScript and Go, the scheme.
	"unsupported_payload_type":                        {x402.ReasonScheme, refused},
	"invalid_exact_evm_scheme":                        {x402.ReasonScheme, refused},
	"invalid_exact_evm_network_mismatch":              {x402.ReasonNetwork, refused},
	"invalid_exact_evm_recipient_mismatch":            {x402.ReasonRecipient, refused},
	"invalid_exact_evm_signature":                     {x402.ReasonSignature, refused},
	"invalid_exact_evm_insufficient_balance":          {x402.ReasonInsufficientBalance, refused},
	"invalid_exact_evm_transaction_simulation_failed": {x402.ReasonSimulation, refused},
	"invalid_exact_evm_nonce_already_used":            {x402.ReasonNonceSpent, maybeSent},
	"invalid_exact_evm_transaction_failed":            {x402.ReasonTransactionFailed, maybeSent},
	"invalid_exact_evm_transfer_event_mismatch":       {x402.ReasonTransferMissing, maybeSent},
	"invalid_exact_evm_failed_to_execute_transfer":    {x402.ReasonTransactionFailed, maybeSent},
	"invalid_exact_evm_failed_to_get_receipt":         {x402.ReasonPending, maybeSent},
	"settlement_pending":                              {x402.ReasonPending, maybeSent},
	"duplicate_settlement":                            {x402.ReasonPending, maybeSent},
	// The specification, version 2 §9.
	"insufficient_funds": {x402.ReasonInsufficientBalance, refused},
	"invalid_exact_evm_payload_authorization_valid_after":    {x402.ReasonNotYetValid, notSent},
	"invalid_exact_evm_payload_authorization_valid_before":   {x402.ReasonDeadlineExpired, refused},
	"invalid_exact_evm_payload_authorization_value_mismatch": {x402.ReasonAmount, refused},
	"invalid_exact_evm_payload_signature":                    {x402.ReasonSignature, refused},
	"invalid_exact_evm_payload_recipient_mismatch":           {x402.ReasonRecipient, refused},
	"invalid_network":              {x402.ReasonNetwork, refused},
	"invalid_payload":              {x402.ReasonPayload, refused},
	"invalid_payment_requirements": {x402.ReasonRequirements, refused},
	"invalid_scheme":               {x402.ReasonScheme, refused},
	"unsupported_scheme":           {x402.ReasonScheme, refused},
	"invalid_x402_version":         {x402.ReasonVersion, refused},
	"invalid_transaction_state":    {x402.ReasonTransactionFailed, maybeSent},
	"unexpected_verify_error":      {x402.ReasonUnexpectedVerify, maybeSent},
	"unexpected_settle_error":      {x402.ReasonUnexpectedSettle, maybeSent},
	// x402-rs.
	"invalid_format":                 {x402.ReasonPayload, refused},
	"invalid_payment_amount":         {x402.ReasonAmount, refused},
	"invalid_payment_early":          {x402.ReasonNotYetValid, notSent},
	"invalid_payment_expired":        {x402.ReasonDeadlineExpired, refused},
	"chain_id_mismatch":              {x402.ReasonNetwork, refused},
	"recipient_mismatch":             {x402.ReasonRecipient, refused},
	"asset_mismatch":                 {x402.ReasonToken, refused},
	"accepted_requirements_mismatch": {x402.ReasonRequirements, refused},
	"invalid_signature":              {x402.ReasonSignature, refused},
	"transaction_simulation":         {x402.ReasonSimulation, refused},
	"unsupported_chain":              {x402.ReasonNetwork, refused},
	"unexpected_error":               {x402.ReasonUnexpectedSettle, maybeSent},
	// Ours.
	"asset_not_allowed":        {x402.ReasonAssetRefused, refused},
	"recipient_not_allowed":    {x402.ReasonRecipientRefused, refused},
	"permit2_nonce_in_use":     {x402.ReasonOtherPayload, maybeSent},
	"permit2_nonce_spent":      {x402.ReasonNonceSpent, maybeSent},
	"permit2_deadline_too_far": {x402.ReasonDeadlineTooFar, refused},
	"transfer_not_exact":       {x402.ReasonTransferNotExact, refused},
}

// lookUp returns what a facilitator's reason means. Some facilitators append a
// message after a colon. A reason in no table is kept as far as it is printable.
func lookUp(text x402.Reason) knownReason {
	name, _, _ := strings.Cut(string(text), ":")
	if found, known := knownReasons[name]; known {
		return found
	}
	return knownReason{x402.Reason(printable(name)), notSent}
}

const (
	maxReasonLength = 64
	noReason        = "facilitator_gave_no_reason"
)

// printable keeps the characters of a text that a reason may have.
func printable(text string) string {
	kept := strings.Map(func(c rune) rune {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.':
			return c
		case c == ' ':
			return '_'
		}
		return -1
	}, text)
	if kept == "" {
		return noReason
	}
	return kept[:min(len(kept), maxReasonLength)]
}
