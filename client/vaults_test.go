package client_test

import (
	"math/big"
	"sync"
	"testing"

	"boxoffice"
	"boxoffice/client"
	"boxoffice/internal/test/servertest"
)

// One wallet pays nine orders at the same time from two vaults and from clients
// without one, at a real service. Each order is admitted and paid by a transfer of
// its own.
func TestOneWalletWithManyVaults(t *testing.T) {
	w := servertest.Start(t)
	key := w.NewPayer()
	first, second := openVault(t), openVault(t)
	var buying sync.WaitGroup
	for _, vault := range []client.Vault{first, first, first, second, second, second, nil, nil, nil} {
		buying.Go(func() {
			buyer := w.Client(key, func(cfg *client.Config) { cfg.Vault = vault })
			status, err := buyer.Buy(t.Context(), client.Purchase{
				Input: boxoffice.JobOpen{Objective: "Look"}, Max: servertest.Price,
			})
			if err != nil || status.Status != boxoffice.Admitted {
				t.Errorf("status %s, error %v", status.Status, err)
			}
		})
	}
	buying.Wait()
	if want := new(big.Int).Mul(servertest.Price.Big(), big.NewInt(9)); w.Received().Cmp(want) != 0 {
		t.Errorf("the recipient has %s, want %s", w.Received(), want)
	}
}

func openVault(t *testing.T) client.Vault {
	t.Helper()
	vault, err := client.OpenFileVault(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return vault
}
