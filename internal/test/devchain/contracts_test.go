package devchain_test

import (
	"fmt"
	"math/big"
	"testing"

	"boxoffice/contracts"
	"boxoffice/internal/test/devchain"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/common/math"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/params"
	"github.com/ethereum/go-ethereum/signer/core/apitypes"
	"github.com/google/go-cmp/cmp"
)

func TestSettle(t *testing.T) {
	c := start(t, devchain.Config{Funded: devchain.DevAccounts()})
	key := devchain.PayerKey()
	mine(t, c)

	t.Run("moves the tokens once", func(t *testing.T) {
		p := newPayment(key, 0).signed(t, key)
		receipt := transact(t, c, contracts.ExactProxyAddress, p.settle(t))
		wantTokens(t, c, devchain.PayTo(), devchain.Ether(1))
		wantTokens(t, c, p.Owner, devchain.Ether(999_999))

		var topics []common.Hash
		for _, log := range receipt.Logs {
			topics = append(topics, log.Topics[0])
		}
		want := []common.Hash{
			contracts.TestToken().ABI.Events["Transfer"].ID,
			contracts.ExactProxy().ABI.Events["Settled"].ID,
		}
		if diff := cmp.Diff(want, topics); diff != "" {
			t.Errorf("logs (-want +got):\n%s", diff)
		}
		if got := refusal(t, c, contracts.ExactProxyAddress, p.settle(t)); got != "InvalidNonce()" {
			t.Errorf("the same payment again reverts with %q", got)
		}
	})

	t.Run("takes compact signatures", func(t *testing.T) {
		p := newPayment(key, 1).signed(t, key)
		p.Signature = compact(p.Signature)
		transact(t, c, contracts.ExactProxyAddress, p.settle(t))
		wantTokens(t, c, devchain.PayTo(), devchain.Ether(2))
	})

	now := int64(c.Head().Time)
	for name, tc := range map[string]struct {
		before, after func(*payment) // what changes before and after the payer signs
		want          string
	}{
		"after the deadline": {
			before: func(p *payment) { p.Permit.Deadline = big.NewInt(now - 1) },
			want:   "SignatureExpired(uint256)",
		},
		"at the deadline": {before: func(p *payment) { p.Permit.Deadline = big.NewInt(now) }},
		"before validAfter": {
			before: func(p *payment) { p.Witness.ValidAfter = big.NewInt(now + 1) },
			want:   "PaymentTooEarly()",
		},
		"at validAfter":      {before: func(p *payment) { p.Witness.ValidAfter = big.NewInt(now) }},
		"another recipient":  {after: func(p *payment) { p.Witness.To = common.Address{1} }, want: "InvalidSigner()"},
		"another validAfter": {after: func(p *payment) { p.Witness.ValidAfter = big.NewInt(1) }, want: "InvalidSigner()"},
		"a smaller amount": {
			after: func(p *payment) { p.Permit.Permitted.Amount = big.NewInt(1) },
			want:  "InvalidSigner()",
		},
		"another nonce": {after: func(p *payment) { p.Permit.Nonce = big.NewInt(77) }, want: "InvalidSigner()"},
		"another owner": {after: func(p *payment) { p.Owner = devchain.PayTo() }, want: "InvalidSigner()"},
		"a malformed v": {after: func(p *payment) { p.Signature[64] = 5 }, want: "InvalidSignature()"},
		"a short signature": {
			after: func(p *payment) { p.Signature = p.Signature[:63] },
			want:  "InvalidSignatureLength()",
		},
		"no amount": {
			before: func(p *payment) { p.Permit.Permitted.Amount = new(big.Int) },
			want:   "InvalidAmount()",
		},
		"no recipient": {before: func(p *payment) { p.Witness.To = common.Address{} }, want: "InvalidDestination()"},
		"no owner":     {after: func(p *payment) { p.Owner = common.Address{} }, want: "InvalidOwner()"},
		"more than the balance": {
			before: func(p *payment) { p.Permit.Permitted.Amount = devchain.Ether(2_000_000) },
			want:   "execution reverted: TRANSFER_FROM_FAILED",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPayment(key, 2)
			if tc.before != nil {
				tc.before(&p)
			}
			p = p.signed(t, key)
			if tc.after != nil {
				tc.after(&p)
			}
			got := refusal(t, c, contracts.ExactProxyAddress, p.settle(t))
			if len(got) > len(tc.want) && tc.want != "" {
				got = got[:len(tc.want)] // after a reason comes its encoding
			}
			if got != tc.want {
				t.Errorf("settle reverts with %q, want %q", got, tc.want)
			}
		})
	}
}

