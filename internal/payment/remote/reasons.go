package remote

import (
	"strings"

	"boxoffice/x402"
)

// weight is what a facilitator's reason says about whether the payment may yet
// settle.
type weight int

const (
	unknown weight = iota // a text that nobody published: it says that this call settled nothing
	refusal               // the facilitator checked the payment and sent nothing
	open                  // a transaction may be under way, or somebody spent the nonce
)

// reading is what we take a facilitator's reason for.
type reading struct {
	reason x402.Reason
	weight weight
}

// readings has the strings of the official facilitators: those of
// typescript/packages/mechanisms/evm and go/mechanisms/evm (coinbase/x402,
// @x402/evm 2.27), of the specification's §9, and ErrorReason of x402-rs
// (crates/x402-types/src/proto/mod.rs).
var readings = map[string]reading{
	// TypeScript and Go, permit2.
	"invalid_permit2_spender":            {x402.ReasonSpender, refusal},
	"invalid_permit2_recipient_mismatch": {x402.ReasonRecipient, refusal},
	"permit2_deadline_expired":           {x402.ReasonDeadlineExpired, refusal},
	"permit2_not_yet_valid":              {x402.ReasonNotYetValid, unknown}, // it is only early
	"permit2_payment_too_early":          {x402.ReasonNotYetValid, unknown},
	"permit2_amount_mismatch":            {x402.ReasonAmount, refusal},
	"permit2_token_mismatch":             {x402.ReasonToken, refusal},
	"invalid_permit2_signature":          {x402.ReasonSignature, refusal},
	"permit2_allowance_required":         {x402.ReasonAllowanceRequired, refusal},
	"permit2_insufficient_balance":       {x402.ReasonInsufficientBalance, refusal},
	"permit2_simulation_failed":          {x402.ReasonSimulation, unknown}, // also said when its node did not answer
	"permit2_proxy_not_deployed":         {x402.ReasonProxyNotDeployed, refusal},
	"permit2_invalid_amount":             {x402.ReasonAmount, refusal},
	"permit2_invalid_destination":        {x402.ReasonRecipient, refusal},
	"permit2_invalid_owner":              {x402.ReasonSignature, refusal},
	"permit2_invalid_nonce":              {x402.ReasonNonceSpent, open},
	// TypeScript and Go, the scheme.
	"unsupported_payload_type":                        {x402.ReasonScheme, refusal},
	"invalid_exact_evm_scheme":                        {x402.ReasonScheme, refusal},
	"invalid_exact_evm_network_mismatch":              {x402.ReasonNetwork, refusal},
	"invalid_exact_evm_recipient_mismatch":            {x402.ReasonRecipient, refusal},
	"invalid_exact_evm_signature":                     {x402.ReasonSignature, refusal},
	"invalid_exact_evm_insufficient_balance":          {x402.ReasonInsufficientBalance, refusal},
	"invalid_exact_evm_transaction_simulation_failed": {x402.ReasonSimulation, refusal},
	"invalid_exact_evm_nonce_already_used":            {x402.ReasonNonceSpent, open},
	"invalid_exact_evm_transaction_failed":            {x402.ReasonTransactionFailed, open},
	"invalid_exact_evm_transfer_event_mismatch":       {x402.ReasonTransferMissing, open},
	"invalid_exact_evm_failed_to_execute_transfer":    {x402.ReasonTransactionFailed, open},
	"invalid_exact_evm_failed_to_get_receipt":         {x402.ReasonPending, open},
	"settlement_pending":                              {x402.ReasonPending, open},
	"duplicate_settlement":                            {x402.ReasonPending, open},
	// The specification, version 2 §9.
	"insufficient_funds": {x402.ReasonInsufficientBalance, refusal},
	"invalid_exact_evm_payload_authorization_valid_after":    {x402.ReasonNotYetValid, unknown},
	"invalid_exact_evm_payload_authorization_valid_before":   {x402.ReasonDeadlineExpired, refusal},
	"invalid_exact_evm_payload_authorization_value_mismatch": {x402.ReasonAmount, refusal},
	"invalid_exact_evm_payload_signature":                    {x402.ReasonSignature, refusal},
	"invalid_exact_evm_payload_recipient_mismatch":           {x402.ReasonRecipient, refusal},
	"invalid_network":              {x402.ReasonNetwork, refusal},
	"invalid_payload":              {x402.ReasonPayload, refusal},
	"invalid_payment_requirements": {x402.ReasonRequirements, refusal},
	"invalid_scheme":               {x402.ReasonScheme, refusal},
	"unsupported_scheme":           {x402.ReasonScheme, refusal},
	"invalid_x402_version":         {x402.ReasonVersion, refusal},
	"invalid_transaction_state":    {x402.ReasonTransactionFailed, open},
	"unexpected_verify_error":      {x402.ReasonUnexpectedVerify, open},
	"unexpected_settle_error":      {x402.ReasonUnexpectedSettle, open},
	// x402-rs.
	"invalid_format":                 {x402.ReasonPayload, refusal},
	"invalid_payment_amount":         {x402.ReasonAmount, refusal},
	"invalid_payment_early":          {x402.ReasonNotYetValid, unknown},
	"invalid_payment_expired":        {x402.ReasonDeadlineExpired, refusal},
	"chain_id_mismatch":              {x402.ReasonNetwork, refusal},
	"recipient_mismatch":             {x402.ReasonRecipient, refusal},
	"asset_mismatch":                 {x402.ReasonToken, refusal},
	"accepted_requirements_mismatch": {x402.ReasonRequirements, refusal},
	"invalid_signature":              {x402.ReasonSignature, refusal},
	"transaction_simulation":         {x402.ReasonSimulation, refusal},
	"unsupported_chain":              {x402.ReasonNetwork, refusal},
	"unexpected_error":               {x402.ReasonUnexpectedSettle, open},
	// Ours.
	"asset_not_allowed":        {x402.ReasonAssetRefused, refusal},
	"recipient_not_allowed":    {x402.ReasonRecipientRefused, refusal},
	"permit2_nonce_in_use":     {x402.ReasonOtherPayload, open},
	"permit2_nonce_spent":      {x402.ReasonNonceSpent, open},
	"permit2_deadline_too_far": {x402.ReasonDeadlineTooFar, refusal},
	"transfer_not_exact":       {x402.ReasonTransferNotExact, refusal},
}

// read looks a facilitator's reason up. Some append a message after a colon. A
// text that is in no table is kept, as far as it can stand in an answer.
func read(text x402.Reason) reading {
	name, _, _ := strings.Cut(string(text), ":")
	if found, known := readings[name]; known {
		return found
	}
	return reading{x402.Reason(printable(name)), unknown}
}

const (
	maxReasonLength = 64
	noReason        = "facilitator_gave_no_reason"
)

// printable keeps of a text what a reason is made of.
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
