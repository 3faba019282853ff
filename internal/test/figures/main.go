// Command figures measures what the project promises of settlement, on the
// development chain through the real service, and prints a table of it:
//
//	go run ./internal/test/figures
//
// It fails if a figure misses its target.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"time"

	"boxoffice/internal/test/crashtest"
)

func main() {
	orders := flag.Int("orders", 1000, "orders of the crash suite")
	write := flag.String("write", "", "a file that gets the page of figures as well")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *orders, *write); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// figure is a row of the table.
type figure struct {
	what, target, measured string
	met                    bool
}

func run(ctx context.Context, orders int, write string) error {
	dir, err := os.MkdirTemp("", "boxoffice-figures-")
	if err != nil {
		return err
	}
	var figures []figure
	for _, measure := range []func(context.Context, string) ([]figure, error){gas, burst, func(ctx context.Context, dir string) ([]figure, error) {
		return crashes(ctx, dir, orders)
	}} {
		place, err := os.MkdirTemp(dir, "")
		if err != nil {
			return err
		}
		more, err := measure(ctx, place)
		if err != nil {
			return fmt.Errorf("%w\n\nthe data is in %s", err, place)
		}
		figures = append(figures, more...)
	}
	var page strings.Builder
	missed := print(io.MultiWriter(os.Stdout, &page), figures, time.Now())
	if write != "" {
		missed = errors.Join(missed, os.WriteFile(write, []byte(title+page.String()), 0o644))
	}
	return errors.Join(missed, os.RemoveAll(dir))
}

const title = `# Figures

` + "`go run ./internal/test/figures --write docs/figures.md`" + ` measures these in one run and writes this page. The chain is the development chain, whose
contracts are our own, compatible with Permit2, the x402 proxy and Multicall3; everything goes through the service's own door and settler.

`

func print(w io.Writer, figures []figure, now time.Time) (missed error) {
	fmt.Fprintf(w, "| Figure | Target | Measured |\n|---|---|---|\n")
	for _, f := range figures {
		fmt.Fprintf(w, "| %s | %s | %s |\n", f.what, f.target, f.measured)
		if !f.met {
			missed = errors.Join(missed, fmt.Errorf("missed: %s: %s, not %s", f.what, f.measured, f.target))
		}
	}
	fmt.Fprintf(w, "\nMeasured on %s with %d cores, %s/%s, %s.\n", now.UTC().Format(time.DateOnly), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
	return missed
}

func crashes(ctx context.Context, dir string, orders int) ([]figure, error) {
	report, err := crashtest.Run(ctx, crashtest.Config{
		Orders: orders, Seed: rand.Uint64(), Each: 3, Random: 20 + orders/50, Dir: dir, Timeout: 5*time.Minute + time.Duration(orders)*500*time.Millisecond,
	})
	if err != nil {
		return nil, fmt.Errorf("crash suite, seed %d: %w", report.Seed, err)
	}
	if err := report.Failed(); err != nil {
		return nil, fmt.Errorf("crash suite, seed %d: lost %d, doubled %d: %w", report.Seed, report.Lost, report.Doubled, err)
	}
	return []figure{{
		what:     fmt.Sprintf("Crash suite: %d orders, the server killed %d times at %d steps and at random moments", report.Orders, report.Starts-1, len(report.Steps)),
		target:   "lost 0, doubled 0",
		measured: fmt.Sprintf("lost %d, doubled %d", report.Lost, report.Doubled),
		met:      report.Lost == 0 && report.Doubled == 0,
	}}, nil
}
