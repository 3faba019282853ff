package x402

import (
	"bytes"
	"crypto/ecdsa"
	"errors"
	"fmt"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/holiman/uint256"
)

// Errors of Recover. All of them are ErrSignature.
var (
	ErrSignature       = errors.New("signature is not valid")
	ErrSignatureLength = fmt.Errorf("%w: it must have 65 bytes, also that of a contract wallet", ErrSignature)
	// ErrSignatureWrapped says that a signature has the form of ERC-6492, for a
	// wallet that is not deployed. Permit2 does not accept it.
	ErrSignatureWrapped = fmt.Errorf(
		"%w: it is wrapped for a wallet that is not deployed (ERC-6492): deploy the wallet, then sign with 65 bytes",
		ErrSignature,
	)
	ErrSignatureV     = fmt.Errorf("%w: v must be 27 or 28", ErrSignature)
	ErrSignatureRange = fmt.Errorf("%w: r and s must be above zero and below the order of the curve", ErrSignature)
	ErrSignatureHighS = fmt.Errorf("%w: s must be in the lower half of the order of the curve", ErrSignature)
	ErrSignatureCurve = fmt.Errorf("%w: r is not on the curve", ErrSignature)
)

var (
	curveOrder     = uint256.MustFromBig(crypto.S256().Params().N)
	curveHalfOrder = new(uint256.Int).Rsh(curveOrder, 1)
)

// Recover returns the wallet that made the signature over digest. It takes only the
// canonical form, 65 bytes of r, s and v with v 27 or 28 and s in the lower half
// (EIP-2): anyone could rewrite another form, and the payload would have another hash.
// The compact form (EIP-2098) is refused. Only a contract wallet (EIP-1271) itself can
// check its signature.
func Recover(digest [32]byte, signature []byte) (common.Address, error) {
	if err := CheckLength(signature); err != nil {
		return common.Address{}, err
	}
	var r, s uint256.Int
	r.SetBytes32(signature[:32])
	s.SetBytes32(signature[32:64])
	v := signature[64]
	switch {
	case v != 27 && v != 28:
		return common.Address{}, ErrSignatureV
	case r.IsZero(), s.IsZero(), !r.Lt(curveOrder), !s.Lt(curveOrder):
		return common.Address{}, ErrSignatureRange
	case s.Gt(curveHalfOrder):
		return common.Address{}, ErrSignatureHighS
	}
	standard := [65]byte(signature)
	standard[64] = v - 27
	key, err := crypto.Ecrecover(digest[:], standard[:])
	if err != nil {
		return common.Address{}, ErrSignatureCurve
	}
	return common.BytesToAddress(crypto.Keccak256(key[1:])), nil
}

// wrapping is how a signature of a wallet that is not deployed ends (ERC-6492).
var wrapping = bytes.Repeat([]byte{0x64, 0x92}, 16)

// CheckLength returns ErrSignatureWrapped or ErrSignatureLength unless a signature
// has 65 bytes, the only length that is accepted, also of a contract wallet.
func CheckLength(signature []byte) error {
	switch {
	case len(signature) == crypto.SignatureLength:
		return nil
	case bytes.HasSuffix(signature, wrapping):
		return ErrSignatureWrapped
	}
	return ErrSignatureLength
}

// Sign returns the signature of key over digest in the form that Recover
// takes. It is deterministic (RFC 6979).
func Sign(digest [32]byte, key *ecdsa.PrivateKey) ([]byte, error) {
	signature, err := crypto.Sign(digest[:], key)
	if err != nil {
		return nil, fmt.Errorf("sign digest: %w", err)
	}
	signature[64] += 27
	return signature, nil
}
