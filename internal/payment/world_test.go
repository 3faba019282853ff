package payment_test

import (
	"bytes"
	"crypto/ecdsa"
	"log/slog"
	"math/big"
	"sync"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/order"
	"boxoffice/internal/payment"
	"boxoffice/internal/payment/evm"
	"boxoffice/internal/store/sqlite"
	"boxoffice/internal/test/devchain"
	"boxoffice/internal/test/faultrpc"
	"boxoffice/internal/test/testdb"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/params"
)

// setup is what a test may change before its world starts.
type setup struct {
	evm     evm.Config
	settler payment.SettlerConfig
	funded  []devchain.Funded
}

// world is a chain that mines when a test calls mine, a settler whose rounds run
// when a test calls round, its store, and an RPC node between them that can fail.
type world struct {
	testing.TB
	dev     *devchain.Chain
	node    *faultrpc.Proxy
	chain   *evm.Chain
	wallet  *evm.Wallet
	store   *sqlite.Store
	config  payment.SettlerConfig
	settler *payment.Settler
	log     *bytes.Buffer
	orders  []order.Record

	mu    sync.Mutex
	clock time.Time // of the chain
	skew  time.Duration
}

const payers, wealth, price = 50, 10_000, 100

func key(t testing.TB, n int) *ecdsa.PrivateKey {
	t.Helper()
	k, err := crypto.ToECDSA(common.BigToHash(big.NewInt(int64(7000 + n))).Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func addressOf(key *ecdsa.PrivateKey) common.Address { return crypto.PubkeyToAddress(key.PublicKey) }

func newWorld(t testing.TB, change ...func(*setup)) *world {
	t.Helper()
	w := &world{TB: t, log: new(bytes.Buffer), clock: time.Now().Truncate(time.Second)}
	s := setup{funded: devchain.DevAccounts()}
	s.funded = append(s.funded, devchain.Funded{Address: devchain.PayTo(), Tokens: big.NewInt(1)})
	for n := range payers {
		s.funded = append(s.funded, devchain.Funded{
			Address: addressOf(key(t, n)), Native: devchain.Ether(1), Tokens: big.NewInt(wealth), Permit2Allowed: true,
		})
	}
	s.evm = evm.Config{
		RequestTimeout: 5 * time.Second, MaxFee: x402.NewUint256(500e9),
		GasPerSettle: 250_000, MaxTxGas: params.MaxTxGas, Now: w.now,
	}
	logger := slog.New(slog.NewTextHandler(w.log, nil))
	s.settler = payment.SettlerConfig{
		Decider: payment.NewDecider(payment.DeciderConfig{
			Confirmations: 1, ReorgDepth: 16, ReviewEvery: 15 * time.Second, Now: w.now, Log: logger,
		}),
		MaxBatch: 50, MaxInFlight: 4, MaxTries: 3, BumpAfter: 30 * time.Second,
		Rounds: payment.LoopConfig{
			Holder: "test", LeaseFor: time.Minute, RecheckEvery: 15 * time.Second, PollEvery: 10 * time.Millisecond, Now: w.now, Log: logger,
		},
	}
	for _, c := range change {
		c(&s)
	}
	var err error
	w.dev, err = devchain.Start(t.Context(), devchain.Config{Funded: s.funded, Now: w.chainNow})
	w.must(err)
	t.Cleanup(func() { w.dev.Close() })
	w.mine()
	w.node = faultrpc.New(t, w.dev.URL())
	s.evm.RPCURL, s.evm.ChainID, s.evm.Asset = w.node.URL, w.dev.ChainID().Uint64(), w.dev.Token()
	w.chain, err = evm.Dial(t.Context(), s.evm)
	w.must(err)
	t.Cleanup(w.chain.Close)
	_, err = w.chain.Check(t.Context())
	w.must(err)
	w.wallet = w.chain.Wallet(devchain.SettlementKey())
	w.store, err = sqlite.Open(t.Context(), sqlite.Config{Path: testdb.Path(t)})
	w.must(err)
	t.Cleanup(func() { w.store.Close() })
	w.config = s.settler
	w.config.ChainID, w.config.Chain, w.config.Wallet = w.dev.ChainID().Uint64(), w.chain, w.wallet
	w.config.Store, w.config.History, w.config.Costs, w.config.Rounds.Leases = w.store, w.store, w.store, w.store
	w.config.Decisions = order.Settlement{Store: w.store}
	w.restart()
	return w
}

// restart makes a new settler, which knows only what is in the store.
func (w *world) restart() {
	w.config.Decider = payment.NewDecider(w.config.DeciderConfig)
	w.settler = payment.NewSettler(w.config)
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) chainNow() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clock
}

// now is the service's clock.
func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clock.Add(w.skew)
}

