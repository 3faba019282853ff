package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"boxoffice"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
)

// SignedPayment is a payment for an order and the approval of its quote, signed
// by one wallet. Anyone who has it can settle it: it moves the signed amount to the
// signed recipient.
type SignedPayment struct {
	OrderID        boxoffice.UUID
	URL            string // where to POST it
	Header         string // PAYMENT-SIGNATURE
	QuoteSignature boxoffice.Signature
}

// String leaves the signatures out, so that no log has them.
func (SignedPayment) String() string { return "[signed payment]" }

// GoString leaves the signatures out, so that no log has them.
func (p SignedPayment) GoString() string { return p.String() }

// record is what a vault keeps of a purchase. The nonce is saved before anything
// is signed with it, and the signed payment before it is sent. Neither is ever
// deleted: a service that lost a payment is sent the same one again, or one with
// the same nonce, of which the chain takes one.
type record struct {
	Service    string              `json:"service"`
	RequestKey boxoffice.UUID      `json:"requestKey"`
	OrderID    boxoffice.UUID      `json:"orderId"`
	QuoteHash  boxoffice.Hash      `json:"quoteHash"`
	ChainID    uint64              `json:"chainId"`
	Payer      common.Address      `json:"payer"`
	Nonce      x402.Uint256        `json:"nonce"`
	Deadline   int64               `json:"deadline"` // Unix seconds
	Header     string              `json:"header"`   // empty until a payment with this nonce is signed
	Approval   boxoffice.Signature `json:"quoteSignature"`
	Failed     bool                `json:"failed"` // the service said that this payment failed
}

// usable reports whether the record has a payment that can still settle.
func (r *record) usable(unix int64) bool {
	return r.Header != "" && !r.Failed && r.Deadline >= unix+x402.MinDeadlineSlack
}

func (r *record) payment() SignedPayment {
	return SignedPayment{r.OrderID, r.Service + submitPath(r.OrderID), r.Header, r.Approval}
}

// match refuses to sign for a second order, or with a second wallet, under one
// request key: both payments could settle.
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

// load returns the record of a name; nil if there is none.
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

// sign signs a payment for a checked offer and saves it. It returns the payment
// that another process saved meanwhile, if that can still settle. A payment that
// failed, or whose deadline has passed, is signed again with the same nonce.
func (c *Client) sign(ctx context.Context, offer *offer, a *attempt) (signature, error) {
	name := c.recordName("payment", a.order.RequestKey)
	unlock, err := c.vault.Lock(ctx, name)
	if err != nil {
		return signature{}, err
	}
	defer unlock()
	kept, err := c.load(ctx, name)
	if err == nil {
		kept, err = c.recordOf(ctx, kept, &a.order)
	}
	if err != nil {
		return signature{}, err
	}
	if kept.usable(c.now().Unix()) {
		return signature{payment: kept.payment()}, nil
	}
	first := kept.Header == ""
	if err := c.signRecord(ctx, kept, offer, a); err != nil {
		return signature{}, err
	}
	return signature{payment: kept.payment(), first: first}, nil
}

// recordOf returns the record to sign: the kept one, if it is of the same order
// and wallet, or a new one with a nonce of its own.
func (c *Client) recordOf(ctx context.Context, kept *record, order *boxoffice.Order) (*record, error) {
	payer := c.signer.Address()
	if kept == nil {
		chainID, err := x402.ChainID(order.Quote.Payment.Network)
		if err != nil {
			return nil, err
		}
		if err := c.bindKey(ctx, order); err != nil {
			return nil, err
		}
		kept = &record{
			Service: c.base, RequestKey: order.RequestKey, OrderID: order.ID, QuoteHash: order.Quote.QuoteHash,
			ChainID: chainID, Payer: payer,
		}
		kept.Nonce, err = c.reserve(ctx, chainID, payer, nil)
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
	case err == nil && spent && kept.Header == "": // by another order: nothing was signed for this one
		kept.Nonce, err = c.reserve(ctx, kept.ChainID, payer, &kept.Nonce)
	case err == nil && spent:
		err = ErrNonceSpent
	}
	return kept, err
}

