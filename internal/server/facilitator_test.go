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

// A facilitator is ours, on the chain of a service that settles through it. A proxy in
// front of it can change what the service receives.
type facilitator struct {
	t         testing.TB
	options   server.Options
	proxy     *httptest.Server
	backend   atomic.Pointer[url.URL] // nil: the facilitator does not run
	intercept atomic.Pointer[interceptor]
	stop      func()
}

// An interceptor reports whether it has answered a call itself. It may pass the call
// on to the facilitator.
type interceptor func(w http.ResponseWriter, r *http.Request, backend http.Handler) bool

// newFacilitator starts a facilitator with a key and a database of its own, and makes
// the service settle through it.
func newFacilitator(t testing.TB, service *server.Options, change ...func(*server.Options)) *facilitator {
	t.Helper()
	options := *service
	options.Store.Path = filepath.Join(t.TempDir(), "facilitator.db")
	c := openFacilitator(t, options, change...)
	service.Key = nil
	service.Settlement.Via = server.ViaFacilitator
	service.Settlement.Facilitator.URL = c.proxy.URL
	service.Settlement.Facilitator.Retry = server.Duration(20 * time.Millisecond)
	service.Settlement.Recheck = server.Duration(50 * time.Millisecond)
	return c
}

func openFacilitator(t testing.TB, options server.Options, change ...func(*server.Options)) *facilitator {
	t.Helper()
	c := &facilitator{t: t, options: options}
	o := &c.options
	o.Facilitator.Listen, o.OperatorListen = "127.0.0.1:0", ""
	o.Facilitator.Assets = []common.Address{options.Payment.Asset}
	o.Facilitator.Wait = server.Duration(20 * time.Second)
	o.Facilitator.Rate = server.RateConfig{PerSecond: 1e6, Burst: 1e6}
	for _, with := range change {
		with(o)
	}
	c.proxy = httptest.NewServer(http.HandlerFunc(c.forward))
	t.Cleanup(func() {
		c.proxy.CloseClientConnections()
		c.proxy.Close()
	})
	c.start()
	t.Cleanup(func() { c.halt() })
	return c
}

func (c *facilitator) forward(w http.ResponseWriter, r *http.Request) {
	backend := c.backend.Load()
	if backend == nil {
		panic(http.ErrAbortHandler)
	}
	through := httputil.NewSingleHostReverseProxy(backend)
	through.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	if intercept := c.intercept.Load(); intercept != nil && (*intercept)(w, r, through) {
		return
	}
	through.ServeHTTP(w, r)
}

// interceptSettle makes f the interceptor of /settle.
func (c *facilitator) interceptSettle(f interceptor) {
	only := interceptor(func(w http.ResponseWriter, r *http.Request, backend http.Handler) bool {
		return r.URL.Path == x402.PathSettle && f(w, r, backend)
	})
	c.intercept.Store(&only)
}

