package x402_test

import (
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"boxoffice/x402"
)

var limit = new(big.Int).Lsh(big.NewInt(1), 256)

func TestUint256AgreesWithBig(t *testing.T) {
	number := rapid.Custom(func(t *rapid.T) *big.Int {
		return new(big.Int).SetBytes(rapid.SliceOfN(rapid.Byte(), 0, 33).Draw(t, "bytes"))
	})
	parse := func(t *rapid.T, n *big.Int) (x402.Uint256, bool) {
		u, err := x402.ParseUint256(n.String())
		if fits := n.Cmp(limit) < 0; fits != (err == nil) {
			t.Fatalf("%s: %v", n, err)
		}
		if v, again := x402.Uint256FromBig(n); (again == nil) != (err == nil) || v != u {
			t.Fatalf("from a big.Int %s is %s, %v", n, v, again)
		}
		return u, err == nil
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		u, ok := parse(t, a)
		v, also := parse(t, b)
		if !ok || !also {
			return
		}
		if u.String() != a.String() || u.Big().Cmp(a) != 0 || u.Cmp(v) != a.Cmp(b) || u.Equal(v) != (a.Cmp(b) == 0) ||
			u.IsZero() != (a.Sign() == 0) {
			t.Errorf("%s became %s", a, u)
		}
		if word := u.Bytes32(); new(big.Int).SetBytes(word[:]).Cmp(a) != 0 {
			t.Errorf("the word of %s is %x", a, word)
		}
		if small, fits := u.Uint64(); fits != a.IsUint64() || fits && small != a.Uint64() {
			t.Errorf("%s as a uint64: %d, %v", a, small, fits)
		}
		sum, product := new(big.Int).Add(a, b), new(big.Int).Mul(a, b)
		if got, fits := u.Add(v); fits != (sum.Cmp(limit) < 0) || fits && got.Big().Cmp(sum) != 0 {
			t.Errorf("%s + %s = %s, %v", a, b, got, fits)
		}
		if got, fits := u.Mul(v); fits != (product.Cmp(limit) < 0) || fits && got.Big().Cmp(product) != 0 {
			t.Errorf("%s × %s = %s, %v", a, b, got, fits)
		}
	})
}

func TestParseUint256Refuses(t *testing.T) {
	for _, text := range []string{
		"", "00", "01", "+1", "-1", "-0", " 1", "1 ", "1.0", "1e3", "0x1", "1_000", "١", limit.String(),
		strings.Repeat("9", 78), "1" + strings.Repeat("0", 78),
	} {
		if got, err := x402.ParseUint256(text); err == nil {
			t.Errorf("%q was taken as %s", text, got)
		}
	}
	if _, err := x402.Uint256FromBig(big.NewInt(-1)); err == nil {
		t.Error("-1 was taken")
	}
}
