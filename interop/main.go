// Command interop runs what others use against a demo of its own, and checks
// on the chain what came of it: that an order was admitted with exactly one
// transfer, or refused with none. It writes docs/interop.md and leaves with 0
// only if everything passed. It needs Node.js 20 or newer, git, curl, Chromium and
// nginx; run it from the repository's root: go run ./interop
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	for _, folder := range folders {
		if err := npm(ctx, folder, "ci", "--no-fund", "--no-audit", "--ignore-scripts"); err != nil {
			return err
		}
	}
	if err := npm(ctx, typescript, "run", "build"); err != nil {
		return err
	}
	d, err := startDemo(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.end()) }()

	page := bytes.NewBufferString(heading)
	for _, t := range tables {
		fmt.Fprintf(page, "\n| %s |\n|%s\n", strings.Join(t.columns, " | "), strings.Repeat("---|", len(t.columns)))
		for _, part := range t.parts {
			rows, err := part(ctx, d)
			if err != nil {
				return err
			}
			for _, row := range rows {
				fmt.Fprintf(page, "| %s |\n", strings.Join(row, " | "))
			}
		}
	}
	if _, err := os.Stdout.Write(page.Bytes()); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join("docs", "interop.md"), page.Bytes(), 0o644)
}

// folders are those whose pinned packages are installed first.
var folders = []string{typescript, linters, generated, browserFolder, smartWallets, anvilFolder, official}

// tables are what the page shows, and how each of its rows is seen to be true.
var tables = []table{
	{[]string{"Client", "Transfer", "Chain", "Result"}, []part{purchases, wallets}},
	{[]string{"Node, with the deployed Permit2 and Multicall3", "Token", "What happens", "Result"}, []part{onAnvil}},
	{[]string{"Server", "Facilitator", "Client", "What breaks", "Result"}, []part{throughOfficial, throughOurs}},
	{[]string{"Tool", "The served /openapi.json"}, []part{lint, generate}},
	{[]string{"Tool", "What it did", "Result"}, []part{contact}},
}

type table struct {
	columns []string
	parts   []part
}

// part runs some of the suite and returns the rows that it proved, each with
// the cells of its table. An error ends the suite: no row is ever a failure.
type part func(ctx context.Context, d *demo) ([]row, error)

type row []string

const heading = `# Other people's software against ours

Written by ` + "`go run ./interop`" + `, which runs all of this and looks on the chain for the transfers.
`
