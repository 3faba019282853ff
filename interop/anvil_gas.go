package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"boxoffice"
	"boxoffice/client"
	"boxoffice/contracts"
	"boxoffice/internal/httpapi"
	"boxoffice/internal/server"
	"boxoffice/internal/test/rollup"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
)

// The limits for a payment in a plain ERC-20 to a recipient with a balance.
const (
	batchSize      = 50
	gasAlone       = 1.10 // of one settle of the proxy that is sent directly
	gasOtherPayers = 0.64 // of the same
	gasOnePayer    = 0.26 // of the same
	calldata       = 150  // bytes for each payment of a batch
	dataEcotone    = 0.5  // of the data fee of Multicall3 for the same payments
	dataFjord      = 0.85 // of the same
)

// The payers of each measurement.
const (
	warmer, leaderAlone, leaderOthers, leaderSame, same = 0, 1, 2, 3, 4
	firstOther                                          = 5
	leaderLiar                                          = firstOther + batchSize
	liar                                                = leaderLiar + 1
)

// gas measures what a payment costs alone, in a batch of payments of different payers, in a batch of one payer whose
// Permit2 nonces follow each other, and in a batch with a payer whose code burns gas.
func (a *anvil) gas(ctx context.Context) (rows []row, err error) {
	token, err := a.token(ctx, "PlainToken", manyPayers)
	if err != nil {
		return nil, err
	}
	direct, err := a.direct(ctx, token)
	if err != nil {
		return nil, fmt.Errorf("a settle of the proxy: %w", err)
	}
	if err := a.delegate(ctx, firstPayer+liar, contracts.HostileWallet()); err != nil {
		return nil, fmt.Errorf("a delegate: %w", err)
	}
	configure := func(c *server.Config) {
		c.Settlement.MaxInFlight = 1 // so that payments wait behind the one before them
		c.Chain.Confirmations = 1
	}
	err = a.byHand(ctx, func() error {
		return a.serve(ctx, token, 18, configure, func(s *service) (err error) {
			rows, err = s.measure(ctx, direct)
			return err
		})
	})
	return rows, err
}

// direct returns the gas of one settle of the proxy to a recipient with a balance. Its sender is no service.
func (a *anvil) direct(ctx context.Context, token common.Address) (gas uint64, err error) {
	for range 2 { // the first payment to a recipient costs more
		call, err := a.directCall(token, common.Address{0xd1}, firstPayer+warmer)
		if err != nil {
			return 0, err
		}
		receipt, err := a.send(ctx, deployer, map[string]any{"to": contracts.ExactProxyAddress, "input": call})
		if err != nil {
			return 0, err
		}
		gas = receipt.GasUsed
	}
	fmt.Fprintf(os.Stderr, "one settle of the proxy: %d gas\n", gas)
	return gas, nil
}

