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

// check compares an offer with what was asked for, with the capabilities, with
// the pins and the greatest amount, with itself and, where the client reads the
// chain, with the token and the payer's funds. The error is a *MismatchError, a
// *ShortfallError, that of Purchase.AcceptInput, or that of reading the chain.
func (c *Client) check(ctx context.Context, offer *offer, a *attempt) error {
	if err := cmp.Or(
		c.checkCapabilities(&a.capabilities),
		c.checkOrder(a),
		c.checkOffer(offer, a),
	); err != nil {
		return err
	}
	return c.checkChain(ctx, &a.order.Quote)
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

// maxLifetime is the greatest number of seconds for which a signature may settle.
const maxLifetime = 24 * 60 * 60

func shortLived(field string, seconds int64) error {
	if seconds <= maxLifetime {
		return nil
	}
	return &MismatchError{field, fmt.Sprint("at most ", maxLifetime), fmt.Sprint(seconds)}
}

// checkIdentity checks that the order is the one that was asked for.
func (a *attempt) checkIdentity() error {
	return cmp.Or(
		same("order/requestKey", cmp.Or(a.RequestKey, a.order.RequestKey), a.order.RequestKey),
		same("order/quote/action", cmp.Or(a.action, a.order.Quote.Action), a.order.Quote.Action),
	)
}

func (a *attempt) checkInput() error {
	prepared := json.RawMessage(a.order.InputJSON)
	switch {
	case a.AcceptInput != nil:
		if err := a.AcceptInput(a.asked, prepared); err != nil {
			return fmt.Errorf("%w: %w", ErrDeclined, err)
		}
		return nil
	case a.asked == nil:
		return nil
	}
	return SameInput(a.asked, prepared)
}

func (c *Client) checkOrder(a *attempt) error {
	order, quote := &a.order, &a.order.Quote
	if err := mismatch("order", order.Verify()); err != nil {
		return err
	}
	terms, offered := quote.Payment, a.capabilities.Payment
	err := cmp.Or(
		a.checkIdentity(),
		a.checkInput(),
		same("order/quote/payment/network", offered.Network, terms.Network),
		same("order/quote/payment/asset", offered.Asset.Address, terms.Asset),
		same("order/quote/payment/payTo", offered.PayTo, terms.PayTo),
		same("order/quote/payment/decimals", offered.Asset.Decimals, terms.Decimals),
		pinned("order/quote/payment/network", c.pins.Networks, terms.Network),
		pinned("order/quote/payment/asset", c.pins.Assets, terms.Asset),
		pinned("order/quote/payment/payTo", c.pins.PayTo, terms.PayTo),
		checkPrice(a),
	)
	switch {
	case err != nil:
		return err
	case terms.Amount.Cmp(a.Max) > 0:
		tokens := func(amount boxoffice.Amount) string {
			return boxoffice.FormatUnits(amount, terms.Decimals) + " " + offered.Asset.Symbol
		}
		return &MismatchError{"order/quote/payment/amount", "at most " + tokens(a.Max), tokens(terms.Amount)}
	case !quote.Live(c.now().Unix()):
		return &MismatchError{
			"order/quote/expiresAt", "later than now, " + fmt.Sprint(c.now().Unix()), fmt.Sprint(quote.ExpiresAt),
		}
	case c.signer != nil && quote.Payer != nil:
		return same("order/quote/payer", c.signer.Address(), *quote.Payer)
	}
	return nil
}

// checkPrice compares a quote with the policy of its action: the unit price of a
// new one, and how often it is charged.
func checkPrice(a *attempt) error {
	quote := &a.order.Quote
	i := slices.IndexFunc(a.capabilities.Actions, func(p boxoffice.Policy) bool { return p.Action == quote.Action })
	if i < 0 {
		return &MismatchError{"capabilities/actions", "does not list " + quote.Action, ""}
	}
	policy := a.capabilities.Actions[i]
	unit, runs := quote.Payment.Amount, int64(1)
	if quote.UnitAmount != nil {
		unit = *quote.UnitAmount
	}
	if quote.Action == boxoffice.ActionScheduleCreate || quote.Action == boxoffice.ActionScheduleTopUp {
		var input struct{ Runs int64 }
		if err := json.Unmarshal([]byte(a.order.InputJSON), &input); err != nil || input.Runs < 1 {
			return &MismatchError{"order/inputJson", "has no runs to be priced by", ""}
		}
		runs = input.Runs
	}
	if quote.UnitAmount != nil || runs != 1 {
		if err := same("order/quote/runs", runs, quote.Runs); err != nil {
			return err
		}
	}
	if !a.created {
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

func (c *Client) checkOffer(offer *offer, a *attempt) error {
	challenge, required, order := &offer.challenge, &offer.required, &a.order
	if err := mismatch("challenge", challenge.Verify()); err != nil {
		return err
	}
	accepted, err := challenge.Accepted()
	if err != nil {
		return mismatch("challenge", err)
	}
	offered, resource := a.capabilities.Payment, x402.Resource{}
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
			return &MismatchError{
				fmt.Sprintf("PAYMENT-REQUIRED/accepts/%d/%s", i, field), "differs from the challenge in the body", "",
			}
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
