package crashtest

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"boxoffice"
	"boxoffice/client"
	"boxoffice/x402"
)

// wallet is a requester: a key, a token, and a vault that all its clients share.
type wallet struct {
	key   *ecdsa.PrivateKey
	token boxoffice.Token
	vault client.Vault
}

// newWallets gives each key a token and a vault: in turn a vault in a file and one in memory.
func newWallets(dir string, keys []*ecdsa.PrivateKey) ([]*wallet, error) {
	wallets := make([]*wallet, len(keys))
	for i, key := range keys {
		w := &wallet{key: key, token: boxoffice.NewToken(), vault: client.NewMemoryVault()}
		if i%2 == 0 {
			vault, err := client.OpenFileVault(filepath.Join(dir, fmt.Sprintf("vault-%03d", i)))
			if err != nil {
				return nil, err
			}
			w.vault = vault
		}
		wallets[i] = w
	}
	return wallets, nil
}

// purchase is one order, and how it is bought.
type purchase struct {
	client.Purchase
	wallet      *wallet
	amount      uint64        // the price, in atomic token units
	clients     int           // so many clients buy the order at the same time
	giveUpAfter time.Duration // a client gives up its first attempt after this time and starts again; 0 is never
}

// newPurchase returns purchase number n. The state of random decides everything about it but its request key.
func newPurchase(random *rand.Rand, n int, wallets []*wallet) purchase {
	p := purchase{wallet: wallets[random.IntN(len(wallets))], amount: unitPrice, clients: 1}
	p.RequestKey = boxoffice.NewUUID()
	job := boxoffice.JobOpen{Objective: fmt.Sprintf("order %d", n)}
	p.Input = job
	if random.IntN(2) == 0 {
		runs := 1 + random.Uint64N(1000)
		p.amount *= runs
		schedule, err := boxoffice.NewScheduleCreate(job, 30, int64(runs))
		if err != nil {
			panic(err) // a struct of strings always marshals
		}
		p.Input = schedule
	}
	p.Max = x402.NewUint256(p.amount)
	if random.IntN(8) == 0 {
		p.clients = 2
	}
	if random.IntN(4) == 0 {
		p.giveUpAfter = time.Duration(1+random.IntN(300)) * time.Millisecond
	}
	return p
}

// receipt is the last status that a client got for its purchase.
type receipt struct {
	purchase
	status boxoffice.Status
}

// service is what a client needs to buy. Servers are killed and started behind it, at one address.
type service struct {
	baseURL string
	chain   client.ChainReader
	http    *http.Client
}

const retryPause = 20 * time.Millisecond

// awaitAnswer waits until the server answers a free route.
func (s *service) awaitAnswer(ctx context.Context) error {
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.baseURL+"/requests/capabilities", nil)
		if err != nil {
			return err
		}
		response, err := s.http.Do(request)
		if err == nil {
			return response.Body.Close()
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// buy buys an order with all its clients at once and returns when each has it admitted.
func (s *service) buy(ctx context.Context, p purchase) ([]receipt, error) {
	receipts, failures := make([]receipt, p.clients), make([]error, p.clients)
	var buying sync.WaitGroup
	for i := range p.clients {
		buying.Go(func() {
			status, err := s.buyUntilAdmitted(ctx, p)
			receipts[i], failures[i] = receipt{p, status}, err
		})
	}
	buying.Wait()
	return receipts, errors.Join(failures...)
}

// buyUntilAdmitted buys under the same request key until the order is admitted. Each attempt uses a new client, which
// knows only what is in the vault. It returns errors that a further attempt cannot change.
func (s *service) buyUntilAdmitted(ctx context.Context, p purchase) (boxoffice.Status, error) {
	for {
		status, err := s.buyOnce(ctx, p)
		if err == nil {
			return status, nil
		}
		if client.OutcomeOf(err) == client.NotSigned || ctx.Err() != nil {
			return status, fmt.Errorf("order %s (%+v): %w", status.Order.ID, p.Input, err)
		}
		p.giveUpAfter = 0
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
		}
	}
}

func (s *service) buyOnce(ctx context.Context, p purchase) (boxoffice.Status, error) {
	buyer, err := client.New(client.Config{
		BaseURL: s.baseURL, Token: p.wallet.token, HTTP: s.http,
		Signer: client.KeySigner(p.wallet.key), Chain: s.chain, Vault: p.wallet.vault,
		Retry: client.Retry{
			Attempts: 3, First: 10 * time.Millisecond, Longest: 200 * time.Millisecond, MaxRetryAfter: time.Nanosecond,
		},
	})
	if err != nil {
		return boxoffice.Status{}, err
	}
	if p.giveUpAfter > 0 {
		var giveUp context.CancelFunc
		ctx, giveUp = context.WithTimeout(ctx, p.giveUpAfter)
		defer giveUp()
	}
	return buyer.Buy(ctx, p.Purchase)
}
