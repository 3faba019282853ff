package evm

import (
	"fmt"
	"math/big"

	"boxoffice/internal/payment"
	"boxoffice/x402"
)

// trial is where the outcomes of a permit's settle stand among those of calls
// made in order: the recipient's balance before it, the settle, the balance after.
type trial struct{ before, settle, after int }

// trials appends to calls what tries the permits one after the other. Neighbours
// with one recipient share the balance between them.
func (c *Chain) trials(calls []call, permits []payment.Permit) ([]call, []trial) {
	places := make([]trial, len(permits))
	var last account // whose balance was read last
	for i, p := range permits {
		recipient := account{p.Permitted.Token, p.Witness.To}
		read := call{to: recipient.token, data: pack("balanceOf", recipient.owner)}
		if i == 0 || recipient != last {
			calls = append(calls, read)
		}
		last = recipient
		calls = append(calls, call{to: c.cfg.Proxy, data: packSettle(p), gas: c.cfg.GasPerSettle}, read)
		places[i] = trial{len(calls) - 3, len(calls) - 2, len(calls) - 1}
	}
	return calls, places
}

// arrival fails a settle that works but does not bring the recipient exactly
// what was signed: a token that takes a fee would move the money without the
// Transfer by which the payment is recognised. That is not known where a balance
// cannot be read: a settle that takes all gas leaves none for it.
func arrival(p payment.Permit, before, after outcome) (known bool, failure *payment.Rejection) {
	had, errBefore := before.word()
	has, errAfter := after.word()
	if errBefore != nil || errAfter != nil {
		return false, nil
	}
	got := new(big.Int).Sub(new(big.Int).SetBytes(has[:]), new(big.Int).SetBytes(had[:]))
	want := p.Permitted.Amount.Big()
	if p.From == p.Witness.To {
		want = new(big.Int)
	}
	if got.Cmp(want) == 0 {
		return true, nil
	}
	return true, &payment.Rejection{Reason: x402.ReasonTransferNotExact, Detail: fmt.Sprintf(
		"token %s would bring %s %s instead of %s, in atomic units: it does not move what it is asked to move",
		hexOf(p.Permitted.Token), hexOf(p.Witness.To), got, want)}
}