func (s *service) measure(ctx context.Context, direct uint64) (rows []row, err error) {
	// The first payment to a recipient costs more gas than all later ones, so it does not count.
	if err := s.finish(ctx, s.start(ctx, warmer)); err != nil {
		return nil, err
	}
	var others, sames []int
	for n := range batchSize {
		others, sames = append(others, firstOther+n), append(sames, same)
	}
	var fifty batch // of different payers
	for _, m := range []struct {
		what   string
		leader int
		payers []int
		limit  float64
	}{
		{"one payment", leaderAlone, nil, gasAlone},
		{fmt.Sprintf("a batch of %d payments of one payer, with nonces in a row", batchSize), leaderSame, sames, gasOnePayer},
		{fmt.Sprintf("a batch of %d payments of different payers", batchSize), leaderOthers, others, gasOtherPayers},
	} {
		if fifty, err = s.batch(ctx, m.leader, m.payers); err != nil {
			return nil, fmt.Errorf("%s: %w", m.what, err)
		}
		share, bytes := fifty.gas/float64(direct), len(fifty.tx.Data())/len(fifty.calls)
		fmt.Fprintf(os.Stderr, "%s: %.0f gas per payment, %.3f of one settle of the proxy, %d bytes of calldata\n",
			m.what, fifty.gas, share, bytes)
		result := fmt.Sprintf("at most %.2f of the gas of one `settle` of the x402 proxy, ", m.limit) + admitted
		if len(m.payers) > 0 {
			result = fmt.Sprintf("one transaction; per payment at most %.2f of the gas of one `settle` of the x402 proxy "+
				"and %d bytes of calldata, admitted, exactly one transfer each", m.limit, calldata)
			if bytes > calldata {
				err = fmt.Errorf("%s: %d bytes of calldata per payment, the limit is %d", m.what, bytes, calldata)
			}
		}
		if share > m.limit {
			err = errors.Join(err, fmt.Errorf("%s: %.3f of one settle of the proxy, the limit is %.2f", m.what, share,
				m.limit))
		}
		if err != nil {
			return nil, err
		}
		rows = append(rows, row{s.version, s.plain, m.what, result})
	}
	data, err := s.dataFees(fifty)
	if err != nil {
		return nil, err
	}
	burnt, err := s.lie(ctx, others[1:], fifty.gas)
	if err != nil {
		return nil, fmt.Errorf("a payer whose code burns gas: %w", err)
	}
	return append(rows, data, burnt), nil
}

// A batch is what the payments of a transaction cost, and the transaction.
type batch struct {
	gas   float64 // of each payment
	tx    *types.Transaction
	calls [][]byte // of the proxy, that would settle each payment alone
}

// batch submits a payment of the leader and, when it is broadcast, those of the payers, which wait for it and become a
// batch. It settles all and measures the batch, or the leader's transaction if there are no payers.
func (s *service) batch(ctx context.Context, leader int, payers []int) (batch, error) {
	first, rest, _, err := s.gather(ctx, leader, payers)
	if err != nil {
		return batch{}, err
	}
	if err := s.finish(ctx, append(rest, first)...); err != nil {
		return batch{}, err
	}
	if len(rest) == 0 {
		rest = []*sold{first}
	}
	var b batch
	for _, p := range rest {
		if *p.status.Payment.TransactionHash != *rest[0].status.Payment.TransactionHash {
			return b, errors.New("the payments are in several transactions")
		}
		b.calls = append(b.calls, p.call)
	}
	receipt, err := s.TransactionReceipt(ctx, *rest[0].status.Payment.TransactionHash)
	if err != nil {
		return b, err
	}
	b.gas = float64(receipt.GasUsed) / float64(len(rest))
	b.tx, _, err = s.TransactionByHash(ctx, receipt.TxHash)
	return b, err
}

// gather submits a payment of the leader and, when it is broadcast, those of the payers. It returns when these wait.
func (s *service) gather(ctx context.Context, leader int, payers []int) (
	first *sold, rest []*sold, sent sentTx, err error,
) {
	if first, err = s.startSigned(ctx, nil, leader); err != nil {
		return nil, nil, sent, err
	}
	if sent, err = s.pooled(ctx, common.Hash{}); err != nil {
		return nil, nil, sent, err
	}
	buyers := map[int]*client.Client{} // one for each payer, which takes one nonce after the other
	for _, payer := range payers {
		p, err := s.startSigned(ctx, buyers, payer)
		if err != nil {
			return nil, nil, sent, err
		}
		rest = append(rest, p)
	}
	err = until(ctx, "the payments to wait", func() (bool, error) {
		var listed httpapi.PaymentList
		body, err := get(ctx, s.operatorURL+"/payments", "")
		if err == nil {
			err = json.Unmarshal(body, &listed)
		}
		return listed.Totals.Waiting == len(rest), err
	})
	return first, rest, sent, err
}

