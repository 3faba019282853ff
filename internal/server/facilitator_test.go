package server_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/server"
	"boxoffice/internal/test/servertest"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
)

// A carrier is our facilitator, on the chain of a service that settles by it. A
// gate before it can spoil calls.
type carrier struct {
	t       testing.TB
	options server.Options
	gate    *httptest.Server
	backend atomic.Pointer[url.URL]                                                     // nil: the facilitator is away
	spoil   atomic.Pointer[func(http.ResponseWriter, *http.Request, http.Handler) bool] // answers in its place, if it returns true
	settles atomic.Int64                                                                // calls of /settle that arrived at the gate
	stop    func()
}

// newCarrier starts a facilitator and points the service at it. The key and the
// database are its own.
func newCarrier(t testing.TB, service *server.Options, change ...func(*server.Options)) *carrier {
	t.Helper()
	options := *service
	options.Store.Path = filepath.Join(t.TempDir(), "facilitator.db")
	c := openCarrier(t, options, change...)
	service.Key = nil
	service.Settlement.Via = server.ViaFacilitator
	service.Settlement.Facilitator.URL = c.gate.URL
	service.Settlement.Facilitator.Retry = server.Duration(20 * time.Millisecond)
	service.Settlement.Recheck = server.Duration(50 * time.Millisecond)
	return c
}

func openCarrier(t testing.TB, options server.Options, change ...func(*server.Options)) *carrier {
	t.Helper()
	c := &carrier{t: t, options: options}
	o := &c.options
	o.Facilitator.Listen, o.OperatorListen = "127.0.0.1:0", ""
	o.Facilitator.Assets = []common.Address{options.Payment.Asset}
	o.Facilitator.Wait = server.Duration(20 * time.Second)
	o.Facilitator.Rate = server.RateConfig{PerSecond: 1e6, Burst: 1e6}
	for _, with := range change {
		with(o)
	}
	c.gate = httptest.NewServer(http.HandlerFunc(c.pass))
	t.Cleanup(func() {
		c.gate.CloseClientConnections()
		c.gate.Close()
	})
	c.start()
	t.Cleanup(func() { c.halt() })
	return c
}

func (c *carrier) pass(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == x402.PathSettle {
		c.settles.Add(1)
	}
	backend := c.backend.Load()
	if backend == nil {
		panic(http.ErrAbortHandler)
	}
	through := httputil.NewSingleHostReverseProxy(backend)
	through.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	if spoil := c.spoil.Load(); spoil != nil && (*spoil)(w, r, through) {
		return
	}
	through.ServeHTTP(w, r)
}

// spoilSettles lets f answer the calls of /settle that it wants.
func (c *carrier) spoilSettles(f func(w http.ResponseWriter, r *http.Request, through http.Handler) bool) {
	only := func(w http.ResponseWriter, r *http.Request, through http.Handler) bool {
		return r.URL.Path == x402.PathSettle && f(w, r, through)
	}
	c.spoil.Store(&only)
}

func (c *carrier) start() {
	c.t.Helper()
	service, err := server.NewFacilitator(context.Background(), c.options)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- service.Run(ctx) }()
	<-service.Ready()
	c.backend.Store(&url.URL{Scheme: "http", Host: service.Addr()})
	c.stop = func() {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil {
			c.t.Errorf("the facilitator ended with %v", err)
		}
		if err := service.Close(); err != nil {
			c.t.Error(err)
		}
	}
}

// halt ends the facilitator, if it runs; start begins it again on the same data.
func (c *carrier) halt() {
	if c.stop != nil {
		c.backend.Store(nil)
		c.stop()
		c.stop = nil
	}
}

// startCarried starts a service that settles through our own facilitator.
func startCarried(t testing.TB, change ...func(*server.Options)) (*servertest.World, *carrier) {
	t.Helper()
	var c *carrier
	w := servertest.Start(t, func(o *server.Options) {
		c = newCarrier(t, o)
		for _, with := range change {
			with(o)
		}
	})
	return w, c
}

func withoutNode(o *server.Options) { o.Chain.RPCURL = "" }

// buyOne quotes and pays once, and returns the order and how it was answered.
func buyOne(t testing.TB, w *servertest.World, d *door, key *ecdsa.PrivateKey, nonce uint64) (boxoffice.Order, reply) {
	t.Helper()
	order := d.quote(boxoffice.ActionJobOpen, `{"objective":"Look"}`)
	draft := newDraft(t, w, d.challenge(order), key)
	draft.auth().Nonce = x402.NewUint256(nonce)
	header, body := draft.sign()
	return order, d.submit(order, header, body)
}

