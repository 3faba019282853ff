package client

import (
	"context"
	"fmt"
	"math/big"
	"sync"

	"boxoffice"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// ChainReader reads the chain that payments settle on; *ethclient.Client is one.
type ChainReader interface {
	ChainID(ctx context.Context) (*big.Int, error)
	CallContract(ctx context.Context, msg ethereum.CallMsg, block *big.Int) ([]byte, error)
}

// chain reads the chain, and caches what never changes.
type chain struct {
	reader   ChainReader
	mu       sync.Mutex
	id       *big.Int
	decimals map[common.Address]int64
}

// checkChain compares a quote with the chain, if the client reads one.
func (c *Client) checkChain(ctx context.Context, quote *boxoffice.Quote) error {
	if c.chain == nil {
		return nil
	}
	terms := quote.Payment
	want, err := x402.ChainID(terms.Network)
	if err != nil {
		return mismatch("order/quote/payment/network", err)
	}
	id, decimals, err := c.chain.token(ctx, terms.Asset)
	switch {
	case err != nil:
		return err
	case !id.IsUint64() || id.Uint64() != want:
		return &MismatchError{
			"order/quote/payment/network", "the chain that is read, eip155:" + id.String(), terms.Network,
		}
	case decimals != int64(terms.Decimals):
		return &MismatchError{
			"order/quote/payment/decimals", fmt.Sprint(decimals, ", as the token has"), fmt.Sprint(terms.Decimals),
		}
	case c.signer == nil:
		return nil
	}
	payer, need := c.signer.Address(), terms.Amount.Big()
	balance, err := c.chain.call(ctx, terms.Asset, "balanceOf(address)", payer[:])
	if err != nil {
		return err
	}
	if balance.Cmp(need) < 0 {
		return &ShortfallError{"balance", payer, terms.Asset, need, balance}
	}
	allowance, err := c.chain.allowance(ctx, terms.Asset, payer)
	if err != nil {
		return err
	}
	if allowance.Cmp(need) < 0 {
		return &ShortfallError{"Permit2 allowance", payer, terms.Asset, need, allowance}
	}
	return nil
}

func (c *chain) token(ctx context.Context, token common.Address) (id *big.Int, decimals int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.id == nil {
		id, err := c.reader.ChainID(ctx)
		if err != nil {
			return nil, 0, fmt.Errorf("chain id: %w", err)
		}
		c.id = id
	}
	decimals, ok := c.decimals[token]
	if !ok {
		word, err := c.call(ctx, token, "decimals()")
		if err != nil {
			return nil, 0, err
		}
		if word.BitLen() > 8 {
			return nil, 0, &MismatchError{
				"order/quote/payment/asset", "is no token: its decimals are " + word.String(), "",
			}
		}
		decimals = word.Int64()
		c.decimals[token] = decimals
	}
	return c.id, decimals, nil
}

// allowance reads how much of a token Permit2 may move for the owner.
func (c *chain) allowance(ctx context.Context, token, owner common.Address) (*big.Int, error) {
	return c.call(ctx, token, "allowance(address,address)", owner[:], x402.Permit2[:])
}

// spent reads whether a Permit2 nonce is spent.
func (c *chain) spent(ctx context.Context, payer common.Address, nonce x402.Uint256) (bool, error) {
	bytes := nonce.Bytes32()
	bitmap, err := c.call(ctx, x402.Permit2, "nonceBitmap(address,uint256)", payer[:], bytes[:31])
	if err != nil {
		return false, err
	}
	return bitmap.Bit(int(bytes[31])) == 1, nil
}

// validSignature is what isValidSignature returns for a valid signature, as an
// ABI word (EIP-1271).
const validSignature = "0x1626ba7e00000000000000000000000000000000000000000000000000000000"

// accepts returns an error unless a contract wallet says that a signature is its own.
func (c *chain) accepts(ctx context.Context, wallet common.Address, digest [32]byte, signature [65]byte) error {
	const at, length = 64, 65 // of the signature's bytes among the arguments
	answer, err := c.call(ctx, wallet, "isValidSignature(bytes32,bytes)", digest[:], []byte{at}, []byte{length},
		signature[:32], signature[32:64], common.RightPadBytes(signature[64:], 32))
	if err != nil {
		return err
	}
	if common.BigToHash(answer).Hex() != validSignature {
		return fmt.Errorf("the contract wallet %s does not accept what was signed for it", wallet)
	}
	return nil
}

// call calls a view function whose arguments are ABI words and whose result is one.
func (c *chain) call(
	ctx context.Context, contract common.Address, signature string, arguments ...[]byte,
) (*big.Int, error) {
	result, err := c.reader.CallContract(ctx,
		ethereum.CallMsg{To: &contract, Data: callData(signature, arguments...)}, nil)
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", signature, contract, err)
	}
	if len(result) != 32 {
		return nil, fmt.Errorf("%s of %s: %d bytes in place of 32: is there such a contract on this chain?",
			signature, contract, len(result))
	}
	return new(big.Int).SetBytes(result), nil
}

func callData(signature string, arguments ...[]byte) []byte {
	data := crypto.Keccak256([]byte(signature))[:4]
	for _, argument := range arguments {
		data = append(data, common.LeftPadBytes(argument, 32)...)
	}
	return data
}
