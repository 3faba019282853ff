package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"boxoffice/client"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/accounts/keystore"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"
	"golang.org/x/term"
)

// wallet returns the wallet that pays: that of the key, or the contract wallet that the key owns.
func (s *Settings) wallet(std *streams) (client.Signer, error) {
	signer, err := s.key(std)
	if err != nil || s.Contract == nil {
		return signer, err
	}
	return client.ContractSigner(*s.Contract, signer), nil
}

// key reads the key that signs: BOXOFFICE_PRIVATE_KEY, or the keystore file.
func (s *Settings) key(std *streams) (client.Signer, error) {
	text := strings.TrimSpace(os.Getenv("BOXOFFICE_PRIVATE_KEY"))
	switch {
	case text != "" && s.Keystore != "":
		return nil, usage("BOXOFFICE_PRIVATE_KEY and --keystore are two wallets: give only one")
	case text != "":
		key, err := crypto.HexToECDSA(strings.TrimPrefix(text, "0x"))
		if err != nil { // err could contain the key
			return nil, usage("BOXOFFICE_PRIVATE_KEY must be a private key of 64 hex characters")
		}
		return client.KeySigner(key), nil
	case s.Keystore == "":
		return nil, usage("no wallet: give --keystore FILE, or a key in BOXOFFICE_PRIVATE_KEY")
	}
	file, err := os.ReadFile(s.Keystore)
	if err != nil {
		return nil, fmt.Errorf("keystore: %w", err)
	}
	password, set := os.LookupEnv("BOXOFFICE_KEYSTORE_PASSWORD")
	if !set {
		if password, err = askSecret(std, "Password of "+s.Keystore+": "); err != nil {
			return nil, fmt.Errorf("keystore password: %w", err)
		}
	}
	key, err := keystore.DecryptKey(file, password)
	if err != nil {
		return nil, fmt.Errorf("keystore %s: %w", s.Keystore, err)
	}
	return client.KeySigner(key.PrivateKey), nil
}

func askSecret(std *streams, question string) (string, error) {
	terminal, ok := std.in.(*os.File)
	if !ok || !term.IsTerminal(int(terminal.Fd())) {
		return "", errors.New("there is no terminal to ask on: set BOXOFFICE_KEYSTORE_PASSWORD")
	}
	fmt.Fprint(std.err, question)
	secret, err := term.ReadPassword(int(terminal.Fd()))
	fmt.Fprintln(std.err)
	return string(secret), err
}

// ask returns nil if the user answers yes. The end of the input and an interrupt mean no.
func ask(ctx context.Context, std *streams, question string) error {
	fmt.Fprint(std.err, question, " [y/N] ")
	answers := make(chan string, 1)
	go func() {
		answer, _ := bufio.NewReader(std.in).ReadString('\n') // the text before an error is the answer
		answers <- answer
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(std.err)
		return errors.Join(errDeclined, ctx.Err())
	case answer := <-answers:
		if !strings.HasSuffix(answer, "\n") {
			fmt.Fprintln(std.err)
		}
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "y", "yes":
			return nil
		}
		return errDeclined
	}
}

type approveCmd struct {
	Yes bool `short:"y" help:"Do not ask."`
}

// Run sends the approval, unless the wallet has one.
func (cmd *approveCmd) Run(ctx context.Context, s *Settings, std *streams) error {
	if s.RPCURL == "" {
		return usage("approve sends a transaction: give --rpc-url or BOXOFFICE_RPC_URL")
	}
	c, err := s.connect(ctx, std, needsNothing)
	if err != nil {
		return err
	}
	capabilities, err := c.Capabilities(ctx)
	if err != nil {
		return err
	}
	signer, err := s.wallet(std)
	if err != nil {
		return err
	}
	chain, err := ethclient.DialContext(ctx, s.RPCURL)
	if err != nil {
		return fmt.Errorf("--rpc-url: %w", err)
	}
	defer chain.Close()
	asset := capabilities.Payment.Asset
	id, err := chain.ChainID(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("--rpc-url: %w", err)
	case !id.IsUint64() || x402.Network(id.Uint64()) != capabilities.Payment.Network:
		return &client.MismatchError{
			Field: "capabilities/payment/network", Want: "eip155:" + id.String() + ", which --rpc-url is",
			Got: capabilities.Payment.Network,
		}
	case len(s.Asset) > 0 && !slices.Contains(s.Asset, asset.Address):
		return &client.MismatchError{
			Field: "capabilities/payment/asset", Want: "that of --asset", Got: lowerHex(asset.Address),
		}
	}
	allowance, err := client.Allowance(ctx, chain, asset.Address, signer.Address())
	if err != nil {
		return err
	}
	if allowance.BitLen() > 128 {
		return s.approval(std, asset.Symbol, asset.Address, signer.Address(), nil)
	}
	if !cmd.Yes {
		question := fmt.Sprintf(
			"Allow Permit2 to move the %s (%s) of %s on %s? Each payment still needs your signature.",
			printable(asset.Symbol), asset.Address, signer.Address(), capabilities.Payment.Network)
		if err := ask(ctx, std, question); err != nil {
			return err
		}
	}
	receipt, err := client.Approve(ctx, chain, signer, asset.Address)
	if err != nil {
		return err
	}
	return s.approval(std, asset.Symbol, asset.Address, signer.Address(), &receipt.TxHash)
}

func (s *Settings) approval(std *streams, symbol string, token, owner common.Address, tx *common.Hash) error {
	if s.JSON {
		return writeJSON(std.out, map[string]any{
			"asset": token, "owner": owner, "approved": true, "transactionHash": tx,
		})
	}
	p := newPage(std.out)
	p.line("Approved", "Permit2 may move the %s of %s", symbol, owner)
	if tx != nil {
		p.line("Transaction", "%s", tx)
	} else {
		p.line("Transaction", "none: the wallet had approved before")
	}
	return p.flush()
}

type tokenCmd struct {
	Reveal bool `help:"Print the token itself."`
}

// Run prints where the token is, or the token.
func (cmd *tokenCmd) Run(s *Settings, std *streams) error {
	token, err := s.token(std, true)
	if err != nil {
		return err
	}
	switch {
	case cmd.Reveal:
		_, err = fmt.Fprintln(std.out, token.secret.Reveal())
	case s.JSON:
		err = writeJSON(std.out, map[string]any{"path": token.path, "created": token.created})
	case token.path == "":
		_, err = fmt.Fprintln(std.out, "BOXOFFICE_TOKEN")
	default:
		_, err = fmt.Fprintln(std.out, token.path)
	}
	return err
}
