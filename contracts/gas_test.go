package contracts_test

import (
	"math/big"
	"testing"

	"boxoffice/contracts"

	"github.com/ethereum/go-ethereum/common"
)

// settleCall is the call of the proxy's settle for a payment.
func (p *payment) settleCall(w *world) []byte {
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
	return pack(w, contracts.ExactProxy(), "settle",
		permit{permitted{p.token, p.amount}, p.nonce, new(big.Int).SetUint64(p.deadline)}, p.owner,
		witness{p.to, new(big.Int).SetUint64(p.after)}, p.signature)
}

// aggregate is the call of Multicall3 for payments.
func aggregate(w *world, payments []*payment) []byte {
	type call struct {
		Target       common.Address
		AllowFailure bool
		CallData     []byte
	}
	calls := make([]call, len(payments))
	for i, p := range payments {
		calls[i] = call{contracts.ExactProxyAddress, true, p.settleCall(w)}
	}
	return pack(w, contracts.Multicall3(), "aggregate3", calls)
}

// The targets of issue 10, as parts of what one settle of the proxy costs.
func TestSettlementGas(t *testing.T) {
	const many = 50
	w := newWorld(t)
	w.fund(recipient, false)
	for n := range many {
		w.fund(addressOf(testKey(n)), true)
	}
	random := func(n int) func(*payment) {
		return func(p *payment) {
			p.nonce = new(big.Int).SetBytes(hashOf([]byte{byte(n)}))
			p.after, p.amount = now-60, big.NewInt(25_000)
		}
	}
	alone := []*payment{newPayment(testKey(0), 0, random(0))}
	payers, neighbours := make([]*payment, many), make([]*payment, many)
	for n := range many {
		payers[n] = newPayment(testKey(n), 0, random(n))
		neighbours[n] = newPayment(testKey(1), 0, random(1), func(p *payment) {
			p.nonce.SetBit(p.nonce.Lsh(p.nonce.Rsh(p.nonce, 8), 8), 0, 0).Add(p.nonce, big.NewInt(int64(n)))
		})
	}
	single := w.call(contracts.ExactProxyAddress, alone[0].settleCall(w), 1_000_000)
	if single.err != nil {
		t.Fatalf("%v %x", single.err, single.returned)
	}
	t.Logf("one settle of the proxy: %d gas", single.gas)
	for _, m := range []struct {
		name     string
		payments []*payment
		most     float64
	}{{"one payment", alone, 1.10}, {"50 payers", payers, 0.64}, {"one payer", neighbours, 0.26}} {
		batch := packBatch(0, bound, m.payments)
		got := w.simulate(16_000_000, batch)
		for i, outcome := range w.outcomes(got) {
			if outcome != settled {
				t.Errorf("%s: payment %d has outcome %d", m.name, i, outcome)
			}
		}
		data := pack(w, contracts.Settlement(), "settle", batch)
		each := float64(got.gas) / float64(len(m.payments))
		multicall := w.call(contracts.Multicall3Address, aggregate(w, m.payments), 16_000_000)
		ratio := each / float64(single.gas)
		t.Logf("%s: %.0f gas a payment, %.3f of a single settle; Multicall3 %.0f; %.1f bytes of calldata", m.name,
			each, ratio, float64(multicall.gas)/float64(len(m.payments)), float64(len(data))/float64(len(m.payments)))
		if ratio > m.most {
			t.Errorf("%s: %.3f of a single settle, want at most %.2f", m.name, ratio, m.most)
		}
	}
}
