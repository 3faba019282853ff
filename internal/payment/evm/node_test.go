package evm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"boxoffice/contracts"
	"boxoffice/internal/payment"
	"boxoffice/internal/payment/evm"
	"boxoffice/internal/test/devchain"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/rpc"
)

// everyRequest makes every request to the node and returns their errors.
func everyRequest(t *testing.T, chain *evm.Chain) map[string]error {
	t.Helper()
	ctx := t.Context()
	wallet := chain.Wallet(devchain.SettlementKey())
	permits := []payment.Permit{permit(t, payer(t, 1), 1), permit(t, payer(t, 1), 2)}
	failures := map[string]error{}
	_, failures["Head"] = chain.Head(ctx)
	_, failures["BlockTime"] = chain.BlockTime(ctx, 0)
	_, failures["Standing"] = chain.Standing(ctx, permits)
	_, failures["Standing of one"] = chain.Standing(ctx, permits[:1])
	_, failures["Spent"] = chain.Spent(ctx, permits, 0)
	_, failures["Receipts"] = chain.Receipts(ctx, []common.Hash{{1}, {2}}, 0)
	_, failures["Transfers"] = chain.Transfers(ctx, devchain.TokenAddress, payTo, payTo, 0, 100)
	_, failures["Check"] = chain.Check(ctx)
	_, failures["Nonce"] = chain.Nonce(ctx, wallet.Address(), 0)
	_, failures["Sign"] = wallet.Sign(ctx, calls(permits...), 0, nil)
	failures["Broadcast"] = wallet.Broadcast(ctx, payment.Tx{Raw: []byte{1, 2, 3}})
	return failures
}

// If the node fails, every request returns an error, and no error holds a secret of
// its URL.
func TestFaultyNodes(t *testing.T) {
	const user, password, key, token = "operatr", "hunter22", "a1b2c3d4e5f60718", "tok-9f8e7d"
	secretPath := fmt.Sprintf("/v3/%s/?apikey=%s", key, token)
	handlers := map[string]http.HandlerFunc{
		"500": func(w http.ResponseWriter, r *http.Request) { http.Error(w, "oops at "+r.URL.String(), 500) },
		"429": func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, `{"error":"slow down"}`, http.StatusTooManyRequests)
		},
		"garbage":    func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "<html>"+r.URL.String()) },
		"empty":      func(w http.ResponseWriter, r *http.Request) {},
		"object":     func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "{}") },
		"null":       func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "null") },
		"no answers": func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "[]") },
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1"+r.URL.String(), http.StatusTemporaryRedirect)
		},
		"refuses all": answering(func(r *http.Request) map[string]any {
			return map[string]any{"error": map[string]any{"code": -32005, "message": "key " + key +
				" at https://node.example" + r.URL.String() + " is out of credit"}}
		}),
		"nonsense": answering(func(*http.Request) map[string]any { return map[string]any{"result": []any{"what?"}} }),
		"wrong":    answering(func(*http.Request) map[string]any { return map[string]any{"result": "0x"} }),
		"silent": func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body) // or the server does not notice that the client has gone
			<-r.Context().Done()
		},
	}
	for name, handler := range handlers {
		t.Run(name, func(t *testing.T) {
			node := httptest.NewServer(handler)
			defer node.Close()
			testFaulty(t, strings.Replace(node.URL, "://", "://"+user+":"+password+"@", 1)+secretPath, user, password,
				key, token)
		})
	}
	node := httptest.NewServer(http.NotFoundHandler())
	node.Close()
	for _, scheme := range []string{"http", "ws"} {
		t.Run("down/"+scheme, func(t *testing.T) {
			testFaulty(t, strings.Replace(node.URL, "http://", scheme+"://"+user+":"+password+"@", 1)+secretPath,
				user, password, key, token)
		})
	}
}

func testFaulty(t *testing.T, rpcURL string, secrets ...string) {
	t.Helper()
	cfg := config(rpcURL)
	cfg.RequestTimeout = 100 * time.Millisecond
	chain, err := evm.Dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer chain.Close()
	signature := fmt.Sprintf("%x", permit(t, payer(t, 1), 1).Signature)[:32]
	for request, err := range everyRequest(t, chain) {
		if err == nil {
			t.Errorf("%s has an answer", request)
			continue
		}
		if _, rejected := errors.AsType[*payment.Rejection](err); rejected {
			t.Errorf("%s returns a rejection: %v", request, err)
		}
		for e := err; e != nil; e = errors.Unwrap(e) {
			for _, secret := range append(secrets, signature) {
				if strings.Contains(fmt.Sprintf("%+v", e), secret) {
					t.Errorf("%s: a secret is in the error: %v", request, e)
				}
			}
		}
	}
}

// answering gives every request the same answer, in a batch or not.
func answering(with func(*http.Request) map[string]any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		one := func(request rpcRequest) map[string]any {
			answer := with(r)
			answer["jsonrpc"], answer["id"] = "2.0", request.ID
			return answer
		}
		var batch []rpcRequest
		if json.Unmarshal(body, &batch) == nil {
			answers := make([]map[string]any, len(batch))
			for i, request := range batch {
				answers[i] = one(request)
			}
			json.NewEncoder(w).Encode(answers)
			return
		}
		var request rpcRequest
		json.Unmarshal(body, &request)
		json.NewEncoder(w).Encode(one(request))
	}
}

