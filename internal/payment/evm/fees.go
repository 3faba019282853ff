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

// feeData is what the wallet reads from the chain before it signs.
type feeData struct {
	baseFee  *big.Int // nil on a chain without one (before EIP-1559)
	price    *big.Int // eth_gasPrice; only used without a base fee
	tip      *big.Int // what the node suggests; nil if it does not
	blockGas uint64   // the most that fits a block
	balance  *big.Int // of the wallet
}

// fees are the fees of a transaction in wei a gas. On a chain without a base fee both
// are the gas price.
type fees struct{ cap, tip *big.Int }

// The bounds of the tip of a first transaction, in wei a gas. A replacement may have
// a higher tip.
var minTip, maxTip = big.NewInt(params.GWei / 1000), big.NewInt(5 * params.GWei)

// readFees reads the fee data in one round trip.
func (c *Chain) readFees(ctx context.Context, op string, wallet common.Address) (feeData, error) {
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
		return feeData{}, err
	}
	for _, request := range requests[:2] {
		if request.Error != nil {
			return feeData{}, c.fail(op, request.Error)
		}
	}
	if err := head.check(); err != nil {
		return feeData{}, c.fail(op, err)
	}
	m := feeData{baseFee: head.BaseFee.ToInt(), blockGas: uint64(head.GasLimit), balance: balance.ToInt()}
	if m.baseFee == nil {
		if err := requests[2].Error; err != nil {
			return feeData{}, c.fail(op, err)
		}
		m.price = price.ToInt()
	}
	switch err := requests[3].Error; {
	case err == nil:
		m.tip = tip.ToInt()
	case !refused(err): // a node without the method refuses it
		return feeData{}, c.fail(op, err)
	}
	return m, nil
}

// fees returns the fees of a transaction that is signed now: a cap that suffices even
// if the base fee doubles, and the tip that the node suggests, within its bounds. The
// fees of a replacement are also as much higher than before as nodes require. It fails
// with ErrFeeCeiling if that is not possible within the maximum.
func (m feeData) fees(maxFee boxoffice.Amount, replaces *payment.Tx) (fees, error) {
	limit := maxFee.Big()
	o := fees{cap: m.price, tip: m.price}
	least := m.price // below it the transaction is not mined
	if m.baseFee != nil {
		tip := minTip
		if m.tip != nil && m.tip.Cmp(tip) > 0 {
			tip = smaller(m.tip, maxTip)
		}
		tip = smaller(tip, limit)
		o = fees{cap: new(big.Int).Add(new(big.Int).Lsh(m.baseFee, 1), tip), tip: tip}
		least = m.baseFee
	}
	if least.Cmp(limit) > 0 {
		return fees{}, fmt.Errorf("%w: the chain asks for %s wei a gas, the maximum is %s", ErrFeeCeiling, least,
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
			return fees{}, fmt.Errorf("%w: a replacement needs %s wei a gas, the maximum is %s", ErrFeeCeiling,
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
