package server_test

import (
	"database/sql"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/httpapi"
	"boxoffice/internal/server"
	"boxoffice/internal/test/devchain"
	"boxoffice/internal/test/servertest"
	"boxoffice/x402"
)

// A nodeProxy stands between the service and its RPC node, and can be closed.
type nodeProxy struct {
	*httptest.Server
	closed atomic.Bool
}

// newNodeProxy makes the service reach its RPC node through a proxy.
func newNodeProxy(t testing.TB, o *server.Options) *nodeProxy {
	node, err := url.Parse(o.Chain.RPCURL)
	if err != nil {
		t.Fatal(err)
	}
	through := httputil.NewSingleHostReverseProxy(node)
	proxy := new(nodeProxy)
	proxy.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if proxy.closed.Load() {
			http.Error(rw, "unavailable", http.StatusBadGateway)
			return
		}
		through.ServeHTTP(rw, r)
	}))
	t.Cleanup(proxy.Close)
	o.Chain.RPCURL = proxy.URL
	return proxy
}

// While the RPC node does not answer, quotes work, and payments are refused and not saved.
// A payment that was saved before settles when the node answers again.
func TestNodeUnavailable(t *testing.T) {
	var proxy *nodeProxy
	w := servertest.Start(t, func(o *server.Options) {
		proxy = newNodeProxy(t, o)
		o.SubmitWait = 0
	})
	payer := w.NewPayer()
	d := newRequester(t, w)
	saved := d.quote(boxoffice.ActionJobOpen, `{"objective":"Saved before"}`)
	header, body := newDraft(t, w, d.challenge(saved), payer).sign()
	release := holdSettler(t, w)
	d.accepts(saved, header, body)

	proxy.closed.Store(true)
	release()
	order := d.quote(boxoffice.ActionJobOpen, `{"objective":"Quoted meanwhile"}`)
	draft := newDraft(t, w, d.challenge(order), payer)
	draft.auth().Nonce = x402.NewUint256(8)
	header, body = draft.sign()
	d.defers(order, header, body)
	d.until(saved, boxoffice.PaymentPending)

	proxy.closed.Store(false)
	d.until(saved, boxoffice.Admitted)
	if r := d.submit(order, header, body); r.Status != http.StatusAccepted {
		t.Errorf("answered %d %s", r.Status, r.Body)
	}
	d.until(order, boxoffice.Admitted)
}

// A service that starts while its RPC node does not answer accepts no payment until it
// knows that the chain is the configured one.
func TestStartWithoutNode(t *testing.T) {
	var proxy *nodeProxy
	w := servertest.Start(t, func(o *server.Options) {
		proxy = newNodeProxy(t, o)
		proxy.closed.Store(true)
	})
	payer := w.NewPayer()
	d := newRequester(t, w)
	order := d.quote(boxoffice.ActionJobOpen, `{"objective":"Look"}`)
	header, body := newDraft(t, w, d.challenge(order), payer).sign()
	d.submit(order, header, body).want(t, http.StatusServiceUnavailable, boxoffice.TemporarilyUnavailable, "")
	proxy.closed.Store(false)
	for range time.Tick(20 * time.Millisecond) {
		r := d.submit(order, header, body)
		if r.Status == http.StatusServiceUnavailable {
			continue
		}
		if r.Status != http.StatusOK {
			t.Fatalf("answered %d %s", r.Status, r.Body)
		}
		break
	}
	d.until(order, boxoffice.Admitted)
}

