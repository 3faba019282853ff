package x402

import (
	"errors"
	"math/big"

	"github.com/holiman/uint256"
)

// Uint256 is an unsigned 256-bit integer. On the wire it is a decimal string
// without leading zeros. The zero value is 0; values compare with ==.
type Uint256 struct{ n uint256.Int }

var errNotUint256 = errors.New("must be an unsigned integer of at most 256 bits in decimal digits")

// NewUint256 returns n as a Uint256.
func NewUint256(n uint64) Uint256 { return Uint256{*uint256.NewInt(n)} }

// MaxUint256 returns 2²⁵⁶ - 1.
func MaxUint256() Uint256 {
	var u Uint256
	u.n.SetAllOne()
	return u
}

// Uint256FromBig converts n. It fails if n is negative or needs more than 256 bits.
func Uint256FromBig(n *big.Int) (Uint256, error) {
	u, overflow := uint256.FromBig(n)
	if overflow || n.Sign() < 0 {
		return Uint256{}, errNotUint256
	}
	return Uint256{*u}, nil
}

// Uint256FromBytes32 returns the number of an ABI word.
func Uint256FromBytes32(word [32]byte) Uint256 {
	var u Uint256
	u.n.SetBytes32(word[:])
	return u
}

// ParseUint256 reads a decimal string that matches ^(0|[1-9][0-9]{0,77})$
// (docs/protocol.md §2.2) and fits 256 bits.
func ParseUint256(s string) (Uint256, error) {
	if s == "" || len(s) > 78 || (s[0] == '0' && len(s) > 1) {
		return Uint256{}, errNotUint256
	}
	for _, digit := range s {
		if digit < '0' || digit > '9' {
			return Uint256{}, errNotUint256
		}
	}
	var u Uint256
	if err := u.n.SetFromDecimal(s); err != nil {
		return Uint256{}, errNotUint256
	}
	return u, nil
}

func (u Uint256) String() string { return u.n.Dec() }

// Big returns a copy of u.
func (u Uint256) Big() *big.Int { return u.n.ToBig() }

// Bytes32 returns u as an ABI word.
func (u Uint256) Bytes32() [32]byte { return u.n.Bytes32() }

// Uint64 returns u and whether it fits.
func (u Uint256) Uint64() (uint64, bool) { return u.n.Uint64(), u.n.IsUint64() }

// Cmp compares u and v as numbers.
func (u Uint256) Cmp(v Uint256) int { return u.n.Cmp(&v.n) }

// Equal reports whether u and v are the same number.
func (u Uint256) Equal(v Uint256) bool { return u == v }

// IsZero reports whether u is 0.
func (u Uint256) IsZero() bool { return u.n.IsZero() }

// Add returns u + v and whether it fits 256 bits.
func (u Uint256) Add(v Uint256) (Uint256, bool) {
	var sum Uint256
	_, overflow := sum.n.AddOverflow(&u.n, &v.n)
	return sum, !overflow
}

// Mul returns u × v and whether it fits 256 bits.
func (u Uint256) Mul(v Uint256) (Uint256, bool) {
	var product Uint256
	_, overflow := product.n.MulOverflow(&u.n, &v.n)
	return product, !overflow
}

// MarshalText implements encoding.TextMarshaler.
func (u Uint256) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler with the rules of ParseUint256.
func (u *Uint256) UnmarshalText(text []byte) (err error) {
	*u, err = ParseUint256(string(text))
	return err
}
