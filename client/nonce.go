package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"strings"

	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
)

// nonces is what a vault keeps of a wallet's Permit2 nonces on a chain. A nonce
// is given to one order and to no other, whether or not it is ever used: numbers
// are free, and a signature that left this process could be settled until its
// deadline.
//
// Permit2 spends a bit of a 256-bit word per nonce, so nonces in a row are
// spent in one storage slot, for a quarter of the gas of scattered ones.
type nonces struct {
	Next x402.Uint256 `json:"next"` // every nonce of this vault before Next was given away
}

// maxWords is how many used-up words are stepped over before one is drawn at random.
const maxWords = 1024

// reserve returns a Permit2 nonce that this vault has not given away and, where
// the client reads the chain, that the chain does not show as spent.
func (c *Client) reserve(ctx context.Context, chainID uint64, payer common.Address) (x402.Uint256, error) {
	name := fmt.Sprintf("nonces-%d-%s", chainID, strings.ToLower(payer.Hex()))
	unlock, err := c.vault.Lock(ctx, name)
	if err != nil {
		return x402.Uint256{}, err
	}
	defer unlock()
	next, err := c.firstFree(ctx, name, payer)
	if err != nil {
		return x402.Uint256{}, fmt.Errorf("nonce: %w", err)
	}
	following, fits := next.Add(x402.NewUint256(1))
	if !fits {
		following = x402.Uint256{}
	}
	data, err := json.Marshal(nonces{Next: following})
	if err != nil {
		return x402.Uint256{}, fmt.Errorf("nonce: %w", err)
	}
	return next, c.vault.Put(ctx, name, data)
}

func (c *Client) firstFree(ctx context.Context, name string, payer common.Address) (x402.Uint256, error) {
	var kept nonces
	data, err := c.vault.Get(ctx, name)
	fresh := errors.Is(err, fs.ErrNotExist)
	switch {
	case fresh && c.chain == nil:
		// Without a chain to read nobody knows which words are used.
		return randomWord()
	case fresh:
	case err != nil:
		return x402.Uint256{}, err
	default:
		if err := json.Unmarshal(data, &kept); err != nil {
			return x402.Uint256{}, fmt.Errorf("vault: %s: %w", name, err)
		}
	}
	if c.chain == nil {
		return kept.Next, nil
	}
	nonce := kept.Next.Big()
	for range maxWords {
		word, first := new(big.Int).Rsh(nonce, 8), int(new(big.Int).And(nonce, big.NewInt(0xff)).Int64())
		spent, err := c.chain.nonceBitmap(ctx, payer, word)
		if err != nil {
			return x402.Uint256{}, err
		}
		for bit := first; bit < 256; bit++ {
			if spent.Bit(bit) == 0 {
				return x402.Uint256FromBig(nonce.Add(word.Lsh(word, 8), big.NewInt(int64(bit))))
			}
		}
		nonce.Lsh(word.Add(word, big.NewInt(1)), 8)
	}
	return randomWord()
}

// randomWord returns the first nonce of a random word. Its top bit is clear, so
// that counting on from it never overflows.
func randomWord() (x402.Uint256, error) {
	var word [32]byte
	rand.Read(word[:31])
	word[0] &= 0x7f
	return x402.Uint256FromBig(new(big.Int).SetBytes(word[:]))
}
