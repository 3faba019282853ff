package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"

	"github.com/ethereum/go-ethereum/core/types"
)

// A breaker is an HTTP proxy that closes both connections of one call, as a network failure does.
type breaker struct {
	url      string
	backend  string
	sent     func() (uint64, error) // how many transactions the backend's wallet has sent
	listener net.Listener
	serving  sync.WaitGroup

	mu     sync.Mutex
	path   string // the next call of this path is broken; "" is no call
	cut    cut
	broken int // calls so far
}

// cut is the moment at which the connections are closed.
type cut string

const (
	whole       cut = "whole"
	onDelivery  cut = "cut when the request was delivered"
	onBroadcast cut = "cut when the transaction was broadcast"
	inAnswer    cut = "cut in the middle of the response"
)

func newBreaker(ctx context.Context, backend string, sent func() (uint64, error)) (*breaker, error) {
	address, err := url.Parse(backend)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &breaker{url: "http://" + listener.Addr().String(), backend: address.Host, listener: listener, sent: sent}
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	b.serving.Go(func() {
		defer stop()
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go b.serve(ctx, conn)
		}
	})
	return b, nil
}

func (b *breaker) close() error {
	err := b.listener.Close()
	b.serving.Wait()
	return err
}

// arm makes the breaker break the next call of path, or no call if path is "".
func (b *breaker) arm(path string, at cut) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.path, b.cut, b.broken = path, at, 0
}

// wasBroken reports whether a call was broken since arm.
func (b *breaker) wasBroken() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.broken == 1
}

// oneTransfer calls do, which pays, and breaks a call of path meanwhile, unless path is "". It returns the transfer to
// the demo's recipient. No transfer and several transfers are errors.
func (b *breaker) oneTransfer(
	ctx context.Context, d *demo, path string, at cut, do func() error,
) (transfer types.Log, err error) {
	b.arm(path, at)
	moved, err := d.transfers(ctx, do)
	switch {
	case err != nil:
		return transfer, err
	case path != "" && !b.wasBroken():
		return transfer, errors.New("no call was broken")
	case len(moved) != 1:
		return transfer, fmt.Errorf("%d transfers", len(moved))
	}
	return moved[0], nil
}

// breaks returns when to break a call of path.
func (b *breaker) breaks(path string) cut {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.path == "" || b.path != path {
		return whole
	}
	b.path = ""
	b.broken++
	return b.cut
}

// serve forwards the calls of a connection, each over a new connection to the backend.
func (b *breaker) serve(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	calls := bufio.NewReader(conn)
	for b.pass(ctx, conn, calls) == nil {
	}
}

var errCut = errors.New("cut")

func (b *breaker) pass(ctx context.Context, conn net.Conn, calls *bufio.Reader) error {
	call, err := http.ReadRequest(calls)
	if err != nil {
		return err
	}
	backend, err := net.Dial("tcp", b.backend)
	if err != nil {
		return err
	}
	defer backend.Close()
	before, err := b.sent()
	if err != nil {
		return err
	}
	if err := call.Write(backend); err != nil {
		return err
	}
	at := b.breaks(call.URL.Path)
	switch at {
	case onDelivery:
		return errCut
	case onBroadcast:
		return errors.Join(errCut, until(ctx, "the transaction of a call", func() (bool, error) {
			now, err := b.sent()
			return now > before, err
		}))
	}
	answer, err := http.ReadResponse(bufio.NewReader(backend), call)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := httputil.DumpResponse(answer, true)
	switch {
	case err != nil:
		return err
	case at == inAnswer:
		conn.Write(text[:len(text)-40]) // an error does not matter: the connection is closed anyway
		return errCut
	}
	_, err = conn.Write(text)
	return err
}
