// Package client buys paid actions from a Boxoffice service: it quotes, reads
// the challenge, checks it, signs, submits and waits.
//
//	buyer, err := client.New(client.Config{
//		BaseURL: "https://boxoffice.example",
//		Token:   token,                  // boxoffice.NewToken, kept
//		Signer:  client.KeySigner(key),
//		Vault:   vault,                  // client.OpenFileVault
//	})
//	status, err := buyer.Buy(ctx, client.Purchase{
//		Action:     boxoffice.ActionJobOpen,
//		Input:      json.RawMessage(`{"objective":"Compare three vector databases"}`),
//		RequestKey: key,                 // kept by the caller: the purchase's name
//		Max:        max,                 // atomic token units
//	})
//
// Nothing that the service says is taken on trust. Every hash is computed
// again, and a quote or challenge that differs from what was asked, from the
// capabilities or from itself is refused with a [*MismatchError] before
// anything is signed.
//
// A purchase is named by its RequestKey. Buying again under the same key, after
// an error or in another process, goes on with the same order and sends the same
// signed bytes again. An order has one Permit2 nonce for ever, so whatever
// happens on the way, it is paid at most once.
package client

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"boxoffice"

	"github.com/ethereum/go-ethereum/common"
)

// Config says which service to buy from, as whom, and within which bounds.
type Config struct {
	// BaseURL is the address of the service as its operator configured it: it is
	// part of what is signed.
	BaseURL string
	// Token identifies the requester. Orders are visible with it alone.
	Token boxoffice.Token
	// HTTP sends the requests; nil is a client that gives each a minute. Redirects
	// are never followed: they would carry a token or a payment elsewhere.
	HTTP *http.Client
	// Signer is the wallet that pays; nil can do everything but pay.
	Signer Signer
	// Chain reads the chain that payments settle on; nil goes without. With it, the
	// token's decimals, the payer's balance and allowance, and the Permit2 nonce are
	// checked on the chain before anything is signed. *ethclient.Client is one.
	Chain ChainReader
	// Vault keeps what was signed; nil keeps it in memory, which forgets on restart.
	Vault Vault
	// Pins restricts what is paid with, to whom and where.
	Pins Pins
	// Retry bounds asking again; zero fields have the defaults told there.
	Retry Retry
	// Now is the clock that quotes and deadlines are compared with; nil is time.Now.
	Now func() time.Time
}

// Pins lists what a payment may use. An empty list allows what the service's
// capabilities say.
type Pins struct {
	Networks    []string // eip155:<chainId>
	Assets      []common.Address
	PayTo       []common.Address
	ServiceName string // part of the typed data that approves a quote
}

// Retry bounds asking again after a network error or an answer of 429, 500, 502, 503 or
// 504. Every request of this package can be repeated without effect.
type Retry struct {
	Attempts int           // of one request in all, the first included; 0 is 6
	First    time.Duration // the first pause, which doubles; 0 is 250 ms
	Longest  time.Duration // the longest pause that the client chooses; 0 is 5 s
	// MaxRetryAfter is the longest Retry-After that is waited for; an answer that
	// asks for more is returned as the error it is. 0 is a minute.
	MaxRetryAfter time.Duration
}

// Client buys from one service as one requester. Its methods may be called from
// many goroutines.
type Client struct {
	base   string
	token  boxoffice.Token
	scope  boxoffice.Hash // requesterScopeHash of every challenge
	http   *http.Client
	signer Signer
	chain  *chain
	vault  Vault
	pins   Pins
	retry  Retry
	now    func() time.Time
}

// New returns a client. It sends nothing.
func New(cfg Config) (*Client, error) {
	base := strings.TrimSuffix(cfg.BaseURL, "/")
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, errors.New("base URL must be http or https with a host, and without user, query or fragment")
	}
	if cfg.Token == (boxoffice.Token{}) {
		return nil, errors.New("token is missing")
	}
	sender := http.Client{Timeout: time.Minute}
	if cfg.HTTP != nil {
		sender = *cfg.HTTP
	}
	sender.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c := &Client{
		base:   base,
		token:  cfg.Token,
		scope:  cfg.Token.Requester().ScopeHash(base),
		http:   &sender,
		signer: cfg.Signer,
		vault:  cfg.Vault,
		pins:   cfg.Pins,
		retry: Retry{
			Attempts:      orDefault(cfg.Retry.Attempts, 6),
			First:         orDefault(cfg.Retry.First, 250*time.Millisecond),
			Longest:       orDefault(cfg.Retry.Longest, 5*time.Second),
			MaxRetryAfter: orDefault(cfg.Retry.MaxRetryAfter, time.Minute),
		},
		now: cfg.Now,
	}
	if c.vault == nil {
		c.vault = NewMemoryVault()
	}
	if c.now == nil {
		c.now = time.Now
	}
	if cfg.Chain != nil {
		c.chain = &chain{reader: cfg.Chain}
	}
	return c, nil
}

func orDefault[T int | time.Duration](value, fallback T) T {
	if value > 0 {
		return value
	}
	return fallback
}

// submitURL is the resource that a payment for an order pays for.
func (c *Client) submitURL(id boxoffice.UUID) string { return c.base + submitPath(id) }

func submitPath(id boxoffice.UUID) string { return "/requests/" + string(id) + "/submit" }

// recordName is under which name the vault keeps the payment of a request key.
// The same key means another purchase at another service or with another token.
func (c *Client) recordName(requestKey boxoffice.UUID) string {
	return fmt.Sprintf("payment-%s-%s", c.scope.String()[:16], requestKey)
}
