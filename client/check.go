package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"boxoffice"
	"boxoffice/x402"
)

// MismatchError says that the service offers something else than what was asked
// for, or contradicts itself. Nothing was signed.
type MismatchError struct {
	Field string // resource and JSON Pointer: order/quote/payment/payTo
	Want  string
	Got   string // empty where Want says it all
}

func (e *MismatchError) Error() string {
	if e.Got == "" {
		return "refused to sign: " + e.Field + " " + e.Want
	}
	return "refused to sign: " + e.Field + " is " + e.Got + ", want " + e.Want
}

// Intent is what the requester means to sign for: what [Client.Sign] holds the
// offer against.
type Intent struct {
	Purchase
	Capabilities boxoffice.Capabilities
	Order        boxoffice.Order // as the quote answered it
	// Created says that the quote is new. A new quote has the terms of the
	// capabilities; an older one keeps those it was issued with (spec.md §9.6).
	Created bool
}

// Check compares an offer with what was asked for, with the capabilities, with
// the pins and the greatest amount, with itself and, where the client reads the
// chain, with the token and the payer's funds. The error is a *MismatchError,
// a *ShortfallError, or that of reading the chain.
func (c *Client) Check(ctx context.Context, offer *Offer, intent Intent) error {
	if err := cmp.Or(
		c.checkCapabilities(&intent.Capabilities),
		c.checkOrder(&intent),
		c.checkOffer(offer, &intent),
	); err != nil {
		return err
	}
	return c.checkChain(ctx, &intent.Order.Quote)
}

func (c *Client) checkCapabilities(capabilities *boxoffice.Capabilities) error {
	payment := capabilities.Payment
	return cmp.Or(
		mismatch("capabilities", capabilities.Validate()),
		same("capabilities/payment/permit2", x402.Permit2, payment.Permit2),
		same("capabilities/payment/proxy", x402.ExactProxy, payment.Proxy),
		shortLived("capabilities/payment/maxTimeoutSeconds", payment.MaxTimeoutSeconds),
		c.checkWallet(payment.ContractWallets),
		same("capabilities/payment/serviceName", cmp.Or(c.pins.ServiceName, payment.ServiceName), payment.ServiceName),
	)
}

func (c *Client) checkWallet(contracts bool) error {
	if _, contract := c.signer.(contractSigner); contract {
		return same("capabilities/payment/contractWallets", true, contracts)
	}
	return nil
}

// maxLifetime bounds for how many seconds a signature can be settled.
const maxLifetime = 24 * 60 * 60

func shortLived(field string, seconds int64) error {
	if seconds <= maxLifetime {
		return nil
	}
	return &MismatchError{field, fmt.Sprint("at most ", maxLifetime), fmt.Sprint(seconds)}
}

// checkIdentity holds an answer against the question.
func (p *Purchase) checkIdentity(order *boxoffice.Order) error {
	return cmp.Or(
		same("order/requestKey", cmp.Or(p.RequestKey, order.RequestKey), order.RequestKey),
		same("order/quote/action", cmp.Or(p.Action, order.Quote.Action), order.Quote.Action),
	)
}

func (c *Client) checkOrder(intent *Intent) error {
	order, quote := &intent.Order, &intent.Order.Quote
	if err := mismatch("order", order.Verify()); err != nil {
		return err
	}
	terms, offered := quote.Payment, intent.Capabilities.Payment
	err := cmp.Or(
		intent.checkIdentity(order),
		intent.acceptInput(json.RawMessage(order.InputJSON)),
		same("order/quote/payment/network", offered.Network, terms.Network),
		same("order/quote/payment/asset", offered.Asset.Address, terms.Asset),
		same("order/quote/payment/payTo", offered.PayTo, terms.PayTo),
		same("order/quote/payment/decimals", offered.Asset.Decimals, terms.Decimals),
		pinned("order/quote/payment/network", c.pins.Networks, terms.Network),
		pinned("order/quote/payment/asset", c.pins.Assets, terms.Asset),
		pinned("order/quote/payment/payTo", c.pins.PayTo, terms.PayTo),
		checkPrice(intent),
	)
	switch {
	case err != nil:
		return err
	case terms.Amount.Cmp(intent.Max) > 0:
		tokens := func(amount boxoffice.Amount) string {
			return boxoffice.FormatUnits(amount, terms.Decimals) + " " + offered.Asset.Symbol
		}
		return &MismatchError{"order/quote/payment/amount", "at most " + tokens(intent.Max), tokens(terms.Amount)}
	case !quote.Live(c.now().Unix()):
		return &MismatchError{"order/quote/expiresAt", "later than now, " + fmt.Sprint(c.now().Unix()), fmt.Sprint(quote.ExpiresAt)}
	case c.signer != nil && quote.Payer != nil:
		return same("order/quote/payer", c.signer.Address(), *quote.Payer)
	}
	return nil
}

