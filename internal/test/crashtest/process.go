package crashtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"boxoffice/internal/crash"
	"boxoffice/internal/server"
	"boxoffice/internal/test/devchain"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
)

// unit is what a unit of every action costs, in atomic token units.
const unit = 1_000_003

// station is where servers start, one after the other, on the same data.
type station struct {
	dir     string
	program string
	config  server.Config
	remote  bool
	starts  int
}

// newStation builds the server with crash points and writes its configuration,
// and that of the facilitator that it settles through, if it does.
func newStation(ctx context.Context, dir string, chain *ledger, remote bool) (*station, error) {
	s := &station{dir: dir, program: filepath.Join(dir, "boxoffice"), remote: remote}
	build := exec.CommandContext(ctx, "go", "build", "-tags", "crashpoints", "-o", s.program, "boxoffice/cmd/boxoffice")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the server: %w\n%s", err, out)
	}
	listen, err := freeAddress()
	if err != nil {
		return nil, err
	}
	s.config = configure(listen, chain)
	if !remote {
		return s, s.save(s.config, serverFile)
	}
	facilitator := s.config
	if facilitator.Facilitator.Listen, err = freeAddress(); err != nil {
		return nil, err
	}
	facilitator.Store.Path = ledgerFile
	facilitator.Facilitator.Assets = []common.Address{chain.Token()}
	facilitator.Facilitator.Wait = server.Duration(time.Second)
	facilitator.Facilitator.Rate = facilitator.Limits.PerAddress
	s.config.Settlement.Via = server.ViaFacilitator
	s.config.Settlement.Facilitator.URL = "http://" + facilitator.Facilitator.Listen
	s.config.Settlement.Facilitator.Retry = server.Duration(50 * time.Millisecond)
	return s, errors.Join(s.save(s.config, serverFile), s.save(facilitator, facilitatorFile))
}

const (
	serverFile      = "boxoffice.toml"
	facilitatorFile = "facilitator.toml"
	ledgerFile      = "facilitator.db"
)

func (s *station) save(config server.Config, name string) error {
	document, err := config.Marshal()
	if err != nil {
		return err
	}
	return os.WriteFile(s.file(name), document, 0o600)
}

// books are the databases, that of the wallet first.
func (s *station) books() []string {
	if s.remote {
		return []string{s.file(ledgerFile), s.file("boxoffice.db")}
	}
	return []string{s.file("boxoffice.db")}
}

func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

func (s *station) file(name string) string { return filepath.Join(s.dir, name) }

// configure returns the configuration of a server in a hurry.
func configure(listen string, chain *ledger) server.Config {
	config := server.Default()
	config.BaseURL, config.Listen, config.OperatorListen = "http://"+listen, listen, ""
	config.SubmitWait = server.Duration(time.Second)
	config.Chain.ID, config.Chain.RPCURL = chain.ChainID().Uint64(), chain.URL()
	config.Chain.Confirmations = 2
	config.Chain.ReorgDepth = 8
	config.Payment.Asset, config.Payment.PayTo = chain.Token(), devchain.PayTo()
	config.Payment.Symbol, config.Payment.Name, config.Payment.Version = devchain.TokenSymbol, "Boxoffice Test Token", "1"
	config.Payment.Amount = x402.NewUint256(unit)
	config.Settlement.Poll = server.Duration(blockTime / 2)
	config.Settlement.Gather = server.Duration(5 * time.Millisecond)
	config.Settlement.BumpAfter = server.Duration(400 * time.Millisecond)
	config.Settlement.Lease = server.Duration(150 * time.Millisecond)
	config.Settlement.Recheck = server.Duration(250 * time.Millisecond)
	config.Settlement.MaxBatch = 10
	config.Limits.PerAddress = server.RateConfig{PerSecond: 1e6, Burst: 1e6}
	config.Limits.PerToken = server.RateConfig{PerSecond: 1e6, Burst: 1e6}
	return config
}

// process is one life of the server.
type process struct {
	command *exec.Cmd
	log     string
	ended   chan struct{} // closed when it is over
	err     error         // of the end
	killed  atomic.Bool   // from outside
}

// start starts a server that dies at the count-th call of a step, "" for none.
func (s *station) start(ctx context.Context, step crash.Step, count int) (*process, error) {
	s.starts++
	env := []string{}
	if !s.remote {
		env = append(env, settlementKey)
	}
	if step != "" {
		env = append(env, fmt.Sprintf("%s=%s#%d", crash.Variable, step, count))
	}
	return s.launch(ctx, fmt.Sprintf("server-%04d.log", s.starts), env, "serve", "--config", s.file(serverFile))
}

// startFacilitator starts the facilitator that the servers settle through.
func (s *station) startFacilitator(ctx context.Context) (*process, error) {
	return s.launch(ctx, "facilitator.log", []string{settlementKey}, "facilitator", "--config", s.file(facilitatorFile))
}

const settlementKey = "BOXOFFICE_SETTLEMENT_KEY=" + devchain.SettlementKeyHex

func (s *station) launch(ctx context.Context, name string, env []string, args ...string) (*process, error) {
	p := &process{log: s.file(name), ended: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own
	p.command = exec.CommandContext(ctx, s.program, args...)
	p.command.Env = append(os.Environ(), env...)
	p.command.Stdout, p.command.Stderr = log, log
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.command.Wait()
		close(p.ended)
	}()
	return p, nil
}

// kill ends the process like the loss of power does, and waits for its end.
func (p *process) kill() error {
	p.killed.Store(true)
	err := p.command.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-p.ended
	return err
}

// stop asks the process to end and waits for it.
func (p *process) stop() error {
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-p.ended
	return p.err
}

// died fails unless the end of the process was a kill.
func (p *process) died() error {
	if state := p.command.ProcessState; state != nil && state.String() == "signal: killed" {
		return nil
	}
	tail, err := os.ReadFile(p.log)
	return errors.Join(fmt.Errorf("the server ended by itself: %w\n%s", p.err, tail[max(0, len(tail)-4000):]), err)
}
