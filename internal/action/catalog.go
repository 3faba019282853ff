// Package action knows the seven paid actions: the schema of each one's input,
// how an input is prepared, what it costs and within which limits. It starts no
// work and saves nothing.
package action

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/ethereum/go-ethereum/common"

	"boxoffice"
	"boxoffice/x402"
)

// quoteTTLSeconds is how long a quote of any action lives (docs/protocol.md §2.3).
const quoteTTLSeconds = 600

// retryAfterSeconds is when to ask again for what a judge or the store did not answer.
const retryAfterSeconds = 5

// perRun is what a run-priced action's price is per (docs/protocol.md §2.1).
const perRun = "run"

type definition struct {
	action    string
	version   string
	pricedPer string
	limits    boxoffice.ActionLimits
	finish    func(c *Catalog, tidied []byte) (boxoffice.Input, error)
	decode    func(prepared []byte) (boxoffice.Input, error)
}

var scheduleLimits = boxoffice.ActionLimits{MinRuns: 1, MaxRuns: 1_000_000, MinOracleIntervalMinutes: 10, MinJobIntervalMinutes: 30}

// definitions is the table of docs/protocol.md §2.3, in its order.
var definitions = []definition{
	{action: boxoffice.ActionJobOpen, version: "job-1", finish: finisher(completeJob), decode: decode[boxoffice.JobOpen]},
	{action: boxoffice.ActionJobContinue, version: "job-1", finish: finisher[boxoffice.JobContinue](nil), decode: decode[boxoffice.JobContinue]},
	{action: boxoffice.ActionLaunchOpen, version: "launch-1", finish: finisher(completeLaunch), decode: decode[boxoffice.LaunchOpen]},
	{action: boxoffice.ActionOracleRequest, version: "oracle-1", finish: finisher[boxoffice.OracleRequest](nil), decode: decode[boxoffice.OracleRequest],
		limits: boxoffice.ActionLimits{MinPanelSize: 5, MaxPanelSize: 100}},
	{action: boxoffice.ActionWorkflowOpen, version: "workflow-1", finish: finisher(completeWorkflow), decode: decode[boxoffice.WorkflowOpen]},
	{action: boxoffice.ActionScheduleCreate, version: "schedule-1", finish: finishSchedule, decode: decode[boxoffice.ScheduleCreate],
		limits: scheduleLimits, pricedPer: perRun},
	{action: boxoffice.ActionScheduleTopUp, version: "topup-1", finish: finisher[boxoffice.ScheduleTopUp](nil), decode: decode[boxoffice.ScheduleTopUp],
		limits: scheduleLimits, pricedPer: perRun},
}

func define(action string) (definition, bool) {
	at := slices.IndexFunc(definitions, func(d definition) bool { return d.action == action })
	if at < 0 {
		return definition{}, false
	}
	return definitions[at], true
}

// Config is what a Catalog sells and whom it asks.
type Config struct {
	// Payment is the terms of one unit of every action, without a scheme.
	Payment boxoffice.Payment
	// Prices replaces the amount of one unit for the actions that it names.
	Prices map[string]boxoffice.Amount
	// Launches lists where launches can deploy; with nil every launch is refused.
	Launches *boxoffice.Launches
	// Live says whether launches can deploy on a listed chain now; nil: on all.
	Live func(chainID uint64) bool
	// Delivers says why nothing is delivered to a requester's repoUrl; nil:
	// whatever the schema takes is delivered to.
	Delivers func(repoURL string) error
	// Originals finds what job.continue and schedule.topup act on.
	Originals Originals
	// Judge has the last word on an input; nil asks nobody.
	Judge Judge
}

// Originals finds the wallet that paid for a job or a schedule. It fails with
// ErrNoOriginal if there is none of that id under that requester, and with a
// *Refusal if the one there is does not take what is asked of it.
type Originals interface {
	JobPayer(ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID) (common.Address, error)
	SchedulePayer(ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID) (common.Address, error)
}

