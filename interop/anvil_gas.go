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

// The limits of gas for a payment in a plain ERC-20 to a recipient with a balance. The gas varies by some tens with the
// number of zero bytes in signatures and deadlines.
const (
	batch          = 50
	gasAlone       = 80_500
	gasOtherPayers = 53_000
	gasOnePayer    = 22_500
	batchResult    = "one transaction, at most %d gas per payment, admitted, exactly one transfer each"
)

// gas measures what a payment costs alone, in a batch of payments of different payers, and in a batch of one payer
// whose Permit2 nonces follow each other.
func (a *anvil) gas(ctx context.Context) (rows []row, err error) {
	token, err := a.token(ctx, "PlainToken", manyPayers)
	if err != nil {
		return nil, err
	}
	var different, same []int
	for n := range batch {
		different, same = append(different, 5+n), append(same, 4)
	}
	one := func(c *server.Config) { c.Settlement.MaxInFlight = 1 } // so that payments wait behind the one before them
	err = a.byHand(ctx, func() error {
		return a.serve(ctx, token, 18, one, func(s *service) error {
			// The first payment to a recipient costs more gas than all later ones, so it does not count.
			if err := s.finish(ctx, s.start(ctx, 0)); err != nil {
				return err
			}
			for _, m := range []struct {
				what   string
				leader int
				payers []int
				limit  uint64
				result string
			}{
				{"one payment", 1, nil, gasAlone, "at most %d gas, " + admitted},
				{fmt.Sprintf("a batch of %d payments of different payers", batch),
					2, different, gasOtherPayers, batchResult},
				{
					fmt.Sprintf("a batch of %d payments of one payer, with nonces in a row", batch), 3, same,
					gasOnePayer, batchResult,
				},
			} {
				each, err := s.batch(ctx, m.leader, m.payers)
				if err != nil {
					return fmt.Errorf("%s: %w", m.what, err)
				}
				fmt.Fprintf(os.Stderr, "%s: %d gas per payment\n", m.what, each)
				if each > m.limit {
					return fmt.Errorf("%s: %d gas per payment, the limit is %d", m.what, each, m.limit)
				}
				rows = append(rows, row{a.version, a.plain, m.what, fmt.Sprintf(m.result, m.limit)})
			}
			return nil
		})
	})
	return rows, err
}

// batch submits a payment of the leader and, when it is broadcast, those of the payers, which wait for it and become a
// batch. It settles all and returns the gas of each payment of the batch, or of the leader's if there are no payers.
func (s *service) batch(ctx context.Context, leader int, payers []int) (each uint64, err error) {
	first := s.start(ctx, leader)
	if _, err := s.pooled(ctx, common.Hash{}); err != nil {
		return 0, err
	}
	rest := make([]*sold, len(payers))
	buyers := map[int]*client.Client{} // one for each payer, which takes one nonce after the other
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
		err = fmt.Errorf("%d payments are in %d transactions", len(rest), transactions)
	}
	return all / uint64(len(rest)), err
}

// spent returns the gas of the transactions that settled the purchases, and their number.
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
