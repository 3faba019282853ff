package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"boxoffice/internal/server"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"
)

// A process is a program that serves until it is ended.
type process struct {
	command *exec.Cmd
	stdin   io.Closer // its end is the program's, should this one die
	stderr  record
	url     string
}

// record keeps what a process says, while it says it.
type record struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (p *process) said() string {
	p.stderr.mu.Lock()
	defer p.stderr.mu.Unlock()
	return p.stderr.text.String()
}

// startNode starts a program of a folder, which prints its address when it serves.
func startNode(ctx context.Context, folder, program string, env ...string) (*process, error) {
	p := &process{command: exec.CommandContext(ctx, "node", program)}
	p.command.Dir = folder
	stdout, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.start(env); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", program, err), p.end())
	}
	p.url = strings.TrimSpace(line)
	return p, nil
}

func (p *process) start(env []string) (err error) {
	p.command.Env = append(os.Environ(), env...)
	p.command.Stderr = &p.stderr
	p.command.Cancel = func() error { return p.command.Process.Signal(os.Interrupt) }
	p.command.WaitDelay = 10 * time.Second
	if p.stdin, err = p.command.StdinPipe(); err != nil {
		return err
	}
	return p.command.Start()
}

// end ends the process and returns what it said if it did not end well.
func (p *process) end() error {
	err := errors.Join(p.stdin.Close(), p.command.Process.Signal(os.Interrupt))
	if waited := p.command.Wait(); waited != nil && p.command.ProcessState.Exited() {
		err = errors.Join(err, waited)
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%w\n%s", err, p.said())
	}
	return nil
}

// boxoffice builds the command once for each demo.
func (d *demo) boxoffice(ctx context.Context) (string, error) {
	binary := filepath.Join(d.folder, "boxoffice")
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/boxoffice").CombinedOutput(); err != nil {
		return "", fmt.Errorf("building boxoffice: %w\n%s", err, out)
	}
	return binary, nil
}

// An instance is a boxoffice process with a configuration of its own on the
// demo's chain.
type instance struct {
	*process
	config server.Config
}

// startService starts boxoffice serve, or another of its commands that serves,
// with what the demo has and what change changes, and returns when a GET of
// ready at the operator's or the service's address is answered 200.
func startService(ctx context.Context, d *demo, name, command string, env []string, change func(*server.Config)) (*instance, error) {
	config, err := server.Load(d.ConfigFile)
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(d.folder, name)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	addresses, err := freeAddresses(3)
	if err != nil {
		return nil, err
	}
	config.Listen, config.OperatorListen, config.Facilitator.Listen = addresses[0], addresses[1], addresses[2]
	config.BaseURL = "http://" + config.Listen
	config.Store.Path, config.Work.Dir = filepath.Join(folder, "boxoffice.db"), filepath.Join(folder, "work")
	config.Settlement.Keystore, config.Agents = "", nil
	change(&config)
	document, err := config.Marshal()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(folder, "boxoffice.toml")
	if err := os.WriteFile(file, document, 0o600); err != nil {
		return nil, err
	}
	binary, err := d.boxoffice(ctx)
	if err != nil {
		return nil, err
	}
	s := &instance{&process{command: exec.CommandContext(ctx, binary, command, "--config", file), url: config.BaseURL}, config}
	if err := s.start(env); err != nil {
		return nil, err
	}
	if err := answers(ctx, "http://"+config.OperatorListen+"/readyz"); err != nil {
		return nil, errors.Join(fmt.Errorf("boxoffice %s: %w", command, err), s.end())
	}
	return s, nil
}

func freeAddresses(n int) (addresses []string, err error) {
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses, nil
}

// answers returns when a GET is answered 200.
func answers(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return until(ctx, func() (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false, err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return false, nil
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK, nil
	})
}

// until asks again and again.
func until(ctx context.Context, is func() (bool, error)) error {
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		if done, err := is(); done || err != nil {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// newWallet returns the key of a new account that has coins for gas, and its
// address.
func newWallet(ctx context.Context, d *demo) (key string, address common.Address, err error) {
	secret, err := crypto.GenerateKey()
	if err != nil {
		return "", address, err
	}
	address = crypto.PubkeyToAddress(secret.PublicKey)
	payer, err := crypto.HexToECDSA(strings.TrimPrefix(d.Payer.PrivateKey, "0x"))
	if err != nil {
		return "", address, err
	}
	return hex.EncodeToString(crypto.FromECDSA(secret)), address, send(ctx, d, payer, address, big.NewInt(1e18))
}

// sent returns how many transactions an account has broadcast.
func (d *demo) sent(ctx context.Context, account common.Address) func() (uint64, error) {
	return func() (uint64, error) {
		chain, err := ethclient.DialContext(ctx, d.RPCURL)
		if err != nil {
			return 0, err
		}
		defer chain.Close()
		return chain.PendingNonceAt(ctx, account)
	}
}

// send moves coins and waits until they are there.
func send(ctx context.Context, d *demo, from *ecdsa.PrivateKey, to common.Address, value *big.Int) error {
	chain, err := ethclient.DialContext(ctx, d.RPCURL)
	if err != nil {
		return err
	}
	defer chain.Close()
	id, err := chain.ChainID(ctx)
	if err != nil {
		return err
	}
	nonce, err := chain.PendingNonceAt(ctx, crypto.PubkeyToAddress(from.PublicKey))
	if err != nil {
		return err
	}
	price, err := chain.SuggestGasPrice(ctx)
	if err != nil {
		return err
	}
	tx, err := types.SignNewTx(from, types.LatestSignerForChainID(id), &types.LegacyTx{
		Nonce: nonce, GasPrice: price.Mul(price, big.NewInt(2)), Gas: 21_000, To: &to, Value: value,
	})
	if err != nil {
		return err
	}
	if err := chain.SendTransaction(ctx, tx); err != nil {
		return err
	}
	return until(ctx, func() (bool, error) {
		balance, err := chain.BalanceAt(ctx, to, nil)
		return err == nil && balance.Sign() > 0, err
	})
}
