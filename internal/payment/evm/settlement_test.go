package evm_test

import (
	"crypto/sha256"
	"math/big"
	"testing"

	"boxoffice/internal/payment"
	"boxoffice/internal/test/devchain"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"pgregory.net/rapid"
)

// The contract decodes every batch: it reports on each payment, whatever the lengths of
// amounts, nonces and signatures, and whose token it is.
func TestEveryBatchIsDecoded(t *testing.T) {
	w := newWorld(t, nil, rich(t, 1))
	number := func(t *rapid.T, name string, bits int) x402.Uint256 {
		sum := sha256.Sum256(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, name))
		n, err := x402.Uint256FromBig(new(big.Int).Rsh(new(big.Int).SetBytes(sum[:]),
			uint(256-rapid.IntRange(0, bits).Draw(t, name+" bits"))))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	rapid.Check(t, func(rt *rapid.T) {
		permits := make([]payment.Permit, rapid.IntRange(1, 5).Draw(rt, "payments"))
		good := make([]bool, len(permits))
		for i := range permits {
			if good[i] = rapid.Bool().Draw(rt, "good"); good[i] {
				permits[i] = permit(t, payer(t, 1), uint64(i), amountOf(1))
				continue
			}
			permits[i] = permit(t, payer(t, 1), uint64(i), func(p *payment.Permit) {
				p.Nonce, p.Permitted.Amount = number(rt, "nonce", 256), number(rt, "amount", 256)
				p.Deadline, p.Witness.ValidAfter = number(rt, "deadline", 40), number(rt, "validAfter", 40)
				p.Permitted.Token = rapid.SampledFrom([]common.Address{devchain.TokenAddress, payTo}).Draw(rt, "token")
				p.Witness.To = rapid.SampledFrom([]common.Address{payTo, {1}, addressOf(payer(t, 1))}).Draw(rt, "to")
			})
			permits[i].Signature = rapid.SliceOfN(rapid.Byte(), 0, 70).Draw(rt, "signature")
		}
		standings, err := w.chain.Standing(t.Context(), permits)
		if err != nil || len(standings) != len(permits) {
			rt.Fatalf("%d standings, %v", len(standings), err)
		}
		for i, s := range standings {
			if good[i] != (s.Failure == nil) {
				rt.Errorf("payment %d of %d: good %t, %v", i, len(permits), good[i], s.Failure)
			}
		}
	})
}
