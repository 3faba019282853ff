package evm_test

import (
	"math/big"
	"testing"

	"boxoffice/internal/payment"
	"boxoffice/internal/test/devchain"
)

// BenchmarkGas reports what a payment costs in gas.
func BenchmarkGas(b *testing.B) {
	const payers = 50
	spread := func(b *testing.B) []payment.Permit {
		permits := make([]payment.Permit, payers)
		for i := range permits {
			permits[i] = permit(b, payer(b, int64(i)), 0, amountOf(1))
		}
		return permits
	}
	for name, permits := range map[string]func(*testing.B) []payment.Permit{
		"single":             func(b *testing.B) []payment.Permit { return spread(b)[:1] },
		"batch of 50 payers": spread,
		"batch of 50 consecutive nonces of one": func(b *testing.B) []payment.Permit {
			permits := make([]payment.Permit, payers)
			for i := range permits {
				permits[i] = permit(b, payer(b, 0), uint64(i)+1, amountOf(1))
			}
			return permits
		},
	} {
		b.Run(name, func(b *testing.B) {
			var gas, settled uint64
			for b.Loop() {
				funded := []devchain.Funded{{Address: payTo, Tokens: big.NewInt(1)}}
				for i := range payers {
					funded = append(funded, rich(b, int64(i)))
				}
				dev := startChain(b, funded...)
				chain := dial(b, dev, nil)
				wallet := chain.Wallet(devchain.SettlementKey())
				tx, err := wallet.Sign(b.Context(), permits(b), 0, nil)
				if err != nil {
					b.Fatal(err)
				}
				if err := wallet.Broadcast(b.Context(), tx); err != nil {
					b.Fatal(err)
				}
				if _, err := dev.Mine(b.Context()); err != nil {
					b.Fatal(err)
				}
				receipt, err := dev.Client().TransactionReceipt(b.Context(), tx.Hash)
				if err != nil {
					b.Fatal(err)
				}
				gas += receipt.GasUsed
				settled += uint64(len(receipt.Logs)) / 2 // Transfer and Settled
			}
			b.ReportMetric(float64(gas)/float64(settled), "gas/payment")
			b.ReportMetric(float64(settled)/float64(b.N), "payments/op")
		})
	}
}
