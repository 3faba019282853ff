// Command suite kills a real server at every step of settlement and admission,
// and at random moments, under concurrent buyers, and tells what was lost and
// what was paid twice:
//
//	go run ./internal/test/crashtest/suite --orders 10000
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
	"time"

	"boxoffice/internal/test/crashtest"
)

func main() {
	orders := flag.Int("orders", 1000, "orders to buy")
	seed := flag.Uint64("seed", rand.Uint64(), "decides the purchases and the deaths")
	each := flag.Int("each", 0, "deaths at each step; 0 is 3 and another for every 1000 orders")
	remote := flag.Bool("through-facilitator", false, "the server settles through boxoffice facilitator")
	verbose := flag.Bool("v", false, "tell of each death")
	keep := flag.String("keep", "", "an empty directory for the data and the logs; a temporary one is removed unless something is wrong")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *orders, *seed, *each, *remote, *verbose, *keep); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, orders int, seed uint64, each int, remote, verbose bool, keep string) (err error) {
	dir := keep
	if dir == "" {
		if dir, err = os.MkdirTemp("", "boxoffice-crash-"); err != nil {
			return err
		}
	}
	progress := io.Discard
	if verbose {
		progress = os.Stderr
	}
	if each == 0 {
		each = 3 + orders/1000
	}
	fmt.Printf("%d orders, seed %d\n\n", orders, seed)
	report, err := crashtest.Run(ctx, crashtest.Config{
		Orders: orders, Seed: seed, Remote: remote, Each: each, Random: 20 + orders/50, Dir: dir, Tell: progress,
		Timeout: 5*time.Minute + time.Duration(orders)*500*time.Millisecond,
	})
	err = errors.Join(err, report.Write(os.Stdout), report.Failed())
	if err != nil {
		return fmt.Errorf("%w\n\nthe data and the logs are in %s; go on from --seed %d", err, dir, seed)
	}
	if keep == "" {
		return os.RemoveAll(dir)
	}
	return nil
}
