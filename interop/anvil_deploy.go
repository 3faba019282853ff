package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"boxoffice/contracts/settlement"
	"boxoffice/internal/payment/evm"
)

// deployment starts a service on a chain without the settlement contract, which ends, and deploys the contract with the
// configuration and the key of that service, as its operator would.
func (a *anvil) deployment(ctx context.Context) ([]row, error) {
	token, err := a.token(ctx, "PlainToken", 0)
	if err != nil {
		return nil, err
	}
	err = a.serve(ctx, token, 18, nil, func(*service) error { return errors.New("the service started") })
	if err == nil || !strings.Contains(err.Error(), evm.ErrNotDeployed.Error()) {
		return nil, fmt.Errorf("boxoffice serve without the settlement contract: %w", err)
	}
	for _, printed := range []string{"of the chain's coin", "none: the chain has the contract"} {
		if err := a.deploySettlement(ctx, printed); err != nil {
			return nil, fmt.Errorf("boxoffice deploy: %w", err)
		}
	}
	code, err := a.CodeAt(ctx, settlement.Address, nil)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(code, settlement.Runtime()) {
		return nil, fmt.Errorf("%s has other code", settlement.Address)
	}
	return []row{
		{
			a.version, "-", "`boxoffice serve` on a chain without the settlement contract",
			"it ends with an error that names `boxoffice deploy`",
		},
		{
			a.version, "-", "`boxoffice deploy --yes`, twice",
			"the CREATE2 factory deploys the contract at its address; then the chain has it, and nothing is sent",
		},
	}, a.mine(ctx, 40) // on live chains the contract is older than any reorganisation is deep
}

// deploySettlement runs boxoffice deploy with the configuration of the newest service. It has to print the address of
// the contract, and want.
func (a *anvil) deploySettlement(ctx context.Context, want string) error {
	binary, err := a.demo.build(ctx, "boxoffice")
	if err != nil {
		return err
	}
	file := filepath.Join(a.demo.folder, a.serviceName(), "boxoffice.toml")
	command := exec.CommandContext(ctx, binary, "deploy", "--config", file, "--yes")
	command.Env = append(os.Environ(), settlementKey(a.keys[a.services]))
	command.Stderr = os.Stderr
	printed, err := command.Output()
	os.Stderr.Write(printed)
	if err == nil && !(strings.Contains(string(printed), strings.ToLower(settlement.Address.Hex())) &&
		strings.Contains(string(printed), want)) {
		err = fmt.Errorf("it printed %q, which lacks the address or %q", printed, want)
	}
	return err
}
