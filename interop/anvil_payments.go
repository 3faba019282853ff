package main

import (
	"context"
	"crypto/rand"
	"math/big"
	"time"

	"boxoffice"
	"boxoffice/client"
	"boxoffice/contracts"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/params"
	"github.com/holiman/uint256"
)

// startSigned makes a payer buy in a goroutine, and keeps the call of the proxy that settles the payment. The buyers
// are those that payers have already.
func (s *service) startSigned(ctx context.Context, buyers map[int]*client.Client, payer int) (*sold, error) {
	buyer := buyers[payer]
	if buyer == nil {
		var err error
		if buyer, err = s.buyer(payer); err != nil {
			return nil, err
		}
		if buyers != nil {
			buyers[payer] = buyer
		}
	}
	purchase := newPurchase()
	quoted, err := buyer.Quote(ctx, purchase.Input, purchase.RequestKey)
	if err != nil {
		return nil, err
	}
	signed, err := buyer.Sign(ctx, quoted.Order.ID, client.Purchase{Max: purchase.Max})
	if err != nil {
		return nil, err
	}
	payment, err := x402.ParsePayment(signed.Header)
	if err != nil {
		return nil, err
	}
	p := &sold{buyer: buyer, over: make(chan struct{})}
	p.call, err = contracts.SettleCall(payment.Payload.Payload.Authorization, payment.Payload.Payload.Signature)
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(p.over)
		if p.status, p.err = buyer.Submit(ctx, signed); p.err == nil && p.status.Status != boxoffice.Admitted {
			p.status, p.err = buyer.Wait(ctx, quoted.Order.ID)
		}
	}()
	return p, nil
}

// directCall returns the call of the proxy for a payment that no service sold.
func (a *anvil) directCall(token, payTo common.Address, account int) (hexutil.Bytes, error) {
	var nonce [32]byte
	rand.Read(nonce[23:31]) // a word of its own, as long as those of the client
	authorization := x402.Authorization{
		From:      a.address(account),
		Permitted: x402.Permitted{Token: token, Amount: x402.NewUint256(anvilPrice)},
		Spender:   x402.ExactProxy, Nonce: x402.Uint256FromBytes32(nonce),
		Deadline: x402.NewUint256(uint64(time.Now().Add(time.Hour).Unix())), Witness: x402.Witness{To: payTo},
	}
	signature, err := x402.Sign(authorization.Digest(anvilChain), a.keys[account])
	if err != nil {
		return nil, err
	}
	return contracts.SettleCall(authorization, signature)
}

// overtake sends a call that is mined before everything that is in the pool.
func (a *anvil) overtake(ctx context.Context, to common.Address, call []byte) (tx common.Hash, err error) {
	tip := (*hexutil.Big)(big.NewInt(50 * params.GWei))
	return tx, a.call(ctx, &tx, "eth_sendTransaction", map[string]any{
		"from": a.address(deployer), "to": to, "input": hexutil.Bytes(call), "gas": hexutil.Uint64(1_000_000),
		"maxFeePerGas": (*hexutil.Big)(big.NewInt(100 * params.GWei)), "maxPriorityFeePerGas": tip,
	})
}

// delegate deploys a contract and makes an account run its code (EIP-7702). Anvil has to mine transactions immediately.
func (a *anvil) delegate(ctx context.Context, account int, contract *contracts.Contract) error {
	deployed, err := a.send(ctx, deployer, map[string]any{"input": contract.Creation})
	if err != nil {
		return err
	}
	nonce, err := a.PendingNonceAt(ctx, a.address(account))
	if err != nil {
		return err
	}
	id := *uint256.NewInt(anvilChain)
	authorization, err := types.SignSetCode(a.keys[account], types.SetCodeAuthorization{
		ChainID: id, Address: deployed.ContractAddress, Nonce: nonce + 1,
	})
	if err != nil {
		return err
	}
	tx, err := types.SignNewTx(a.keys[account], types.LatestSignerForChainID(id.ToBig()), &types.SetCodeTx{
		ChainID: &id, Nonce: nonce, GasTipCap: uint256.NewInt(params.GWei), GasFeeCap: uint256.NewInt(100 * params.GWei),
		Gas: 100_000, To: a.address(deployer), AuthList: []types.SetCodeAuthorization{authorization},
	})
	if err != nil {
		return err
	}
	if err := a.SendTransaction(ctx, tx); err != nil {
		return err
	}
	return until(ctx, "the delegation", func() (bool, error) {
		code, err := a.CodeAt(ctx, a.address(account), nil)
		return len(code) > 0, err
	})
}
