package crashtest

import (
	"errors"
	"fmt"
	"io"
	"time"

	"boxoffice/internal/crash"
)

// Report is what a run did and found.
type Report struct {
	Config
	Audit
	Kills    map[crash.Step]int // at each step
	AtRandom int                // kills at a random moment
	Servers  int                // that were started
	Duration time.Duration
}

// Killed returns how often a server was killed.
func (r *Report) Killed() int {
	killed := r.AtRandom
	for _, kills := range r.Kills {
		killed += kills
	}
	return killed
}

// Failed returns why the run did not pass, nil if it did.
func (r *Report) Failed() error {
	var failures []error
	for _, fault := range r.Faults {
		failures = append(failures, errors.New(fault))
	}
	for _, step := range r.Steps {
		if r.Kills[step] == 0 {
			failures = append(failures, fmt.Errorf("no server was killed at %q", step))
		}
	}
	return errors.Join(failures...)
}

// Write writes the report as a Markdown table.
func (r *Report) Write(w io.Writer) error {
	settles := "the server's own settler"
	if r.Remote {
		settles = "boxoffice facilitator, which is not killed"
	}
	rows := [][2]any{
		{"Seed", r.Seed},
		{"Settled by", settles},
		{"Orders", r.Orders},
		{"Transfers on the chain", r.Transfers},
		{"Nonces that the settlement wallet used", r.Slots},
	}
	for _, step := range r.Steps {
		rows = append(rows, [2]any{"Killed at `" + string(step) + "`", r.Kills[step]})
	}
	rows = append(rows, [][2]any{
		{"Killed at a random moment", r.AtRandom},
		{"Orders that are not paid and admitted", r.Lost},
		{"Transfers without an order, second transfers, admissions or works of an order", r.Extra},
		{"Duration", r.Duration.Round(time.Second)},
	}...)
	_, err := fmt.Fprint(w, "| Crash suite | |\n|---|---|\n")
	for _, row := range rows {
		_, failed := fmt.Fprintf(w, "| %v | %v |\n", row[0], row[1])
		err = errors.Join(err, failed)
	}
	return err
}
