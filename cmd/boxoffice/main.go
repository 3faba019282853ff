// Command boxoffice runs the service and buys from one.
//
// It writes the result to stdout, and everything else, such as questions, to
// stderr. With --json the result is exactly the JSON of the service.
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
	exitDone        = 0 // also: the order is admitted
	exitError       = 1 // this program, the wallet or the vault failed
	exitUsage       = 2
	exitUnsigned    = 3 // this program refused before it signed, or the user declined
	exitUnpaid      = 4 // the payment was rejected or failed, or the quote expired
	exitPending     = 5 // a payment was sent, and its outcome was not known in time
	exitUnavailable = 6 // the service or the chain did not answer, or answered 429 or 503
	exitRefused     = 7 // the service refused the request
	exitBlocked     = 8 // the watched job is blocked
	exitUndelivered = 9 // the watched job is completed, but its delivery failed
)

const description = `Buys paid actions: jobs, oracles, launches, workflows and schedules. A purchase is a quote, two
signatures and one token transfer; boxoffice buy does all of it.

Exit codes: 0 done (bought: admitted), 1 error, 2 usage, 3 refused before signing (price above the limit, an offer that
differs from what was asked, too little money, declined), 4 not paid (payment rejected or failed, quote expired), 5 the
outcome is not known yet (repeat with the same request key), 6 unavailable (no answer, 429, 503), 7 refused by the
service (invalid, unknown, conflict). job --watch: 0 completed and delivered, 8 blocked, 9 completed but not delivered,
5 not ended in time.`

type commands struct {
	Settings

	Serve       serveCmd       `cmd:"" help:"Run the service."`
	Facilitator facilitatorCmd `cmd:"" help:"Settle payments for other x402 servers: /verify, /settle, /supported."`
	Worker      workerCmd      `cmd:"" help:"Run admitted work in a process of its own, besides the service."`
	Deploy      deployCmd      `cmd:"" help:"Operators: deploy the contract that settles payments, once on each chain, unless the chain has it."`
	Config      configCmd      `cmd:"" help:"Print a configuration file with every key, its default and its meaning."`
	Payments    paymentsCmd    `cmd:"" help:"Operators: list payments with their transactions and fees, why they failed, and what settling costs."`
	Cancel      cancelCmd      `cmd:"" help:"Operators: end the work on a job, a workflow or an oracle, or stop a schedule."`

	Capabilities capabilitiesCmd `cmd:"" help:"Show what the service sells, and for how much."`
	Quote        quoteCmd        `cmd:"" help:"Ask for a price. Charges nothing."`
	Buy          buyCmd          `cmd:"" help:"Quote, show price and prepared input, ask, sign, pay, and wait until the order is admitted."`
	Pay          payCmd          `cmd:"" help:"Pay for an order that was quoted before."`
	Sign         signCmd         `cmd:"" help:"Sign a payment for an order and print it for curl --config, without sending it."`
	Order        orderCmd        `cmd:"" help:"Show an order."`
	Jobs         jobsCmd         `cmd:"" help:"List your jobs, newest first."`
	Job          jobCmd          `cmd:"" help:"Show a job."`
	Oracle       oracleCmd       `cmd:"" help:"Show an oracle."`
	Workflow     workflowCmd     `cmd:"" help:"Show a workflow."`
	Schedule     scheduleCmd     `cmd:"" help:"Show a schedule."`
	Clone        cloneCmd        `cmd:"" help:"Clone what a job delivered, with git."`
	Approve      approveCmd      `cmd:"" help:"Allow Permit2 to move the service's token from your wallet: one transaction, once."`
	Token        tokenCmd        `cmd:"" help:"Show which file has your request token, and create one if there is none."`
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
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(std), operatorVars(),
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

// usageError is a mistake in the arguments that the parser cannot find.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

var errDeclined = errors.New("declined")

// The ends of a watched job that are errors.
var (
	errBlocked     = errors.New("the job is blocked")
	errUndelivered = errors.New("the job is completed, but its delivery failed")
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

// report prints the error: with --json as the service's error body, if it is one.
func report(w io.Writer, asJSON bool, err error) {
	problem, ok := errors.AsType[*boxoffice.Problem](err)
	if ok && asJSON {
		if text, err := json.Marshal(problem); err == nil {
			fmt.Fprintln(w, string(text))
			return
		}
	}
	fmt.Fprintln(w, "boxoffice:", printable(err.Error()))
	if problem != nil && problem.Detail == "" && problem.Reason == "" && len(problem.Problems) == 0 {
		fmt.Fprintln(w, problem.Code.Info().Title)
	}
	if shortfall, ok := errors.AsType[*client.ShortfallError](err); ok &&
		strings.Contains(shortfall.What, "allowance") {
		fmt.Fprintln(w, "Run boxoffice approve once, then buy again.")
	}
}

// configDir returns the folder of this user's request tokens and signed payments.
func configDir() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("there is no folder for tokens and payments: give --token-file and --vault: %w", err)
	}
	return filepath.Join(dir, "boxoffice"), nil
}