// checkPrice holds a quote against the policy of its action: the unit price of
// a new one, and how often it is charged.
func checkPrice(intent *Intent) error {
	quote := &intent.Order.Quote
	i := slices.IndexFunc(intent.Capabilities.Actions, func(p boxoffice.Policy) bool { return p.Action == quote.Action })
	if i < 0 {
		return &MismatchError{"capabilities/actions", "does not list " + quote.Action, ""}
	}
	policy := intent.Capabilities.Actions[i]
	unit, runs := quote.Payment.Amount, int64(1)
	if quote.UnitAmount != nil {
		unit = *quote.UnitAmount
	}
	if quote.Action == boxoffice.ActionScheduleCreate || quote.Action == boxoffice.ActionScheduleTopUp {
		var input struct{ Runs int64 }
		if err := json.Unmarshal([]byte(intent.Order.InputJSON), &input); err != nil || input.Runs < 1 {
			return &MismatchError{"order/inputJson", "has no runs to be priced by", ""}
		}
		runs = input.Runs
	}
	if quote.UnitAmount != nil || runs != 1 {
		if err := same("order/quote/runs", runs, quote.Runs); err != nil {
			return err
		}
	}
	if !intent.Created {
		return nil
	}
	return cmp.Or(
		same("order/quote/policyVersion", policy.Version, quote.PolicyVersion),
		same("order/quote/payment/amount (of one unit)", policy.Payment.Amount, unit),
		same("order/quote/payment/asset", policy.Payment.Asset, quote.Payment.Asset),
		same("order/quote/payment/payTo", policy.Payment.PayTo, quote.Payment.PayTo),
		same("order/quote/expiresAt", quote.IssuedAt+policy.QuoteTTLSeconds, quote.ExpiresAt),
	)
}

func (c *Client) checkOffer(offer *Offer, intent *Intent) error {
	challenge, required, order := &offer.Challenge, &offer.Required, &intent.Order
	if err := mismatch("challenge", challenge.Verify()); err != nil {
		return err
	}
	accepted, err := challenge.Accepted()
	if err != nil {
		return mismatch("challenge", err)
	}
	offered, resource := intent.Capabilities.Payment, x402.Resource{}
	if required.Resource != nil {
		resource = *required.Resource
	}
	if err := cmp.Or(
		same("challenge/quote/id", order.Quote.ID, challenge.Quote.ID),
		same("challenge/quote/quoteHash", order.Quote.QuoteHash, challenge.Quote.QuoteHash),
		same("challenge/resourceUrl", c.submitURL(order.ID), challenge.ResourceURL),
		same("challenge/requesterScopeHash", c.scope, challenge.RequesterScopeHash),
		same("challenge/accepts/extra/name", offered.Asset.Name, accepted.Extra.Name),
		same("challenge/accepts/extra/version", offered.Asset.Version, accepted.Extra.Version),
		same("challenge/accepts/maxTimeoutSeconds", offered.MaxTimeoutSeconds, accepted.MaxTimeoutSeconds),
		same("PAYMENT-REQUIRED/x402Version", challenge.X402Version, required.X402Version),
		same("PAYMENT-REQUIRED/resource", challenge.Resource, resource),
		same("PAYMENT-REQUIRED/accepts", len(challenge.Accepts), len(required.Accepts)),
	); err != nil {
		return err
	}
	for i, item := range challenge.Accepts {
		if field := item.Mismatch(required.Accepts[i]); field != "" {
			return &MismatchError{fmt.Sprintf("PAYMENT-REQUIRED/accepts/%d/%s", i, field), "differs from the challenge in the body", ""}
		}
	}
	return nil
}

func same[T comparable](field string, want, got T) error {
	if want == got {
		return nil
	}
	return &MismatchError{Field: field, Want: fmt.Sprint(want), Got: fmt.Sprint(got)}
}

func pinned[T comparable](field string, allowed []T, got T) error {
	if len(allowed) == 0 || slices.Contains(allowed, got) {
		return nil
	}
	return &MismatchError{Field: field, Want: fmt.Sprint("one of ", allowed), Got: fmt.Sprint(got)}
}

// mismatch turns a broken rule of a resource into a *MismatchError.
func mismatch(resource string, err error) error {
	if field, ok := errors.AsType[*boxoffice.FieldError](err); ok {
		return &MismatchError{Field: resource + field.Pointer, Want: field.Message}
	}
	return err
}
