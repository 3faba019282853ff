// Package client buys paid actions from a Boxoffice service: it asks for a
// quote, checks the challenge, signs, submits and waits.
//
//	buyer, err := client.New(client.Config{
//		BaseURL: "https://boxoffice.example",
//		Token:   token,                  // boxoffice.NewToken, kept by the caller
//		Signer:  client.KeySigner(key),
//		Vault:   vault,                  // client.OpenFileVault
//	})
//	most, err := boxoffice.ParseUnits("2.5", 18) // of a token with 18 decimals
//	status, err := buyer.Buy(ctx, client.Purchase{
//		Input:      boxoffice.JobOpen{Objective: "Compare three vector databases"},
//		Max:        most,
//		RequestKey: requestKey,          // boxoffice.NewUUID, kept by the caller
//	})
//	switch client.OutcomeOf(err) {
//	case client.Succeeded: // status.Admission names the job
//	case client.Unknown:   // buy again with the same RequestKey: it is paid once
//	}
//
// The client checks every answer. It computes every hash again, and it refuses
// with a [*MismatchError], before it signs, a quote or a challenge that differs
// from what was asked, from the capabilities or from itself.
//
// The RequestKey names a purchase. Buying again with the same key, after an
// error or in another process with the same vault, continues the same order and
// sends the same signed bytes again. All payments that a vault signs for an order
// have one Permit2 nonce, of which the chain takes one. The one exception is
// a new nonce after the service refused the first one as used: see
// "A vault counts Permit2 nonces in a random word of its own" in docs/decisions.
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

// Config says which service to buy from, as which requester, and within which limits.
type Config struct {
	// BaseURL is the address of the service as its operator configured it: it is
	// part of what is signed.
	BaseURL string
	// Token identifies the requester. Only requests with it can read its orders.
	Token boxoffice.Token
	// HTTP sends the requests; nil is a client with a timeout of one minute for each.
	// Redirects are never followed, because they would carry the token or a payment
	// to another address.
	HTTP *http.Client
	// Signer is the wallet that pays; a client without one can do everything else.
	Signer Signer
	// Chain reads the chain that payments settle on; *ethclient.Client is one. With
	// it the client checks the token's decimals, the payer's balance and allowance,
	// and the Permit2 nonce before it signs. Nil checks none of them.
	Chain ChainReader
	// Vault keeps what was signed; nil keeps it in memory until the process ends.
	Vault Vault
	// Pins restricts the token, the recipient and the chain of payments.
	Pins Pins
	// Retry limits how often a request is repeated; zero fields have defaults.
	Retry Retry
	// Now is the clock that quotes and deadlines are compared with; nil is time.Now.
	Now func() time.Time
}

// Pins lists what a payment may use. An empty list allows what the capabilities
// of the service say.
type Pins struct {
	Networks    []string // eip155:<chainId>
	Assets      []common.Address
	PayTo       []common.Address
	ServiceName string // part of the typed data that approves a quote
}

// Retry limits how often a request is repeated after a network error or a status
// of 429, 500, 502, 503 or 504. Repeating is safe for every request of this package.
type Retry struct {
	Attempts int           // of one request in all, the first included; 0 is 6
	First    time.Duration // the first pause, which doubles; 0 is 250 ms
	Longest  time.Duration // the longest pause that the client chooses; 0 is 5 s
	// MaxRetryAfter is the longest Retry-After that the client waits for. It returns
	// an answer that asks for more as an error. 0 is a minute.
	MaxRetryAfter time.Duration
}

// Client buys from one service as one requester. Its methods are safe for
// concurrent use.
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
	if !isBaseURL(base) {
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
		c.chain = &chain{reader: cfg.Chain, decimals: make(map[common.Address]int64)}
	}
	return c, nil
}

func isBaseURL(base string) bool {
	u, err := url.Parse(base)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" &&
		u.RawQuery == "" && u.Fragment == "" && u.User == nil
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

// recordName is the vault's name for the payment of a request key, or for the request
// key of an order. It depends on the service and the token, because the same UUID with
// others is another purchase.
func (c *Client) recordName(kind string, id boxoffice.UUID) string {
	return fmt.Sprintf("%s-%s-%s", kind, c.scope.String()[:16], id)
}