func TestPermit2ChecksSpenderAndAmount(t *testing.T) {
	c := start(t, devchain.Config{Funded: devchain.DevAccounts()})
	key := devchain.PayerKey()
	p := newPayment(key, 0).signed(t, key)
	details := struct {
		To              common.Address
		RequestedAmount *big.Int
	}{p.Witness.To, p.Permit.Permitted.Amount}
	data := pack(t, contracts.Permit2(), "permitWitnessTransferFrom", p.Permit, details, p.Owner,
		common.Hash{}, "Witness witness)", p.Signature)
	if got := refusal(t, c, contracts.Permit2Address, data); got != "InvalidSigner()" {
		t.Errorf("a caller that is not the signed spender gets %q", got)
	}
	details.RequestedAmount = devchain.Ether(2)
	data = pack(t, contracts.Permit2(), "permitTransferFrom", p.Permit, details, p.Owner, p.Signature)
	if got := refusal(t, c, contracts.Permit2Address, data); got != "InvalidAmount(uint256)" {
		t.Errorf("a request for more than was signed gets %q", got)
	}
}

func TestInvalidatedNonceCannotSettle(t *testing.T) {
	c := start(t, devchain.Config{Funded: devchain.DevAccounts()})
	key := devchain.PayerKey()
	p := newPayment(key, 256+3).signed(t, key)
	invalidate := pack(t, contracts.Permit2(), "invalidateUnorderedNonces", big.NewInt(1), big.NewInt(1<<3))
	receipt, err := c.Transact(t.Context(), key, contracts.Permit2Address, nil, invalidate)
	if err != nil {
		t.Fatal(err)
	}
	if want := contracts.Permit2().ABI.Events["UnorderedNonceInvalidation"].ID; receipt.Logs[0].Topics[0] != want {
		t.Errorf("log %s, want %s", receipt.Logs[0].Topics[0], want)
	}
	if got := refusal(t, c, contracts.ExactProxyAddress, p.settle(t)); got != "InvalidNonce()" {
		t.Errorf("settle reverts with %q", got)
	}
	if got := refusal(t, c, contracts.ExactProxyAddress, newPayment(key, 256+4).signed(t, key).settle(t)); got != "" {
		t.Errorf("with the next nonce, settle reverts with %q", got)
	}
}

func TestBatchSettlesAllButTheInvalidPayment(t *testing.T) {
	c := start(t, devchain.Config{Funded: devchain.DevAccounts()})
	key := devchain.PayerKey()
	payments := make([]payment, 5)
	for i := range payments {
		payments[i] = newPayment(key, int64(i)).signed(t, key)
	}
	payments[2].Witness.To = common.Address{1}
	receipt := transact(t, c, contracts.Multicall3Address, aggregate(t, payments))
	if receipt.Status != types.ReceiptStatusSuccessful {
		t.Fatal("the batch reverted")
	}
	wantTokens(t, c, devchain.PayTo(), devchain.Ether(4))
	for i := range payments {
		want := "InvalidNonce()"
		if i == 2 {
			want = "InvalidSigner()"
		}
		if got := refusal(t, c, contracts.ExactProxyAddress, payments[i].settle(t)); got != want {
			t.Errorf("payment %d again: %q, want %q", i, got, want)
		}
	}
}

