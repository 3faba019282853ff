package devchain

import (
	"math/big"

	"boxoffice/contracts"
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
	return contracts.ExactProxy().ABI.Pack("settle",
		permit{permitted{a.Permitted.Token, a.Permitted.Amount.Big()}, a.Nonce.Big(), a.Deadline.Big()},
		a.From, witness{a.Witness.To, a.Witness.ValidAfter.Big()}, signature)
}
