package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"boxoffice"
	"boxoffice/internal/server"
)

// The price of an action in the demo, 0.25 tokens with 18 decimals, and an amount that is too small.
const (
	price      = "250000000000000000"
	belowPrice = "249999999999999999"
)

// demo is a running cmd/demo.
type demo struct {
	*process
	folder     string
	BaseURL    string `json:"baseUrl"`
	RPCURL     string `json:"rpcUrl"`
	ChainID    uint64 `json:"chainId"`
	Asset      string `json:"asset"`
	PayTo      string `json:"payTo"`
	ConfigFile string `json:"configFile"`
	Payer      struct {
		Address    string `json:"address"`
		PrivateKey string `json:"privateKey"`
	} `json:"payer"`
}

// startDemo builds and starts a demo on free ports and returns when it is ready.
func startDemo(ctx context.Context) (_ *demo, err error) {
	d := new(demo)
	if d.folder, err = os.MkdirTemp("", "boxoffice-interop-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.end())
		}
	}()
	program, err := d.build(ctx, "demo")
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, program,
		"--json", "--no-purchase", "--listen", "127.0.0.1:0", "--rpc-listen", "127.0.0.1:0")
	if d.process, err = start(command); err != nil {
		return nil, err
	}
	line, err := d.line(ctx, "{")
	if err != nil {
		return nil, err
	}
	return d, json.Unmarshal([]byte(line), d)
}

func (d *demo) end() (err error) {
	if d.process != nil {
		err = d.process.end()
	}
	return errors.Join(err, os.RemoveAll(d.folder))
}

// build builds one of our commands once. The suite stops them by a signal, which go run would not pass on.
func (d *demo) build(ctx context.Context, name string) (string, error) {
	binary := filepath.Join(d.folder, name)
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/"+name).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", name, err, out)
	}
	return binary, nil
}

// env returns the environment for a program that uses the demo.
func (d *demo) env(more ...string) []string {
	env := append(os.Environ(),
		"BOXOFFICE_URL="+d.BaseURL, "BOXOFFICE_PRIVATE_KEY="+d.Payer.PrivateKey, "RPC_URL="+d.RPCURL,
		fmt.Sprintf("CHAIN_ID=%d", d.ChainID), "ASSET="+d.Asset, "MAX_AMOUNT="+price)
	return append(env, more...)
}

// buy runs a program that buys, and returns the status that it prints. If its exit code is not 0, the error contains
// its standard error.
func (d *demo) buy(ctx context.Context, program []string, env ...string) (status boxoffice.Status, err error) {
	command := exec.CommandContext(ctx, program[0], program[1:]...)
	command.Env = d.env(env...)
	var stderr strings.Builder
	command.Stderr = &stderr
	printed, err := command.Output()
	if err != nil {
		return status, fmt.Errorf("%w\n%s", err, &stderr)
	}
	if err := json.Unmarshal(printed, &status); err != nil {
		return status, fmt.Errorf("the status it printed: %w", err)
	}
	if status.Status != boxoffice.Admitted {
		return status, fmt.Errorf("the order is %q", status.Status)
	}
	return status, nil
}

// serve starts boxoffice serve or boxoffice facilitator with a configuration. Its data is in a folder of its own.
func (d *demo) serve(
	ctx context.Context, name, command string, config server.Config, env ...string,
) (*process, error) {
	binary, err := d.build(ctx, "boxoffice")
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(d.folder, name)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	config.Store.Path, config.Work.Dir = filepath.Join(folder, "boxoffice.db"), filepath.Join(folder, "work")
	document, err := config.Marshal()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(folder, "boxoffice.toml")
	if err := os.WriteFile(file, document, 0o600); err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, binary, command, "--config", file)
	c.Env = append(os.Environ(), env...)
	return start(c)
}

// An instance is a boxoffice process on the demo's chain.
type instance struct {
	*process
	config server.Config
}

// serveBeside starts boxoffice serve or boxoffice facilitator with the demo's configuration, which change may change,
// and waits until it is ready.
func (d *demo) serveBeside(
	ctx context.Context, name, command string, env []string, change func(*server.Config),
) (*instance, error) {
	config, err := server.Load(d.ConfigFile)
	if err != nil {
		return nil, err
	}
	addresses, err := freeAddresses(3)
	if err != nil {
		return nil, err
	}
	config.Listen, config.OperatorListen, config.Facilitator.Listen = addresses[0], addresses[1], addresses[2]
	config.BaseURL = "http://" + config.Listen
	config.Settlement.Keystore, config.Agents = "", nil
	change(&config)
	p, err := d.serve(ctx, name, command, config, env...)
	if err != nil {
		return nil, err
	}
	err = p.until(ctx, "boxoffice "+command+" to be ready", func() (bool, error) {
		_, err := get(ctx, "http://"+config.OperatorListen+"/readyz", "")
		return err == nil, nil
	})
	if err != nil {
		return nil, errors.Join(err, p.end())
	}
	return &instance{p, config}, nil
}
