package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
)

// nonces is what a vault keeps of a wallet's Permit2 nonces on a chain. A nonce
// is given to one order and never to another, even if nothing is signed with it.
//
// Permit2 has a bitmap of 256-bit words: the upper 248 bits of a nonce name the
// word, the lower 8 the bit. A vault starts at the first bit of a random word, so
// that two vaults of one wallet never give the same nonce to two orders. It counts
// upwards from there, because nonces of one word cost a quarter of the gas of
// nonces in many words.
type nonces struct {
	Next x402.Uint256 `json:"next"`
}

// reserve returns a Permit2 nonce that this vault has not given to another order.
// taken, if it is not nil, is a nonce that another vault gave away too: both count
// in the same word, because one is a copy of the other, and the vault moves to a
// new one.
func (c *Client) reserve(
	ctx context.Context, chainID uint64, payer common.Address, taken *x402.Uint256,
) (x402.Uint256, error) {
	name := fmt.Sprintf("nonces-%d-%s", chainID, strings.ToLower(payer.Hex()))
	unlock, err := c.vault.Lock(ctx, name)
	if err != nil {
		return x402.Uint256{}, err
	}
	defer unlock()
	nonce, err := c.nextNonce(ctx, name, payer, taken)
	if err != nil {
		return x402.Uint256{}, fmt.Errorf("nonce: %w", err)
	}
	next, _ := nonce.Add(x402.NewUint256(1)) // fits: a random word has 64 bits
	data, err := json.Marshal(nonces{Next: next})
	if err != nil {
		return x402.Uint256{}, fmt.Errorf("nonce: %w", err)
	}
	return nonce, c.vault.Put(ctx, name, data)
}

func (c *Client) nextNonce(
	ctx context.Context, name string, payer common.Address, taken *x402.Uint256,
) (x402.Uint256, error) {
	data, err := c.vault.Get(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return randomWord(), nil
	}
	if err != nil {
		return x402.Uint256{}, err
	}
	var kept nonces
	if err := json.Unmarshal(data, &kept); err != nil {
		return x402.Uint256{}, fmt.Errorf("vault: %s: %w", name, err)
	}
	shared := taken != nil && wordOf(*taken) == wordOf(kept.Next)
	if !shared && c.chain != nil {
		if shared, err = c.chain.spent(ctx, payer, kept.Next); err != nil {
			return x402.Uint256{}, err
		}
	}
	if shared {
		return randomWord(), nil
	}
	return kept.Next, nil
}

// wordOf returns the word of a nonce.
func wordOf(nonce x402.Uint256) [31]byte {
	bytes := nonce.Bytes32()
	return [31]byte(bytes[:31])
}

// randomWord returns the first nonce of one of 2^64 words at random. More random
// bytes would cost 12 gas each, in every payment.
func randomWord() x402.Uint256 {
	var nonce [32]byte
	rand.Read(nonce[23:31]) // never fails, see crypto/rand
	return x402.Uint256FromBytes32(nonce)
}