func (c *facilitator) start() {
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

// halt stops the facilitator, if it runs. start starts it again on the same database.
func (c *facilitator) halt() {
	if c.stop != nil {
		c.backend.Store(nil)
		c.stop()
		c.stop = nil
	}
}

// startWithFacilitator starts a service that settles through our own facilitator.
func startWithFacilitator(t testing.TB, change ...func(*server.Options)) (*servertest.World, *facilitator) {
	t.Helper()
	var c *facilitator
	w := servertest.Start(t, func(o *server.Options) {
		c = newFacilitator(t, o)
		for _, with := range change {
			with(o)
		}
	})
	return w, c
}

func withoutNode(o *server.Options) { o.Chain.RPCURL = "" }

// buyOne quotes and pays once, and returns the order and the response to the payment.
func buyOne(t testing.TB, w *servertest.World, d *requester, key *ecdsa.PrivateKey, nonce uint64) (boxoffice.Order,
	reply) {
	t.Helper()
	order := d.quote(boxoffice.ActionJobOpen, `{"objective":"Look"}`)
	draft := newDraft(t, w, d.challenge(order), key)
	draft.auth().Nonce = x402.NewUint256(nonce)
	header, body := draft.sign()
	return order, d.submit(order, header, body)
}

// A service without a settlement key settles through our facilitator, with and without
// an RPC node that can check the facilitator.
func TestSettleThroughFacilitator(t *testing.T) {
	for name, change := range modes {
		t.Run(name, func(t *testing.T) {
			w, _ := startWithFacilitator(t, change...)
			awaitReady(t, w)
			payer := w.NewPayer()
			d := newRequester(t, w)
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
		if readiness(t, w).Ready {
			return
		}
	}
}

// Whatever happens to a call of the facilitator, the payment settles once and its order
// is admitted.
func TestFacilitatorTrouble(t *testing.T) {
	first := func(spoil func(w http.ResponseWriter, r *http.Request, through http.Handler)) func(*facilitator) {
		return func(c *facilitator) {
			var calls atomic.Int64
			c.interceptSettle(func(w http.ResponseWriter, r *http.Request, through http.Handler) bool {
				if calls.Add(1) > 2 {
					return false
				}
				spoil(w, r, through)
				return true
			})
		}
	}
	say := func(status int, body string, headers ...string) func(*facilitator) {
		return first(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			for i := 0; i < len(headers); i += 2 {
				w.Header().Set(headers[i], headers[i+1])
			}
			w.WriteHeader(status)
			io.WriteString(w, body)
		})
	}
	// after passes the call on and then sends another response.
	after := func(status int, body string) func(*facilitator) {
		return first(func(w http.ResponseWriter, r *http.Request, through http.Handler) {
			through.ServeHTTP(httptest.NewRecorder(), r)
			if status == 0 {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(status)
			io.WriteString(w, body)
		})
	}
	cases := map[string]func(*facilitator){
		"the call is dropped": first(func(http.ResponseWriter, *http.Request,
			http.Handler) {
			panic(http.ErrAbortHandler)
		}),
		"the answer is dropped":  after(0, ""),
		"502 after delivery":     after(http.StatusBadGateway, "bad gateway"),
		"garbage after delivery": after(http.StatusOK, "<html>"),
		"success of another payment": after(http.StatusOK,
			`{"success":true,"transaction":"0x12","network":"eip155:31337"}`),
		"balance moved after delivery": after(http.StatusOK,
			`{"success":false,"errorReason":"permit2_invalid_nonce","transaction":"","network":"eip155:31337"}`),
		"refused after it was settled": refusedSecond(true),
		"refused after a lost call":    refusedSecond(false),
		"the call is delivered twice":  twice(first),
		"429":                          say(http.StatusTooManyRequests, `{"error":"slow down"}`),
		"401":                          say(http.StatusUnauthorized, `{"error":"who are you"}`),
		"404 of a proxy":               say(http.StatusNotFound, "not found"),
		"500 as x402-rs says it": say(http.StatusInternalServerError,
			`{"success":false,"network":"","transaction":"","errorReason":"unexpected_error",`+
				`"errorMessage":"Onchain error","payer":""}`),
		"pending as @x402/evm 2.27 says it": say(http.StatusOK,
			`{"success":false,"errorReason":"settlement_pending",`+
				`"transaction":"0x`+zeros+`","network":"eip155:31337"}`),
		"reverted as the Go facilitator says": say(http.StatusOK,
			`{"success":false,"errorReason":"invalid_exact_evm_transaction_failed",`+
				`"transaction":"0x`+zeros+`","network":"eip155:31337"}`),
		"an unknown reason": say(http.StatusOK,
			`{"success":false,"errorReason":"mercury_in_retrograde","transaction":"","network":"eip155:31337"}`),
		"an empty body": say(http.StatusOK, ``),
	}
	for mode, change := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w, c := startWithFacilitator(t, change...)
			var paid int64
			for name, interfere := range cases {
				t.Run(name, func(t *testing.T) {
					awaitReady(t, w)
					payer := w.NewPayer()
					interfere(c)
					defer c.intercept.Store(nil)
					d := newRequester(t, w)
					order, r := buyOne(t, w, d, payer, 1)
					if r.Status != http.StatusOK {
						t.Errorf("answered %d %s", r.Status, r.Body)
					}
					d.until(order, boxoffice.Admitted)
					paid++
					wantReceived(t, w, paid)
				})
			}
		})
	}
}

// modes are the two ways to settle through a facilitator.
var modes = map[string][]func(*server.Options){"node": nil, "no node": {withoutNode}}

