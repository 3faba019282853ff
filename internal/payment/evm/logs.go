package evm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"boxoffice/contracts/settlement"
	"boxoffice/internal/payment"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/rpc"
)

// chainLog is the part of a log that this package reads, from eth_getLogs or from
// a receipt.
type chainLog struct {
	Address     common.Address  `json:"address"`
	Topics      []common.Hash   `json:"topics"`
	Data        hexutil.Bytes   `json:"data"`
	TxHash      *common.Hash    `json:"transactionHash"`
	Index       *hexutil.Uint64 `json:"logIndex"`
	BlockNumber *hexutil.Uint64 `json:"blockNumber"`
	Removed     bool            `json:"removed"`
}

// transfer decodes an ERC-20 Transfer: three topics and one word of data. (The
// Transfer of ERC-721 has four topics.) isTransfer is false for any other log. It fails
// for a Transfer that does not name its transaction, index and block.
func (l *chainLog) transfer() (t payment.Transfer, isTransfer bool, err error) {
	if l.Removed || len(l.Topics) != 3 || l.Topics[0] != transferTopic || len(l.Data) != 32 {
		return payment.Transfer{}, false, nil
	}
	for _, topic := range l.Topics[1:] {
		if !bytes.Equal(topic[:12], make([]byte, 12)) {
			return payment.Transfer{}, false, nil
		}
	}
	if l.TxHash == nil || l.Index == nil || l.BlockNumber == nil {
		return payment.Transfer{}, false, errors.New("the node's log has no transaction, index or block")
	}
	return payment.Transfer{
		Token:       l.Address,
		From:        common.BytesToAddress(l.Topics[1][:]),
		To:          common.BytesToAddress(l.Topics[2][:]),
		Amount:      x402.Uint256FromBytes32([32]byte(l.Data)),
		TxHash:      *l.TxHash,
		LogIndex:    uint(*l.Index),
		BlockNumber: uint64(*l.BlockNumber),
	}, true, nil
}

// outcomes decodes the event of the settlement contract, which has one byte for each
// payment of the batch.
func (l *chainLog) outcomes() (calls []payment.CallOutcome, isBatch bool, err error) {
	event := settlement.ABI().Events["Batch"]
	if l.Removed || l.Address != settlement.Address || len(l.Topics) != 1 || l.Topics[0] != event.ID {
		return nil, false, nil
	}
	values, err := event.Inputs.Unpack(l.Data)
	if err != nil {
		return nil, false, errors.New("the event of the settlement contract cannot be decoded")
	}
	for _, outcome := range values[0].([]byte) {
		calls = append(calls, payment.CallOutcome(outcome))
	}
	return calls, true, nil
}

type chainReceipt struct {
	TxHash      *common.Hash    `json:"transactionHash"`
	Status      *hexutil.Uint64 `json:"status"`
	BlockNumber *hexutil.Uint64 `json:"blockNumber"` // null in the receipt that some nodes return before mining
	GasUsed     hexutil.Uint64  `json:"gasUsed"`
	GasPrice    *hexutil.Big    `json:"effectiveGasPrice"`
	Logs        []chainLog      `json:"logs"`
}

// Receipts returns the receipt of each transaction, nil for one that is not
// mined, with the ERC-20 transfers of any token. It fails if the node does not have
// block needed: then it may not have the receipts either.
func (c *Chain) Receipts(ctx context.Context, hashes []common.Hash, needed uint64) ([]*payment.Receipt, error) {
	if len(hashes) == 0 {
		return nil, nil
	}
	op := fmt.Sprintf("read %d receipts", len(hashes))
	answers := make([]*chainReceipt, len(hashes))
	requests := make([]rpc.BatchElem, len(hashes))
	for i, hash := range hashes {
		requests[i] = rpc.BatchElem{Method: "eth_getTransactionReceipt", Args: []any{hash}, Result: &answers[i]}
	}
	var proof *header // proves that the node has the block
	requests = append(requests, headerRequest(hexutil.EncodeUint64(needed), &proof))
	if err := c.request(ctx, op, requests...); err != nil {
		return nil, err
	}
	if err := proof.check(); err != nil {
		return nil, c.fail(op, fmt.Errorf("block %d: %w", needed, err))
	}
	receipts := make([]*payment.Receipt, len(hashes))
	for i, answer := range answers {
		if answer == nil || answer.TxHash != nil && answer.BlockNumber == nil {
			continue
		}
		if answer.TxHash == nil || *answer.TxHash != hashes[i] {
			return nil, c.fail(op, errors.New("the node returned the receipt of another transaction"))
		}
		receipt := &payment.Receipt{
			TxHash:      hashes[i],
			BlockNumber: uint64(*answer.BlockNumber),
			GasUsed:     uint64(answer.GasUsed),
			Failed:      answer.Status != nil && *answer.Status == 0,
		}
		if answer.GasPrice != nil {
			price, err := x402.Uint256FromBig(answer.GasPrice.ToInt())
			if err != nil {
				return nil, c.fail(op, errors.New("the gas price in the node's receipt is out of range"))
			}
			receipt.GasPrice = price
		}
		for _, log := range answer.Logs {
			transfer, isTransfer, err := log.transfer()
			if err != nil {
				return nil, c.fail(op, err)
			}
			if isTransfer {
				receipt.Transfers = append(receipt.Transfers, transfer)
			}
			outcomes, isBatch, err := log.outcomes()
			if err != nil {
				return nil, c.fail(op, err)
			}
			if isBatch {
				receipt.Calls = append(receipt.Calls, outcomes...)
			}
		}
		receipts[i] = receipt
	}
	return receipts, nil
}

