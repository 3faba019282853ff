// Command boxoffice runs the service and buys from one.
//
// Output on stdout is the result; everything else, questions included, goes to
// stderr. With --json the result is exactly the API's JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"boxoffice"
	"boxoffice/client"

	"github.com/alecthomas/kong"
)

// The exit codes, a promise to programs.
const (
	exitDone        = 0 // also: the order was admitted
	exitError       = 1 // of this program or its surroundings
	exitUsage       = 2
	exitUnsigned    = 3 // refused before signing: a price, a mismatch, a shortfall, or a no
	exitUnpaid      = 4 // the payment was rejected or failed, or the quote expired
	exitPending     = 5 // paid for, and the outcome not known when the time was over
	exitUnavailable = 6 // the service or the chain cannot be reached, or says later
	exitRefused     = 7 // the service refused the request
	exitBlocked     = 8 // the watched job is blocked
	exitUndelivered = 9 // the watched job is completed, and its delivery failed
)

const description = `Buys paid actions: jobs, oracles, launches, workflows and schedules. A purchase is a quote, two signatures and one
token transfer; boxoffice buy does it all.

Exit codes: 0 done (admitted), 1 error, 2 usage, 3 refused before signing (price above the limit, an offer that differs from what was asked,
funds, declined), 4 not paid (payment rejected or failed, quote expired), 5 the outcome is not
known yet (go on with the same request key), 6 unavailable
(no answer, 429, 503), 7 refused by the service (invalid, unknown, conflict). job --watch: 0 completed and delivered, 8 blocked, 9 completed and
not delivered, 5 neither when the time was over.`

type commands struct {
	Settings

	Serve       serveCmd       `cmd:"" help:"Run the service."`
	Facilitator facilitatorCmd `cmd:"" help:"Settle payments for other x402 servers: /verify, /settle, /supported."`
	Worker      workerCmd      `cmd:"" help:"Run admitted work beside the service, in a process of its own."`
	Config      configCmd      `cmd:"" help:"Print a configuration file with every key, its default and what it means."`
	Payments    paymentsCmd    `cmd:"" help:"Operators: list payments with their transactions, fees and reasons, and what settling costs."`
	Cancel      cancelCmd      `cmd:"" help:"Operators: end what is done for a job, a workflow or an oracle, or stop a schedule."`

	Capabilities capabilitiesCmd `cmd:"" help:"Show what the service sells, and for how much."`
	Quote        quoteCmd        `cmd:"" help:"Ask for a price. Charges nothing."`
	Buy          buyCmd          `cmd:"" help:"Quote, show, ask, sign, pay and wait."`
	Pay          payCmd          `cmd:"" help:"Pay for an order that was quoted before."`
	Sign         signCmd         `cmd:"" help:"Sign a payment for an order and print it for curl --config, without sending it."`
	Order        orderCmd        `cmd:"" help:"Show an order."`
	Jobs         jobsCmd         `cmd:"" help:"List your jobs, newest first."`
	Job          jobCmd          `cmd:"" help:"Show a job."`
	Oracle       oracleCmd       `cmd:"" help:"Show an oracle."`
	Workflow     workflowCmd     `cmd:"" help:"Show a workflow."`
	Schedule     scheduleCmd     `cmd:"" help:"Show a schedule."`
	Clone        cloneCmd        `cmd:"" help:"Clone what a job delivered, with git."`
	Approve      approveCmd      `cmd:"" help:"Let Permit2 move the service's token for your wallet: one transaction, once."`
	Token        tokenCmd        `cmd:"" help:"Show where your request token is, and make one if there is none."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second interrupt ends the process at once
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	var parsed commands
	std := &streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}
	parser, err := kong.New(&parsed,
		kong.Name("boxoffice"), kong.Description(description), kong.Writers(std.err, std.err),
		kong.Help(func(options kong.HelpOptions, ctx *kong.Context) error {
			ctx.Stdout = std.out // help that was asked for is a result
			return kong.DefaultHelpPrinter(options, ctx)
		}),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 120}),
		kong.ExplicitGroups([]kong.Group{{Key: "common", Title: "Flags of every command:"}}),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(std),
	)
	if err != nil {
		fmt.Fprintln(std.err, "boxoffice:", err)
		return exitError
	}
	command, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintf(std.err, "boxoffice: %v\nRun boxoffice --help, or boxoffice COMMAND --help.\n", err)
		return exitUsage
	}
	err = command.Run(&parsed.Settings)
	if err != nil {
		report(std.err, parsed.JSON, err)
	}
	return exitCode(err)
}

type streams struct {
	in       io.Reader
	out, err io.Writer
}

// usageError is a mistake in the arguments that only running finds.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

var errDeclined = errors.New("declined")

// How a job that was watched did not end well.
var (
	errBlocked     = errors.New("the job is blocked")
	errUndelivered = errors.New("the job is completed, and its delivery failed")
	errUnended     = errors.New("the job has not ended yet")
)

func exitCode(err error) int {
	if err == nil {
		return exitDone
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	switch {
	case errors.Is(err, errDeclined):
		return exitUnsigned
	case errors.Is(err, errBlocked):
		return exitBlocked
	case errors.Is(err, errUndelivered):
		return exitUndelivered
	case errors.Is(err, errUnended):
		return exitPending
	}
	switch client.OutcomeOf(err) {
	case client.NotSigned:
		return exitUnsigned
	case client.NotPaid:
		return exitUnpaid
	case client.Unknown:
		return exitPending
	case client.Unavailable:
		return exitUnavailable
	case client.Refused:
		return exitRefused
	}
	return exitError
}

// report tells the error: as the API's error body where it is one and --json is set.
func report(w io.Writer, asJSON bool, err error) {
	if problem, ok := errors.AsType[*boxoffice.Problem](err); ok && asJSON {
		if text, err := json.Marshal(problem); err == nil {
			fmt.Fprintln(w, string(text))
			return
		}
	}
	fmt.Fprintln(w, "boxoffice:", printable(err.Error()))
	if shortfall, ok := errors.AsType[*client.ShortfallError](err); ok &&
		strings.Contains(shortfall.What, "allowance") {
		fmt.Fprintln(w, "Run boxoffice approve once, and buy again.")
	}
}

// configDir is where this user's tokens and payments are kept.
func configDir() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("no place for tokens and payments; name them with --token-file and --vault: %w", err)
	}
	return filepath.Join(dir, "boxoffice"), nil
}
