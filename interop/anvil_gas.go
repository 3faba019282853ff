package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"boxoffice/client"
	"boxoffice/internal/httpapi"
	"boxoffice/internal/server"

	"github.com/ethereum/go-ethereum/common"
)

// The most gas that a payment may take, in a plain ERC-20, to a recipient that
// was paid before. Signatures and deadlines have more or fewer zero bytes, which
// makes a difference of some ten gas.
const (
	batch       = 50
	mostAlone   = 80_500
	mostSpread  = 53_000
	mostInARow  = 22_500
	batchResult = "one transaction, at most %d gas a payment, admitted, exactly one transfer each"
)

// gas measures what a payment costs alone, among payments of other payers, and
// among payments of one payer with nonces in a row.
func (a *anvil) gas(ctx context.Context) (rows []row, err error) {
	token, err := a.token(ctx, "PlainToken", manyPayers)
	if err != nil {
		return nil, err
	}
	var spread, inARow []int
	for n := range batch {
		spread, inARow = append(spread, 5+n), append(inARow, 4)
	}
	one := func(c *server.Config) { c.Settlement.MaxInFlight = 1 } // so that payments wait for the one before them
	err = a.byHand(ctx, func() error {
		return a.serve(ctx, token, 18, one, func(s *service) error {
			// The first payment that a recipient ever gets costs more than all later ones.
			if err := s.finish(ctx, s.start(ctx, 0)); err != nil {
				return err
			}
			for _, m := range []struct {
				what   string
				leader int
				behind []int
				most   uint64
				result string
			}{
				{"one payment", 1, nil, mostAlone, "at most %d gas, " + admitted},
				{fmt.Sprintf("%d payments of as many payers wait", batch), 2, spread, mostSpread, batchResult},
				{fmt.Sprintf("%d payments of one payer wait, with nonces in a row", batch), 3, inARow, mostInARow, batchResult},
			} {
				each, err := s.behind(ctx, m.leader, m.behind)
				if err != nil {
					return fmt.Errorf("%s: %w", m.what, err)
				}
				fmt.Fprintf(os.Stderr, "%s: %d gas a payment\n", m.what, each)
				if each > m.most {
					return fmt.Errorf("%s: %d gas a payment, at most %d is promised", m.what, each, m.most)
				}
				rows = append(rows, row{a.version, a.plain, m.what, fmt.Sprintf(m.result, m.most)})
			}
			return nil
		})
	})
	return rows, err
}

// behind has payments wait behind one of the leader's, settles all of them, and
// returns the gas of each; of the leader's if no other waits.
func (s *service) behind(ctx context.Context, leader int, payers []int) (each uint64, err error) {
	first := s.start(ctx, leader)
	if _, err := s.pooled(ctx, common.Hash{}); err != nil {
		return 0, err
	}
	rest := make([]*sold, len(payers))
	buyers := map[int]*client.Client{} // who gives the nonces of a payer away in a row
	for i, payer := range payers {
		if buyers[payer] == nil {
			if buyers[payer], err = s.buyer(payer); err != nil {
				return 0, err
			}
		}
		rest[i] = buy(ctx, buyers[payer])
	}
	err = until(ctx, "the payments to wait", func() (bool, error) {
		var listed httpapi.PaymentList
		body, err := get(ctx, s.operatorURL+"/payments", "")
		if err == nil {
			err = json.Unmarshal(body, &listed)
		}
		return listed.Totals.Waiting == len(rest), err
	})
	if err != nil {
		return 0, err
	}
	if err := s.finish(ctx, append(rest, first)...); err != nil {
		return 0, err
	}
	if len(rest) == 0 {
		rest = []*sold{first}
	}
	all, transactions, err := s.spent(ctx, rest)
	if err == nil && transactions != 1 {
		err = fmt.Errorf("%d payments went in %d transactions", len(rest), transactions)
	}
	return all / uint64(len(rest)), err
}

// spent returns the gas of the transactions that settled the purchases, and how
// many they are.
func (s *service) spent(ctx context.Context, purchases []*sold) (gas uint64, transactions int, err error) {
	seen := map[common.Hash]bool{}
	for _, p := range purchases {
		hash := *p.status.Payment.TransactionHash
		if seen[hash] {
			continue
		}
		seen[hash] = true
		receipt, err := s.TransactionReceipt(ctx, hash)
		if err != nil {
			return 0, 0, err
		}
		gas += receipt.GasUsed
	}
	return gas, len(seen), nil
}