const zeros = "0000000000000000000000000000000000000000000000000000000000000000"

// refusedSecond loses the response to the first call, or the call itself, and refuses the
// second. The service cannot know whether the first was taken, so it calls again.
func refusedSecond(deliver bool) func(*facilitator) {
	return func(c *facilitator) {
		var calls atomic.Int64
		c.interceptSettle(func(w http.ResponseWriter, r *http.Request, through http.Handler) bool {
			switch calls.Add(1) {
			case 1:
				if deliver {
					through.ServeHTTP(httptest.NewRecorder(), r)
				}
				panic(http.ErrAbortHandler)
			case 2:
				w.WriteHeader(http.StatusBadRequest)
				io.WriteString(w,
					`{"success":false,"errorReason":"insufficient_funds","transaction":"","network":"eip155:31337"}`)
				return true
			}
			return false
		})
	}
}

func twice(first func(func(http.ResponseWriter, *http.Request, http.Handler)) func(*facilitator)) func(*facilitator) {
	return first(func(w http.ResponseWriter, r *http.Request, through http.Handler) {
		body, _ := io.ReadAll(r.Body)
		again := r.Clone(r.Context())
		again.Body = io.NopCloser(bytes.NewReader(body))
		through.ServeHTTP(httptest.NewRecorder(), again)
		r.Body = io.NopCloser(bytes.NewReader(body))
		through.ServeHTTP(w, r)
	})
}

// While the facilitator does not run, payments wait. A restart of the service or of the
// facilitator changes nothing.
func TestFacilitatorStoppedAndStarted(t *testing.T) {
	for mode, change := range modes {
		t.Run(mode, func(t *testing.T) {
			w, c := startWithFacilitator(t, append(change, func(o *server.Options) { o.SubmitWait = 0 })...)
			awaitReady(t, w)
			payer := w.NewPayer()
			d := newRequester(t, w)
			asked, answers := make(chan struct{}, 100), make(chan struct{})
			c.interceptSettle(func(w http.ResponseWriter, r *http.Request, through http.Handler) bool {
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
				d.until(order, boxoffice.Admitted) // the chain proves it
			}
			c.intercept.Store(nil)
			c.start()
			d.until(order, boxoffice.Admitted)
			w.Restart()
			d.until(order, boxoffice.Admitted)
			wantReceived(t, w, 1)
		})
	}
}

// A payment that the facilitator refuses before it broadcasts anything fails with one of
// our reasons, and the payer can sign again.
func TestFacilitatorRefuses(t *testing.T) {
	reasons := map[string]x402.Reason{
		"permit2_insufficient_balance": x402.ReasonInsufficientBalance,
		"insufficient_funds":           x402.ReasonInsufficientBalance, // the specification
		"transaction_simulation":       x402.ReasonSimulation,          // x402-rs
		"recipient_mismatch":           x402.ReasonRecipient,           // x402-rs
		"asset_not_allowed":            x402.ReasonAssetRefused,        // ours
	}
	for mode, change := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w, c := startWithFacilitator(t, change...)
			var paid int64
			for reason, want := range reasons {
				t.Run(reason, func(t *testing.T) {
					awaitReady(t, w)
					payer := w.NewPayer()
					d := newRequester(t, w)
					c.interceptSettle(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
						w.WriteHeader(http.StatusBadRequest)
						io.WriteString(w,
							`{"success":false,"errorReason":"`+reason+`","transaction":"","network":"eip155:31337"}`)
						return true
					})
					order, _ := buyOne(t, w, d, payer, 1)
					status := d.until(order, boxoffice.PaymentFailed)
					if status.Payment.Reason != string(want) {
						t.Errorf("the reason is %s, want %s", status.Payment.Reason, want)
					}
					wantReceived(t, w, paid)
					c.intercept.Store(nil)
					draft := newDraft(t, w, d.challenge(order), payer)
					draft.auth().Nonce = x402.NewUint256(1)
					draft.auth().Deadline = x402.NewUint256(uint64(w.Now().Unix()) + 200)
					header, body := draft.sign()
					if r := d.submit(order, header, body); r.Status != http.StatusOK {
						t.Errorf("the second payment was answered %d %s", r.Status, r.Body)
					}
					paid++
					wantReceived(t, w, paid)
				})
			}
		})
	}
}