// advance moves both clocks.
func (w *world) advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock = w.clock.Add(d)
}

// jump sets the service's clock alone.
func (w *world) jump(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.skew += d
}

func (w *world) mine() uint64 {
	w.Helper()
	head, err := w.dev.Mine(w.Context())
	w.must(err)
	return head.Number.Uint64()
}

func (w *world) reorg(depth uint64) {
	w.Helper()
	_, err := w.dev.Reorg(w.Context(), depth)
	w.must(err)
}

// round runs a round, which must succeed.
func (w *world) round() {
	w.Helper()
	w.must(w.settler.Round(w.Context()))
}

// finish runs rounds, mines blocks and lets time pass until no intent is waiting or
// sent. Rounds may fail.
func (w *world) finish() {
	w.Helper()
	var last error
	for range 100 {
		w.advance(16 * time.Second)
		last = w.settler.Round(w.Context())
		waiting, err := w.store.Waiting(w.Context(), w.config.ChainID, 1)
		w.must(err)
		open, err := w.store.Slots(w.Context(), w.config.ChainID)
		w.must(err)
		if len(waiting) == 0 && len(open) == 0 && last == nil {
			return
		}
		w.mine()
	}
	w.Fatalf("payments are not decided; the last round: %v\n%s", last, w.log)
}

// permit signs a payment of the price by a payer.
func (w *world) permit(payer int, nonce uint64, change ...func(*payment.Permit)) payment.Permit {
	w.Helper()
	p := payment.Permit{Authorization: x402.Authorization{
		From:      addressOf(key(w, payer)),
		Permitted: x402.Permitted{Token: w.dev.Token(), Amount: x402.NewUint256(price)},
		Spender:   x402.ExactProxy,
		Nonce:     x402.NewUint256(nonce),
		Deadline:  x402.NewUint256(uint64(w.chainNow().Unix()) + 600),
		Witness:   x402.Witness{To: devchain.PayTo()},
	}}
	for _, c := range change {
		c(&p)
	}
	signature, err := x402.Sign(p.Digest(w.dev.ChainID().Uint64()), key(w, payer))
	w.must(err)
	p.Signature = signature
	return p
}

// pay saves an order and a verified payment for it.
func (w *world) pay(payer int, nonce uint64, change ...func(*payment.Permit)) payment.Intent {
	w.Helper()
	record := w.order()
	intent := w.intent(record, w.permit(payer, nonce, change...))
	w.must(w.store.BeginPayment(w.Context(), intent, order.Begin(&record, &intent)))
	return intent
}

func (w *world) order() order.Record {
	w.Helper()
	input := `{"objective":"Look","template":"research"}`
	inputHash, err := boxoffice.HashJSON([]byte(input))
	w.must(err)
	now := w.chainNow()
	quote := boxoffice.Quote{
		V: boxoffice.QuoteVersion, ID: boxoffice.NewUUID(), Action: boxoffice.ActionJobOpen, PolicyVersion: "job-1", InputHash: inputHash,
		IssuedAt: now.Unix(), ExpiresAt: now.Unix() + 600, Terms: boxoffice.AdmissionTerms(),
		Payment: boxoffice.Payment{
			Scheme: x402.SchemeExact, Network: x402.Network(w.config.ChainID), Asset: w.dev.Token(),
			Amount: x402.NewUint256(price), PayTo: devchain.PayTo(), Decimals: 18,
		},
	}
	quote.QuoteHash, err = quote.Seal()
	w.must(err)
	record := order.Record{
		Order: boxoffice.Order{
			ID: boxoffice.NewUUID(), RequestKey: boxoffice.NewUUID(), Status: boxoffice.Quoted,
			Quote: quote, InputJSON: input, CreatedAt: boxoffice.At(now),
		},
		Requester: boxoffice.Requester{1}, SubmittedHash: inputHash,
		Requirements: x402.Requirements{
			Scheme: x402.SchemeExact, Network: quote.Payment.Network, Asset: quote.Payment.Asset, Amount: quote.Payment.Amount,
			PayTo: quote.Payment.PayTo, MaxTimeoutSeconds: 300,
			Extra: &x402.Extra{AssetTransferMethod: x402.MethodPermit2, Name: "T", Version: "1"},
		},
	}
	_, _, err = w.store.Create(w.Context(), record)
	w.must(err)
	w.orders = append(w.orders, record)
	return record
}