// Transfers returns the transfers of token from one address to another in the
// blocks from first to last, both included, oldest first. If the node refuses a
// range it asks for half as many blocks; it fails if the node refuses a single
// block. It also fails if the node does not have the last block, because such a
// node returns the transfers up to its own newest block.
func (c *Chain) Transfers(ctx context.Context, token, from, to common.Address,
	first, last uint64) ([]payment.Transfer, error) {
	if last < first {
		return nil, nil
	}
	var found []payment.Transfer
	for at, span := first, last-first; ; { // span is one less than the blocks asked for
		end := at + min(span, last-at)
		op := fmt.Sprintf("read the transfers of blocks %d to %d", at, end)
		transfers, err := c.transfers(ctx, op, token, from, to, at, end)
		switch {
		case err == nil:
			found = append(found, transfers...)
			if end == last {
				return found, nil
			}
			at = end + 1
		case end > at && tooMuch(err):
			span = (end - at) / 2
		default:
			return nil, c.fail(op, err)
		}
	}
}

// tooMuch reports whether a smaller range may work. Nodes have no common code for
// a range that is too large; some answer HTTP 400 or 413. After a refusal for
// another reason, halving costs a few requests and ends with the same error.
func tooMuch(err error) bool {
	if status, ok := errors.AsType[rpc.HTTPError](err); ok {
		return status.StatusCode == http.StatusBadRequest || status.StatusCode == http.StatusRequestEntityTooLarge
	}
	return refused(err)
}

func (c *Chain) transfers(ctx context.Context, op string, token, from, to common.Address,
	first, last uint64) ([]payment.Transfer, error) {
	client, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	var logs []chainLog
	var proof *header // proves that the node has the block
	requests := []rpc.BatchElem{{Method: "eth_getLogs", Result: &logs, Args: []any{map[string]any{
		"address":   token,
		"topics":    []any{transferTopic, common.BytesToHash(from[:]), common.BytesToHash(to[:])},
		"fromBlock": hexutil.EncodeUint64(first),
		"toBlock":   hexutil.EncodeUint64(last),
	}}}, headerRequest(hexutil.EncodeUint64(last), &proof)}
	if err := c.sendBatch(ctx, client, requests); err != nil {
		return nil, err
	}
	for _, request := range requests {
		if request.Error != nil {
			return nil, request.Error
		}
	}
	if err := proof.check(); err != nil {
		return nil, fmt.Errorf("block %d: %w", last, err)
	}
	found := make([]payment.Transfer, 0, len(logs))
	for _, log := range logs {
		transfer, isTransfer, err := log.transfer()
		if err != nil {
			return nil, err
		}
		// Some nodes do not filter, so it is done here again.
		if isTransfer && transfer.Token == token && transfer.From == from && transfer.To == to &&
			first <= transfer.BlockNumber && transfer.BlockNumber <= last {
			found = append(found, transfer)
		}
	}
	slices.SortStableFunc(found, func(a, b payment.Transfer) int {
		return cmp.Or(cmp.Compare(a.BlockNumber, b.BlockNumber), cmp.Compare(a.LogIndex, b.LogIndex))
	})
	return found, nil
}
