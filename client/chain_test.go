package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/big"
	"testing"
	"testing/synctest"
	"time"

	"boxoffice/client"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// chain answers the views of the token and of Permit2.
type chain struct {
	id, decimals       int64
	balance, allowance *big.Int
	spent              map[string]*big.Int // bitmaps by word
}

func (c *chain) ChainID(context.Context) (*big.Int, error) { return big.NewInt(c.id), nil }

func (c *chain) CallContract(_ context.Context, msg ethereum.CallMsg, _ *big.Int) ([]byte, error) {
	is := func(contract common.Address, signature string, arguments ...common.Address) bool {
		want := crypto.Keccak256([]byte(signature))[:4]
		for _, argument := range arguments {
			want = append(want, common.LeftPadBytes(argument[:], 32)...)
		}
		return *msg.To == contract && bytes.HasPrefix(msg.Data, want)
	}
	var answer *big.Int
	switch {
	case is(asset, "decimals()"):
		answer = big.NewInt(c.decimals)
	case is(asset, "balanceOf(address)", payer):
		answer = c.balance
	case is(asset, "allowance(address,address)", payer, x402.Permit2):
		answer = c.allowance
	case is(x402.Permit2, "nonceBitmap(address,uint256)", payer):
		word := new(big.Int).SetBytes(msg.Data[36:])
		answer = c.spent[word.String()]
	default:
		return nil, fmt.Errorf("unexpected call of %s: %x", msg.To, msg.Data)
	}
	if answer == nil {
		answer = new(big.Int)
	}
	return answer.FillBytes(make([]byte, 32)), nil
}

func goodChain() *chain {
	return &chain{id: 8453, decimals: 6, balance: price.Big(), allowance: price.Big(), spent: map[string]*big.Int{}}
}

func (c *chain) spend(nonce x402.Uint256) {
	c.spent[word(nonce).String()] = new(big.Int).SetBit(new(big.Int), int(nonce.Bytes32()[31]), 1)
}

func TestChainIsHeldAgainstTheQuote(t *testing.T) {
	tests := []struct {
		name   string
		change func(*chain)
		check  func(*testing.T, error)
	}{
		{"good", func(*chain) {}, func(t *testing.T, err error) {
			if err != nil {
				t.Error(err)
			}
		}},
		{
			"another chain",
			func(c *chain) { c.id = 1 },
			func(t *testing.T, err error) { wantMismatch(t, err, "order/quote/payment/network") },
		},
		{
			"other decimals",
			func(c *chain) { c.decimals = 2 },
			func(t *testing.T, err error) { wantMismatch(t, err, "order/quote/payment/decimals") },
		},
		{"too poor", func(c *chain) { c.balance = big.NewInt(999_999) }, wantShortfall("balance")},
		{"not approved", func(c *chain) { c.allowance = big.NewInt(999_999) }, wantShortfall("Permit2 allowance")},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, seen := newService(t), goodChain()
				test.change(seen)
				_, err := s.client(func(cfg *client.Config) { cfg.Chain = seen }).Buy(t.Context(), job())
				test.check(t, err)
				if (err == nil) != (len(s.sent) == 1) {
					t.Errorf("%d payments were sent", len(s.sent))
				}
			})
		})
	}
}

func wantShortfall(what string) func(*testing.T, error) {
	return func(t *testing.T, err error) {
		t.Helper()
		shortfall, ok := errors.AsType[*client.ShortfallError](err)
		if !ok || shortfall.What != what || shortfall.Payer != payer || shortfall.Have.Int64() != 999_999 {
			t.Errorf("error %v, want a shortfall of %s", err, what)
		}
	}
}

// A wallet that signs with another key is found out before anything is sent.
func TestWalletMustSignAsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		other, err := crypto.GenerateKey()
		if err != nil {
			t.Fatal(err)
		}
		c := s.client(func(cfg *client.Config) { cfg.Signer = impostor{client.KeySigner(other)} })
		if _, err := c.Buy(t.Context(), job()); err == nil || len(s.sent) != 0 {
			t.Errorf("error %v, %d payments", err, len(s.sent))
		}
	})
}

type impostor struct{ client.Signer }

func (impostor) Address() common.Address { return payer }

// A second wallet does not sign for an order that another one has signed for,
// because both payments could settle.
func TestOneWalletForAnOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, vault := newService(t), client.NewMemoryVault()
		s.reason = x402.ReasonSimulation
		share := func(cfg *client.Config) { cfg.Vault = vault }
		if _, err := s.client(share).Buy(t.Context(), job()); err == nil {
			t.Fatal("a rejected payment bought something")
		}
		other, err := crypto.GenerateKey()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		_, err = s.client(share, func(cfg *client.Config) { cfg.Signer = client.KeySigner(other) }).
			Buy(t.Context(), job())
		wantMismatch(t, err, "wallet")
	})
}
