package client

import (
	"context"
	"crypto/ecdsa"
	"fmt"

	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// Signer is a wallet. SignDigest returns 65 bytes of r, s and v, with v 27 or
// 28 and s in the lower half of the curve's order; that of a [ContractSigner]
// returns any 65 bytes.
type Signer interface {
	Address() common.Address
	SignDigest(ctx context.Context, digest [32]byte) ([]byte, error)
}

// KeySigner returns the wallet of a private key.
func KeySigner(key *ecdsa.PrivateKey) Signer { return keySigner{key} }

type keySigner struct{ key *ecdsa.PrivateKey }

func (s keySigner) Address() common.Address { return crypto.PubkeyToAddress(s.key.PublicKey) }

func (s keySigner) SignDigest(_ context.Context, digest [32]byte) ([]byte, error) {
	return x402.Sign(digest, s.key)
}

// String leaves the key out, so that no log has it.
func (s keySigner) String() string { return "wallet " + s.Address().Hex() }

// GoString leaves the key out, so that no log has it.
func (s keySigner) GoString() string { return s.String() }

// ContractSigner returns the contract wallet (EIP-1271) at an address. Its owner
// signs 65 bytes over the digest itself, which the isValidSignature of the contract
// has to accept. A client that reads the chain calls it before it sends anything.
// An account that delegates its code (EIP-7702) signs with its own key: it needs a
// [KeySigner].
func ContractSigner(wallet common.Address, owner Signer) Signer {
	return contractSigner{owner, wallet}
}

type contractSigner struct {
	owner  Signer
	wallet common.Address
}

func (s contractSigner) Address() common.Address { return s.wallet }

func (s contractSigner) SignDigest(ctx context.Context, digest [32]byte) ([]byte, error) {
	return s.owner.SignDigest(ctx, digest)
}

// String leaves the owner's key out, so that no log has it.
func (s contractSigner) String() string { return "contract wallet " + s.wallet.Hex() }

// GoString leaves the owner's key out, so that no log has it.
func (s contractSigner) GoString() string { return s.String() }

// signDigest has the wallet sign, and checks that this wallet did. Only the
// contract itself can check the signature of a contract wallet.
func (c *Client) signDigest(ctx context.Context, digest [32]byte) ([]byte, error) {
	signature, err := c.signer.SignDigest(ctx, digest)
	if err != nil {
		return nil, err
	}
	if _, contract := c.signer.(contractSigner); contract {
		if err := x402.CheckLength(signature); err != nil || c.chain == nil {
			return signature, err
		}
		return signature, c.chain.accepts(ctx, c.signer.Address(), digest, [65]byte(signature))
	}
	signer, err := x402.Recover(digest, signature)
	if err != nil {
		return nil, err
	}
	if signer != c.signer.Address() {
		return nil, fmt.Errorf("the wallet signed as %s, not as %s", signer, c.signer.Address())
	}
	return signature, nil
}