// bindKey saves the request key of an order that is signed for the first time, and
// refuses to sign for the order under any other. A caller of Pay or Sign may not know
// the key: then only the service says it, and with another one each time it could get
// several payments for one order.
func (c *Client) bindKey(ctx context.Context, order *boxoffice.Order) error {
	name := c.recordName("order", order.ID)
	unlock, err := c.vault.Lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	bound, err := c.vault.Get(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return c.vault.Put(ctx, name, []byte(strconv.Quote(string(order.RequestKey))))
	}
	if err != nil {
		return err
	}
	return same("order/requestKey", string(bound), strconv.Quote(string(order.RequestKey)))
}

// replace returns the payment to send in place of one whose nonce another order
// has. It signs with a new nonce only if the refused payment was the first one with
// its nonce, signed by this call: so the service saw it moments ago, and refused it
// before it did anything with it. A payment from an earlier call may have been
// taken by a service that has lost its memory since, and could settle beside a new
// one; for it replace returns what another process has signed meanwhile, or the
// refused payment.
func (c *Client) replace(ctx context.Context, a *attempt, refused signature) (SignedPayment, error) {
	name := c.recordName("payment", a.order.RequestKey)
	offer, status, err := c.challenge(ctx, a.order.ID)
	if err != nil || status != nil {
		return refused.payment, err
	}
	if err := c.check(ctx, offer, a); err != nil {
		return refused.payment, err
	}
	unlock, err := c.vault.Lock(ctx, name)
	if err != nil {
		return refused.payment, err
	}
	defer unlock()
	kept, err := c.load(ctx, name)
	switch {
	case err != nil || kept == nil:
		return refused.payment, err
	case kept.payment() != refused.payment && kept.usable(c.now().Unix()):
		return kept.payment(), nil
	case kept.payment() != refused.payment || !refused.first:
		return refused.payment, nil
	}
	if kept.Nonce, err = c.reserve(ctx, kept.ChainID, kept.Payer, &kept.Nonce); err != nil {
		return refused.payment, err
	}
	kept.Header = ""
	if err := c.signRecord(ctx, kept, offer, a); err != nil {
		return refused.payment, err
	}
	return kept.payment(), nil
}

// signRecord signs a record and saves it: its nonce before, its payment after.
func (c *Client) signRecord(ctx context.Context, kept *record, offer *offer, a *attempt) error {
	name := c.recordName("payment", a.order.RequestKey)
	if err := c.save(ctx, name, kept); err != nil {
		return err
	}
	if err := c.fill(ctx, kept, offer, a.capabilities.Payment.ServiceName); err != nil {
		return fmt.Errorf("sign: %w", err)
	}
	return c.save(ctx, name, kept)
}

// minLifetime is the least number of seconds for which a permit is signed, so
// that it can reach the chain. It is less than x402.MaxDeadlineSlack.
const minLifetime = 60

// fill signs both: the payment, which accepts the offered requirement unchanged,
// and the approval, which covers the payment's hash (docs/protocol.md §6.5).
func (c *Client) fill(ctx context.Context, kept *record, offer *offer, serviceName string) error {
	accepted, err := offer.challenge.Accepted()
	if err != nil {
		return err
	}
	deadline := c.now().Unix() + max(accepted.MaxTimeoutSeconds, minLifetime)
	payload := x402.Payload{
		X402Version: x402.Version,
		Resource:    &offer.challenge.Resource,
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
	permit := &payload.Payload
	if permit.Signature, err = c.signDigest(ctx, permit.Authorization.Digest(kept.ChainID)); err != nil {
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
	approval, err := offer.challenge.Approve(serviceName, payment.Hash)
	if err != nil {
		return err
	}
	signature, err := c.signDigest(ctx, approval.Digest())
	if err != nil {
		return fmt.Errorf("quote approval: %w", err)
	}
	kept.Deadline, kept.Header, kept.Approval, kept.Failed = deadline, header, boxoffice.Signature(signature), false
	return nil
}

// failed saves that the service said that the payment failed, so that the next
// call signs again, with the same nonce.
func (c *Client) failed(ctx context.Context, requestKey boxoffice.UUID, payment SignedPayment) error {
	name := c.recordName("payment", requestKey)
	unlock, err := c.vault.Lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	kept, err := c.load(ctx, name)
	if err != nil || kept == nil || kept.payment() != payment {
		return err
	}
	kept.Failed = true
	return c.save(ctx, name, kept)
}
