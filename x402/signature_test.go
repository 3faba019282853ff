package x402_test

import (
	"bytes"
	"errors"
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/crypto"
	"pgregory.net/rapid"

	"boxoffice/x402"
)

func TestSignRecover(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		digest := [32]byte(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "digest"))
		key, err := crypto.ToECDSA(crypto.Keccak256(rapid.SliceOf(rapid.Byte()).Draw(t, "key")))
		if err != nil {
			t.Skip(err)
		}
		signature, err := x402.Sign(digest, key)
		if err != nil {
			t.Fatal(err)
		}
		signer, err := x402.Recover(digest, signature)
		if err != nil || signer != crypto.PubkeyToAddress(key.PublicKey) {
			t.Fatalf("got %s, %v", signer, err)
		}
		// No other signature over the same digest recovers to the signer.
		i, bit := rapid.IntRange(0, 64).Draw(t, "byte"), rapid.IntRange(0, 7).Draw(t, "bit")
		forged := bytes.Clone(signature)
		forged[i] ^= 1 << bit
		if other, err := x402.Recover(digest, forged); err == nil && other == signer {
			t.Errorf("changing bit %d of byte %d made another signature of the same wallet", bit, i)
		}
	})
}

func TestRecoverRefuses(t *testing.T) {
	v := vectors(t)[0]
	valid := []byte(v.Signature)
	order := crypto.S256().Params().N
	change := func(at int, with ...byte) []byte {
		changed := bytes.Clone(valid)
		copy(changed[at:], with)
		return changed
	}
	word := func(n *big.Int) []byte { return n.FillBytes(make([]byte, 32)) }
	high := change(32, word(new(big.Int).Sub(order, new(big.Int).SetBytes(valid[32:64])))...)
	high[64] ^= 27 ^ 28 // the twin of the signature: the same signer, but not canonical
	half := new(big.Int).Rsh(order, 1)
	tests := map[string]struct {
		signature []byte
		want      error
	}{
		"nothing":  {nil, x402.ErrSignatureLength},
		"64 bytes": {valid[:64], x402.ErrSignatureLength},
		"66 bytes": {append(bytes.Clone(valid), 0), x402.ErrSignatureLength},
		"wrapped (ERC-6492)": {
			append(make([]byte, 224), bytes.Repeat([]byte{0x64, 0x92}, 16)...),
			x402.ErrSignatureWrapped,
		},
		"only the wrapping's end": {bytes.Repeat([]byte{0x64, 0x92}, 8), x402.ErrSignatureLength},
		"v 0":                     {change(64, 0), x402.ErrSignatureV},
		"v 1":                     {change(64, 1), x402.ErrSignatureV},
		"v 26":                    {change(64, 26), x402.ErrSignatureV},
		"v 29":                    {change(64, 29), x402.ErrSignatureV},
		"v 255":                   {change(64, 255), x402.ErrSignatureV},
		"r zero":                  {change(0, make([]byte, 32)...), x402.ErrSignatureRange},
		"s zero":                  {change(32, make([]byte, 32)...), x402.ErrSignatureRange},
		"r the order":             {change(0, word(order)...), x402.ErrSignatureRange},
		"s the order":             {change(32, word(order)...), x402.ErrSignatureRange},
		"r all ones":              {change(0, bytes.Repeat([]byte{255}, 32)...), x402.ErrSignatureRange},
		"the twin":                {high, x402.ErrSignatureHighS},
		"s just above the half": {
			change(32, word(new(big.Int).Add(half, big.NewInt(1)))...),
			x402.ErrSignatureHighS,
		},
		"r that is no point's x": {change(0, word(big.NewInt(5))...), x402.ErrSignatureCurve},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := x402.Recover(v.Digest, test.signature)
			if !errors.Is(err, test.want) || !errors.Is(err, x402.ErrSignature) {
				t.Errorf("got %s, %v, want %v", got, err, test.want)
			}
		})
	}
	if _, err := x402.Recover(v.Digest, change(32, word(half)...)); err != nil {
		t.Errorf("s at the half: %v", err)
	}
}
