package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"boxoffice"
	"boxoffice/internal/payment"
	"boxoffice/internal/payment/remote"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// badPayment is a payment that the official facilitator refuses, and how our client has to read its responses.
type badPayment struct {
	spoil   func(*x402.Authorization) // before it is signed; nil: the signature is wrong
	poor    bool                      // its payer has no tokens
	verify  x402.Reason
	outcome remote.ReplyKind
	settle  x402.Reason
}

// refusedFor returns a payment that /verify and /settle refuse for the same reason.
func refusedFor(reason x402.Reason, spoil func(*x402.Authorization)) badPayment {
	return badPayment{spoil: spoil, verify: reason, outcome: remote.ReplyRefused, settle: reason}
}

var badPayments = []badPayment{
	refusedFor(x402.ReasonSignature, nil),
	refusedFor(x402.ReasonDeadlineExpired, func(a *x402.Authorization) { a.Deadline = x402.NewUint256(1) }),
	refusedFor(x402.ReasonAmount, func(a *x402.Authorization) { a.Permitted.Amount = x402.NewUint256(1) }),
	refusedFor(x402.ReasonToken, func(a *x402.Authorization) { a.Permitted.Token = x402.Permit2 }),
	refusedFor(x402.ReasonRecipient, func(a *x402.Authorization) { a.Witness.To = x402.Permit2 }),
	refusedFor(x402.ReasonSpender, func(a *x402.Authorization) { a.Spender = x402.Permit2 }),
	{
		spoil:  func(a *x402.Authorization) { a.Witness.ValidAfter = a.Deadline },
		verify: x402.ReasonNotYetValid, outcome: remote.ReplyNotTaken, settle: x402.ReasonNotYetValid,
	},
	{
		// /verify simulates the payment. /settle does not, and gets the error of its RPC node for a transaction that would
		// revert. It answers the same when it has lost sight of a transaction that it sent, so nothing is decided.
		spoil: func(*x402.Authorization) {}, poor: true,
		verify: x402.ReasonInsufficientBalance, outcome: remote.ReplyUnknown, settle: x402.ReasonTransactionFailed,
	},
}

// officialReasons sends bad payments and a good one to the official facilitator and checks that our client reads each
// response correctly, also when the good one is repeated after it was settled.
func officialReasons(ctx context.Context, d *demo, facilitator string) error {
	client := remote.NewClient(remote.ClientConfig{URL: facilitator, ChainID: d.ChainID, Timeout: time.Minute})
	if err := client.Check(ctx); err != nil {
		return err
	}
	for i, bad := range badPayments {
		intent, terms, err := d.permit(bad.spoil, bad.poor)
		if err != nil {
			return err
		}
		if err := verifies(ctx, client, intent, terms, bad.verify); err != nil {
			return fmt.Errorf("bad payment %d: %w", i, err)
		}
		if err := settles(ctx, client, intent, bad.outcome, bad.settle); err != nil {
			return fmt.Errorf("bad payment %d: %w", i, err)
		}
	}
	intent, terms, err := d.permit(func(*x402.Authorization) {}, false)
	if err != nil {
		return err
	}
	if refused, err := client.Verify(ctx, intent.Payload, terms); err != nil || refused != nil {
		return fmt.Errorf("/verify of a good payment: read as %+v, %v", refused, err)
	}
	if result := client.Settle(ctx, intent); result.Kind != remote.ReplySettled {
		return fmt.Errorf("/settle of a good payment: read as %+v", result)
	}
	if err := verifies(ctx, client, intent, terms, x402.ReasonSimulation); err != nil {
		return fmt.Errorf("a settled payment: %w", err)
	}
	if err := settles(ctx, client, intent, remote.ReplyUnknown, x402.ReasonTransactionFailed); err != nil {
		return fmt.Errorf("a settled payment: %w", err)
	}
	return nil
}

// verifies checks that /verify refuses the payment for a reason.
func verifies(
	ctx context.Context, client *remote.Client, intent payment.Intent, terms x402.Requirements, want x402.Reason,
) error {
	refused, err := client.Verify(ctx, intent.Payload, terms)
	if err != nil || refused == nil || refused.Reason != want {
		return fmt.Errorf("/verify was read as %+v, %v, want %s", refused, err, want)
	}
	return nil
}

// settles checks how the response of /settle is read.
func settles(
	ctx context.Context, client *remote.Client, intent payment.Intent, outcome remote.ReplyKind, reason x402.Reason,
) error {
	if got := client.Settle(ctx, intent); got.Kind != outcome || got.Reason != reason {
		return fmt.Errorf("/settle was read as %+v, want %v for %s", got, outcome, reason)
	}
	return nil
}

// permit signs a payment to the demo's recipient, after spoil. With a nil spoil, the signature is wrong.
func (d *demo) permit(spoil func(*x402.Authorization), poor bool) (payment.Intent, x402.Requirements, error) {
	terms := x402.Requirements{
		Scheme: x402.SchemeExact, Network: x402.Network(d.ChainID),
		Asset: common.HexToAddress(d.Asset), Amount: x402.NewUint256(7),
		PayTo: common.HexToAddress(d.PayTo), MaxTimeoutSeconds: 300,
		Extra: &x402.Extra{AssetTransferMethod: x402.MethodPermit2},
	}
	key, err := crypto.HexToECDSA(strings.TrimPrefix(d.Payer.PrivateKey, "0x"))
	if poor {
		key, err = crypto.GenerateKey()
	}
	if err != nil {
		return payment.Intent{}, terms, err
	}
	nonce, deadline := uint64(time.Now().UnixNano()), uint64(time.Now().Add(5*time.Minute).Unix())
	authorization := x402.Authorization{
		From: crypto.PubkeyToAddress(key.PublicKey), Spender: x402.ExactProxy,
		Permitted: x402.Permitted{Token: terms.Asset, Amount: terms.Amount},
		Nonce:     x402.NewUint256(nonce), Deadline: x402.NewUint256(deadline), Witness: x402.Witness{To: terms.PayTo},
	}
	if spoil != nil {
		spoil(&authorization)
	}
	signature, err := x402.Sign(authorization.Digest(d.ChainID), key)
	if err != nil {
		return payment.Intent{}, terms, err
	}
	if spoil == nil {
		signature[9] ^= 1
	}
	payload, err := json.Marshal(x402.Payload{
		X402Version: x402.Version, Accepted: terms,
		Payload: x402.Permit2Payload{Authorization: authorization, Signature: signature},
	})
	return payment.Intent{
		ID: boxoffice.NewUUID(), Payload: payload,
		Permit: payment.Permit{Authorization: authorization, Signature: signature},
	}, terms, err
}