// ErrNoOriginal says that a requester has no such job or schedule.
var ErrNoOriginal = errors.New("no such original")

// Judge reads a prepared input and returns the input to go on with: the same
// one, or a changed one, which is then prepared like any other. A *Refusal
// refuses it; any other error says that the judge did not answer.
type Judge interface {
	Judge(ctx context.Context, action string, input json.RawMessage) (json.RawMessage, error)
}

// Catalog prepares and prices the inputs of the paid actions. It is safe for
// concurrent use.
type Catalog struct {
	policies  []boxoffice.Policy
	launches  *boxoffice.Launches
	live      func(chainID uint64) bool
	delivers  func(repoURL string) error
	originals Originals
	judge     Judge
}

// New returns a Catalog. Its errors name the field of the Config.
func New(config Config) (*Catalog, error) {
	if config.Originals == nil {
		return nil, errors.New("originals: is required")
	}
	for action := range config.Prices {
		if _, ok := define(action); !ok {
			return nil, fmt.Errorf("prices: action %q is unknown", action)
		}
	}
	if err := checkLaunches(config.Launches); err != nil {
		return nil, fmt.Errorf("launches: %w", err)
	}
	c := &Catalog{launches: config.Launches, live: config.Live, delivers: config.Delivers, originals: config.Originals, judge: config.Judge}
	for _, d := range definitions {
		policy := boxoffice.Policy{Action: d.action, Version: d.version, Payment: config.Payment, QuoteTTLSeconds: quoteTTLSeconds}
		if amount, ok := config.Prices[d.action]; ok {
			policy.Payment.Amount = amount
		}
		if err := policy.Validate(); err != nil {
			return nil, fmt.Errorf("policy of %s: %w", d.action, err)
		}
		c.policies = append(c.policies, policy)
	}
	return c, nil
}

// Policies returns what each action costs now, in the order of docs/protocol.md §2.3.
func (c *Catalog) Policies() []boxoffice.Policy { return slices.Clone(c.policies) }

// Launches returns where launches can deploy now; nil for nowhere. If the default
// chain is away the first of the others stands for it.
func (c *Catalog) Launches() *boxoffice.Launches {
	if c.launches == nil || c.live == nil {
		return c.launches
	}
	now := *c.launches
	now.Chains = slices.DeleteFunc(slices.Clone(now.Chains), func(chain boxoffice.LaunchChain) bool { return !c.live(chain.ChainID) })
	if len(now.Chains) == 0 {
		return nil
	}
	if !c.live(now.DefaultChainID) {
		now.DefaultChainID = now.Chains[0].ChainID
	}
	return &now
}

// Limits returns the limits of every action; those of an action that has none
// are empty (docs/protocol.md §2.3).
func (c *Catalog) Limits() map[string]boxoffice.ActionLimits {
	limits := make(map[string]boxoffice.ActionLimits, len(definitions))
	for _, d := range definitions {
		limits[d.action] = d.limits
	}
	return limits
}

// PricedPer returns "run" for an action whose policy names the price of one
// run, and nothing for the others (docs/protocol.md §2.1).
func PricedPer(action string) string {
	d, _ := define(action)
	return d.pricedPer
}

// Prepared is an input that can be quoted.
type Prepared struct {
	Input      []byte            // canonical JSON (RFC 8785)
	Policy     boxoffice.Policy  // its payment is the price of one unit
	Amount     boxoffice.Amount  // the total price
	UnitAmount *boxoffice.Amount // run-priced actions: the price of one run
	Runs       int64             // run-priced actions: the runs bought
	Payer      *common.Address   // the only wallet that may pay
}

