// Package action defines the seven paid actions: the schema of each input, how an input is prepared, what it costs and
// its limits. It starts no work and saves nothing.
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

// quoteTTLSeconds is how long a quote is valid (docs/protocol.md §2.3).
const quoteTTLSeconds = 600

// retryAfterSeconds is when a requester should ask again after the judge or the store failed.
const retryAfterSeconds = 5

type definition struct {
	action  string
	version string
	limits  boxoffice.ActionLimits
	finish  func(c *Catalog, tidied []byte) (boxoffice.Input, error)
	decode  func(prepared []byte) (boxoffice.Input, error)
}

var scheduleLimits = boxoffice.ActionLimits{
	MinRuns: 1, MaxRuns: 1_000_000, MinOracleIntervalMinutes: 10, MinJobIntervalMinutes: 30,
}

// definitions is the table of docs/protocol.md §2.3, in its order.
var definitions = []definition{
	{action: boxoffice.ActionJobOpen, version: "job-1",
		finish: finisher(completeJob), decode: decode[boxoffice.JobOpen]},
	{action: boxoffice.ActionJobContinue, version: "job-1",
		finish: finisher[boxoffice.JobContinue](nil), decode: decode[boxoffice.JobContinue]},
	{action: boxoffice.ActionLaunchOpen, version: "launch-1",
		finish: finisher(completeLaunch), decode: decode[boxoffice.LaunchOpen]},
	{action: boxoffice.ActionOracleRequest, version: "oracle-1",
		finish: finisher[boxoffice.OracleRequest](nil), decode: decode[boxoffice.OracleRequest],
		limits: boxoffice.ActionLimits{MinPanelSize: 5, MaxPanelSize: 100}},
	{action: boxoffice.ActionWorkflowOpen, version: "workflow-1",
		finish: finisher(completeWorkflow), decode: decode[boxoffice.WorkflowOpen]},
	{action: boxoffice.ActionScheduleCreate, version: "schedule-1",
		finish: finishSchedule, decode: decode[boxoffice.ScheduleCreate], limits: scheduleLimits},
	{action: boxoffice.ActionScheduleTopUp, version: "topup-1",
		finish: finisher[boxoffice.ScheduleTopUp](nil), decode: decode[boxoffice.ScheduleTopUp],
		limits: scheduleLimits},
}

func define(action string) (definition, bool) {
	at := slices.IndexFunc(definitions, func(d definition) bool { return d.action == action })
	if at < 0 {
		return definition{}, false
	}
	return definitions[at], true
}

// Config is what New needs.
type Config struct {
	// Payment has the terms of one unit of every action, without a scheme.
	Payment boxoffice.Payment
	// Prices are the amounts of one unit for actions whose amount differs from that of Payment.
	Prices map[string]boxoffice.Amount
	// Launches lists where launches can deploy. If it is nil, every launch is refused.
	Launches *boxoffice.Launches
	// Live reports whether launches can deploy on a listed chain now. If it is nil, they can on all.
	Live func(chainID uint64) bool
	// Delivers returns an error that says why the service does not deliver to a requester's repoUrl. If it is nil,
	// every repoUrl that matches the schema is accepted.
	Delivers func(repoURL string) error
	// Originals finds the jobs of job.continue and the schedules of schedule.topup.
	Originals Originals
	// Judge is the operator's input judge, or nil.
	Judge Judge
}

// Originals finds the wallet that paid for a job or a schedule. It returns ErrNoOriginal if the requester has none of
// that id, and a *Refusal if the one with that id does not accept the action.
type Originals interface {
	JobPayer(ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID) (common.Address, error)
	SchedulePayer(ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID) (common.Address, error)
}

// ErrNoOriginal says that a requester has no such job or schedule.
var ErrNoOriginal = errors.New("no such original")

// Judge is the operator's judge of inputs. It reads a prepared input and returns the input to quote: the same input, or
// a changed one, which is then prepared again. It returns a *Refusal to refuse the input. Any other error means that it
// gave no decision.
type Judge interface {
	Judge(ctx context.Context, action string, input json.RawMessage) (json.RawMessage, error)
}

