// Command figures measures what the project promises of settlement, through the whole service on a development chain:
// the gas of payments, how long a burst of payments takes, and the crash suite, which kills a server again and again
// while clients buy from it.
//
//	go run ./internal/test/figures                              measures everything
//	go run ./internal/test/figures --write docs/figures.md      writes the page as well
//	go run ./internal/test/figures --only crash --orders 10000  is a longer crash suite alone
//
// It exits with 1 if a figure misses its target or the crash suite finds a fault.
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
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"boxoffice/internal/test/crashtest"
)

type options struct {
	only, write, keep string
	crash             crashtest.Config
}

func main() {
	var o options
	flag.StringVar(&o.only, "only", "", "measure one part: gas, burst or crash")
	flag.StringVar(&o.write, "write", "", "write the page of all figures to this file")
	flag.StringVar(&o.keep, "keep", "", "keep databases and logs in this directory; "+
		"otherwise they are in a temporary one, which is removed unless something fails")
	flag.IntVar(&o.crash.Orders, "orders", 1000, "crash suite: orders to buy")
	flag.Uint64Var(&o.crash.Seed, "seed", rand.Uint64(), "crash suite: decides the purchases and the kills")
	flag.IntVar(&o.crash.Each, "each", 0, "crash suite: kills at each step; 0 is 3, and one more for every 1000 orders")
	flag.BoolVar(&o.crash.Remote, "through-facilitator", false, "crash suite: settle through boxoffice facilitator")
	verbose := flag.Bool("v", false, "crash suite: print a line about each kill")
	flag.Parse()
	if *verbose {
		o.crash.Progress = os.Stderr
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

// parts are what can be measured, in the order of the page.
var parts = []struct {
	name    string
	measure func(ctx context.Context, dir string, o options) (section, error)
}{{"gas", gas}, {"burst", burst}, {"crash", crashes}}

// section is what one part adds to the page.
type section struct {
	figures []figure
	report  string // a table of its own
}

// figure is a row of the table of figures.
type figure struct {
	what, target, measured string
	met                    bool
}

func run(ctx context.Context, o options, out io.Writer) error {
	if o.write != "" && (o.only != "" || o.crash.Remote) {
		return errors.New("--write needs all figures, without --only and --through-facilitator")
	}
	dir, err := directory(o.keep)
	if err != nil {
		return err
	}
	var all section
	measured := false
	for _, part := range parts {
		if o.only != "" && o.only != part.name {
			continue
		}
		measured = true
		place := filepath.Join(dir, part.name)
		if err := os.Mkdir(place, 0o700); err != nil {
			return err
		}
		section, err := part.measure(ctx, place, o)
		if err != nil {
			return fmt.Errorf("%s: %w\n\nthe databases and logs are in %s", part.name, err, place)
		}
		all.figures = append(all.figures, section.figures...)
		all.report += section.report
	}
	if !measured {
		return fmt.Errorf("--only %s: want gas, burst or crash", o.only)
	}
	page, missed := all.render(time.Now())
	_, err = io.WriteString(out, page)
	if err == nil && o.write != "" {
		err = os.WriteFile(o.write, []byte(title+page), 0o644)
	}
	if o.keep == "" {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return errors.Join(missed, err)
}

// directory makes the directory keep, or a temporary one if keep is "".
func directory(keep string) (string, error) {
	if keep == "" {
		return os.MkdirTemp("", "boxoffice-figures-")
	}
	keep, err := filepath.Abs(keep)
	return keep, errors.Join(err, os.MkdirAll(keep, 0o700))
}

const title = `# Figures

` + "`go run ./internal/test/figures --write docs/figures.md`" + ` measures all of this in one run and writes this
page. The chain is the development chain. Its Permit2 and its x402 proxy are our own and have the interfaces of the
deployed ones; the settlement contract is the one of every chain. Every payment goes through the HTTP API and the
settler of a whole service.

`

// render returns the page, and an error that names every figure that misses its target.
func (s section) render(now time.Time) (page string, missed error) {
	var text strings.Builder
	text.WriteString("| Figure | Target | Measured |\n|---|---|---|\n")
	for _, f := range s.figures {
		fmt.Fprintf(&text, "| %s | %s | %s |\n", f.what, f.target, f.measured)
		if !f.met {
			missed = errors.Join(missed, fmt.Errorf("%s: measured %s, the target is %s", f.what, f.measured, f.target))
		}
	}
	fmt.Fprintf(&text, "\nMeasured on %s with %d cores, %s/%s, %s.\n",
		now.UTC().Format(time.DateOnly), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
	if s.report != "" {
		text.WriteString("\n" + s.report)
	}
	return text.String(), missed
}

// crashes runs the crash suite. A fault that it finds is an error, which names the seed that repeats the run.
func crashes(ctx context.Context, dir string, o options) (section, error) {
	config := o.crash
	config.Dir, config.Random, config.Timeout = dir, 20+config.Orders/50, crashtest.DefaultTimeout(config.Orders)
	if config.Each == 0 {
		config.Each = 3 + config.Orders/1000
	}
	report, err := crashtest.Run(ctx, config)
	var table strings.Builder
	err = errors.Join(err, report.Failed(), report.Write(&table))
	if err != nil {
		return section{}, fmt.Errorf("%w\n\n%s\n--seed %d repeats the run", err, &table, config.Seed)
	}
	return section{report: table.String(), figures: []figure{{
		what: fmt.Sprintf("Crash suite: %d orders, a server killed %d times at %d steps and at random moments",
			report.Orders, report.Killed(), len(report.Steps)),
		target:   "lost 0, paid twice 0",
		measured: fmt.Sprintf("lost %d, paid twice %d", report.Lost, report.Extra),
		met:      report.Lost == 0 && report.Extra == 0,
	}}}, nil
}
