package contracts_test

import (
	"math/big"
	"testing"

	"boxoffice/contracts"
	"boxoffice/internal/test/rollup"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
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

// What a batch of fifty payers pays an OP-stack chain for its data, as a part of what Multicall3 would pay. Clients of
// Boxoffice sign nonces of 9 bytes, other clients random ones of 32.
func TestSettlementData(t *testing.T) {
	w := newWorld(t)
	signed := func(to common.Address, data []byte) []byte {
		tx, err := types.SignNewTx(testKey(99), types.LatestSignerForChainID(chainID), &types.DynamicFeeTx{
			ChainID: chainID, Nonce: 1234, GasTipCap: big.NewInt(1_000_000), GasFeeCap: big.NewInt(30_000_000),
			Gas: 4_000_000, To: &to, Data: data,
		})
		if err != nil {
			t.Fatal(err)
		}
		text, err := tx.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for _, m := range []struct {
		nonce          int
		ecotone, fjord float64 // at most
	}{{9, 0.5, 0.85}, {32, 0.52, 0.86}} {
		payments := make([]*payment, 50)
		for n := range payments {
			payments[n] = newPayment(testKey(n), 0, func(p *payment) {
				p.nonce = new(big.Int).SetBytes(hashOf([]byte{byte(n)})[:m.nonce])
				p.after, p.amount = now-60, big.NewInt(25_000)
			})
		}
		data := pack(t, contracts.Settlement(), "settle", packBatch(0, bound, payments))
		ours := signed(contracts.SettlementAddress, data)
		theirs := signed(contracts.Multicall3Address, aggregate(w, payments))
		ecotone := float64(rollup.Ecotone(ours)) / float64(rollup.Ecotone(theirs))
		fjord := float64(rollup.Fjord(ours)) / float64(rollup.Fjord(theirs))
		each := float64(len(data)) / float64(len(payments))
		t.Logf("nonces of %d bytes: %.1f bytes a payment, Ecotone %.3f, Fjord %.3f", m.nonce, each, ecotone, fjord)
		if ecotone > m.ecotone || fjord > m.fjord || each > 150 {
			t.Errorf("want at most 150 bytes, %.2f and %.2f", m.ecotone, m.fjord)
		}
	}
}

// One of fifty owners has code that burns all gas.
func TestSettlementLiar(t *testing.T) {
	const many, liar = 50, 20
	w := newWorld(t)
	w.fund(recipient, false)
	w.place(walletOf(contracts.BurnGas), contracts.HostileWallet().Runtime)
	payments := make([]*payment, many)
	for n := range payments {
		w.fund(addressOf(testKey(n)), true)
		payments[n] = newPayment(testKey(n), 1)
	}
	payments[liar].plain = true
	quiet := w.simulate(16_000_000, packBatch(0, bound, payments))
	w.delegateTo(addressOf(testKey(liar)), contracts.BurnGas)
	burnt := w.simulate(16_000_000, packBatch(0, bound, payments))
	for i, outcome := range w.outcomes(burnt) {
		if (outcome == settled) != (i != liar) {
			t.Errorf("payment %d has outcome %d", i, outcome)
		}
	}
	more := burnt.gas - quiet.gas*(many-1)/many
	t.Logf("the liar burns %d gas of %d", more, bound)
	if more > bound+overhead/5 {
		t.Errorf("the liar burns %d gas, its bound is %d", more, bound)
	}
}
