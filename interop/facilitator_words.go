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

// word is a payment that the official facilitator does not like, and what we
// take its answers for.
type word struct {
	spoil   func(*x402.Authorization) // before it is signed; nil: the signature is broken
	poor    bool                      // its payer has no tokens
	verify  x402.Reason
	outcome remote.Outcome
	settle  x402.Reason
}

var words = []word{
	{nil, false, x402.ReasonSignature, remote.Refused, x402.ReasonSignature},
	{func(a *x402.Authorization) { a.Deadline = x402.NewUint256(1) }, false, x402.ReasonDeadlineExpired, remote.Refused, x402.ReasonDeadlineExpired},
	{func(a *x402.Authorization) { a.Permitted.Amount = x402.NewUint256(1) }, false, x402.ReasonAmount, remote.Refused, x402.ReasonAmount},
	{func(a *x402.Authorization) { a.Permitted.Token = x402.Permit2 }, false, x402.ReasonToken, remote.Refused, x402.ReasonToken},
	{func(a *x402.Authorization) { a.Witness.To = x402.Permit2 }, false, x402.ReasonRecipient, remote.Refused, x402.ReasonRecipient},
	{func(a *x402.Authorization) { a.Spender = x402.Permit2 }, false, x402.ReasonSpender, remote.Refused, x402.ReasonSpender},
	{func(a *x402.Authorization) { a.Witness.ValidAfter = a.Deadline }, false, x402.ReasonNotYetValid, remote.Declined, x402.ReasonNotYetValid},
	// Its /verify simulates. Its /settle hears from its node alone that the transaction would fail, which it also says of a lost one.
	{func(*x402.Authorization) {}, true, x402.ReasonInsufficientBalance, remote.Open, x402.ReasonTransactionFailed},
}

// officialWords hears what the official facilitator says of good and of bad
// payments and sees that we take each for what it means, the same words again
// when the payment is settled.
func officialWords(ctx context.Context, d *demo, facilitator string) error {
	client := remote.NewClient(remote.ClientConfig{URL: facilitator, ChainID: d.ChainID, Timeout: time.Minute})
	if err := client.Check(ctx); err != nil {
		return err
	}
	for i, w := range words {
		intent, terms, err := d.permit(w.spoil, w.poor)
		if err != nil {
			return err
		}
		if refused, err := client.Verify(ctx, intent.Payload, terms); err != nil || refused == nil || refused.Reason != w.verify {
			return fmt.Errorf("word %d: /verify was read as %+v, %v", i, refused, err)
		}
		if answer := client.Settle(ctx, intent); answer.Outcome != w.outcome || answer.Reason != w.settle {
			return fmt.Errorf("word %d: /settle was read as %+v", i, answer)
		}
	}
	intent, terms, err := d.permit(func(*x402.Authorization) {}, false)
	if err != nil {
		return err
	}
	if refused, err := client.Verify(ctx, intent.Payload, terms); err != nil || refused != nil {
		return fmt.Errorf("/verify of a good payment was read as %+v, %v", refused, err)
	}
	if answer := client.Settle(ctx, intent); answer.Outcome != remote.Settled {
		return fmt.Errorf("/settle of a good payment was read as %+v", answer)
	}
	if refused, err := client.Verify(ctx, intent.Payload, terms); err != nil || refused == nil || refused.Reason != x402.ReasonSimulation {
		return fmt.Errorf("/verify of a settled payment was read as %+v, %v", refused, err)
	}
	if answer := client.Settle(ctx, intent); answer.Outcome != remote.Open || answer.Reason != x402.ReasonTransactionFailed {
		return fmt.Errorf("/settle of a settled payment was read as %+v", answer)
	}
	return nil
}

// permit signs a payment to the demo's recipient.
func (d *demo) permit(spoil func(*x402.Authorization), poor bool) (payment.Intent, x402.Requirements, error) {
	terms := x402.Requirements{
		Scheme: x402.SchemeExact, Network: x402.Network(d.ChainID), Asset: common.HexToAddress(d.Asset), Amount: x402.NewUint256(7),
		PayTo: common.HexToAddress(d.PayTo), MaxTimeoutSeconds: 300, Extra: &x402.Extra{AssetTransferMethod: x402.MethodPermit2},
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
		From: crypto.PubkeyToAddress(key.PublicKey), Permitted: x402.Permitted{Token: terms.Asset, Amount: terms.Amount},
		Spender: x402.ExactProxy, Nonce: x402.NewUint256(nonce), Deadline: x402.NewUint256(deadline), Witness: x402.Witness{To: terms.PayTo},
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
		X402Version: x402.Version, Accepted: terms, Payload: x402.Permit2Payload{Authorization: authorization, Signature: signature},
	})
	return payment.Intent{
		ID: boxoffice.NewUUID(), Payload: payload, Permit: payment.Permit{Authorization: authorization, Signature: signature},
	}, terms, err
}
