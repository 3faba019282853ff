package x402

import (
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// The types of the typed data, as Permit2 and the exact proxy hash them
// (EIP-712; SignatureTransfer's PermitHash with the witness of the proxy).
const (
	tokenPermissionsType = "TokenPermissions(address token,uint256 amount)"
	witnessType          = "Witness(address to,uint256 validAfter)"
	permitType           = "PermitWitnessTransferFrom(TokenPermissions permitted,address spender,uint256 nonce," +
		"uint256 deadline,Witness witness)" + tokenPermissionsType + witnessType
	permit2DomainType = "EIP712Domain(string name,uint256 chainId,address verifyingContract)"
)

var (
	tokenPermissionsTypeHash = crypto.Keccak256Hash([]byte(tokenPermissionsType))
	witnessTypeHash          = crypto.Keccak256Hash([]byte(witnessType))
	permitTypeHash           = crypto.Keccak256Hash([]byte(permitType))
	permit2DomainTypeHash    = crypto.Keccak256Hash([]byte(permit2DomainType))
	permit2NameHash          = crypto.Keccak256Hash([]byte("Permit2"))
)

// Digest returns the hash that the payer signs: the authorization as
// PermitWitnessTransferFrom in Permit2's domain on the chain (EIP-712). From
// is not part of it; it is who the signature must recover to.
func (a Authorization) Digest(chainID uint64) [32]byte {
	domain := hashWords(permit2DomainTypeHash, permit2NameHash, NewUint256(chainID).Bytes32(), addressWord(Permit2))
	permitted := hashWords(tokenPermissionsTypeHash, addressWord(a.Permitted.Token), a.Permitted.Amount.Bytes32())
	witness := hashWords(witnessTypeHash, addressWord(a.Witness.To), a.Witness.ValidAfter.Bytes32())
	permit := hashWords(
		permitTypeHash,
		permitted,
		addressWord(a.Spender),
		a.Nonce.Bytes32(),
		a.Deadline.Bytes32(),
		witness,
	)
	return crypto.Keccak256Hash([]byte{0x19, 0x01}, domain[:], permit[:])
}

// hashWords returns the hash of a typed struct: its type hash and its members
// as ABI words.
func hashWords(words ...[32]byte) [32]byte {
	encoded := make([]byte, 0, 6*32)
	for _, word := range words {
		encoded = append(encoded, word[:]...)
	}
	return crypto.Keccak256Hash(encoded)
}

func addressWord(a common.Address) (word [32]byte) {
	copy(word[12:], a[:])
	return word
}