// Catalog prepares and prices the inputs of the paid actions. It is safe for concurrent use.
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
	c := &Catalog{
		launches: config.Launches, live: config.Live, delivers: config.Delivers,
		originals: config.Originals, judge: config.Judge,
	}
	for _, d := range definitions {
		policy := boxoffice.Policy{
			Action: d.action, Version: d.version, Payment: config.Payment, QuoteTTLSeconds: quoteTTLSeconds,
		}
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

// Launches returns where launches can deploy now, or nil if they cannot. If the configured default chain is not
// available, the first available chain is the default.
func (c *Catalog) Launches() *boxoffice.Launches {
	if c.launches == nil || c.live == nil {
		return c.launches
	}
	now := *c.launches
	unavailable := func(chain boxoffice.LaunchChain) bool { return !c.live(chain.ChainID) }
	now.Chains = slices.DeleteFunc(slices.Clone(now.Chains), unavailable)
	if len(now.Chains) == 0 {
		return nil
	}
	if !c.live(now.DefaultChainID) {
		now.DefaultChainID = now.Chains[0].ChainID
	}
	return &now
}

// Limits returns the limits of every action (docs/protocol.md §2.3). An action without limits has an empty entry.
func (c *Catalog) Limits() map[string]boxoffice.ActionLimits {
	limits := make(map[string]boxoffice.ActionLimits, len(definitions))
	for _, d := range definitions {
		limits[d.action] = d.limits
	}
	return limits
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

// Prepare checks an input, brings it into its prepared form and prices it. Preparing a prepared input again changes
// nothing, unless a judge changes it. Every error is a *boxoffice.Problem: invalid_request with the places that do not
// match the schema, action_refused, or temporarily_unavailable.
func (c *Catalog) Prepare(
	ctx context.Context, requester boxoffice.Requester, action string, input json.RawMessage,
) (Prepared, error) {
	d, ok := define(action)
	if !ok {
		return Prepared{}, unknownAction()
	}
	prepared, err := c.prepare(ctx, requester, d, input)
	if err == nil && c.judge != nil {
		prepared, err = c.judged(ctx, requester, d, prepared)
	}
	if err != nil {
		return Prepared{}, problem(err)
	}
	return prepared, nil
}

// StillTakes checks again whether the service can do now what an input asks for, which was prepared before: a chain of
// launches may be gone, or a host of deliveries. It asks neither the judge nor Originals. Its error is a
// *boxoffice.Problem, action_refused.
func (c *Catalog) StillTakes(action string, prepared []byte) error {
	d, ok := define(action)
	if !ok {
		return unknownAction()
	}
	if _, err := d.finish(c, prepared); err != nil {
		return problem(err)
	}
	return nil
}

func (c *Catalog) prepare(
	ctx context.Context, requester boxoffice.Requester, d definition, input []byte,
) (Prepared, error) {
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
	return prepared.priced(c.policyOf(d.action))
}

// priced adds the policy and the price: the amount of one unit, or that of one run times the runs
// (docs/protocol.md §2.1).
func (p Prepared) priced(policy boxoffice.Policy) (Prepared, error) {
	unit := policy.Payment.Amount
	p.Policy, p.Amount = policy, unit
	if p.Runs == 0 {
		return p, nil
	}
	total, fits := unit.Mul(x402.NewUint256(uint64(p.Runs)))
	if !fits {
		return Prepared{}, refuse(boxoffice.RefusedAmountTooLarge,
			"%d runs at %s each cost more than a token can move", p.Runs, unit)
	}
	p.Amount, p.UnitAmount = total, &unit
	return p, nil
}

func (c *Catalog) policyOf(action string) boxoffice.Policy {
	at := slices.IndexFunc(c.policies, func(p boxoffice.Policy) bool { return p.Action == action })
	return c.policies[at]
}

// judged asks the judge about a prepared input. If the judge returns an input that cannot be prepared, that is a fault
// of the judge. So the error is not a problem of the requester's.
func (c *Catalog) judged(
	ctx context.Context, requester boxoffice.Requester, d definition, before Prepared,
) (Prepared, error) {
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