func TestNodeRefusesSignedTransaction(t *testing.T) {
	dev := startChain(t, rich(t, 1))
	tap := newTap(t, dev)
	tap.answer = func(method string, params []json.RawMessage) any {
		if method == "eth_sendRawTransaction" {
			return &refusal{Code: -32000, Message: "cannot take " + string(params[0])}
		}
		return nil
	}
	wallet := dial(t, dev, tap.through).Wallet(devchain.SettlementKey())
	tx, err := wallet.Sign(t.Context(), calls(permit(t, payer(t, 1), 1)), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = wallet.Broadcast(t.Context(), tx)
	if want := fmt.Sprintf(`evm: broadcast %s: the node refused: cannot take "[hex]" (code -32000)`,
		tx.Hash); err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

func TestCancelled(t *testing.T) {
	dev := startChain(t)
	chain := dial(t, dev, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := chain.Head(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// A node may start after Dial: the next call works.
func TestNodeComesUpLater(t *testing.T) {
	dev := startChain(t)
	tap := newTap(t, dev)
	down := true
	inner := tap.Config.Handler
	tap.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down {
			http.Error(w, "starting", http.StatusServiceUnavailable)
			return
		}
		inner.ServeHTTP(w, r)
	})
	chain := dial(t, dev, tap.through)
	if _, err := chain.Head(t.Context()); err == nil || !strings.Contains(err.Error(), "HTTP 503") {
		t.Errorf("%v", err)
	}
	down = false
	if _, err := chain.Head(t.Context()); err != nil {
		t.Error(err)
	}
}

type blocks struct{}

func (blocks) GetBlockByNumber(string, bool) map[string]string {
	return map[string]string{"number": "0x7", "timestamp": "0x8"}
}

// The first call that reaches the node opens the websocket, also after the node was
// restarted.
func TestWebsocket(t *testing.T) {
	start := func(address string) (*httptest.Server, func()) {
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		service := rpc.NewServer()
		if err := service.RegisterName("eth", blocks{}); err != nil {
			t.Fatal(err)
		}
		node := &httptest.Server{Listener: listener,
			Config: &http.Server{Handler: service.WebsocketHandler([]string{"*"})}}
		node.Start()
		return node, func() { service.Stop(); node.Close() }
	}
	node, stop := start("127.0.0.1:0")
	address := node.Listener.Addr().String()
	stop()
	chain, err := evm.Dial(t.Context(), config("ws://"+address))
	if err != nil {
		t.Fatal(err)
	}
	defer chain.Close()
	for range 2 {
		if _, err := chain.Head(t.Context()); err == nil {
			t.Error("a node that is down has answered")
		}
		_, stop := start(address)
		if head, err := chain.Head(t.Context()); err != nil || head != (payment.Head{Number: 7, Time: 8}) {
			t.Errorf("%+v, %v", head, err)
		}
		stop()
	}
}

// Reverts are understood in the forms of several nodes.
func TestRevertDialects(t *testing.T) {
	dev := startChain(t)
	wallet := approving(t, dev, contracts.HostileWallet())
	for _, test := range []struct {
		name     string
		refuse   refusal
		reverted bool
	}{
		{"geth", refusal{3, "execution reverted", "0x756688fe"}, true},
		{"code alone", refusal{3, "sorry", nil}, true},
		{"openethereum", refusal{-32015, "VM execution error.", "Reverted 0x756688fe"}, true},
		{"hardhat", refusal{-32603, "Error: VM Exception while processing transaction: reverted with an " +
			"unrecognized custom error",
			map[string]any{"message": "…", "data": "0x756688fe"}}, true},
		{"no data", refusal{-32000, "execution reverted", nil}, true},
		{"out of gas", refusal{-32000, "out of gas", nil}, true},
		{"invalid opcode", refusal{-32000, "invalid opcode: INVALID", nil}, true},
		{"trouble", refusal{-32000, "header not found", nil}, false},
		{"trouble with data", refusal{-32005, "limit exceeded", "0x756688fe"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			tap := newTap(t, dev)
			tap.answer = func(method string, params []json.RawMessage) any {
				if method == "eth_call" && asks(params, wallet) {
					return &test.refuse
				}
				return nil
			}
			standings, err := dial(t, dev, tap.through).Standing(t.Context(),
				[]payment.Permit{permit(t, devchain.PayerKey(), 1, ownedBy(wallet))}, payment.Approval{})
			if test.reverted != (err == nil) || err == nil && standings[0].Approved {
				t.Errorf("%+v, %v", standings, err)
			}
		})
	}
}

func TestConfig(t *testing.T) {
	good := config("https://node.example/key-of-mine")
	for want, change := range map[string]func(*evm.Config){
		"RPCURL is missing":   func(c *evm.Config) { c.RPCURL = "" },
		"RPCURL is not a URL": func(c *evm.Config) { c.RPCURL = "http://key-of-mine\n" },
		"RPCURL must be":      func(c *evm.Config) { c.RPCURL = "/var/key-of-mine.ipc" },
		"ChainID":             func(c *evm.Config) { c.ChainID = 0 },
		"MaxTxGas":            func(c *evm.Config) { c.MaxTxGas = 20_000_000 },
		"GasPerSettle":        func(c *evm.Config) { c.GasPerSettle = 17_000_000 },
		"MaxFee":              func(c *evm.Config) { c.MaxFee = x402.NewUint256(0) },
		"RequestTimeout":      func(c *evm.Config) { c.RequestTimeout = -1 },
	} {
		cfg := good
		change(&cfg)
		_, err := evm.Dial(t.Context(), cfg)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "key-of-mine") {
			t.Errorf("%s: %v", want, err)
		}
	}
}
