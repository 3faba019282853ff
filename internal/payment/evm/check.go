package evm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"boxoffice/contracts/settlement"
	"boxoffice/internal/payment"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/rpc"
)

// ErrWrongChain says that the node answered and that the chain is not the
// configured one. Trying again does not help.
var ErrWrongChain = errors.New("the chain is not as configured")

// Facts is what Check finds out about the chain and the token.
type Facts struct {
	Head       payment.Head
	Token      Token
	Settlement bool // the settlement contract is deployed
	LegacyFees bool // the chain has no base fee (EIP-1559)
}

// Token is what the token contract returns about itself.
type Token struct {
	Decimals uint8
	Name     string // of its EIP-712 domain, or name(); empty if it has none
	Version  string // of its EIP-712 domain, or version(); empty if it has none
	Symbol   string // empty if it has none
}

// CheckChainID returns an error unless an RPC node answers in time and is of a chain. The
// error holds no secret of the node's URL.
func CheckChainID(ctx context.Context, rpcURL string, timeout time.Duration, chainID uint64) error {
	c := &Chain{cfg: Config{RPCURL: rpcURL, RequestTimeout: timeout}, secrets: newRedactor(rpcURL)}
	defer c.Close()
	var got hexutil.Uint64
	const op = "read the chain id"
	if err := c.request(ctx, op, rpc.BatchElem{Method: "eth_chainId", Result: &got}); err != nil {
		return err
	}
	if uint64(got) != chainID {
		return c.fail(op, fmt.Errorf("%w: the node is of chain %d, not %d", ErrWrongChain, got, chainID))
	}
	return nil
}

// Check fails unless the node serves the configured chain and the token, Permit2
// and the x402 exact proxy are deployed there. Its error names everything that is
// wrong. The Facts are what it found besides.
func (c *Chain) Check(ctx context.Context) (Facts, error) {
	const op = "check the chain"
	var (
		chainID                         hexutil.Big
		head                            *header
		token, permit2, proxy, contract hexutil.Bytes
		decimals, symbol, name, version hexutil.Bytes
		domain, through                 hexutil.Bytes
	)
	readToken := func(method string, into *hexutil.Bytes) rpc.BatchElem {
		return callRequest(call{to: c.cfg.Asset, data: pack(method)}, latest, into)
	}
	needed := []rpc.BatchElem{
		{Method: "eth_chainId", Result: &chainID},
		headerRequest(latest, &head),
		codeRequest(c.cfg.Asset, &token),
		codeRequest(x402.Permit2, &permit2),
		codeRequest(x402.ExactProxy, &proxy),
		codeRequest(settlement.Address, &contract),
	}
	// A contract without one of these functions reverts.
	optional := []rpc.BatchElem{
		readToken("decimals", &decimals), readToken("symbol", &symbol), readToken("name", &name),
		readToken("version", &version), readToken("eip712Domain", &domain),
		callRequest(call{to: x402.ExactProxy, data: pack("PERMIT2")}, latest, &through),
	}
	requests := append(needed, optional...)
	if err := c.send(ctx, op, requests); err != nil {
		return Facts{}, err
	}
	for i, request := range requests {
		if request.Error == nil {
			continue
		}
		if i < len(needed) || !reverted(request.Error) {
			return Facts{}, c.fail(op, request.Error)
		}
	}

	if id := chainID.ToInt(); !id.IsUint64() || id.Uint64() != c.cfg.ChainID {
		return Facts{}, c.fail(op, fmt.Errorf("%w: the node serves chain %s, not %d", ErrWrongChain, id, c.cfg.ChainID))
	}
	wrong := []error{head.check()}
	for _, contract := range []struct {
		what string
		at   common.Address
		code hexutil.Bytes
	}{{"the token", c.cfg.Asset, token}, {"Permit2", x402.Permit2, permit2}, {"the x402 exact proxy", x402.ExactProxy,
		proxy}} {
		if len(contract.code) == 0 {
			wrong = append(wrong, fmt.Errorf("%s has no code at %s", contract.what, hexOf(contract.at)))
		}
	}
	if len(proxy) > 0 {
		wrong = append(wrong, checkProxy(through))
	}
	facts := Facts{Settlement: c.checkSettlement(contract), Token: Token{
		Name: readString("name", name), Version: readString("version", version), Symbol: readString("symbol", symbol),
	}}
	if values, err := methods.Unpack("decimals", decimals); err == nil {
		facts.Token.Decimals = values[0].(uint8)
	} else if len(token) > 0 {
		wrong = append(wrong, fmt.Errorf("the token %s does not return its decimals", hexOf(c.cfg.Asset)))
	}
	if err := errors.Join(wrong...); err != nil {
		return Facts{}, c.fail(op, fmt.Errorf("%w: %s", ErrWrongChain, strings.ReplaceAll(err.Error(), "\n", "; ")))
	}
	if values, err := methods.Unpack("eip712Domain", domain); err == nil { // EIP-5267
		facts.Token.Name, facts.Token.Version = printable(values[1].(string)), printable(values[2].(string))
	}
	facts.Head = payment.Head{Number: uint64(*head.Number), Time: uint64(*head.Time)}
	facts.LegacyFees = head.BaseFee == nil
	return facts, nil
}

// readString decodes a name that a token returned: a string, or the bytes32 that
// old tokens return.
func readString(method string, answer []byte) string {
	if values, err := methods.Unpack(method, answer); err == nil {
		return printable(values[0].(string))
	}
	if len(answer) == 32 {
		return printable(string(bytes.TrimRight(answer, "\x00")))
	}
	return ""
}

// printable returns a name that JSON can hold, else "".
func printable(s string) string {
	if len(s) > 256 || !utf8.ValidString(s) {
		return ""
	}
	return s
}