// dataFees compares what a batch pays an OP-stack chain for its data with what Multicall3 would pay for the same
// payments.
func (s *service) dataFees(b batch) (row, error) {
	ours, err := b.tx.MarshalBinary()
	if err != nil {
		return nil, err
	}
	data, err := contracts.AggregateCall(b.calls...)
	if err != nil {
		return nil, err
	}
	other, err := types.SignNewTx(s.keys[0], types.LatestSignerForChainID(b.tx.ChainId()), &types.DynamicFeeTx{
		ChainID: b.tx.ChainId(), Nonce: b.tx.Nonce(), GasTipCap: b.tx.GasTipCap(), GasFeeCap: b.tx.GasFeeCap(),
		Gas: b.tx.Gas(), To: &contracts.Multicall3Address, Data: data,
	})
	if err != nil {
		return nil, err
	}
	theirs, err := other.MarshalBinary()
	if err != nil {
		return nil, err
	}
	ecotone := float64(rollup.Ecotone(ours)) / float64(rollup.Ecotone(theirs))
	fjord := float64(rollup.Fjord(ours)) / float64(rollup.Fjord(theirs))
	fmt.Fprintf(os.Stderr, "data fee: %.3f of Multicall3's by Ecotone, %.3f by Fjord\n", ecotone, fjord)
	if ecotone > dataEcotone || fjord > dataFjord {
		return nil, fmt.Errorf("the data fee is %.3f of Multicall3's by Ecotone and %.3f by Fjord, the limits are %.2f, %.2f",
			ecotone, fjord, dataEcotone, dataFjord)
	}
	return row{
		s.version, s.plain, "the data of that batch on an OP-stack chain",
		fmt.Sprintf("at most %.2f of the fee for Multicall3 and the same payments by Ecotone's formula, %.2f by Fjord's",
			dataEcotone, dataFjord),
	}, nil
}

// lie settles a batch with a payer whose code accepts the payment in the simulation and burns all gas in the block.
func (s *service) lie(ctx context.Context, honest []int, each float64) (row, error) {
	first, rest, leading, err := s.gather(ctx, leaderLiar, append(honest, liar))
	if err != nil {
		return nil, err
	}
	if err := s.mine(ctx, 1); err != nil {
		return nil, err
	}
	sent, err := s.pooled(ctx, leading.Hash)
	if err != nil {
		return nil, err
	}
	burn, err := contracts.HostileWallet().ABI.Pack("answer", contracts.BurnGas, contracts.Accept)
	if err != nil {
		return nil, err
	}
	changed, err := s.overtake(ctx, s.address(firstPayer+liar), burn)
	if err != nil {
		return nil, err
	}
	lied := rest[len(honest)]
	if err := s.finish(ctx, append(rest[:len(honest)], first)...); err != nil {
		return nil, err
	}
	if <-lied.over; lied.err != nil || lied.status.Status != boxoffice.PaymentFailed {
		return nil, fmt.Errorf("its order is %q (%w)", lied.status.Status, lied.err)
	}
	before, err := s.TransactionReceipt(ctx, changed)
	if err != nil {
		return nil, err
	}
	receipt, err := s.TransactionReceipt(ctx, sent.Hash)
	if err != nil {
		return nil, err
	}
	if before.BlockHash != receipt.BlockHash || before.TransactionIndex > receipt.TransactionIndex {
		return nil, errors.New("its code did not change in the block of the batch, before it")
	}
	for _, p := range rest[:len(honest)] {
		if *p.status.Payment.TransactionHash != sent.Hash {
			return nil, errors.New("an honest payment is in another transaction")
		}
	}
	bound := float64(server.Default().Settlement.GasPerSettle)
	burnt := float64(receipt.GasUsed) - each*float64(len(honest))
	fmt.Fprintf(os.Stderr, "a payment that burns all gas: %.0f gas\n", burnt)
	if burnt > bound || burnt < bound*.9 {
		return nil, fmt.Errorf("it used %.0f gas, its bound is %.0f", burnt, bound)
	}
	return row{
		s.version, s.plain,
		fmt.Sprintf("a batch of %d payments; the code of one payer accepts in the simulation and burns all gas in the block",
			batchSize),
		fmt.Sprintf("that payment fails and uses at most its bound, %.0f gas; the others settle in the same transaction: "+
			"admitted, exactly one transfer each", bound),
	}, nil
}
