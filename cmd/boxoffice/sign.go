package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"boxoffice"
	"boxoffice/x402"
)

type signCmd struct {
	ID string `arg:"" help:"The order."`
	terms
}

// Run signs a payment for an order and prints it as a configuration file for curl,
// or as JSON. It does not send it.
func (cmd *signCmd) Run(ctx context.Context, s *Settings, std *streams) error {
	id, err := parseID(cmd.ID)
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
	const next = "Signing. The payment is printed and not sent."
	purchase, err := cmd.purchase(std, &capabilities, "Sign a payment of", next)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cmd.Timeout)
	defer cancel()
	payment, err := c.Sign(ctx, id, purchase)
	if err != nil {
		return err
	}
	body, err := json.Marshal(boxoffice.Submission{QuoteSignature: payment.QuoteSignature})
	if err != nil {
		return err
	}
	if s.JSON {
		return writeJSON(std.out, map[string]any{
			"url": payment.URL, "body": json.RawMessage(body),
			"header": map[string]string{x402.HeaderSignature: payment.Header},
		})
	}
	for _, line := range [][2]string{
		{"url", payment.URL},
		{"header", "Content-Type: application/json"},
		{"header", x402.HeaderSignature + ": " + payment.Header},
		{"data", string(body)},
	} {
		if _, err := fmt.Fprintf(std.out, "%s = %s\n", line[0], strconv.Quote(line[1])); err != nil {
			return err
		}
	}
	return nil
}
