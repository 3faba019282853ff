// Package faultrpc is a JSON-RPC proxy for tests. It fails in the ways in which RPC nodes and networks fail.
package faultrpc

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/rpc"
)

// Fault is how one HTTP request fails. The request may be a batch.
type Fault string

// The faults.
const (
	None       Fault = ""
	Drop       Fault = "drop"        // the connection is closed before the node gets the request
	DropAnswer Fault = "drop answer" // the node executes the request, then the connection is closed
	Duplicate  Fault = "duplicate"   // the node executes the request twice, the second response is sent
	TooMany    Fault = "429"
	Garbage    Fault = "garbage"  // a response that is not JSON
	Nonsense   Fault = "nonsense" // a JSON-RPC error for no request
	Old        Fault = "old"      // the node has the chain up to the block of Freeze only
	Hold       Fault = "hold"     // the request waits for Release, then the node executes it
)

// Faults returns the faults that need no call to end: all but Hold.
func Faults() []Fault {
	return []Fault{None, Drop, DropAnswer, Duplicate, TooMany, Garbage, Nonsense, Old}
}

// Proxy forwards requests to an RPC node. Its methods may be called from many goroutines.
type Proxy struct {
	URL  string
	node *rpc.Client

	mu     sync.Mutex
	rule   func(method string) Fault
	frozen uint64
	held   chan struct{}
	asked  map[string]int
}

// New starts a proxy for the RPC node at target. It ends with the test.
func New(t testing.TB, target string) *Proxy {
	t.Helper()
	node, err := rpc.DialContext(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{node: node, held: make(chan struct{}), asked: map[string]int{}}
	server := httptest.NewServer(p)
	p.URL = server.URL
	t.Cleanup(func() {
		p.Release()
		server.CloseClientConnections()
		server.Close()
		node.Close()
	})
	return p
}

// Set makes rule choose the fault of each request. In a batch, the first method for which rule returns another fault
// than None decides for all. With nil, no request fails.
func (p *Proxy) Set(rule func(method string) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rule = rule
}

// Freeze sets the newest block for requests with the fault Old.
func (p *Proxy) Freeze(block uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = block
}

// Release ends the fault Hold, for requests that wait and for later ones.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.held:
	default:
		close(p.held)
	}
}

// Asked returns how often a method was called.
func (p *Proxy) Asked(method string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[method]
}

type request struct {
	Version string            `json:"jsonrpc"`
	ID      json.RawMessage   `json:"id"`
	Method  string            `json:"method"`
	Params  []json.RawMessage `json:"params"`
}

type answer struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *refusal        `json:"error,omitempty"`
}

type refusal struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	requests, batch := parse(body)
	fault, frozen, held := p.choose(requests)
	switch fault {
	case Drop:
		panic(http.ErrAbortHandler)
	case TooMany:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "slow down", http.StatusTooManyRequests)
		return
	case Garbage:
		io.WriteString(w, "<html>502 Bad Gateway</html>")
		return
	case Nonsense:
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"upstream is confused"}}`)
		return
	case Hold:
		select {
		case <-held:
		case <-r.Context().Done():
			return
		}
	case Duplicate:
		p.answer(r.Context(), requests, nil)
	}
	if fault != Old {
		frozen = nil
	}
	answers := p.answer(context.WithoutCancel(r.Context()), requests, frozen)
	if fault == DropAnswer {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	if batch {
		json.NewEncoder(w).Encode(answers)
	} else if len(answers) > 0 {
		json.NewEncoder(w).Encode(answers[0])
	}
}

func parse(body []byte) (requests []request, batch bool) {
	if json.Unmarshal(body, &requests) == nil {
		return requests, true
	}
	var single request
	if json.Unmarshal(body, &single) == nil {
		requests = []request{single}
	}
	return requests, false
}

func (p *Proxy) choose(requests []request) (fault Fault, frozen *uint64, held chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, request := range requests {
		p.asked[request.Method]++
		if p.rule != nil && fault == None {
			fault = p.rule(request.Method)
		}
	}
	block := p.frozen
	return fault, &block, p.held
}

func (p *Proxy) answer(ctx context.Context, requests []request, frozen *uint64) []answer {
	answers := make([]answer, len(requests))
	for i, request := range requests {
		answers[i] = answer{Version: "2.0", ID: request.ID}
		result, err := p.ask(ctx, request, frozen)
		if err == nil {
			answers[i].Result = result
			continue
		}
		answers[i].Error = &refusal{Code: -32000, Message: err.Error()}
		if coded, ok := errors.AsType[rpc.Error](err); ok {
			answers[i].Error.Code = coded.ErrorCode()
		}
		if data, ok := errors.AsType[rpc.DataError](err); ok {
			answers[i].Error.Data = data.ErrorData()
		}
	}
	return answers
}

var null = json.RawMessage("null")

// ask calls the node. If frozen is set, it returns what a node returns that has no later block.
func (p *Proxy) ask(ctx context.Context, request request, frozen *uint64) (json.RawMessage, error) {
	args := make([]any, len(request.Params))
	for i, param := range request.Params {
		args[i] = param
	}
	if frozen != nil {
		newest := hexutil.EncodeUint64(*frozen)
		switch request.Method {
		case "eth_blockNumber":
			return json.Marshal(newest)
		case "eth_getBlockByNumber":
			if later(&args[0], *frozen) {
				return null, nil
			}
		case "eth_call", "eth_getBalance", "eth_getCode", "eth_getTransactionCount":
			if later(&args[len(args)-1], *frozen) {
				return nil, errors.New("header not found")
			}
		case "eth_getLogs":
			var filter map[string]any
			if err := json.Unmarshal(request.Params[0], &filter); err != nil {
				return nil, err
			}
			if first := filter["fromBlock"]; later(&first, *frozen) {
				return json.RawMessage("[]"), nil
			}
			if last := filter["toBlock"]; later(&last, *frozen) {
				filter["toBlock"] = newest // without an error, as some nodes do
			}
			args[0] = filter
		}
	}
	var result json.RawMessage
	if err := p.node.CallContext(ctx, &result, request.Method, args...); err != nil {
		return nil, err
	}
	if len(result) == 0 {
		result = null
	}
	if frozen != nil && request.Method == "eth_getTransactionReceipt" {
		var receipt struct{ BlockNumber hexutil.Uint64 }
		if json.Unmarshal(result, &receipt) == nil && uint64(receipt.BlockNumber) > *frozen {
			return null, nil
		}
	}
	return result, nil
}

// later reports whether a block parameter names a block after frozen. It replaces the tags latest and pending by
// frozen.
func later(param *any, frozen uint64) bool {
	text, err := json.Marshal(*param)
	if err != nil {
		return false
	}
	name := strings.Trim(string(text), `"`)
	if name == "latest" || name == "pending" {
		*param = hexutil.EncodeUint64(frozen)
		return false
	}
	number, err := hexutil.DecodeUint64(name)
	return err == nil && number > frozen
}