// Prepare checks an input, brings it into its prepared form and prices it.
// Preparing a prepared input changes nothing, as far as no judge does. Every error is a
// *boxoffice.Problem: invalid_request with the places of the body where it does
// not match, action_refused, or temporarily_unavailable.
func (c *Catalog) Prepare(ctx context.Context, requester boxoffice.Requester, action string, input json.RawMessage) (Prepared, error) {
	d, ok := define(action)
	if !ok {
		return Prepared{}, unknownAction()
	}
	prepared, err := c.prepare(ctx, requester, d, input)
	if err == nil && c.judge != nil {
		prepared, err = c.judged(ctx, requester, d, prepared)
	}
	if err != nil {
		return Prepared{}, answer(err)
	}
	return prepared, nil
}

// StillTakes checks again what the service can do now for an input that was
// prepared before: a chain that launches were offered on may be gone, or a host
// that work was delivered to. It asks
// neither judge nor originals. Its error is a *boxoffice.Problem, action_refused.
func (c *Catalog) StillTakes(action string, prepared []byte) error {
	d, ok := define(action)
	if !ok {
		return unknownAction()
	}
	if _, err := d.finish(c, prepared); err != nil {
		return answer(err)
	}
	return nil
}

func (c *Catalog) prepare(ctx context.Context, requester boxoffice.Requester, d definition, input []byte) (Prepared, error) {
	tidied, err := tidy(d.action, input)
	if err != nil {
		return Prepared{}, err
	}
	value, err := d.finish(c, tidied)
	if err != nil {
		return Prepared{}, err
	}
	var prepared Prepared
	if prepared.Input, err = boxoffice.Canonical(encode(value)); err != nil {
		return Prepared{}, fmt.Errorf("prepared input: %w", err)
	}
	switch value := value.(type) {
	case boxoffice.JobContinue:
		wallet, err := c.originals.JobPayer(ctx, requester, value.JobID)
		if err != nil {
			return Prepared{}, originalError("job", value.JobID, err)
		}
		prepared.Payer = &wallet
	case boxoffice.ScheduleTopUp:
		wallet, err := c.originals.SchedulePayer(ctx, requester, value.ScheduleID)
		if err != nil {
			return Prepared{}, originalError("schedule", value.ScheduleID, err)
		}
		prepared.Payer, prepared.Runs = &wallet, value.Runs
	case boxoffice.ScheduleCreate:
		prepared.Runs = value.Runs
	}
	return prepared.priced(c.policyOf(d.action), d.pricedPer)
}

// priced adds the price: that of one unit, or of one run for each run.
func (p Prepared) priced(policy boxoffice.Policy, per string) (Prepared, error) {
	unit := policy.Payment.Amount
	p.Policy, p.Amount = policy, unit
	if per != perRun {
		return p, nil
	}
	total, fits := unit.Mul(x402.NewUint256(uint64(p.Runs)))
	if !fits {
		return Prepared{}, refuse(boxoffice.RefusedAmountTooLarge, "%d runs at %s each cost more than a token can move", p.Runs, unit)
	}
	p.Amount, p.UnitAmount = total, &unit
	return p, nil
}

func (c *Catalog) policyOf(action string) boxoffice.Policy {
	at := slices.IndexFunc(c.policies, func(p boxoffice.Policy) bool { return p.Action == action })
	return c.policies[at]
}

// judged asks the judge about a prepared input. What the judge changes is its
// own: if that cannot be prepared, the judge is at fault and not the requester.
func (c *Catalog) judged(ctx context.Context, requester boxoffice.Requester, d definition, before Prepared) (Prepared, error) {
	input, err := c.judge.Judge(ctx, d.action, bytes.Clone(before.Input))
	if err != nil {
		return Prepared{}, fmt.Errorf("judge: %w", err)
	}
	if bytes.Equal(input, before.Input) {
		return before, nil
	}
	after, err := c.prepare(ctx, requester, d, input)
	if err != nil {
		return Prepared{}, fmt.Errorf("judge changed the input into one that cannot be prepared: %v", err)
	}
	return after, nil
}
