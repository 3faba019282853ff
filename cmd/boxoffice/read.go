package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"boxoffice"
	"boxoffice/client"
)

type capabilitiesCmd struct{}

// Run shows the price list.
func (*capabilitiesCmd) Run(ctx context.Context, s *Settings, std *streams) error {
	c, err := s.connect(ctx, std, needsNothing)
	if err != nil {
		return err
	}
	capabilities, err := c.Capabilities(ctx)
	if err != nil {
		return err
	}
	return s.result(std, func(p *page) {
		payment := capabilities.Payment
		p.line("Service", "%s", payment.ServiceName)
		p.line("Network", "%s", payment.Network)
		p.line("Token", "%s, %s (%d decimals)", payment.Asset.Symbol, lowerHex(payment.Asset.Address),
			payment.Asset.Decimals)
		p.line("Pay to", "%s", lowerHex(payment.PayTo))
		p.gap()
		p.row("ACTION", "PRICE", "QUOTE LIVES", "LIMITS")
		for _, policy := range capabilities.Actions {
			p.row(policy.Action, price(policy.Payment, &capabilities),
				span(time.Duration(policy.QuoteTTLSeconds)*time.Second),
				limits(capabilities.Limits.Actions[policy.Action]))
		}
		if capabilities.Launches == nil {
			return
		}
		p.gap()
		p.row("LAUNCH CHAIN", "NAME", "KINDS")
		for _, chain := range capabilities.Launches.Chains {
			p.row(strconv.FormatUint(chain.ChainID, 10), chain.Name, strings.Join(chain.Kinds, ", "))
		}
	})
}

func limits(l boxoffice.ActionLimits) string {
	var list []string
	if l.MaxPanelSize > 0 {
		list = append(list, fmt.Sprintf("panel of %d to %d", l.MinPanelSize, l.MaxPanelSize))
	}
	if l.MaxRuns > 0 {
		list = append(list, fmt.Sprintf("%d to %d runs, each at the price", l.MinRuns, l.MaxRuns))
	}
	if l.MinJobIntervalMinutes > 0 {
		list = append(list, fmt.Sprintf("at most every %dm (jobs) or %dm (oracles)",
			l.MinJobIntervalMinutes, l.MinOracleIntervalMinutes))
	}
	return strings.Join(list, "; ")
}

func parseID(text string) (boxoffice.UUID, error) {
	id, err := boxoffice.ParseUUID(text)
	if err != nil {
		return "", usage("%q %w", text, err)
	}
	return id, nil
}

type orderCmd struct {
	ID      string        `arg:"" help:"The order."`
	Watch   bool          `short:"w" help:"Wait while the order is pending. The exit code is that of its outcome."`
	Timeout time.Duration `default:"3m" help:"How long to watch."`
}

// Run shows an order as it is, or with --watch when it is not pending any more.
func (cmd *orderCmd) Run(ctx context.Context, s *Settings, std *streams) error {
	id, err := parseID(cmd.ID)
	if err != nil {
		return err
	}
	c, err := s.connect(ctx, std, needsToken)
	if err != nil {
		return err
	}
	var status boxoffice.Status
	var outcome error
	if cmd.Watch {
		status, outcome, err = cmd.watch(ctx, c, id, std)
	} else {
		status, err = c.Status(ctx, id)
	}
	if err != nil {
		return err
	}
	seen := s.tape.body() // before the capabilities, which are only for the symbol
	if s.JSON {
		return errors.Join(outcome, printJSON(std.out, seen))
	}
	var symbols *boxoffice.Capabilities
	if capabilities, err := c.Capabilities(ctx); err == nil {
		symbols = &capabilities
	}
	return errors.Join(outcome, s.result(std, func(p *page) { p.status(&status, symbols) }))
}

func (cmd *orderCmd) watch(
	ctx context.Context, c *client.Client, id boxoffice.UUID, std *streams,
) (status boxoffice.Status, outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, cmd.Timeout)
	defer cancel()
	var last boxoffice.State
	for status, err = range c.Watch(ctx, id) {
		if err == nil && status.Status != last {
			fmt.Fprintf(std.err, "%s %s\n", time.Now().Format(time.TimeOnly), status.Status)
		}
		last = status.Status
	}
	if client.OutcomeOf(err) == client.Unknown {
		return status, err, nil
	}
	switch status.Status {
	case boxoffice.PaymentFailed:
		outcome = &client.PaymentError{Status: status}
	case boxoffice.Expired:
		outcome = &boxoffice.Problem{Code: boxoffice.QuoteExpired}
	}
	return status, outcome, err
}

type jobsCmd struct {
	State      string `help:"Only jobs in this state: queued, running, blocked or completed."`
	Template   string `help:"Only jobs of this template."`
	LaunchKind string `help:"Only launches of this kind."`
	Limit      int    `default:"20" help:"Jobs of a page, 1 to 100."`
	Cursor     string `help:"Where the page starts: printed with the page before it."`
	All        bool   `help:"All pages."`
}

