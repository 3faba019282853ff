package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/client"
	"boxoffice/contracts"
	"boxoffice/internal/test/devchain"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"
)

var binary string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "demo-test-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "demo")
		if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(t.Context(), binary,
		append([]string{"--listen", "127.0.0.1:0", "--rpc-listen", "127.0.0.1:0"}, args...)...)
}

// needsGit leaves a test out, loudly, on a machine that has Go alone.
func needsGit(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("LEFT OUT: delivering work needs git")
	}
}

// Where there is no git, the demo says what it leaves out and buys all the same.
func TestWithoutGit(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	program, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(tools, "go")); err != nil {
		t.Fatal(err)
	}
	demo := command(t, "--once")
	demo.Env = append(os.Environ(), "PATH="+tools)
	out, err := demo.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "LEFT OUT") || !strings.Contains(string(out), `reads "admitted"`) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestOnce(t *testing.T) {
	t.Parallel()
	needsGit(t)
	var stdout, stderr bytes.Buffer
	demo := command(t, "--once")
	demo.Stdout, demo.Stderr = &stdout, &stderr
	if err := demo.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, &stdout, &stderr)
	}
	for _, want := range []string{`transaction 0x[0-9a-f]{64} in block`, `reads "admitted"`, `holds 0\.25 TICKET`} {
		if !regexp.MustCompile(want).Match(stdout.Bytes()) {
			t.Errorf("the story lacks %q:\n%s", want, &stdout)
		}
	}
	story := strings.TrimSpace(stdout.String())
	delivered := regexp.MustCompile(`^delivered +http://\S+\.git at [0-9a-f]{40}$`)
	if last := story[strings.LastIndex(story, "\n")+1:]; !delivered.MatchString(last) {
		t.Errorf("the story ends with %s", last)
	}
	if stderr.Len() > 0 {
		t.Errorf("standard error has\n%s", &stderr)
	}
}

// The command that the demo prints clones what its job delivered.
func TestClone(t *testing.T) {
	t.Parallel()
	needsGit(t)
	demo := command(t)
	stdout, err := demo.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	demo.Stderr = t.Output()
	if err := demo.Start(); err != nil {
		t.Fatal(err)
	}
	var address, commit string
	for lines := bufio.NewScanner(stdout); commit == "" && lines.Scan(); {
		switch fields := strings.Fields(lines.Text()); {
		case len(fields) == 4 && fields[0] == "fetch":
			address = fields[3]
		case len(fields) == 4 && fields[0] == "delivered":
			commit = fields[3]
		}
	}
	folder := filepath.Join(t.TempDir(), "delivered")
	if out, err := exec.CommandContext(t.Context(), "git", "clone", address, folder).CombinedOutput(); err != nil {
		t.Fatalf("git clone: %v\n%s", err, out)
	}
	head, err := exec.CommandContext(t.Context(), "git", "-C", folder, "rev-parse", "HEAD").Output()
	if err != nil || strings.TrimSpace(string(head)) != commit {
		t.Errorf("HEAD is %s, delivered was %s (%v)", head, commit, err)
	}
	if _, err := os.Stat(filepath.Join(folder, "report.md")); err != nil {
		t.Error(err)
	}
	running{Cmd: demo}.end(t, os.Interrupt)
}

func TestWrongFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--once", "--no-purchase"}, {"--block-time", "0s"}} {
		out, err := command(t, args...).CombinedOutput()
		if _, failed := errors.AsType[*exec.ExitError](err); !failed || !strings.Contains(string(out), args[0]) {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}

// A running demo is one that said it is ready.
type running struct {
	*exec.Cmd
	ready
}

func start(t *testing.T, args ...string) running {
	t.Helper()
	demo := command(t, append(args, "--json", "--no-purchase")...)
	demo.Stderr = t.Output()
	stdout, err := demo.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := demo.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	r := running{Cmd: demo}
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r.ready); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r running) end(t *testing.T, signal os.Signal) {
	t.Helper()
	if err := r.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	err := r.Wait()
	if signal == os.Interrupt && err != nil {
		t.Errorf("after an interrupt: %v", err)
	}
}

func (r running) received(t *testing.T) string {
	t.Helper()
	node, err := ethclient.DialContext(t.Context(), r.RPCURL)
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	asset := common.HexToAddress(r.Asset)
	data, err := contracts.TestToken().ABI.Pack("balanceOf", common.HexToAddress(r.PayTo))
	if err != nil {
		t.Fatal(err)
	}
	balance, err := node.CallContract(t.Context(), ethereum.CallMsg{To: &asset, Data: data}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return new(big.Int).SetBytes(balance).String()
}

func (r running) client(t *testing.T, token boxoffice.Token) *client.Client {
	t.Helper()
	key, err := crypto.HexToECDSA(strings.TrimPrefix(r.Payer.PrivateKey, "0x"))
	if err != nil {
		t.Fatal(err)
	}
	buyer, err := client.New(client.Config{
		BaseURL: r.BaseURL, Token: token, Signer: client.KeySigner(key),
		Retry: client.Retry{Attempts: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	return buyer
}

// The line of --json says what the demo has, and an interrupt ends it in order.
func TestJSON(t *testing.T) {
	t.Parallel()
	r := start(t)
	if r.ChainID != devchain.DefaultChainID || r.Asset != strings.ToLower(r.Asset) {
		t.Errorf("%+v", r.ready)
	}
	if _, err := os.Stat(r.ConfigFile); err != nil {
		t.Error(err)
	}
	if _, err := r.client(t, boxoffice.NewToken()).Capabilities(t.Context()); err != nil {
		t.Error(err)
	}
	r.end(t, os.Interrupt)
}

// The server is killed after a payment was accepted and before any block could
// hold it. Started again on the same data, it settles it, once.
func TestKilledBetweenSubmitAndSettlement(t *testing.T) {
	t.Parallel()
	data, token := t.TempDir(), boxoffice.NewToken()
	stalled := start(t, "--data", data, "--block-time", "1h")
	buyer := stalled.client(t, token)
	quoted, err := buyer.Quote(t.Context(), boxoffice.JobOpen{Objective: "Survive"}, boxoffice.NewUUID())
	if err != nil {
		t.Fatal(err)
	}
	bought := make(chan error, 1)
	go func() {
		_, err := buyer.Pay(t.Context(), quoted.Order.ID, client.Purchase{Max: price})
		bought <- err
	}()
	await(t, buyer, quoted.Order.ID, boxoffice.PaymentPending)
	stalled.end(t, os.Kill)
	if err := <-bought; err == nil {
		t.Error("the purchase ended well without a block")
	}

	again := start(t, "--data", data, "--block-time", "100ms")
	status := await(t, again.client(t, token), quoted.Order.ID, boxoffice.Admitted)
	if status.Payment.TransactionHash == nil {
		t.Errorf("payment %+v", status.Payment)
	}
	if got := again.received(t); got != price.String() {
		t.Errorf("the recipient has %s, want %s", got, price)
	}
	again.end(t, os.Interrupt)
}

func await(t *testing.T, buyer *client.Client, id boxoffice.UUID, state boxoffice.State) boxoffice.Status {
	t.Helper()
	retry := time.NewTicker(10 * time.Millisecond)
	defer retry.Stop()
	deadline := time.After(time.Minute)
	for {
		status, err := buyer.Status(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if status.Status == state {
			return status
		}
		select {
		case <-retry.C:
		case <-deadline:
			t.Fatalf("the order is %s, want %s", status.Status, state)
		}
	}
}