// A payer without a Permit2 allowance signs an EIP-2612 permit as well.
func TestSettleWithPermit(t *testing.T) {
	key, err := crypto.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	payer := crypto.PubkeyToAddress(key.PublicKey)
	c := start(t, devchain.Config{Funded: append(devchain.DevAccounts(),
		devchain.Funded{Address: payer, Tokens: devchain.Ether(10)})})
	type permit2612 struct {
		Value, Deadline *big.Int
		R, S            [32]byte
		V               uint8
	}
	permitFor := func(p payment, nonce int) permit2612 {
		signature := sign(t, key, apitypes.TypedData{
			PrimaryType: "Permit",
			Domain: apitypes.TypedDataDomain{
				Name: "Boxoffice Test Token", Version: "1",
				ChainId:           math.NewHexOrDecimal256(devchain.DefaultChainID),
				VerifyingContract: devchain.TokenAddress.Hex(),
			},
			Types: apitypes.Types{
				"EIP712Domain": {
					{Name: "name", Type: "string"},
					{Name: "version", Type: "string"},
					{Name: "chainId", Type: "uint256"},
					{Name: "verifyingContract", Type: "address"},
				},
				"Permit": {
					{Name: "owner", Type: "address"},
					{Name: "spender", Type: "address"},
					{Name: "value", Type: "uint256"},
					{Name: "nonce", Type: "uint256"},
					{Name: "deadline", Type: "uint256"},
				},
			},
			Message: apitypes.TypedDataMessage{
				"owner": payer.Hex(), "spender": contracts.Permit2Address.Hex(),
				"value": p.Permit.Permitted.Amount.String(),
				"nonce": fmt.Sprint(nonce), "deadline": p.Permit.Deadline.String(),
			},
		})
		return permit2612{
			p.Permit.Permitted.Amount, p.Permit.Deadline,
			[32]byte(signature[:32]), [32]byte(signature[32:64]), signature[64],
		}
	}

	p := newPayment(key, 0).signed(t, key)
	if got := refusal(t, c, contracts.ExactProxyAddress, p.settle(t)); got == "" {
		t.Fatal("settled without any allowance")
	}
	transact(t, c, contracts.ExactProxyAddress,
		pack(t, contracts.ExactProxy(), "settleWithPermit", permitFor(p, 0), p.Permit, p.Owner, p.Witness, p.Signature))
	wantTokens(t, c, devchain.PayTo(), devchain.Ether(1))

	if err := c.Fund(t.Context(), payer, devchain.Ether(1), nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Approve(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	p = newPayment(key, 1).signed(t, key)
	spent := permitFor(p, 0)
	receipt := transact(t, c, contracts.ExactProxyAddress,
		pack(t, contracts.ExactProxy(), "settleWithPermit", spent, p.Permit, p.Owner, p.Witness, p.Signature))
	wantTokens(t, c, devchain.PayTo(), devchain.Ether(2))
	if want := contracts.ExactProxy().ABI.Events["EIP2612PermitFailedWithData"].ID; receipt.Logs[0].Topics[0] != want {
		t.Errorf("the event of a failed permit is %s, want %s", receipt.Logs[0].Topics[0], want)
	}

	spent.Value = devchain.Ether(3)
	data := pack(t, contracts.ExactProxy(), "settleWithPermit", spent, p.Permit, p.Owner, p.Witness, p.Signature)
	if got := refusal(t, c, contracts.ExactProxyAddress, data); got != "Permit2612AmountMismatch()" {
		t.Errorf("with a permit of another amount, settle reverts with %q", got)
	}
}

// The contract of an owner with code checks signatures (EIP-1271). One of these accepts all signatures, the other none.
func TestContractOwners(t *testing.T) {
	key := devchain.SettlementKey()
	deployer := crypto.PubkeyToAddress(key.PublicKey)
	for i, tc := range []struct{ runtime, want string }{
		{"0x631626ba7e60e01b5f5260205ff3", ""},
		{"0x630000000060e01b5f5260205ff3", "InvalidContractSignature()"},
	} {
		owner := crypto.CreateAddress(deployer, 0)
		c := start(t, devchain.Config{Funded: append(devchain.DevAccounts(),
			devchain.Funded{Address: owner, Tokens: devchain.Ether(1), Permit2Allowed: true})})
		deployment := append([]byte{0x6d}, hexutil.MustDecode(tc.runtime)...)      // push the runtime
		deployment = append(deployment, hexutil.MustDecode("0x5f52600e6012f3")...) // and return it
		tx := types.MustSignNewTx(key, types.LatestSignerForChainID(c.ChainID()), &types.LegacyTx{
			Gas: 200_000, GasPrice: big.NewInt(2 * params.GWei), Data: deployment,
		})
		if err := c.Client().SendTransaction(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		mine(t, c)
		p := newPayment(key, 0)
		p.Owner, p.Signature = owner, []byte("any bytes")
		if got := refusal(t, c, contracts.ExactProxyAddress, p.settle(t)); got != tc.want {
			t.Errorf("wallet %d: settle reverts with %q, want %q", i, got, tc.want)
		}
	}
}

// BenchmarkSettle reports the gas of one payment: alone, in a batch of fifty payers, and in a batch of fifty payments
// of one payer, whose nonces are bits of one word of Permit2's bitmap.
func BenchmarkSettle(b *testing.B) {
	const batch = 50
	for _, bench := range []struct {
		name           string
		payers, amount int
	}{{"single", 1, 1}, {"batch=50,payers=50", batch, batch}, {"batch=50,payers=1", 1, batch}} {
		b.Run(bench.name, func(b *testing.B) {
			funded := devchain.DevAccounts()
			keys := devKeys(b, bench.payers)
			for _, key := range keys {
				funded = append(funded, devchain.Funded{
					Address: crypto.PubkeyToAddress(key.PublicKey),
					Tokens:  devchain.Ether(1_000_000), Permit2Allowed: true,
				})
			}
			funded = append(funded, devchain.Funded{Address: devchain.PayTo(), Tokens: devchain.Ether(1)})
			c := start(b, devchain.Config{Funded: funded})
			var gas uint64
			var nonce int64
			for b.Loop() {
				payments := make([]payment, bench.amount)
				for i := range payments {
					key := keys[i%len(keys)]
					payments[i] = newPayment(key, nonce*256+int64(i/len(keys))).signed(b, key)
				}
				nonce++
				to, data := contracts.ExactProxyAddress, payments[0].settle(b)
				if bench.amount > 1 {
					to, data = contracts.Multicall3Address, aggregate(b, payments)
				}
				gas += transact(b, c, to, data).GasUsed
			}
			b.ReportMetric(float64(gas)/float64(b.N)/float64(bench.amount), "gas/payment")
		})
	}
}
