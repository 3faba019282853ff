package remote

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"boxoffice/internal/payment"
	"boxoffice/x402"
)

// Standings asks the facilitator's /verify about each permit, where no RPC node is
// configured. The facilitator does not return balances and allowances, so they read
// as 2²⁵⁶ - 1. Its refusal is the Failure of the standing.
type Standings struct {
	Client     *Client
	Token      x402.Extra    // of the asset, as in a challenge
	MaxTimeout time.Duration // as in a challenge
}

var _ payment.Standings = Standings{}

// Standing implements payment.Standings. It writes the accepted terms again from
// each permit, which the Verifier has found equal to the terms of the quote. A
// facilitator does not say whether an owner has code or what it approves.
func (s Standings) Standing(ctx context.Context, permits []payment.Permit,
	_ ...payment.Approval) ([]payment.Standing, error) {
	standings := make([]payment.Standing, len(permits))
	for i, permit := range permits {
		extra := s.Token
		terms := x402.Requirements{
			Scheme: x402.SchemeExact, Network: x402.Network(s.Client.ChainID), Asset: permit.Permitted.Token,
			Amount: permit.Permitted.Amount, PayTo: permit.Witness.To,
			MaxTimeoutSeconds: int64(s.MaxTimeout.Seconds()), Extra: &extra,
		}
		payload, err := json.Marshal(x402.Payload{
			X402Version: x402.Version, Accepted: terms,
			Payload: x402.Permit2Payload{Signature: permit.Signature, Authorization: permit.Authorization},
		})
		if err != nil {
			return nil, errors.New("the permit cannot be written as a payload")
		}
		rejection, err := s.Client.Verify(ctx, payload, terms)
		if err != nil {
			return nil, err
		}
		standings[i] = payment.Standing{Balance: x402.MaxUint256(), Allowance: x402.MaxUint256(), Failure: rejection}
	}
	return standings, nil
}
