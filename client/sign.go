package client

import (
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"boxoffice"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// Signer is a wallet. SignDigest returns 65 bytes of r, s and v, with v 27 or
// 28 and s in the lower half of the curve's order; that of a [ContractSigner]
// any 65 bytes.
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

// String keeps the key out of logs.
func (s keySigner) String() string { return "wallet " + s.Address().Hex() }

// GoString keeps the key out of logs.
func (s keySigner) GoString() string { return s.String() }

// ContractSigner returns the contract wallet (EIP-1271) at an address. The
// owner signs for it: 65 bytes over the digest itself, which the contract's
// isValidSignature has to accept. A client that reads the chain asks it before
// anything is sent. An account that delegates its code (EIP-7702) signs by its
// key as ever: it needs a [KeySigner].
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

// String keeps the owner's key out of logs.
func (s contractSigner) String() string { return "contract wallet " + s.wallet.Hex() }

// GoString keeps the owner's key out of logs.
func (s contractSigner) GoString() string { return s.String() }

// ErrNoSigner says that the client has no wallet to sign with.
var ErrNoSigner = errors.New("the client has no signer")

// SignedPayment is a payment and the approval of its quote, signed by one
// wallet. Whoever has it can move the money that it names to where it names.
type SignedPayment struct {
	Header         string // PAYMENT-SIGNATURE
	QuoteSignature boxoffice.Signature
}

// String keeps the signatures out of logs.
func (SignedPayment) String() string { return "[signed payment]" }

// GoString keeps the signatures out of logs.
func (p SignedPayment) GoString() string { return p.String() }

// record is what a vault keeps of a purchase. The nonce is kept before anything
// is signed with it, the signed payment before it is sent anywhere, and neither
// is ever deleted: a service that loses or denies a payment is sent the same one
// again, or one of the same nonce, of which the chain takes one.
type record struct {
	Service    string              `json:"service"`
	RequestKey boxoffice.UUID      `json:"requestKey"`
	OrderID    boxoffice.UUID      `json:"orderId"`
	QuoteHash  boxoffice.Hash      `json:"quoteHash"`
	ChainID    uint64              `json:"chainId"`
	Payer      common.Address      `json:"payer"`
	Nonce      x402.Uint256        `json:"nonce"`
	Deadline   int64               `json:"deadline"` // Unix seconds
	Header     string              `json:"header"`   // empty until signed
	Approval   boxoffice.Signature `json:"quoteSignature"`
	Failed     bool                `json:"failed"` // the service said that this payment failed
}

// usable reports whether the record holds a payment that can still be settled.
func (r *record) usable(unix int64) bool {
	return r.Header != "" && !r.Failed && r.Deadline >= unix+x402.MinDeadlineSlack
}

func (r *record) signed() SignedPayment { return SignedPayment{r.Header, r.Approval} }

func (c *Client) load(ctx context.Context, name string) (*record, error) {
	data, err := c.vault.Get(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	kept := new(record)
	if err := json.Unmarshal(data, kept); err != nil {
		return nil, fmt.Errorf("vault: %s: %w", name, err)
	}
	return kept, nil
}

func (c *Client) save(ctx context.Context, name string, kept *record) error {
	data, err := json.Marshal(kept)
	if err != nil {
		return fmt.Errorf("vault: %w", err)
	}
	return c.vault.Put(ctx, name, data)
}

// Sign checks the offer as [Client.Check] does and returns the signed payment
// for it, after the vault has it. An order that was signed before is answered
// with the same payment for as long as that can still settle; after that, or
// when the service said that it failed, it is signed with the same Permit2 nonce
// and a later deadline.
func (c *Client) Sign(ctx context.Context, offer *Offer, intent Intent) (SignedPayment, error) {
	if c.signer == nil {
		return SignedPayment{}, ErrNoSigner
	}
	if err := c.Check(ctx, offer, intent); err != nil {
		return SignedPayment{}, err
	}
	return c.sign(ctx, offer, &intent)
}

func (c *Client) sign(ctx context.Context, offer *Offer, intent *Intent) (SignedPayment, error) {
	name := c.recordName(intent.Order.RequestKey)
	unlock, err := c.vault.Lock(ctx, name)
	if err != nil {
		return SignedPayment{}, err
	}
	defer unlock()
	kept, err := c.load(ctx, name)
	if err == nil {
		kept, err = c.bound(ctx, kept, intent)
	}
	if err != nil {
		return SignedPayment{}, err
	}
	now := c.now().Unix()
	if kept.usable(now) {
		return kept.signed(), nil
	}
	if err := c.save(ctx, name, kept); err != nil {
		return SignedPayment{}, err
	}
	if err := c.fill(ctx, kept, offer, intent.Capabilities.Payment.ServiceName, now); err != nil {
		return SignedPayment{}, fmt.Errorf("sign: %w", err)
	}
	if err := c.save(ctx, name, kept); err != nil {
		return SignedPayment{}, err
	}
	return kept.signed(), nil
}

// bound returns the record for an order: what was kept, if it is of the same
// order and wallet, or a new one with a nonce of its own.
func (c *Client) bound(ctx context.Context, kept *record, intent *Intent) (*record, error) {
	order, payer := &intent.Order, c.signer.Address()
	if kept == nil {
		chainID, err := x402.ChainID(order.Quote.Payment.Network)
		if err != nil {
			return nil, err
		}
		kept = &record{
			Service: c.base, RequestKey: order.RequestKey, OrderID: order.ID, QuoteHash: order.Quote.QuoteHash,
			ChainID: chainID, Payer: payer,
		}
		kept.Nonce, err = c.reserve(ctx, chainID, payer)
		return kept, err
	}
	if err := kept.match(order, payer); err != nil {
		return nil, err
	}
	if c.chain == nil || kept.usable(c.now().Unix()) {
		return kept, nil
	}
	spent, err := c.chain.spent(ctx, payer, kept.Nonce)
	switch {
	case err == nil && spent && kept.Header == "": // by somebody else's order: nothing was signed for this one
		kept.Nonce, err = c.reserve(ctx, kept.ChainID, payer)
	case err == nil && spent:
		err = ErrNonceSpent
	}
	return kept, err
}

// match refuses to sign a second order, or with a second wallet, under one
// request key: both could be paid.
func (r *record) match(order *boxoffice.Order, payer common.Address) error {
	for _, err := range []error{
		same("order/id", r.OrderID, order.ID),
		same("order/quote/quoteHash", r.QuoteHash, order.Quote.QuoteHash),
		same("the wallet that signed for this request key before", r.Payer, payer),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// minLifetime is for how many seconds at least a permit is signed, so that it
// outlives the way to the chain. It is within x402.MaxDeadlineSlack.
const minLifetime = 60

// fill signs both: the payment, which accepts the offered requirement as it
// stands, and the approval, which covers the payment's hash (spec.md §4.4).
func (c *Client) fill(ctx context.Context, kept *record, offer *Offer, serviceName string, now int64) error {
	accepted, err := offer.Challenge.Accepted()
	if err != nil {
		return err
	}
	deadline := now + max(accepted.MaxTimeoutSeconds, minLifetime)
	payload := x402.Payload{
		X402Version: x402.Version,
		Resource:    &offer.Challenge.Resource,
		Accepted:    accepted,
		Payload: x402.Permit2Payload{Authorization: x402.Authorization{
			From:      kept.Payer,
			Permitted: x402.Permitted{Token: accepted.Asset, Amount: accepted.Amount},
			Spender:   x402.ExactProxy,
			Nonce:     kept.Nonce,
			Deadline:  x402.NewUint256(uint64(deadline)),
			Witness:   x402.Witness{To: accepted.PayTo},
		}},
	}
	if payload.Payload.Signature, err = c.signed(ctx, payload.Payload.Authorization.Digest(kept.ChainID)); err != nil {
		return fmt.Errorf("payment: %w", err)
	}
	header, err := x402.EncodeHeader(payload)
	if err != nil {
		return err
	}
	payment, err := x402.ParsePayment(header)
	if err != nil {
		return err
	}
	approval, err := offer.Challenge.Approve(serviceName, payment.Hash)
	if err != nil {
		return err
	}
	signature, err := c.signed(ctx, approval.Digest())
	if err != nil {
		return fmt.Errorf("quote approval: %w", err)
	}
	kept.Deadline, kept.Header, kept.Approval, kept.Failed = deadline, header, boxoffice.Signature(signature), false
	return nil
}

// signed has the wallet sign, and checks that it was this wallet. What a
// contract's signature is only the contract knows.
func (c *Client) signed(ctx context.Context, digest [32]byte) ([]byte, error) {
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

// failed remembers that the service turned the payment down, so that the next
// try signs again, with the same nonce.
func (c *Client) failed(ctx context.Context, requestKey boxoffice.UUID, payment SignedPayment) error {
	name := c.recordName(requestKey)
	unlock, err := c.vault.Lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	kept, err := c.load(ctx, name)
	if err != nil || kept == nil || kept.signed() != payment {
		return err
	}
	kept.Failed = true
	return c.save(ctx, name, kept)
}
