package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/store/sqlite"
	"boxoffice/internal/test/servertest"

	"github.com/ethereum/go-ethereum/crypto"
)

// code returns the service's error code behind err, "" if there is none.
func code(err error) boxoffice.Code {
	if problem, ok := errors.AsType[*boxoffice.Problem](err); ok {
		return problem.Code
	}
	return ""
}

// A requester sends plain HTTP requests with one token.
type requester struct {
	t     testing.TB
	w     *servertest.World
	token boxoffice.Token
}

type reply struct {
	Status int
	Header http.Header
	Body   []byte
}

func newRequester(t testing.TB, w *servertest.World) *requester {
	return &requester{t: t, w: w, token: boxoffice.NewToken()}
}

// send posts or gets; headers are name, value, name, value.
func (d *requester) send(method, path, body string, headers ...string) reply {
	d.t.Helper()
	request, err := http.NewRequestWithContext(d.t.Context(), method, d.w.Options.BaseURL+path,
		bytes.NewReader([]byte(body)))
	if err != nil {
		d.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+d.token.Reveal())
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] == "" {
			request.Header.Del(headers[i])
			continue
		}
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := d.w.HTTP.Do(request)
	if err != nil {
		d.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return reply{response.StatusCode, response.Header, text}
}

func (d *requester) quote(action, input string) boxoffice.Order {
	d.t.Helper()
	r := d.send("POST", "/requests/quote", asJSON(d.t, map[string]any{
		"action": action, "input": json.RawMessage(input), "requestKey": boxoffice.NewUUID(),
	}))
	if r.Status != http.StatusCreated {
		d.t.Fatalf("quote answered %d %s", r.Status, r.Body)
	}
	return decode[boxoffice.QuoteResponse](d.t, r).Order
}

func (d *requester) challenge(order boxoffice.Order) boxoffice.Challenge {
	d.t.Helper()
	r := d.send("POST", "/requests/"+string(order.ID)+"/submit", "")
	if r.Status != http.StatusPaymentRequired {
		d.t.Fatalf("submit answered %d %s", r.Status, r.Body)
	}
	return decode[boxoffice.Challenge](d.t, r)
}

func decode[T any](t testing.TB, r reply) (value T) {
	t.Helper()
	if err := json.Unmarshal(r.Body, &value); err != nil {
		t.Fatalf("%s: %v", r.Body, err)
	}
	return value
}

func (r reply) want(t testing.TB, status int, code boxoffice.Code, reason string) {
	t.Helper()
	problem := decode[boxoffice.Problem](t, r)
	if r.Status != status || problem.Code != code || problem.Reason != reason {
		t.Errorf("answered %d %s %s (%s), want %d %s %s", r.Status, problem.Code, problem.Reason, problem.Detail, status,
			code, reason)
	}
}

// until reads the order until it is in a state.
func (d *requester) until(order boxoffice.Order, state boxoffice.State) boxoffice.Status {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Minute)
	defer cancel()
	retry := time.NewTicker(5 * time.Millisecond)
	defer retry.Stop()
	for {
		status := decode[boxoffice.Status](d.t, d.send("GET", "/requests/"+string(order.ID), ""))
		if status.Status == state {
			return status
		}
		select {
		case <-retry.C:
		case <-ctx.Done():
			d.t.Fatalf("the order is %s, want %s", status.Status, state)
		}
	}
}

// holdSettler takes the settlement lease, so that nothing settles until release is
// called. It restarts the service, which ends a round that has begun.
func holdSettler(t testing.TB, w *servertest.World) (release func()) {
	t.Helper()
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: w.Options.Store.Path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	name := fmt.Sprintf("settler/%d/%s", w.Options.Chain.ID, crypto.PubkeyToAddress(w.Options.Key.PublicKey))
	hold := func(from, length time.Duration) error {
		now := boxoffice.At(w.Now().Add(from))
		held, err := store.HoldLease(context.WithoutCancel(t.Context()), name, "test", now,
			now+boxoffice.Timestamp(length.Milliseconds()))
		if err == nil && !held {
			err = errors.New("the service has the lease")
		}
		return err
	}
	// At the time that the test passes, an hour from now, the service's lease has expired.
	if err := hold(time.Hour, 2*time.Hour); err != nil {
		t.Fatal(err)
	}
	w.Restart()
	awaitReady(t, w)
	return func() {
		t.Helper()
		if err := hold(0, 0); err != nil {
			t.Fatal(err)
		}
	}
}
