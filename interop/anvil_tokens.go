package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"boxoffice"
	"boxoffice/client"
	"boxoffice/internal/server"

	"github.com/ethereum/go-ethereum/common"
)

// kind is a kind of token, and the expected result of a payment in it.
type kind struct {
	contract, what       string
	decimals, configured int
	blocks               pace
	refusal              string // reason of the 402; "" if the payment settles
	stop                 string // error of the service that does not start; "" if it starts
}

type pace string

const (
	eachTransaction pace = "a block for each transaction"
	eachSecond      pace = "a block every second"
)

// tokens buys with each kind of token.
func (a *anvil) tokens(ctx context.Context) (rows []row, err error) {
	for _, k := range []kind{
		{"PlainToken", a.plain + ", 18 decimals", 18, 18, eachTransaction, "", ""},
		{"PlainToken", a.plain + ", 18 decimals", 18, 18, eachSecond, "", ""},
		{"PermitToken", a.plain + " Permit", 18, 18, eachTransaction, "", ""},
		{"PermitToken", a.plain + " Permit", 18, 18, eachSecond, "", ""},
		{"SixDecimalsToken", "6 decimals", 6, 6, eachTransaction, "", ""},
		{
			"SixDecimalsToken", "6 decimals, configured with 18", 6, 18, eachTransaction, "",
			"payment.decimals is 18, the token has 6",
		},
		{"", "no contract at the address", 18, 18, eachTransaction, "", "the token has no code"},
		{"NoValueToken", "returns no value", 18, 18, eachTransaction, "", ""},
		{"FalseToken", "returns false", 18, 18, eachTransaction, "permit2_simulation_failed", ""},
		{"FeeToken", "takes a fee on transfer", 18, 18, eachTransaction, "transfer_not_exact", ""},
	} {
		token := common.HexToAddress("0xdead")
		if k.contract != "" {
			if token, err = a.token(ctx, k.contract, 1); err != nil {
				return nil, err
			}
		}
		if err := a.everySecond(ctx, k.blocks == eachSecond); err != nil {
			return nil, err
		}
		result, err := a.try(ctx, token, k)
		if err = errors.Join(err, a.everySecond(ctx, false)); err != nil {
			return nil, fmt.Errorf("%s, %s: %w", k.what, k.blocks, err)
		}
		rows = append(rows, row{a.version, k.what, string(k.blocks), result})
	}
	return rows, nil
}

// everySecond makes Anvil mine a block every second, or immediately for each transaction.
func (a *anvil) everySecond(ctx context.Context, so bool) error {
	if so {
		return a.call(ctx, nil, "evm_setIntervalMining", 1)
	}
	return errors.Join(a.call(ctx, nil, "evm_setIntervalMining", 0), a.call(ctx, nil, "evm_setAutomine", true))
}

// try starts the service for a token and buys. It returns the result, or an error if that is not the expected one.
func (a *anvil) try(ctx context.Context, token common.Address, k kind) (result string, err error) {
	configure := func(c *server.Config) {
		c.Chain.Confirmations = 2
		if k.blocks == eachTransaction { // no second block is made
			c.Chain.Confirmations = 1
		}
	}
	err = a.serve(ctx, token, k.configured, configure, func(s *service) error {
		if k.stop != "" {
			return errors.New("the service started")
		}
		status, err := s.buy(ctx, 0)
		if k.refusal == "" {
			return errors.Join(err, s.prove(ctx, status))
		}
		return errors.Join(refused(err, k.refusal), s.prove(ctx))
	})
	switch {
	case k.stop != "" && err != nil && strings.Contains(err.Error(), k.stop):
		return fmt.Sprintf("the service does not start: “%s”", k.stop), nil
	case err != nil:
		return "", err
	case k.refusal != "":
		return fmt.Sprintf("refused with 402 `payment_rejected`, `%s`, no transfer", k.refusal), nil
	}
	return admitted, nil
}

// refused checks that the error of a purchase is a 402 with this reason.
func refused(err error, reason string) error {
	answer, is := errors.AsType[*client.ResponseError](err)
	if !is || answer.Problem == nil || answer.Problem.Code != boxoffice.PaymentRejected ||
		answer.Problem.Reason != reason {
		return fmt.Errorf("want the payment refused for %s, got: %w", reason, err)
	}
	return nil
}
