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
	"boxoffice/internal/test/servertest"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
)

// unitPrice is the price of one unit of every action, in atomic token units.
const unitPrice = 1_000_003

// servers starts servers, one after the other, with the same configuration and database.
type servers struct {
	dir     string
	program string
	config  server.Config
	remote  bool
	started int
}

// newServers builds the server with crash points, and writes its configuration and that of the facilitator if it
// settles through one.
func newServers(ctx context.Context, dir string, chain *chain, remote bool) (*servers, error) {
	s := &servers{dir: dir, program: filepath.Join(dir, "boxoffice"), remote: remote}
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
	facilitator.Store.Path = databaseFile
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
	databaseFile    = "facilitator.db"
)

func (s *servers) save(config server.Config, name string) error {
	document, err := config.Marshal()
	if err != nil {
		return err
	}
	return os.WriteFile(s.file(name), document, 0o600)
}

// databases returns the files of the databases. The first has the slots of the settlement wallet, the last the orders.
func (s *servers) databases() []string {
	if s.remote {
		return []string{s.file(databaseFile), s.file("boxoffice.db")}
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

func (s *servers) file(name string) string { return filepath.Join(s.dir, name) }

// recheck is how often a settler looks again at what it decided.
const recheck = 250 * time.Millisecond

// configure returns a configuration with short pauses.
func configure(listen string, chain *chain) server.Config {
	config := servertest.Configure(chain.Chain, listen, x402.NewUint256(unitPrice))
	config.SubmitWait = server.Duration(time.Second)
	config.Chain.Confirmations = confirmations
	config.Chain.ReorgDepth = 8
	config.Settlement.Poll = server.Duration(blockTime / 2)
	config.Settlement.Gather = server.Duration(5 * time.Millisecond)
	config.Settlement.BumpAfter = server.Duration(400 * time.Millisecond)
	config.Settlement.Lease = server.Duration(150 * time.Millisecond)
	config.Settlement.Recheck = server.Duration(recheck)
	config.Settlement.MaxBatch = 10
	return config
}

// process is a running server or facilitator.
type process struct {
	command    *exec.Cmd
	log        string
	ended      chan struct{} // closed when the process has ended
	err        error         // how it ended
	killedByUs atomic.Bool   // not by a crash point
}

// start starts a server that kills itself when it comes to a step for the count-th time. The step "" is never.
func (s *servers) start(ctx context.Context, step crash.Step, count int) (*process, error) {
	s.started++
	env := []string{}
	if !s.remote {
		env = append(env, settlementKey)
	}
	if step != "" {
		env = append(env, fmt.Sprintf("%s=%s#%d", crash.Variable, step, count))
	}
	return s.launch(ctx, fmt.Sprintf("server-%04d.log", s.started), env, "serve", "--config", s.file(serverFile))
}

// startFacilitator starts the facilitator that the servers settle through.
func (s *servers) startFacilitator(ctx context.Context) (*process, error) {
	return s.launch(ctx, "facilitator.log", []string{settlementKey}, "facilitator", "--config", s.file(facilitatorFile))
}

const settlementKey = "BOXOFFICE_SETTLEMENT_KEY=" + devchain.SettlementKeyHex

func (s *servers) launch(ctx context.Context, name string, env []string, args ...string) (*process, error) {
	p := &process{log: s.file(name), ended: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own descriptor
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

// kill sends SIGKILL and waits until the process has ended.
func (p *process) kill() error {
	p.killedByUs.Store(true)
	err := p.command.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-p.ended
	return err
}

// stop sends SIGTERM and waits until the process has ended.
func (p *process) stop() error {
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-p.ended
	return p.err
}

// wasKilled returns an error with the end of the log unless the process ended by SIGKILL.
func (p *process) wasKilled() error {
	if state := p.command.ProcessState; state != nil && state.String() == "signal: killed" {
		return nil
	}
	log, err := os.ReadFile(p.log)
	log = log[max(0, len(log)-4000):]
	return errors.Join(fmt.Errorf("the server ended without being killed: %w\n%s", p.err, log), err)
}
