package devchain_test

import (
	"context"
	"crypto/ecdsa"
	"encoding/hex"
	"errors"
	"math/big"
	"testing"
	"time"

	"boxoffice/contracts"
	"boxoffice/internal/test/devchain"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/common/math"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rpc"
	"github.com/ethereum/go-ethereum/signer/core/apitypes"
)

// payment has the arguments of the proxy's settle: one signed x402 "exact" payment.
type payment struct {
	Permit    permit
	Owner     common.Address
	Witness   witness
	Signature []byte
}

type permit struct {
	Permitted permitted
	Nonce     *big.Int
	Deadline  *big.Int
}

type permitted struct {
	Token  common.Address
	Amount *big.Int
}

type witness struct {
	To         common.Address
	ValidAfter *big.Int
}

// newPayment pays one token to PayTo and is valid for ten minutes.
func newPayment(key *ecdsa.PrivateKey, nonce int64) payment {
	return payment{
		Permit: permit{
			Permitted: permitted{Token: devchain.TokenAddress, Amount: devchain.Ether(1)},
			Nonce:     big.NewInt(nonce),
			Deadline:  big.NewInt(time.Now().Add(10 * time.Minute).Unix()),
		},
		Owner:   crypto.PubkeyToAddress(key.PublicKey),
		Witness: witness{To: devchain.PayTo(), ValidAfter: new(big.Int)},
	}
}

// signed signs the Permit2 typed data with go-ethereum's code, so the contracts are checked against another
// implementation than ours.
func (p payment) signed(tb testing.TB, key *ecdsa.PrivateKey) payment {
	tb.Helper()
	p.Signature = sign(tb, key, apitypes.TypedData{
		PrimaryType: "PermitWitnessTransferFrom",
		Domain: apitypes.TypedDataDomain{
			Name:              "Permit2",
			ChainId:           math.NewHexOrDecimal256(devchain.DefaultChainID),
			VerifyingContract: contracts.Permit2Address.Hex(),
		},
		Types: apitypes.Types{
			"EIP712Domain": {
				{Name: "name", Type: "string"},
				{Name: "chainId", Type: "uint256"},
				{Name: "verifyingContract", Type: "address"},
			},
			"PermitWitnessTransferFrom": {
				{Name: "permitted", Type: "TokenPermissions"},
				{Name: "spender", Type: "address"},
				{Name: "nonce", Type: "uint256"},
				{Name: "deadline", Type: "uint256"},
				{Name: "witness", Type: "Witness"},
			},
			"TokenPermissions": {{Name: "token", Type: "address"}, {Name: "amount", Type: "uint256"}},
			"Witness":          {{Name: "to", Type: "address"}, {Name: "validAfter", Type: "uint256"}},
		},
		Message: apitypes.TypedDataMessage{
			"permitted": map[string]any{
				"token":  p.Permit.Permitted.Token.Hex(),
				"amount": p.Permit.Permitted.Amount.String(),
			},
			"spender":  contracts.ExactProxyAddress.Hex(),
			"nonce":    p.Permit.Nonce.String(),
			"deadline": p.Permit.Deadline.String(),
			"witness":  map[string]any{"to": p.Witness.To.Hex(), "validAfter": p.Witness.ValidAfter.String()},
		},
	})
	return p
}

func sign(tb testing.TB, key *ecdsa.PrivateKey, data apitypes.TypedData) []byte {
	tb.Helper()
	digest, _, err := apitypes.TypedDataAndHash(data)
	if err != nil {
		tb.Fatal(err)
	}
	signature, err := crypto.Sign(digest, key)
	if err != nil {
		tb.Fatal(err)
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

func (p payment) settle(tb testing.TB) []byte {
	return pack(tb, contracts.ExactProxy(), "settle", p.Permit, p.Owner, p.Witness, p.Signature)
}

func pack(tb testing.TB, contract *contracts.Contract, method string, args ...any) []byte {
	tb.Helper()
	data, err := contract.ABI.Pack(method, args...)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

type call3 struct {
	Target       common.Address
	AllowFailure bool
	CallData     []byte
}

func aggregate(tb testing.TB, payments []payment) []byte {
	calls := make([]call3, len(payments))
	for i, p := range payments {
		calls[i] = call3{contracts.ExactProxyAddress, true, p.settle(tb)}
	}
	return pack(tb, contracts.Multicall3(), "aggregate3", calls)
}

// refusal returns the error with which a call reverts at the newest block, "" if it succeeds.
func refusal(tb testing.TB, c *devchain.Chain, to common.Address, data []byte) string {
	tb.Helper()
	_, err := c.Client().CallContract(tb.Context(), ethereum.CallMsg{To: &to, Data: data}, nil)
	if err == nil {
		return ""
	}
	var withData rpc.DataError
	if !errors.As(err, &withData) || withData.ErrorData() == nil {
		return err.Error()
	}
	revert, err := hexutil.Decode(withData.ErrorData().(string))
	if err != nil {
		tb.Fatal(err)
	}
	for _, contract := range []*contracts.Contract{contracts.Permit2(), contracts.ExactProxy(), contracts.TestToken()} {
		for _, e := range contract.ABI.Errors {
			if len(revert) >= 4 && [4]byte(revert) == [4]byte(e.ID[:4]) {
				return e.Sig
			}
		}
	}
	return withData.Error() + " " + hex.EncodeToString(revert)
}

func start(tb testing.TB, cfg devchain.Config) *devchain.Chain {
	tb.Helper()
	c, err := devchain.Start(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

func transact(tb testing.TB, c *devchain.Chain, to common.Address, data []byte) *types.Receipt {
	tb.Helper()
	receipt, err := c.Transact(tb.Context(), devchain.SettlementKey(), to, nil, data)
	if err != nil {
		tb.Fatal(err)
	}
	return receipt
}

func mine(tb testing.TB, c *devchain.Chain) *types.Header {
	tb.Helper()
	header, err := c.Mine(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return header
}

func wantTokens(tb testing.TB, c *devchain.Chain, account common.Address, want *big.Int) {
	tb.Helper()
	got, err := c.TokenBalance(context.WithoutCancel(tb.Context()), account)
	if err != nil {
		tb.Fatal(err)
	}
	if got.Cmp(want) != 0 {
		tb.Errorf("token balance of %s is %s, want %s", account, got, want)
	}
}
