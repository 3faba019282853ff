package crashtest

import (
	"context"
	"crypto/ecdsa"
	"encoding/json"
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

// wallet is a requester: a key, a token, and a vault that outlives its clients.
type wallet struct {
	key   *ecdsa.PrivateKey
	token boxoffice.Token
	vault client.Vault
}

// newBuyer returns wallets as they are in the world: some forget when their
// process ends, and keep it running; some write to disk.
func newBuyers(dir string, keys []*ecdsa.PrivateKey) ([]*wallet, error) {
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

// purchase is one order to buy, and how the buyer goes about it.
type purchase struct {
	client.Purchase
	wallet *wallet
	amount uint64        // the price, in atomic token units
	rivals int           // processes that buy it at the same time
	leaves time.Duration // after how long a buyer gives up and comes back; 0 is never
}

func newPurchase(random *rand.Rand, n int, wallets []*wallet) purchase {
	p := purchase{wallet: wallets[random.IntN(len(wallets))], amount: unit, rivals: 1}
	p.RequestKey = boxoffice.NewUUID()
	p.Action, p.Input = boxoffice.ActionJobOpen, json.RawMessage(fmt.Sprintf(`{"objective":"order %d"}`, n))
	if random.IntN(2) == 0 {
		runs := 1 + random.Uint64N(1000)
		p.amount *= runs
		p.Action, p.Input = boxoffice.ActionScheduleCreate, json.RawMessage(fmt.Sprintf(
			`{"action":"job.open","input":{"objective":"order %d"},"intervalMinutes":30,"runs":%d}`, n, runs))
	}
	p.Max = x402.NewUint256(p.amount)
	if random.IntN(8) == 0 {
		p.rivals = 2
	}
	if random.IntN(4) == 0 {
		p.leaves = time.Duration(1+random.IntN(300)) * time.Millisecond
	}
	return p
}

// view is what a buyer believes to have bought.
type view struct {
	purchase
	status boxoffice.Status
}

// market has everybody buy, whatever happens to the server.
type market struct {
	baseURL string
	chain   client.ChainReader
	http    *http.Client
}

// answers waits until the service does.
func (m *market) answers(ctx context.Context) error {
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.baseURL+"/requests/capabilities", nil)
		if err != nil {
			return err
		}
		response, err := m.http.Do(request)
		if err == nil {
			return response.Body.Close()
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// buy buys once, with every rival, until all of them have it.
func (m *market) buy(ctx context.Context, p purchase) ([]view, error) {
	views, failures := make([]view, p.rivals), make([]error, p.rivals)
	var buying sync.WaitGroup
	for i := range p.rivals {
		buying.Go(func() {
			status, err := m.insist(ctx, p)
			views[i], failures[i] = view{p, status}, err
		})
	}
	buying.Wait()
	return views, errors.Join(failures...)
}

// insist buys under the same request key until the order is admitted, each time
// with a client that knows nothing but what its vault has.
func (m *market) insist(ctx context.Context, p purchase) (boxoffice.Status, error) {
	for {
		status, err := m.try(ctx, p)
		if err == nil {
			return status, nil
		}
		wrong, _ := errors.AsType[*client.MismatchError](err)
		short, _ := errors.AsType[*client.ShortfallError](err)
		if wrong != nil || short != nil || errors.Is(err, client.ErrNonceSpent) || ctx.Err() != nil {
			return status, fmt.Errorf("order %s (%s): %w", status.Order.ID, p.Input, err)
		}
		p.leaves = 0
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (m *market) try(ctx context.Context, p purchase) (boxoffice.Status, error) {
	buyer, err := client.New(client.Config{
		BaseURL: m.baseURL, Token: p.wallet.token, HTTP: m.http, Signer: client.KeySigner(p.wallet.key), Chain: m.chain, Vault: p.wallet.vault,
		Retry: client.Retry{Attempts: 3, First: 10 * time.Millisecond, Longest: 200 * time.Millisecond, MaxRetryAfter: time.Nanosecond},
	})
	if err != nil {
		return boxoffice.Status{}, err
	}
	if p.leaves > 0 {
		var leave context.CancelFunc
		ctx, leave = context.WithTimeout(ctx, p.leaves)
		defer leave()
	}
	return buyer.Buy(ctx, p.Purchase)
}
