package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"boxoffice"
	"boxoffice/client"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/ethclient"
)

// Settings are the flags of every command.
type Settings struct {
	URL       string           `group:"common" name:"url" env:"BOXOFFICE_URL" default:"http://127.0.0.1:8402" help:"Address of the service."`
	RPCURL    string           `group:"common" name:"rpc-url" env:"BOXOFFICE_RPC_URL" help:"JSON-RPC of the chain. With it, the token, your funds and your Permit2 nonces are checked before signing."`
	TokenFile string           `group:"common" name:"token-file" env:"BOXOFFICE_TOKEN_FILE" placeholder:"FILE" help:"File of your request token; by default one for each service in your configuration folder. BOXOFFICE_TOKEN takes precedence."`
	Vault     string           `group:"common" name:"vault" env:"BOXOFFICE_VAULT" placeholder:"DIR" help:"Folder of your signed payments; by default in your configuration folder."`
	Keystore  string           `group:"common" name:"keystore" env:"BOXOFFICE_KEYSTORE" placeholder:"FILE" help:"Wallet file (Web3 Secret Storage). BOXOFFICE_KEYSTORE_PASSWORD has its password, or you are asked. BOXOFFICE_PRIVATE_KEY can hold a key in hex instead."`
	Contract  *common.Address  `group:"common" name:"contract-wallet" env:"BOXOFFICE_CONTRACT_WALLET" placeholder:"ADDRESS" help:"Pay with this contract wallet (EIP-1271); the key is that of its owner. The contract has to accept the owner's 65-byte signature of the plain hash."`
	Asset     []common.Address `group:"common" name:"asset" env:"BOXOFFICE_ASSET" placeholder:"ADDRESS" help:"Pay with this token only."`
	PayTo     []common.Address `group:"common" name:"pay-to" env:"BOXOFFICE_PAY_TO" placeholder:"ADDRESS" help:"Pay to this address only."`
	Network   []string         `group:"common" name:"network" env:"BOXOFFICE_NETWORK" placeholder:"eip155:ID" help:"Pay on this chain only."`
	JSON      bool             `group:"common" name:"json" help:"Print exactly the JSON of the service."`

	tape tape
}

// What a command needs besides the address of the service.
const (
	needsNothing = 0
	needsToken   = 1 << iota
	makesToken   // if there is none yet
	needsWallet
)

// connect returns a client of the service with what the command needs.
func (s *Settings) connect(ctx context.Context, std *streams, needs int) (*client.Client, error) {
	if _, err := s.host(); err != nil {
		return nil, err
	}
	cfg := client.Config{
		BaseURL: s.URL,
		HTTP:    &http.Client{Timeout: time.Minute, Transport: &s.tape},
		Token:   boxoffice.Token{31: 1}, // never sent: a command without needsToken reads only free routes
		Retry:   client.Retry{Attempts: 4},
		Pins:    client.Pins{Networks: s.Network, Assets: s.Asset, PayTo: s.PayTo},
	}
	if needs&(needsToken|makesToken) != 0 {
		token, err := s.token(std, needs&makesToken != 0)
		if err != nil {
			return nil, err
		}
		cfg.Token = token.secret
	}
	if needs&needsWallet != 0 {
		var err error
		if cfg.Signer, err = s.wallet(std); err != nil {
			return nil, err
		}
		if cfg.Vault, err = s.openVault(); err != nil {
			return nil, err
		}
		if s.RPCURL != "" {
			chain, err := ethclient.DialContext(ctx, s.RPCURL)
			if err != nil {
				return nil, fmt.Errorf("--rpc-url: %w", err)
			}
			cfg.Chain = chain
		}
	}
	c, err := client.New(cfg)
	if err != nil {
		return nil, usageError{err}
	}
	return c, nil
}

func (s *Settings) openVault() (*client.FileVault, error) {
	dir := s.Vault
	if dir == "" {
		config, err := configDir()
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(config, "vault")
	}
	return client.OpenFileVault(dir)
}

// requestToken is a token with its file.
type requestToken struct {
	secret  boxoffice.Token
	path    string // empty: the token is from the environment
	created bool
}

