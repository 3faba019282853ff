package client

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"sync"

	"boxoffice"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/accounts/abi/bind/v2"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/math"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
)

// ChainReader reads the chain that payments settle on; *ethclient.Client is one.
type ChainReader interface {
	ChainID(ctx context.Context) (*big.Int, error)
	CallContract(ctx context.Context, msg ethereum.CallMsg, block *big.Int) ([]byte, error)
}

// ErrNonceSpent says that an order's Permit2 nonce is spent on the chain while
// the service does not count the order as paid. No other nonce is signed for
// the order, for the first may have paid it: ask the service's operator, or buy
// under a new request key.
var ErrNonceSpent = errors.New("refused to sign: the order's Permit2 nonce is spent already")

// ShortfallError says that the payer cannot pay. Nothing was signed.
type ShortfallError struct {
	What       string // "balance", or "Permit2 allowance": see [Approve]
	Payer      common.Address
	Token      common.Address
	Need, Have *big.Int // atomic token units
}

func (e *ShortfallError) Error() string {
	return fmt.Sprintf("refused to sign: the %s of %s for token %s is %s, the price is %s", e.What, e.Payer, e.Token, e.Have, e.Need)
}

// chain reads, and remembers what never changes.
type chain struct {
	reader   ChainReader
	mu       sync.Mutex
	id       *big.Int
	decimals map[common.Address]*big.Int
}

// checkChain holds a quote against the chain, if there is one to read.
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
		return &MismatchError{"order/quote/payment/network", "the chain that is read, eip155:" + id.String(), terms.Network}
	case decimals.Cmp(big.NewInt(int64(terms.Decimals))) != 0:
		return &MismatchError{"order/quote/payment/decimals", decimals.String() + ", which the token says", fmt.Sprint(terms.Decimals)}
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
	allowance, err := c.chain.call(ctx, terms.Asset, "allowance(address,address)", payer[:], x402.Permit2[:])
	if err != nil {
		return err
	}
	if allowance.Cmp(need) < 0 {
		return &ShortfallError{"Permit2 allowance", payer, terms.Asset, need, allowance}
	}
	return nil
}

func (c *chain) token(ctx context.Context, token common.Address) (id, decimals *big.Int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.id == nil {
		if c.id, err = c.reader.ChainID(ctx); err != nil {
			c.id = nil
			return nil, nil, fmt.Errorf("chain id: %w", err)
		}
	}
	if decimals = c.decimals[token]; decimals == nil {
		if decimals, err = c.call(ctx, token, "decimals()"); err != nil {
			return nil, nil, err
		}
		if c.decimals == nil {
			c.decimals = make(map[common.Address]*big.Int)
		}
		c.decimals[token] = decimals
	}
	return c.id, decimals, nil
}

// nonceBitmap reads which of the 256 nonces of a word are spent.
func (c *chain) nonceBitmap(ctx context.Context, payer common.Address, word *big.Int) (*big.Int, error) {
	return c.call(ctx, x402.Permit2, "nonceBitmap(address,uint256)", payer[:], word.Bytes())
}

func (c *chain) spent(ctx context.Context, payer common.Address, nonce x402.Uint256) (bool, error) {
	n := nonce.Big()
	bitmap, err := c.nonceBitmap(ctx, payer, new(big.Int).Rsh(n, 8))
	if err != nil {
		return false, err
	}
	return bitmap.Bit(int(n.Uint64()&0xff)) == 1, nil
}

// accepted is what a contract wallet answers to a signature of its own, as one
// ABI word (EIP-1271).
var accepted = new(big.Int).Lsh(big.NewInt(0x1626ba7e), 224)

// accepts returns an error unless a contract wallet takes a signature for its own.
func (c *chain) accepts(ctx context.Context, wallet common.Address, digest [32]byte, signature [65]byte) error {
	const at, length = 64, 65 // of the signature's bytes among the arguments
	answer, err := c.call(ctx, wallet, "isValidSignature(bytes32,bytes)", digest[:], []byte{at}, []byte{length},
		signature[:32], signature[32:64], common.RightPadBytes(signature[64:], 32))
	if err != nil {
		return err
	}
	if answer.Cmp(accepted) != 0 {
		return fmt.Errorf("the contract wallet %s does not accept what was signed for it", wallet)
	}
	return nil
}

// call calls a view function whose arguments are ABI words and whose result is one.
func (c *chain) call(ctx context.Context, contract common.Address, signature string, arguments ...[]byte) (*big.Int, error) {
	result, err := c.reader.CallContract(ctx, ethereum.CallMsg{To: &contract, Data: callData(signature, arguments...)}, nil)
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", signature, contract, err)
	}
	if len(result) != 32 {
		return nil, fmt.Errorf("%s of %s: %d bytes in place of 32: is there such a contract on this chain?", signature, contract, len(result))
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

// Approver sends a transaction and reads its receipt; *ethclient.Client is one.
type Approver interface {
	ChainReader
	bind.ContractTransactor
	bind.DeployBackend
}

// Allowance reads how much of a token Permit2 may move for the owner.
func Allowance(ctx context.Context, reader ChainReader, token, owner common.Address) (*big.Int, error) {
	return (&chain{reader: reader}).call(ctx, token, "allowance(address,address)", owner[:], x402.Permit2[:])
}

// ErrContractApproves says that a contract wallet has to approve Permit2 itself.
var ErrContractApproves = fmt.Errorf("approve: a contract wallet has to do this by a call of its own: approve(%s, amount) of the token", x402.Permit2)

// Approve lets Permit2 move any amount of the token for the signer: a
// transaction that each wallet makes once for each token, and whose gas it pays.
// It returns the receipt when the transaction is mined and has succeeded. A
// contract wallet has no key to send it with, and fails with ErrContractApproves.
func Approve(ctx context.Context, backend Approver, signer Signer, token common.Address) (*types.Receipt, error) {
	if _, contract := signer.(contractSigner); contract {
		return nil, ErrContractApproves
	}
	chainID, err := backend.ChainID(ctx)
	if err != nil {
		return nil, fmt.Errorf("approve: chain id: %w", err)
	}
	rules := types.LatestSignerForChainID(chainID)
	contract := bind.NewBoundContract(token, abi.ABI{}, nil, backend, nil)
	tx, err := contract.RawTransact(&bind.TransactOpts{
		Context: ctx,
		From:    signer.Address(),
		Signer: func(_ common.Address, tx *types.Transaction) (*types.Transaction, error) {
			signature, err := signer.SignDigest(ctx, rules.Hash(tx))
			if err != nil {
				return nil, err
			}
			if len(signature) != crypto.SignatureLength {
				return nil, x402.ErrSignatureLength
			}
			standard := append([]byte(nil), signature...)
			standard[64] -= 27
			return tx.WithSignature(rules, standard)
		},
	}, callData("approve(address,uint256)", x402.Permit2[:], math.MaxBig256.Bytes()))
	if err != nil {
		return nil, fmt.Errorf("approve: %w", err)
	}
	receipt, err := bind.WaitMined(ctx, backend, tx.Hash())
	switch {
	case err != nil:
		return nil, fmt.Errorf("approve: transaction %s: %w", tx.Hash(), err)
	case receipt.Status != types.ReceiptStatusSuccessful:
		return receipt, fmt.Errorf("approve: transaction %s reverted", tx.Hash())
	}
	return receipt, nil
}
