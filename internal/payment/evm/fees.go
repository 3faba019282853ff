package evm

import (
	"context"
	"fmt"
	"math/big"

	"boxoffice/internal/payment"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/rpc"
)

// market is what the wallet has to know before it signs.
type market struct {
	baseFee  *big.Int // nil where there is none (before EIP-1559)
	price    *big.Int // eth_gasPrice; only used without a base fee
	tip      *big.Int // what the node suggests; nil if it does not
	blockGas uint64   // the most that fits a block
	balance  *big.Int // of the wallet
}

// offer is the fee of a transaction in wei a gas. Without a base fee both are
// the gas price.
type offer struct{ cap, tip *big.Int }

// market asks for everything in one round trip.
func (c *Chain) market(ctx context.Context, op string, wallet common.Address) (market, error) {
	var (
		head                *header
		price, tip, balance hexutil.Big
	)
	requests := []rpc.BatchElem{
		headerRequest(latest, &head),
		{Method: "eth_getBalance", Args: []any{wallet, latest}, Result: &balance},
		{Method: "eth_gasPrice", Result: &price},
		{Method: "eth_maxPriorityFeePerGas", Result: &tip},
	}
	if err := c.round(ctx, op, requests); err != nil {
		return market{}, err
	}
	for _, request := range requests[:2] {
		if request.Error != nil {
			return market{}, c.fail(op, request.Error)
		}
	}
	if err := head.check(); err != nil {
		return market{}, c.fail(op, err)
	}
	m := market{baseFee: head.BaseFee.ToInt(), blockGas: uint64(head.GasLimit), balance: balance.ToInt()}
	if m.baseFee == nil {
		if err := requests[2].Error; err != nil {
			return market{}, c.fail(op, err)
		}
		m.price = price.ToInt()
	}
	switch err := requests[3].Error; {
	case err == nil:
		m.tip = tip.ToInt()
	case !refused(err): // a node without the method refuses it
		return market{}, c.fail(op, err)
	}
	return m, nil
}

// offer returns what to offer now: enough for the base fee to double, and the
// suggested tip within bounds. If it replaces a transaction it is also higher by
// what nodes ask of a replacement. It fails with ErrFeeCeiling if no offer
// within the maximum can do that.
func (m market) offer(fees Fees, replaces *payment.Tx) (offer, error) {
	limit := fees.Max.Big()
	o := offer{cap: m.price, tip: m.price}
	least := m.price // below it nobody includes the transaction
	if m.baseFee != nil {
		tip := fees.MinTip.Big()
		if m.tip != nil && m.tip.Cmp(tip) > 0 {
			tip = smaller(m.tip, fees.MaxTip.Big())
		}
		o = offer{cap: new(big.Int).Add(new(big.Int).Lsh(m.baseFee, 1), tip), tip: tip}
		least = m.baseFee
	}
	if least.Cmp(limit) > 0 {
		return offer{}, fmt.Errorf("%w: the chain asks for %s wei a gas, the maximum is %s", ErrFeeCeiling, least, limit)
	}
	o.cap = smaller(o.cap, limit)
	if replaces != nil {
		o.cap = larger(o.cap, raised(replaces.FeeCap.Big()))
		o.tip = larger(o.tip, raised(replaces.TipCap.Big()))
		if m.baseFee == nil { // a gas price is both
			o.cap = larger(o.cap, o.tip)
			o.tip = o.cap
		}
		if o.cap.Cmp(limit) > 0 || o.tip.Cmp(limit) > 0 {
			return offer{}, fmt.Errorf("%w: a replacement needs %s wei a gas, the maximum is %s", ErrFeeCeiling, larger(o.cap, o.tip), limit)
		}
	}
	// A tip above the cap is invalid; a raised tip is paid only as far as the
	// base fee leaves room, so raising the cap with it costs nothing extra.
	if m.baseFee != nil {
		o.cap = larger(o.cap, o.tip)
	}
	return o, nil
}

// raised is an eighth more, rounded up, and at least one wei more. Geth asks for
// 10 % more of both fees by default, and some nodes for an eighth.
func raised(fee *big.Int) *big.Int {
	n := new(big.Int).Add(fee, big.NewInt(7))
	n.Rsh(n, 3)
	return n.Add(larger(n, big.NewInt(1)), fee)
}

func smaller(a, b *big.Int) *big.Int {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

func larger(a, b *big.Int) *big.Int {
	if a.Cmp(b) > 0 {
		return a
	}
	return b
}