// A service without a key buys through our facilitator, with a node to check it
// by and without.
func TestSettleThroughFacilitator(t *testing.T) {
	for name, change := range map[string][]func(*server.Options){"chain decides": nil, "facilitator decides": {withoutNode}} {
		t.Run(name, func(t *testing.T) {
			w, _ := startCarried(t, change...)
			awaitReady(t, w)
			payer := w.NewPayer()
			d := newDoor(t, w)
			const orders = 8
			hashes := make([]*common.Hash, orders)
			var group sync.WaitGroup
			for i := range orders {
				group.Go(func() {
					order, r := buyOne(t, w, d, payer, uint64(i))
					if r.Status != http.StatusOK {
						t.Errorf("answered %d %s", r.Status, r.Body)
						return
					}
					hashes[i] = d.until(order, boxoffice.Admitted).Payment.TransactionHash
				})
			}
			group.Wait()
			for _, hash := range hashes {
				if hash == nil {
					t.Error("no transaction hash")
				}
			}
			wantReceived(t, w, orders)
		})
	}
}

func awaitReady(t testing.TB, w *servertest.World) {
	t.Helper()
	for range time.Tick(5 * time.Millisecond) {
		response, err := http.Get("http://" + w.OperatorAddr() + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return
		}
	}
}

// Whatever becomes of a call, the payment is made once and its order admitted.
func TestFacilitatorTrouble(t *testing.T) {
	first := func(spoil func(w http.ResponseWriter, r *http.Request, through http.Handler)) func(*carrier) {
		return func(c *carrier) {
			var calls atomic.Int64
			c.spoilSettles(func(w http.ResponseWriter, r *http.Request, through http.Handler) bool {
				if calls.Add(1) > 2 {
					return false
				}
				spoil(w, r, through)
				return true
			})
		}
	}
	say := func(status int, body string, headers ...string) func(*carrier) {
		return first(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			for i := 0; i < len(headers); i += 2 {
				w.Header().Set(headers[i], headers[i+1])
			}
			w.WriteHeader(status)
			io.WriteString(w, body)
		})
	}
	// after delivers the call, and answers otherwise.
	after := func(status int, body string) func(*carrier) {
		return first(func(w http.ResponseWriter, r *http.Request, through http.Handler) {
			through.ServeHTTP(httptest.NewRecorder(), r)
			if status == 0 {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(status)
			io.WriteString(w, body)
		})
	}
	for name, spoil := range map[string]func(*carrier){
		"the call is dropped":                 first(func(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) }),
		"the answer is dropped":               after(0, ""),
		"502 after delivery":                  after(http.StatusBadGateway, "bad gateway"),
		"garbage after delivery":              after(http.StatusOK, "<html>"),
		"success of another payment":          after(http.StatusOK, `{"success":true,"transaction":"0x12","network":"eip155:31337"}`),
		"balance moved after delivery":        after(http.StatusOK, `{"success":false,"errorReason":"permit2_invalid_nonce","transaction":"","network":"eip155:31337"}`),
		"refused on the second call":          twoFaced(after),
		"the call is delivered twice":         twice(first),
		"429":                                 say(http.StatusTooManyRequests, `{"error":"slow down"}`),
		"401":                                 say(http.StatusUnauthorized, `{"error":"who are you"}`),
		"404 of a proxy":                      say(http.StatusNotFound, "not found"),
		"500 as x402-rs says it":              say(http.StatusInternalServerError, `{"success":false,"network":"","transaction":"","errorReason":"unexpected_error","errorMessage":"Onchain error","payer":""}`),
		"pending as @x402/evm 2.27 says it":   say(http.StatusOK, `{"success":false,"errorReason":"settlement_pending","transaction":"0x`+zeros+`","network":"eip155:31337"}`),
		"reverted as the Go facilitator says": say(http.StatusOK, `{"success":false,"errorReason":"invalid_exact_evm_transaction_failed","transaction":"0x`+zeros+`","network":"eip155:31337"}`),
		"words that nobody knows":             say(http.StatusOK, `{"success":false,"errorReason":"mercury_in_retrograde","transaction":"","network":"eip155:31337"}`),
		"nothing at all":                      say(http.StatusOK, ``),
	} {
		for mode, change := range map[string][]func(*server.Options){"node": nil, "no node": {withoutNode}} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				w, c := startCarried(t, change...)
				awaitReady(t, w)
				payer := w.NewPayer()
				spoil(c)
				d := newDoor(t, w)
				order, r := buyOne(t, w, d, payer, 1)
				if r.Status != http.StatusOK {
					t.Errorf("answered %d %s", r.Status, r.Body)
				}
				d.until(order, boxoffice.Admitted)
				wantReceived(t, w, 1)
			})
		}
	}
}