// token reads the request token from BOXOFFICE_TOKEN or from its file. Each service
// has its own file, because a service could use a token that it knows elsewhere.
func (s *Settings) token(std *streams, create bool) (requestToken, error) {
	if text := os.Getenv("BOXOFFICE_TOKEN"); text != "" {
		secret, err := boxoffice.ParseToken(strings.TrimSpace(text))
		if err != nil {
			return requestToken{}, usage("BOXOFFICE_TOKEN: %w", err)
		}
		return requestToken{secret: secret}, nil
	}
	path, err := s.tokenPath()
	if err != nil {
		return requestToken{}, err
	}
	secret, err := readToken(path)
	switch {
	case err == nil:
		return requestToken{secret: secret, path: path}, nil
	case !errors.Is(err, fs.ErrNotExist):
		return requestToken{}, err
	case !create:
		return requestToken{}, usage("there is no request token in %s yet: run boxoffice token", path)
	}
	if err := writeToken(path, boxoffice.NewToken()); err != nil && !errors.Is(err, fs.ErrExist) {
		return requestToken{}, fmt.Errorf("token file: %w", err)
	}
	if secret, err = readToken(path); err != nil { // another process may have written it
		return requestToken{}, err
	}
	fmt.Fprintf(std.err, "Made a request token in %s. Keep it: only requests with it can read your orders.\n", path)
	return requestToken{secret, path, true}, nil
}

// host returns the host, and the port if there is one, in the address of the service.
func (s *Settings) host() (string, error) {
	base, err := url.Parse(s.URL)
	if err != nil || base.Host == "" {
		return "", usage("--url %q is not an address such as https://boxoffice.example", s.URL)
	}
	return base.Host, nil
}

func (s *Settings) tokenPath() (string, error) {
	if s.TokenFile != "" {
		return s.TokenFile, nil
	}
	host, err := s.host()
	if err != nil {
		return "", err
	}
	config, err := configDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(config, "tokens", strings.NewReplacer(":", "_", "[", "", "]", "").Replace(host)), nil
}

func readToken(path string) (boxoffice.Token, error) {
	file, err := os.Open(path)
	if err != nil {
		return boxoffice.Token{}, fmt.Errorf("token file: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return boxoffice.Token{}, fmt.Errorf("token file: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		return boxoffice.Token{}, fmt.Errorf("token file: others can read %s: run chmod 600 on it", path)
	}
	text, err := io.ReadAll(io.LimitReader(file, 1024))
	if err != nil {
		return boxoffice.Token{}, fmt.Errorf("token file: %w", err)
	}
	token, err := boxoffice.ParseToken(strings.TrimSpace(string(text)))
	if err != nil {
		return boxoffice.Token{}, fmt.Errorf("token file %s: %w", path, err)
	}
	return token, nil
}

// writeToken makes the file in one step, and never over another one.
func writeToken(path string, token boxoffice.Token) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".token-*") // with mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = fmt.Fprintln(file, token.Reveal())
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Link(file.Name(), path); err != nil {
		return err
	}
	// Without its token nobody can read an order, so the folder is synced too, where
	// the system can.
	if dir, err := os.Open(filepath.Dir(path)); err == nil {
		_, _ = dir.Sync(), dir.Close()
	}
	return nil
}

// tape is a transport that keeps the last successful response, so that --json
// prints exactly what the service wrote.
type tape struct {
	mu   sync.Mutex
	last []byte
}

// RoundTrip implements http.RoundTripper.
func (t *tape) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(request)
	if err == nil && response.StatusCode < 300 {
		response.Body = &recorded{ReadCloser: response.Body, tape: t}
	}
	return response, err
}

func (t *tape) body() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

type recorded struct {
	io.ReadCloser
	tape *tape
	read []byte
}

func (r *recorded) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.read = append(r.read, p[:n]...)
	if err == io.EOF {
		r.tape.mu.Lock()
		r.tape.last = r.read
		r.tape.mu.Unlock()
	}
	return n, err
}

// result prints the result of a command: the service's own JSON, or what human writes.
func (s *Settings) result(std *streams, human func(*page)) error {
	if s.JSON {
		return printJSON(std.out, s.tape.body())
	}
	p := newPage(std.out)
	human(p)
	return p.flush()
}
