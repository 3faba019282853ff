package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"boxoffice/client"
	"boxoffice/x402"
)

type signCmd struct {
	ID string `arg:"" help:"The order."`
	terms
}

// Run signs a payment for an order and prints it as a configuration of curl, or
// as JSON. It sends nothing.
func (cmd *signCmd) Run(ctx context.Context, s *Settings, std *streams) error {
	id, err := orderID(cmd.ID)
	if err != nil {
		return err
	}
	c, err := s.connect(ctx, std, needsToken|needsWallet)
	if err != nil {
		return err
	}
	capabilities, err := c.Capabilities(ctx)
	if err != nil {
		return err
	}
	purchase, err := cmd.purchase(std, &capabilities, "Sign a payment of", "Signing; nothing is sent.")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cmd.Timeout)
	defer cancel()
	status, err := c.Status(ctx, id)
	if err != nil {
		return err
	}
	offer, settled, err := c.Challenge(ctx, id)
	if err != nil {
		return err
	}
	if settled != nil {
		return fmt.Errorf("order %s is %s: there is nothing to sign", id, settled.Status)
	}
	intent := client.Intent{Purchase: purchase, Capabilities: capabilities, Order: status.Order}
	if err := c.Check(ctx, offer, intent); err != nil {
		return err
	}
	if err := purchase.Confirm(ctx, offer.Challenge); err != nil {
		return err
	}
	payment, err := c.Sign(ctx, offer, intent)
	if err != nil {
		return err
	}
	signature, err := payment.QuoteSignature.MarshalText()
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]string{"quoteSignature": string(signature)})
	if err != nil {
		return err
	}
	if s.JSON {
		return json.NewEncoder(std.out).Encode(map[string]any{
			"url": offer.Challenge.ResourceURL, "header": map[string]string{x402.HeaderSignature: payment.Header}, "body": json.RawMessage(body),
		})
	}
	var config strings.Builder
	for _, line := range [][2]string{
		{"url", offer.Challenge.ResourceURL},
		{"header", "Content-Type: application/json"},
		{"header", x402.HeaderSignature + ": " + payment.Header},
		{"data", string(body)},
	} {
		fmt.Fprintf(&config, "%s = %s\n", line[0], strconv.Quote(line[1]))
	}
	_, err = fmt.Fprint(std.out, config.String())
	return err
}
