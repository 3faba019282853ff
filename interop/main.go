// Command interop runs other people's software against a demo that it starts: x402 clients, facilitators and servers,
// wallets, Anvil, linters, a browser, curl, git and nginx. After every payment it looks on the chain: an admitted order
// has exactly one transfer, a refused one has none. It writes docs/interop.md, and exits with 0 only if everything
// passed.
//
// It needs Node.js 20 or newer, git, curl, Chromium and nginx. Run it from the root of the repository:
//
//	go run ./interop
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
		fmt.Fprintf(page, "\n## %s\n\n| %s |\n|%s\n",
			t.title, strings.Join(t.columns, " | "), strings.Repeat("---|", len(t.columns)))
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

// folders have a package.json. Their pinned packages are installed first.
var folders = []string{typescript, linters, generated, browserFolder, smartWallets, anvilFolder, official}

// tables are the tables of the page, with what runs to fill them.
var tables = []table{
	{"x402 clients and wallets", []string{"Client", "Result"}, []part{purchases, wallets}},
	{
		"Deployment, tokens, gas and faults of an RPC node, with the Permit2 of live chains",
		[]string{"Node", "Token", "What happens", "Result"}, []part{onAnvil},
	},
	{
		"Facilitators and resource servers",
		[]string{"Server", "Facilitator", "Client", "What fails", "Result"}, []part{throughOfficial, throughOurs},
	},
	{"The OpenAPI document", []string{"Tool", "Result for the served /openapi.json"}, []part{lint, generate}},
	{"HTTP, browsers, git and proxies", []string{"Tool", "What it did", "Result"}, []part{contact}},
}

type table struct {
	title   string
	columns []string
	parts   []part
}

// part runs some of the suite and returns the rows of its table. The first failure is an error and ends the suite, so
// every row of the page has passed.
type part func(ctx context.Context, d *demo) ([]row, error)

type row []string

const heading = `# Other software that was run against Boxoffice

` + "`go run ./interop`" + ` runs all of this and writes this page. After every payment it reads the Transfer logs
on the chain.
`