const zeros = "0000000000000000000000000000000000000000000000000000000000000000"

// twoFaced loses the answer of the first call, and refuses the second for the
// balance that the first has moved.
func twoFaced(after func(int, string) func(*carrier)) func(*carrier) {
	return func(c *carrier) {
		var calls atomic.Int64
		c.spoilSettles(func(w http.ResponseWriter, r *http.Request, through http.Handler) bool {
			switch calls.Add(1) {
			case 1:
				through.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			case 2:
				w.WriteHeader(http.StatusBadRequest)
				io.WriteString(w, `{"success":false,"errorReason":"insufficient_funds","transaction":"","network":"eip155:31337"}`)
				return true
			}
			return false
		})
	}
}

func twice(first func(func(http.ResponseWriter, *http.Request, http.Handler)) func(*carrier)) func(*carrier) {
	return first(func(w http.ResponseWriter, r *http.Request, through http.Handler) {
		body, _ := io.ReadAll(r.Body)
		again := r.Clone(r.Context())
		again.Body = io.NopCloser(bytes.NewReader(body))
		through.ServeHTTP(httptest.NewRecorder(), again)
		r.Body = io.NopCloser(bytes.NewReader(body))
		through.ServeHTTP(w, r)
	})
}

// While the facilitator is away payments wait, and a restart of either side
// changes nothing.
func TestFacilitatorAwayAndBack(t *testing.T) {
	for mode, change := range map[string][]func(*server.Options){"node": nil, "no node": {withoutNode}} {
		t.Run(mode, func(t *testing.T) {
			w, c := startCarried(t, append(change, func(o *server.Options) { o.SubmitWait = 0 })...)
			awaitReady(t, w)
			payer := w.NewPayer()
			d := newDoor(t, w)
			asked, answers := make(chan struct{}, 100), make(chan struct{})
			c.spoilSettles(func(w http.ResponseWriter, r *http.Request, through http.Handler) bool {
				through.ServeHTTP(httptest.NewRecorder(), r) // it is settled
				asked <- struct{}{}
				<-answers
				panic(http.ErrAbortHandler)
			})
			order, r := buyOne(t, w, d, payer, 1)
			if r.Status != http.StatusAccepted {
				t.Fatalf("answered %d %s", r.Status, r.Body)
			}
			<-asked
			close(answers)
			c.halt()
			w.Restart()
			if mode == "no node" {
				d.until(order, boxoffice.PaymentPending)
			} else {
				d.until(order, boxoffice.Admitted) // the chain tells
			}
			c.spoil.Store(nil)
			c.start()
			d.until(order, boxoffice.Admitted)
			w.Restart()
			d.until(order, boxoffice.Admitted)
			wantReceived(t, w, 1)
		})
	}
}

// What the facilitator refuses before it sent anything fails, in our words, and
// the payer can sign again.
func TestFacilitatorRefuses(t *testing.T) {
	for said, want := range map[string]x402.Reason{
		"permit2_insufficient_balance": x402.ReasonInsufficientBalance,
		"insufficient_funds":           x402.ReasonInsufficientBalance, // the specification
		"transaction_simulation":       x402.ReasonSimulation,          // x402-rs
		"recipient_mismatch":           x402.ReasonRecipient,           // x402-rs
		"asset_not_allowed":            x402.ReasonAssetRefused,        // ours
	} {
		for mode, change := range map[string][]func(*server.Options){"node": nil, "no node": {withoutNode}} {
			t.Run(said+"/"+mode, func(t *testing.T) {
				t.Parallel()
				w, c := startCarried(t, change...)
				awaitReady(t, w)
				payer := w.NewPayer()
				d := newDoor(t, w)
				c.spoilSettles(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
					w.WriteHeader(http.StatusBadRequest)
					io.WriteString(w, `{"success":false,"errorReason":"`+said+`","transaction":"","network":"eip155:31337"}`)
					return true
				})
				order, _ := buyOne(t, w, d, payer, 1)
				status := d.until(order, boxoffice.PaymentFailed)
				if status.Payment.Reason != string(want) {
					t.Errorf("the reason is %s, want %s", status.Payment.Reason, want)
				}
				wantReceived(t, w, 0)
				c.spoil.Store(nil)
				draft := newDraft(t, w, d.challenge(order), payer)
				draft.auth().Nonce = x402.NewUint256(1)
				draft.auth().Deadline = x402.NewUint256(uint64(w.Now().Unix()) + 200)
				header, body := draft.sign()
				if r := d.submit(order, header, body); r.Status != http.StatusOK {
					t.Errorf("the second payment was answered %d %s", r.Status, r.Body)
				}
				wantReceived(t, w, 1)
			})
		}
	}
}