func (w *world) intent(record order.Record, permit payment.Permit) payment.Intent {
	w.Helper()
	header, err := x402.EncodeHeader(x402.Payload{
		X402Version: x402.Version, Accepted: record.Requirements,
		Payload: x402.Permit2Payload{Signature: permit.Signature, Authorization: permit.Authorization},
	})
	w.must(err)
	sent, err := x402.ParsePayment(header)
	w.must(err)
	return payment.Intent{
		ID: boxoffice.NewUUID(), OrderID: record.ID, ChainID: w.config.ChainID, Permit: permit,
		Payload: sent.Raw, PayloadHash: sent.Hash, QuoteSignature: boxoffice.Signature(permit.Signature),
		FromBlock: w.dev.Head().Number.Uint64(), SubmittedAt: boxoffice.At(w.now()), Progress: payment.Progress{State: payment.Waiting},
	}
}

// read returns an order from the store.
func (w *world) read(id boxoffice.UUID) order.Record {
	w.Helper()
	record, err := w.store.Order(w.Context(), boxoffice.Requester{1}, id)
	w.must(err)
	return record
}

// want checks the state of an order and the reason of its payment.
func (w *world) want(intent payment.Intent, status boxoffice.State, reason x402.Reason) payment.Intent {
	w.Helper()
	record := w.read(intent.OrderID)
	if record.Status != status || record.Payment.Reason != string(reason) {
		w.Errorf("the order is %s, its payment %s %q; want %s %q\n%s", record.Status, record.Payment.State,
			record.Payment.Reason, status, reason, w.log)
	}
	return *record.Payment
}

// audit compares the chain with the store: every transfer to the recipient pays for
// one order, and every paid order has its own transfer of the exact amount.
func (w *world) audit() {
	w.Helper()
	if lost := w.reconcile(); lost > 0 {
		w.Errorf("the money of %d paid orders is not there\n%s", lost, w.log)
	}
}

// reconcile is audit for tests in which a reorganisation may remove money for good.
// It returns how many paid orders lost their money.
func (w *world) reconcile() (lost int) {
	w.Helper()
	type move struct {
		tx     common.Hash
		from   common.Address
		amount string
	}
	logs, err := w.dev.Client().FilterLogs(w.Context(), ethereum.FilterQuery{
		FromBlock: big.NewInt(1), Addresses: []common.Address{w.dev.Token()},
		Topics: [][]common.Hash{{crypto.Keccak256Hash([]byte("Transfer(address,address,uint256)"))}, nil,
			{common.BytesToHash(devchain.PayTo().Bytes())}},
	})
	w.must(err)
	moved := map[move]int{}
	for _, log := range logs {
		moved[move{log.TxHash, common.BytesToAddress(log.Topics[1][:]), new(big.Int).SetBytes(log.Data).String()}]++
	}
	paid := 0
	for _, made := range w.orders {
		record := w.read(made.ID)
		if record.Status != boxoffice.Paid {
			continue
		}
		if record.Payment.Undone() {
			lost++
			continue
		}
		paid++
		evidence, permit := record.Payment.Evidence, record.Payment.Permit
		m := move{evidence.TxHash, permit.From, record.Quote.Payment.Amount.String()}
		if moved[m]--; moved[m] < 0 {
			w.Errorf("order %s is paid by %v, which is not there or pays for another", record.ID, m)
		}
	}
	for m, left := range moved {
		if left > 0 {
			w.Errorf("%d transfers %v pay for no order", left, m)
		}
	}
	if paid != len(logs) {
		w.Errorf("%d orders are paid by %d transfers\n%s", paid, len(logs), w.log)
	}
	return lost
}