// A service that was moved to another chain accepts no payment on the old one, since it
// could not settle it.
func TestMovedToAnotherChain(t *testing.T) {
	w := servertest.Start(t)
	payer := w.NewPayer()
	d := newRequester(t, w)
	order := d.quote(boxoffice.ActionJobOpen, `{"objective":"Look"}`)
	header, body := newDraft(t, w, d.challenge(order), payer).sign()
	other, err := devchain.Start(t.Context(), devchain.Config{ChainID: 999, Funded: devchain.DevAccounts()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	w.Stop()
	w.Options.Chain.ID, w.Options.Chain.RPCURL = 999, other.URL()
	w.Restart()
	d.submit(order, header, body).want(t, http.StatusServiceUnavailable, boxoffice.TemporarilyUnavailable, "")
	d.until(order, boxoffice.Quoted)
}

// While the database fails, every route that needs it answers 503.
func TestDatabaseUnavailable(t *testing.T) {
	w := servertest.Start(t)
	d := newRequester(t, w)
	order := d.quote(boxoffice.ActionJobOpen, `{"objective":"Look"}`)
	restore := removeTables(t, w, "orders", "jobs", "oracles", "workflows", "schedules")
	strange := string(boxoffice.NewUUID())
	for _, request := range [][3]string{
		{"POST", "/requests/quote",
			`{"action":"job.open","input":{"objective":"Look"},"requestKey":"` + strange + `"}`},
		{"POST", "/requests/" + string(order.ID) + "/submit", ""},
		{"GET", "/requests/" + string(order.ID), ""},
		{"GET", "/jobs", ""}, {"GET", "/jobs/" + strange, ""}, {"GET", "/oracles/" + strange, ""},
		{"GET", "/workflows/" + strange, ""}, {"GET", "/schedules/" + strange, ""},
	} {
		d.send(request[0], request[1], request[2]).want(t, http.StatusServiceUnavailable, boxoffice.TemporarilyUnavailable,
			"")
	}
	if r := d.send("GET", "/requests/capabilities", ""); r.Status != http.StatusOK {
		t.Errorf("capabilities answered %d", r.Status)
	}
	restore()
	d.until(order, boxoffice.Quoted)
}

// removeTables makes every statement of the service that uses the tables fail until
// restore is called.
func removeTables(t testing.TB, w *servertest.World, tables ...string) (restore func()) {
	t.Helper()
	db, err := sql.Open("sqlite", w.Options.Store.Path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	rename := func(format string) {
		t.Helper()
		for _, table := range tables {
			if _, err := db.ExecContext(t.Context(), strings.ReplaceAll(format, "TABLE", table)); err != nil {
				t.Fatal(err)
			}
		}
	}
	rename("ALTER table TABLE RENAME TO TABLE_away")
	return func() { t.Helper(); rename("ALTER table TABLE_away RENAME TO TABLE") }
}

// A requester that calls too often is served again after Retry-After.
func TestRateLimits(t *testing.T) {
	for name, limit := range map[string]func(*server.Options){
		"token":   func(o *server.Options) { o.Limits.PerToken = server.RateConfig{PerSecond: 0.5, Burst: 12} },
		"address": func(o *server.Options) { o.Limits.PerAddress = server.RateConfig{PerSecond: 0.5, Burst: 12} },
	} {
		t.Run(name, func(t *testing.T) {
			w := servertest.Start(t, limit)
			d := newRequester(t, w)
			order := "/requests/" + string(boxoffice.NewUUID())
			limited := reply{}
			for range 20 {
				if limited = d.send("GET", order, ""); limited.Status == http.StatusTooManyRequests {
					break
				}
			}
			limited.want(t, http.StatusTooManyRequests, boxoffice.RateLimited, "")
			wait, err := strconv.Atoi(limited.Header.Get("Retry-After"))
			if err != nil {
				t.Fatal(err)
			}
			w.Advance(time.Duration(wait) * time.Second)
			d.send("GET", order, "").want(t, http.StatusNotFound, boxoffice.OrderNotFound, "")
		})
	}
}

// Twenty quotes with one requestKey and one input are one order. Another input under the
// same key is a conflict.
func TestOneKeyOneOrder(t *testing.T) {
	w := servertest.Start(t)
	d := newRequester(t, w)
	key := boxoffice.NewUUID()
	ask := func(input string) reply {
		return d.send("POST", "/requests/quote",
			`{"action":"job.open","input":`+input+`,"requestKey":"`+string(key)+`"}`)
	}
	var group sync.WaitGroup
	replies := make([]reply, 20)
	for i := range replies {
		group.Go(func() { replies[i] = ask(`{"objective":"Look"}`) })
	}
	group.Wait()
	created, orders := 0, map[boxoffice.UUID]bool{}
	for _, r := range replies {
		response := decode[boxoffice.QuoteResponse](t, r)
		if response.Created != (r.Status == http.StatusCreated) {
			t.Errorf("answered %d with created %t", r.Status, response.Created)
		}
		if response.Created {
			created++
		}
		orders[response.Order.ID] = true
	}
	if created != 1 || len(orders) != 1 {
		t.Errorf("%d orders were created, %d answered", created, len(orders))
	}
	ask(`{"objective":"Look elsewhere"}`).want(t, http.StatusConflict, boxoffice.RequestKeyConflict, "")
	if r := ask(`{ "objective" : "Look" }`); r.Status != http.StatusOK {
		t.Errorf("the same input, written otherwise, answered %d", r.Status)
	}
}

// /readyz names the part that does not work.
func TestReadiness(t *testing.T) {
	var proxy *nodeProxy
	w := servertest.Start(t, func(o *server.Options) { proxy = newNodeProxy(t, o) })
	await := func(ready bool) httpapi.Readiness {
		for range time.Tick(10 * time.Millisecond) {
			if body := readiness(t, w); body.Ready == ready {
				return body
			}
		}
		panic("unreachable")
	}
	await(true)
	proxy.closed.Store(true)
	if body := await(false); !strings.Contains(body.Parts["settler"], "502") || body.Parts["store"] != "ok" {
		t.Errorf("the parts are %v", body.Parts)
	}
	proxy.closed.Store(false)
	await(true)
}
