package storetest

import (
	"testing"

	"boxoffice"
	"boxoffice/internal/work"
)

// Benchmark measures whole purchases, one after the other and many at once, and the
// most frequent reads.
func Benchmark(b *testing.B, open Open) {
	b.Run("Purchase", func(b *testing.B) {
		store := open(b)
		for nonce := uint64(0); b.Loop(); nonce++ {
			Purchase(b, store, nonce, func(string) {})
		}
	})
	b.Run("PurchaseParallel", func(b *testing.B) {
		store, nonces := open(b), make(chan uint64)
		go func() {
			defer close(nonces)
			for nonce := range b.N {
				nonces <- uint64(nonce)
			}
		}()
		b.SetParallelism(16)
		b.ResetTimer()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				Purchase(b, store, <-nonces, func(string) {})
			}
		})
	})
	b.Run("Order", func(b *testing.B) {
		store := open(b)
		record, _ := pay(b, store, alice, 1)
		for b.Loop() {
			status(b, store, record)
		}
	})
	b.Run("FirstPageOfJobs", func(b *testing.B) {
		store := open(b)
		admit(b, store, alice, 1, func(tx work.Tx, owner work.Owner) (opened work.Opened, err error) {
			for i := range 20_000 {
				job := job(alice, owner.OrderID)
				job.CreatedAt += boxoffice.Timestamp(i)
				opened = work.Opened{Kind: work.KindJob, ID: job.ID}
				fatal(b, tx.InsertJob(b.Context(), job))
			}
			return opened, nil
		})
		for b.Loop() {
			jobs, err := store.Jobs(b.Context(), alice, work.JobQuery{Limit: 20})
			fatal(b, err)
			if len(jobs) != 20 {
				b.Fatalf("%d jobs", len(jobs))
			}
		}
	})
}
