package contracts_test

import (
	"crypto/ecdsa"
	"encoding/binary"
	"math/big"

	"boxoffice/contracts"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/math"
	"github.com/ethereum/go-ethereum/crypto"
)

// A payment is one record of a batch.
type payment struct {
	token, to, owner common.Address
	amount, nonce    *big.Int
	after, deadline  uint64
	signature        []byte // 64 bytes, or any number if it is plain
	plain            bool
	approval         *approval
	repeatPair       bool // writes token and recipient although they are those of the record before
	wideAmount       bool // writes the amount with 32 bytes
	wideNonce        bool // writes the nonce with 32 bytes
}

// An approval is an EIP-2612 permit for Permit2.
type approval struct {
	value, deadline *big.Int
	signature       []byte // 64 bytes
}

// newPayment pays one token, or what the changes say, and is signed compactly.
func newPayment(key *ecdsa.PrivateKey, nonce int64, changes ...func(*payment)) *payment {
	p := &payment{
		token: tokenAddress, to: recipient, owner: addressOf(key), amount: big.NewInt(1_000_000), nonce: big.NewInt(nonce),
		deadline: now + 600,
	}
	for _, change := range changes {
		change(p)
	}
	p.signature = compact(signDigest(key, p.digest()))
	return p
}

// recipient is who is paid.
var recipient = common.Address{0x5e, 0x11}

func word(n *big.Int) []byte                  { return math.U256Bytes(new(big.Int).Set(n)) }
func wordOf(a common.Address) []byte          { return common.LeftPadBytes(a[:], 32) }
func number(n uint64) []byte                  { return word(new(big.Int).SetUint64(n)) }
func typeHash(text string) []byte             { return crypto.Keccak256([]byte(text)) }
func hashOf(parts ...[]byte) []byte           { return crypto.Keccak256(parts...) }
func typedData(domain, message []byte) []byte { return hashOf([]byte{0x19, 1}, domain, message) }

var permit2Domain = hashOf(
	typeHash("EIP712Domain(string name,uint256 chainId,address verifyingContract)"),
	typeHash("Permit2"), word(chainID), wordOf(contracts.Permit2Address))

// digest is what the payer signs.
func (p *payment) digest() []byte {
	const tokenPermissions = "TokenPermissions(address token,uint256 amount)"
	const witness = "Witness(address to,uint256 validAfter)"
	return typedData(permit2Domain, hashOf(
		typeHash("PermitWitnessTransferFrom(TokenPermissions permitted,address spender,uint256 nonce,uint256 deadline,"+
			"Witness witness)"+tokenPermissions+witness),
		hashOf(typeHash(tokenPermissions), wordOf(p.token), word(p.amount)),
		wordOf(contracts.ExactProxyAddress), word(p.nonce), number(p.deadline),
		hashOf(typeHash(witness), wordOf(p.to), number(p.after)),
	))
}

// signDigest returns r, s and v.
func signDigest(key *ecdsa.PrivateKey, digest []byte) []byte {
	signature, err := crypto.Sign(digest, key)
	if err != nil {
		panic(err)
	}
	signature[64] += 27
	return signature
}

// compact returns the 64-byte form of a signature (EIP-2098).
func compact(signature []byte) []byte {
	short := append([]byte(nil), signature[:64]...)
	short[32] |= (signature[64] - 27) << 7
	return short
}

// approve adds an EIP-2612 permit to the payment.
func approve(key *ecdsa.PrivateKey, p *payment, value *big.Int, nonce int64) *approval {
	domain := hashOf(
		typeHash("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"),
		typeHash("Boxoffice Test Token"), typeHash("1"), word(chainID), wordOf(p.token))
	a := &approval{value: value, deadline: big.NewInt(now + 600)}
	a.signature = compact(signDigest(key, typedData(domain, hashOf(
		typeHash("Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)"),
		wordOf(p.owner), wordOf(contracts.Permit2Address), word(value), word(big.NewInt(nonce)), word(a.deadline)))))
	return a
}

// packBatch encodes payments as Settlement.sol describes it.
func packBatch(flags byte, bound uint32, payments []*payment) []byte {
	batch := binary.BigEndian.AppendUint32([]byte{flags}, bound)
	batch = binary.BigEndian.AppendUint16(batch, uint16(len(payments)))
	for i, p := range payments {
		amount, nonce := p.amount.Bytes(), p.nonce.Bytes()
		if len(amount) == 0 {
			amount = []byte{0}
		}
		if p.wideAmount {
			amount = word(p.amount)
		}
		if p.wideNonce {
			nonce = word(p.nonce)
		}
		form := byte(len(amount) - 1)
		pair := i == 0 || p.repeatPair || p.token != payments[i-1].token || p.to != payments[i-1].to
		if pair {
			form |= 1 << 5
		}
		if p.plain {
			form |= 1 << 6
		}
		if p.approval != nil {
			form |= 1 << 7
		}
		batch = append(batch, form, byte(len(nonce)))
		if pair {
			batch = append(append(batch, p.token[:]...), p.to[:]...)
		}
		batch = append(append(batch, amount...), number(p.after)[27:]...)
		batch = append(batch, number(p.deadline)[27:]...)
		batch = append(append(batch, p.owner[:]...), nonce...)
		if p.plain {
			batch = binary.BigEndian.AppendUint16(batch, uint16(len(p.signature)))
		}
		batch = append(batch, p.signature...)
		if a := p.approval; a != nil {
			value := a.value.Bytes()
			if len(value) == 0 {
				value = []byte{0}
			}
			batch = append(append(batch, byte(len(value))), value...)
			batch = append(append(batch, byte(len(a.deadline.Bytes()))), a.deadline.Bytes()...)
			batch = append(batch, a.signature...)
		}
	}
	return batch
}
