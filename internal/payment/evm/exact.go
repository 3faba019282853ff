package evm

import (
	"fmt"
	"math/big"

	"boxoffice/internal/payment"
	"boxoffice/x402"
)

// settleCalls has the positions of three results for one permit: the recipient's
// balance before the simulated settle, the settle, and the balance after it.
type settleCalls struct{ before, settle, after int }

// addSettles appends the calls that simulate the settles of the permits, one after
// the other. If two permits in a row have the same recipient, its balance between
// them is read once.
func (c *Chain) addSettles(calls []call, permits []payment.Permit) ([]call, []settleCalls) {
	places := make([]settleCalls, len(permits))
	var last account // whose balance was read last
	for i, p := range permits {
		recipient := account{p.Permitted.Token, p.Witness.To}
		read := call{to: recipient.token, data: pack("balanceOf", recipient.owner)}
		if i == 0 || recipient != last {
			calls = append(calls, read)
		}
		last = recipient
		calls = append(calls, call{to: x402.ExactProxy, data: packSettle(p), gas: c.cfg.GasPerSettle}, read)
		places[i] = settleCalls{len(calls) - 3, len(calls) - 2, len(calls) - 1}
	}
	return calls, places
}

// checkExact checks that a settle which does not revert brings the recipient exactly
// the signed amount. A token that takes a fee would move money without the Transfer
// by which the settler finds the payment. known is false if a
// balance could not be read, because the settle left no gas for that.
func checkExact(p payment.Permit, before, after callResult) (known bool, failure *payment.Rejection) {
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
