package payment

import (
	"context"
	"errors"

	"boxoffice"

	"github.com/ethereum/go-ethereum/common"
)

// Intents that one review looks at: of those that failed and of those that settled.
const (
	reviewFailed  = 100
	reviewSettled = 1000
)

// review looks, now and then, at what was decided and may not be the last word.
func (s *Settler) review(ctx context.Context, v view) error {
	if !s.past.at(s.Now(), s.RecheckEvery) {
		return nil
	}
	s.past.last = s.Now()
	doubtful, err := s.Store.Unresolved(ctx, s.ChainID, reviewFailed)
	if err != nil {
		return err
	}
	cases := make([]doubt, len(doubtful))
	for i, intent := range doubtful {
		cases[i] = doubt{intent: intent}
	}
	return errors.Join(s.conclude(ctx, v, cases), s.checkSettled(ctx, v))
}

// checkSettled notices that the chain has taken back what it had confirmed. A
// slot whose wallet nonce is free again is open again. An intent whose slot was
// mined otherwise, or that somebody else had settled, waits again. Their orders
// stay paid.
func (s *Settler) checkSettled(ctx context.Context, v view) error {
	first := v.confirmed - min(v.confirmed, s.ReorgDepth)
	settled, err := s.History.Settled(ctx, s.ChainID, first, reviewSettled)
	if err != nil {
		return err
	}
	if len(settled) > 0 && settled[0].Evidence.BlockNumber > v.confirmed {
		return nil // this view is older than what was concluded
	}
	consumed, err := s.Wallet.Nonce(ctx, v.confirmed)
	if err != nil {
		return err
	}
	reopened, err := s.History.ReopenSlots(ctx, s.ChainID, s.Wallet.Address(), consumed)
	if err != nil {
		return err
	}
	if reopened > 0 {
		s.Log.ErrorContext(ctx, "a reorganisation deeper than the confirmations took transactions back; they are sent again",
			"slots", reopened, "fromWalletNonce", consumed)
		settled, err = s.History.Settled(ctx, s.ChainID, first, reviewSettled)
		if err != nil {
			return err
		}
	}
	return s.undo(ctx, v, settled)
}

// undo lets settled intents wait again whose transfer no block has any more.
func (s *Settler) undo(ctx context.Context, v view, settled []Intent) error {
	var hashes []common.Hash
	place := map[common.Hash]int{}
	for _, intent := range settled {
		if _, known := place[intent.Evidence.TxHash]; !known {
			place[intent.Evidence.TxHash] = len(hashes)
			hashes = append(hashes, intent.Evidence.TxHash)
		}
	}
	if len(hashes) == 0 {
		return nil
	}
	receipts, err := s.Chain.Receipts(ctx, hashes, v.confirmed)
	if err != nil {
		return err
	}
	// Twins, of one payer and amount in one transaction, need a transfer each. If
	// one is missing, all of them wait until it is clear whose.
	type claim struct {
		tx       common.Hash
		from, to account
		amount   boxoffice.Amount
	}
	claims := map[claim][]Intent{}
	for _, intent := range settled {
		permit := intent.Permit
		token := permit.Permitted.Token
		key := claim{intent.Evidence.TxHash, account{permit.From, token}, account{permit.Witness.To, token}, permit.Permitted.Amount}
		claims[key] = append(claims[key], intent)
	}
	var undone []Intent
	for key, twins := range claims {
		there := 0
		if receipt := receipts[place[key.tx]]; receipt != nil {
			for _, transfer := range receipt.Transfers {
				if twins[0].movedBy(transfer) {
					there++
				}
			}
		}
		if there >= len(twins) {
			continue
		}
		undone = append(undone, twins...)
		for _, intent := range twins {
			s.Log.ErrorContext(ctx, "a reorganisation took a settled payment back; its order stays paid, and it is settled again while its permit lives",
				"intent", intent.ID, "order", intent.OrderID, "tx", key.tx, "block", intent.Evidence.BlockNumber)
		}
	}
	if len(undone) == 0 {
		return nil
	}
	return s.settle(ctx, nil, verdicts(undone, OutcomeUndone))
}
