package evm

import (
	"context"
	"fmt"
	"math/big"

	"boxoffice"
	"boxoffice/internal/payment"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/params"
	"github.com/ethereum/go-ethereum/rpc"
)

// market is what the wallet has to know of the chain before it signs.
type market struct {
	baseFee  *big.Int // nil on a chain without one (before EIP-1559)
	price    *big.Int // eth_gasPrice; only used without a base fee
	tip      *big.Int // what the node suggests; nil if it does not
	blockGas uint64   // the most that fits a block
	balance  *big.Int // of the wallet
}

// offer is the fees of a transaction in wei a gas. On a chain without a base fee
// both are the gas price.
type offer struct{ cap, tip *big.Int }

// The bounds of the tip of a first offer, in wei a gas. A replacement may offer
// more.
var minTip, maxTip = big.NewInt(params.GWei / 1000), big.NewInt(5 * params.GWei)

// market reads all of it in one round trip.
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
	if err := c.send(ctx, op, requests); err != nil {
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

// offer returns the fees to offer now: a cap that holds even if the base fee
// doubles, and the tip that the node suggests, within its bounds. The offer for a
// replacement is also higher than before by what nodes require. It fails with
// ErrFeeCeiling if that is not possible within the maximum.
func (m market) offer(maxFee boxoffice.Amount, replaces *payment.Tx) (offer, error) {
	limit := maxFee.Big()
	o := offer{cap: m.price, tip: m.price}
	least := m.price // below it the transaction is not mined
	if m.baseFee != nil {
		tip := minTip
		if m.tip != nil && m.tip.Cmp(tip) > 0 {
			tip = smaller(m.tip, maxTip)
		}
		tip = smaller(tip, limit)
		o = offer{cap: new(big.Int).Add(new(big.Int).Lsh(m.baseFee, 1), tip), tip: tip}
		least = m.baseFee
	}
	if least.Cmp(limit) > 0 {
		return offer{}, fmt.Errorf("%w: the chain asks for %s wei a gas, the maximum is %s", ErrFeeCeiling, least,
			limit)
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
			return offer{}, fmt.Errorf("%w: a replacement needs %s wei a gas, the maximum is %s", ErrFeeCeiling,
				larger(o.cap, o.tip), limit)
		}
	}
	// A tip above the cap is invalid. The tip that is paid is at most the cap less
	// the base fee.
	if m.baseFee != nil {
		o.cap = larger(o.cap, o.tip)
	}
	return o, nil
}

// raised returns a fee that is an eighth higher, rounded up, and at least one wei
// higher. For a replacement geth requires both fees to be 10 % higher by default,
// and some nodes require an eighth.
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
