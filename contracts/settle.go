package contracts

import (
	"math/big"

	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
)

// SettleCall returns the input of the call of the x402 exact proxy that settles a signed payment.
func SettleCall(a x402.Authorization, signature []byte) ([]byte, error) {
	type permitted struct {
		Token  common.Address
		Amount *big.Int
	}
	type permit struct {
		Permitted       permitted
		Nonce, Deadline *big.Int
	}
	type witness struct {
		To         common.Address
		ValidAfter *big.Int
	}
	return ExactProxy().ABI.Pack("settle",
		permit{permitted{a.Permitted.Token, a.Permitted.Amount.Big()}, a.Nonce.Big(), a.Deadline.Big()},
		a.From, witness{a.Witness.To, a.Witness.ValidAfter.Big()}, signature)
}

// AggregateCall returns the input of the call of Multicall3 that makes calls of the proxy, of which any may fail.
func AggregateCall(calls ...[]byte) ([]byte, error) {
	type call struct {
		Target       common.Address
		AllowFailure bool
		CallData     []byte
	}
	list := make([]call, len(calls))
	for i, input := range calls {
		list[i] = call{ExactProxyAddress, true, input}
	}
	return Multicall3().ABI.Pack("aggregate3", list)
}
