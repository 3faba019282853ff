package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"boxoffice"

	"github.com/ethereum/go-ethereum/common"
)

// page is output for people, in aligned columns.
type page struct {
	table *tabwriter.Writer
	now   time.Time
}

func newPage(w io.Writer) *page {
	return &page{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0), time.Now()}
}

func (p *page) flush() error { return p.table.Flush() }

// line writes a name and a value. Values come from the service, so characters
// that control a terminal are removed.
func (p *page) line(name, format string, args ...any) {
	fmt.Fprintf(p.table, "%s\t%s\n", name, printable(fmt.Sprintf(format, args...)))
}

// gap leaves a line empty. The columns after it are aligned among themselves.
func (p *page) gap() { fmt.Fprintln(p.table) }

func (p *page) row(cells ...string) {
	for i, cell := range cells {
		cells[i] = printable(cell)
	}
	fmt.Fprintln(p.table, strings.Join(cells, "\t"))
}

// printable replaces control and formatting characters, those that reverse the
// direction of text included.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return ' '
		}
		return r
	}, s)
}

func lowerHex(address common.Address) string { return strings.ToLower(address.Hex()) }

func (p *page) quote(order *boxoffice.Order, capabilities *boxoffice.Capabilities) {
	quote := &order.Quote
	p.line("Action", "%s", quote.Action)
	p.line("Price", "%s (%s atomic units)", price(quote.Payment, capabilities), quote.Payment.Amount)
	if quote.UnitAmount != nil {
		unit := quote.Payment
		unit.Amount = *quote.UnitAmount
		p.line("", "%d runs at %s", quote.Runs, price(unit, capabilities))
	}
	p.line("Pay to", "%s", lowerHex(quote.Payment.PayTo))
	p.line("Token", "%s on %s", lowerHex(quote.Payment.Asset), quote.Payment.Network)
	if quote.Payer != nil {
		p.line("Payer", "%s only", lowerHex(*quote.Payer))
	}
	if order.Status != boxoffice.Paid && order.Status != boxoffice.PaymentPending {
		p.line("Expires", "%s", moment(time.Unix(quote.ExpiresAt, 0), p.now))
	}
	p.input(order.InputJSON)
}

// input shows a prepared input, a member on a line.
func (p *page) input(document string) {
	var indented bytes.Buffer
	if err := json.Indent(&indented, []byte(document), "", "  "); err != nil {
		indented.WriteString(document)
	}
	name := "Input"
	for line := range strings.Lines(indented.String()) {
		p.line(name, "%s", strings.TrimSuffix(line, "\n"))
		name = ""
	}
}

func (p *page) status(status *boxoffice.Status, capabilities *boxoffice.Capabilities) {
	p.line("Order", "%s", status.Order.ID)
	p.line("Status", "%s", status.Status)
	p.line("Created", "%s", moment(status.Order.CreatedAt.Time(), p.now))
	p.quote(&status.Order, capabilities)
	if payment := status.Payment; payment != nil {
		p.line("Payment", "%s", payment.Status)
		if payment.Reason != "" {
			p.line("Reason", "%s", payment.Reason)
		}
		p.line("Payer", "%s", lowerHex(payment.Payer))
		if payment.TransactionHash != nil {
			p.line("Transaction", "%s", payment.TransactionHash)
		}
		if payment.SettledAt != nil {
			p.line("Settled", "%s", moment(payment.SettledAt.Time(), p.now))
		}
	}
	if status.Admission != nil {
		result := status.Admission.Result
		p.line("Admitted", "%s", moment(status.Admission.AdmittedAt.Time(), p.now))
		p.line("Result", "%s %s", result.Kind, result.ID)
		p.line("", "%s", result.URL)
		if result.JobURL != "" {
			p.line("", "%s", result.JobURL)
		}
	}
}

func (p *page) job(job *boxoffice.Job) {
	p.line("Job", "%s", job.ID)
	p.line("State", "%s", job.State)
	if job.BlockedReason != nil {
		p.line("Blocked", "%s", *job.BlockedReason)
	}
	p.line("Template", "%s", job.Template)
	if job.LaunchKind != nil {
		p.line("Launch", "%s", *job.LaunchKind)
	}
	p.line("Objective", "%s", job.Objective)
	if job.Project != nil {
		p.line("Project", "%s, version %d of %d", job.Project.ID, job.Project.Version, job.Project.Of)
	}
	for _, node := range job.Nodes {
		p.line("Node "+printable(node.ID), "%s", says(string(node.State), node.Summary, node.Reason))
	}
	p.delivery(job.Delivery)
	p.times(job.CreatedAt, job.UpdatedAt)
}

func (p *page) delivery(delivery *boxoffice.Delivery) {
	switch {
	case delivery == nil:
		p.line("Delivery", "none yet")
		return
	case delivery.Failure != "":
		p.line("Delivery", "failed: %s", delivery.Failure)
		return
	}
	p.line("Delivery", "%s at %s", delivery.RepoURL, delivery.Commit)
	if delivery.PullRequestURL != nil {
		p.line("", "%s", *delivery.PullRequestURL)
	}
}

func (p *page) times(created, updated boxoffice.Timestamp) {
	p.line("Created", "%s", moment(created.Time(), p.now))
	p.line("Updated", "%s", moment(updated.Time(), p.now))
}

func printJSON(w io.Writer, document []byte) error {
	_, err := fmt.Fprintf(w, "%s\n", bytes.TrimRight(document, "\n"))
	return err
}

func writeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}
