package order

import (
	"context"
	"errors"
	"fmt"
	"time"

	"boxoffice"
	"boxoffice/internal/action"
	"boxoffice/internal/crash"
	"boxoffice/internal/work"
)

// Decided is called by a settler after it saved decisions. It wakes Run, which admits
// the orders that are paid now, and the submits that wait for an outcome.
func (f *Flow) Decided() {
	select {
	case f.paid <- struct{}{}:
	default:
	}
	f.changed.announce()
}

// Run admits paid orders until ctx ends. It reads them from the store, so it also
// admits those that were paid while no process ran.
func (f *Flow) Run(ctx context.Context) {
	poll := time.NewTicker(2 * pollEvery)
	defer poll.Stop()
	for {
		if err := f.admitAll(ctx); err != nil && ctx.Err() == nil {
			f.Log.ErrorContext(ctx, "paid orders could not be admitted; the next round tries again", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		case <-f.paid:
		}
	}
}

// admitAtOnce is how many orders admitAll reads at once.
const admitAtOnce = 100

func (f *Flow) admitAll(ctx context.Context) error {
	records, err := f.Store.Unadmitted(ctx, admitAtOnce)
	if err != nil || len(records) == 0 {
		return err
	}
	var failures []error
	for _, record := range records {
		if err := f.admit(ctx, record); err != nil && !errors.Is(err, ErrStale) {
			failures = append(failures, fmt.Errorf("order %s: %w", record.ID, err))
		}
	}
	f.changed.announce()
	if len(failures) == 0 && len(records) == admitAtOnce {
		f.Decided() // more orders may be paid
	}
	return errors.Join(failures...)
}

// admit opens the work that a paid order bought. It has no check that could refuse
// the order, because the money has moved.
func (f *Flow) admit(ctx context.Context, record Record) error {
	input, err := action.Decode(record.Quote.Action, []byte(record.InputJSON))
	if err != nil {
		return err
	}
	owner := work.Owner{Requester: record.Requester, Payer: record.Payment.Permit.From, OrderID: record.ID}
	now := boxoffice.At(f.Now())
	var opened work.Opened
	err = f.Store.Admit(ctx, Admit(&record, now), func(tx work.Tx) (work.Opened, error) {
		opened, err = open(ctx, tx, owner, input, now)
		return opened, err
	})
	if err != nil {
		return err
	}
	crash.At(crash.AdmissionSaved)
	f.Log.InfoContext(ctx, "order admitted",
		"order", record.ID, "action", record.Quote.Action, "kind", opened.Kind, "work", opened.ID)
	return nil
}

// Open opens the work of an action with a prepared input for a scheduled run, which
// was paid with its schedule.
func Open(
	ctx context.Context, tx work.Tx, owner work.Owner, name string, prepared []byte, now boxoffice.Timestamp,
) (work.Opened, error) {
	input, err := action.Decode(name, prepared)
	if err != nil {
		return work.Opened{}, err
	}
	return open(ctx, tx, owner, input, now)
}

// open opens the work that a prepared input asks for.
func open(
	ctx context.Context, tx work.Tx, owner work.Owner, input boxoffice.Input, now boxoffice.Timestamp,
) (work.Opened, error) {
	switch in := input.(type) {
	case boxoffice.JobOpen:
		brief := work.Brief{RepoURL: in.RepoURL, Context: in.Context}
		return work.OpenJob(ctx, tx, owner, in.Template, in.Objective, nil, brief, now)
	case boxoffice.JobContinue:
		return work.ContinueJob(ctx, tx, owner, in.JobID, in.Input, now)
	case boxoffice.LaunchOpen:
		brief := work.Brief{ChainID: in.ChainID, PairWith: in.PairWith, Name: in.Name, Symbol: in.Symbol}
		return work.OpenJob(ctx, tx, owner, launchTemplate, in.Objective, &in.Kind, brief, now)
	case boxoffice.OracleRequest:
		oracle := boxoffice.Oracle{
			Question: in.Question, PanelSize: in.PanelSize, Options: in.Options, Context: in.Context,
		}
		return work.OpenOracle(ctx, tx, owner, oracle, now)
	case boxoffice.WorkflowOpen:
		return work.OpenWorkflow(ctx, tx, owner, in.Objective, in.Shape, in.Nodes, now)
	case boxoffice.ScheduleCreate:
		return work.CreateSchedule(ctx, tx, owner, work.Recurrence{
			Action: in.Action, Input: in.Input, IntervalMinutes: in.IntervalMinutes,
			Runs: in.Runs, StartAt: in.StartAt, Missed: in.Missed,
		}, now)
	case boxoffice.ScheduleTopUp:
		return work.TopUpSchedule(ctx, tx, in.ScheduleID, in.Runs, now)
	}
	return work.Opened{}, fmt.Errorf("order: no work for input of type %T", input)
}

// launchTemplate is the template of the job that a launch opens.
const launchTemplate = "skill:build-contract-project"
