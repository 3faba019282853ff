package evm_test

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	"boxoffice"
	"boxoffice/contracts"
	"boxoffice/internal/payment"
	"boxoffice/internal/payment/evm"
	"boxoffice/internal/test/devchain"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
)

// approving deploys a wallet with tokens.
func approving(t *testing.T, dev *devchain.Chain, contract *contracts.Contract, args ...any) common.Address {
	t.Helper()
	at, err := dev.Deploy(t.Context(), devchain.PayerKey(), contract, args...)
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.FundContract(t.Context(), devchain.PayerKey(), at, big.NewInt(1000)); err != nil {
		t.Fatal(err)
	}
	return at
}

func ownedBy(owner common.Address) func(*payment.Permit) {
	return func(p *payment.Permit) { p.From = owner }
}

// A wallet is asked about an approval in the round trip of its standing. Only
// EIP-1271's magic value, in one word and within the gas of a payment, is a yes.
// Nothing that the wallet does is an error or changes the standing of its permit.
func TestApprovalOfHostileWallets(t *testing.T) {
	dev := startChain(t)
	key := devchain.PayerKey()
	wallet := approving(t, dev, contracts.HostileWallet())
	yes := map[uint8]bool{contracts.Accept: true, contracts.AcceptUnpaid: true}
	tap := newTap(t, dev)
	chain := dial(t, dev, func(cfg *evm.Config) { tap.through(cfg); cfg.GasPerSettle = 200_000 })
	if _, err := chain.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	tap.answer = func(_ string, params []json.RawMessage) any {
		if asks(params, wallet) && !strings.Contains(string(params[0]),
			`"gas":"`+hexutil.EncodeUint64(200_000+evm.GasBase)) {
			return &refusal{Code: -32000, Message: "the wallet is given other gas than a payment"}
		}
		return nil
	}
	for answer := contracts.Accept; answer <= contracts.AcceptUnpaid; answer++ {
		data, err := contracts.HostileWallet().ABI.Pack("answer", contracts.Accept, answer)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := dev.Transact(t.Context(), key, wallet, nil, data); err != nil {
			t.Fatal(err)
		}
		tap.trips.Store(0)
		standings, err := chain.Standing(t.Context(), []payment.Permit{permit(t, key, 1, ownedBy(wallet))},
			payment.Approval{})
		if err != nil {
			t.Fatalf("answer %d: %v", answer, err)
		}
		if s := standings[0]; s.Approved != yes[answer] || !s.Code || s.Failure != nil {
			t.Errorf("answer %d: approved %t, code %t, %v", answer, s.Approved, s.Code, s.Failure)
		}
		if trips := tap.trips.Load(); trips != 1 {
			t.Errorf("%d round trips", trips)
		}
	}
}

// The wallet is asked about this digest and this signature. An account without code
// approves nothing.
func TestApprovalOfOwners(t *testing.T) {
	dev := startChain(t, rich(t, 1), rich(t, 2))
	owner := payer(t, 1)
	wallet := approving(t, dev, contracts.Wallet(), addressOf(devchain.PayerKey()))
	if err := dev.Delegate(t.Context(), payer(t, 2), approving(t, dev, contracts.Wallet(),
		addressOf(devchain.PayerKey()))); err != nil {
		t.Fatal(err)
	}
	digest := [32]byte{1, 2, 3}
	sign := func(digest [32]byte, n int64) payment.Approval {
		key := devchain.PayerKey()
		if n > 0 {
			key = payer(t, n)
		}
		signature, err := x402.Sign(digest, key)
		if err != nil {
			t.Fatal(err)
		}
		return payment.Approval{Digest: [32]byte{1, 2, 3}, Signature: boxoffice.Signature(signature)}
	}
	chain := dial(t, dev, nil)
	for what, test := range map[string]struct {
		owner    common.Address
		approval payment.Approval
		want     bool
	}{
		"by its owner":             {wallet, sign(digest, 0), true},
		"by another":               {wallet, sign(digest, 1), false},
		"over other data":          {wallet, sign([32]byte{9}, 0), false},
		"by the account's key":     {addressOf(payer(t, 2)), sign(digest, 2), true},
		"by another's key":         {addressOf(payer(t, 2)), sign(digest, 1), false},
		"of an owner without code": {addressOf(owner), sign(digest, 1), false},
		"of the chain's own":       {common.Address{19: 9}, sign(digest, 1), false}, // it fails in words of its own
	} {
		standings, err := chain.Standing(t.Context(), []payment.Permit{permit(t, owner, 1, ownedBy(test.owner))},
			test.approval)
		if err != nil {
			t.Fatal(err)
		}
		if standings[0].Approved != test.want {
			t.Errorf("%s: %t", what, standings[0].Approved)
		}
	}
}

// If the node does not answer about an approval, Standing fails.
func TestApprovalUnanswered(t *testing.T) {
	dev := startChain(t)
	wallet := approving(t, dev, contracts.HostileWallet())
	tap := newTap(t, dev)
	tap.answer = func(_ string, params []json.RawMessage) any {
		if asks(params, wallet) {
			return &refusal{Code: -32005, Message: "limit exceeded"}
		}
		return nil
	}
	chain := dial(t, dev, tap.through)
	permits := []payment.Permit{permit(t, devchain.PayerKey(), 1, ownedBy(wallet))}
	if standings, err := chain.Standing(t.Context(), permits, payment.Approval{}); err == nil {
		t.Errorf("%+v", standings)
	}
}