// Run lists jobs.
func (cmd *jobsCmd) Run(ctx context.Context, s *Settings, std *streams) error {
	c, err := s.connect(ctx, std, needsToken|makesToken)
	if err != nil {
		return err
	}
	query := client.JobQuery{
		State:      boxoffice.JobState(cmd.State),
		Template:   cmd.Template,
		LaunchKind: cmd.LaunchKind,
		Limit:      cmd.Limit,
		Cursor:     cmd.Cursor,
	}
	var jobs []boxoffice.Job
	var bodies [][]byte
	for {
		page, err := c.Jobs(ctx, query)
		if err != nil {
			return err
		}
		jobs, bodies = append(jobs, page.Jobs...), append(bodies, s.tape.body())
		query.Cursor = page.Next
		if !cmd.All || page.Next == "" {
			break
		}
	}
	if query.Cursor != "" {
		fmt.Fprintf(std.err, "There are more jobs: give --cursor %s, or --all\n", query.Cursor)
	}
	if s.JSON {
		whole, err := joinPages(bodies)
		if err != nil {
			return err
		}
		return printJSON(std.out, whole)
	}
	return s.result(std, func(p *page) {
		p.row("JOB", "STATE", "TEMPLATE", "CREATED", "OBJECTIVE")
		for _, job := range jobs {
			p.row(string(job.ID), string(job.State), job.Template, distance(job.CreatedAt.Time().Sub(p.now)),
				short(job.Objective))
		}
	})
}

// joinPages makes one list of the service's pages and leaves the JSON of each job unchanged.
func joinPages(pages [][]byte) ([]byte, error) {
	if len(pages) == 1 {
		return pages[0], nil
	}
	type list struct {
		Count int               `json:"count"`
		Jobs  []json.RawMessage `json:"jobs"`
	}
	whole := list{Jobs: []json.RawMessage{}}
	for _, body := range pages {
		var part list
		if err := json.Unmarshal(body, &part); err != nil {
			return nil, fmt.Errorf("jobs: %w", err)
		}
		whole.Jobs = append(whole.Jobs, part.Jobs...)
	}
	whole.Count = len(whole.Jobs)
	return json.Marshal(whole)
}

func short(text string) string {
	const most = 60
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

// reading has the argument of a command that shows one thing of the requester's.
type reading struct {
	ID string `arg:"" help:"Its id."`
}

func show[T any](
	ctx context.Context, s *Settings, std *streams, text string,
	get func(*client.Client, context.Context, boxoffice.UUID) (T, error), human func(*page, *T),
) error {
	id, err := parseID(text)
	if err != nil {
		return err
	}
	c, err := s.connect(ctx, std, needsToken)
	if err != nil {
		return err
	}
	thing, err := get(c, ctx, id)
	if err != nil {
		return err
	}
	return s.result(std, func(p *page) { human(p, &thing) })
}

type oracleCmd struct{ reading }

// Run shows an oracle.
func (cmd *oracleCmd) Run(ctx context.Context, s *Settings, std *streams) error {
	return show(ctx, s, std, cmd.ID, (*client.Client).Oracle, func(p *page, oracle *boxoffice.Oracle) {
		p.line("Oracle", "%s", oracle.ID)
		p.line("State", "%s", oracle.State)
		p.line("Question", "%s", oracle.Question)
		p.line("Panel", "%d", oracle.PanelSize)
		for i, option := range oracle.Options {
			p.line("Option "+strconv.Itoa(i+1), "%s", option)
		}
		if oracle.BlockedReason != nil {
			p.line("Blocked", "%s", *oracle.BlockedReason)
		}
		if answer := oracle.Answer; answer != nil {
			p.line("Answer", "%s (%d of %d)", answer.Choice, answer.Votes, answer.Of)
		}
		for _, votes := range oracle.Tally {
			p.line("Tally", "%d × %s", votes.Votes, votes.Choice)
		}
		for _, member := range oracle.Members {
			p.line(fmt.Sprintf("Member %d", member.Number), "%s",
				says(string(member.State), member.Choice, member.Summary, member.Reason))
		}
		p.times(oracle.CreatedAt, oracle.UpdatedAt)
	})
}

type workflowCmd struct{ reading }

// Run shows a workflow.
func (cmd *workflowCmd) Run(ctx context.Context, s *Settings, std *streams) error {
	return show(ctx, s, std, cmd.ID, (*client.Client).Workflow, func(p *page, workflow *boxoffice.Workflow) {
		p.line("Workflow", "%s (%s)", workflow.ID, workflow.Shape)
		p.line("State", "%s", workflow.State)
		p.line("Job", "%s", workflow.JobID)
		p.line("Objective", "%s", workflow.Objective)
		for _, node := range workflow.Nodes {
			after := ""
			if len(node.After) > 0 {
				after = " (after " + strings.Join(node.After, ", ") + ")"
			}
			p.line("Node "+printable(node.ID), "%s%s", short(node.Objective), after)
			if node.State != "" {
				p.line("", "%s", says(string(node.State), node.Summary, node.Reason))
			}
		}
		p.times(workflow.CreatedAt, workflow.UpdatedAt)
	})
}

type scheduleCmd struct{ reading }

// Run shows a schedule.
func (cmd *scheduleCmd) Run(ctx context.Context, s *Settings, std *streams) error {
	return show(ctx, s, std, cmd.ID, (*client.Client).Schedule, func(p *page, schedule *boxoffice.Schedule) {
		p.line("Schedule", "%s", schedule.ID)
		p.line("State", "%s", schedule.State)
		p.line("Action", "%s every %s", schedule.Action, span(time.Duration(schedule.IntervalMinutes)*time.Minute))
		p.line("Runs", "%d of %d left", schedule.RunsLeft, schedule.RunsBought)
		if schedule.NextRunAt != nil {
			p.line("Next run", "%s", moment(schedule.NextRunAt.Time(), p.now))
		}
		for _, run := range schedule.LastRuns {
			p.line(fmt.Sprintf("Run %d", run.Number), "%s %s, %s", run.Kind, run.ID, moment(run.At.Time(), p.now))
		}
		p.input(string(schedule.Input))
		p.times(schedule.CreatedAt, schedule.UpdatedAt)
	})
}
