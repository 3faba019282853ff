package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/work"
	"boxoffice/internal/work/agent"
)

func (p *place) createSchedule(runs int64, missed, action string) boxoffice.UUID {
	p.t.Helper()
	return p.admit(func(tx work.Tx, owner work.Owner) (work.Opened, error) {
		return work.CreateSchedule(p.t.Context(), tx, owner, work.Recurrence{
			Action: action, Input: []byte(`"look"`), IntervalMinutes: 30, Runs: runs, Missed: missed,
		}, p.now())
	}).ID
}

// alone makes an engine do the upkeep and nothing else.
func alone(c *config) { c.Agents = nil }

func (p *place) untilLeft(id boxoffice.UUID, left int64) boxoffice.Schedule {
	p.t.Helper()
	schedule := until(p, id, p.store.Schedule, func(s work.Schedule) bool { return s.RunsLeft <= left }).Schedule
	if err := schedule.Validate(); err != nil {
		p.t.Error(err)
	}
	if schedule.RunsLeft != left {
		p.t.Errorf("%d runs are left, want %d", schedule.RunsLeft, left)
	}
	return schedule
}

func (p *place) wantJobs(want int) {
	p.t.Helper()
	jobs, err := p.store.Jobs(p.t.Context(), p.owner, work.JobQuery{Limit: 100})
	if err != nil || len(jobs) != want {
		p.t.Errorf("%d jobs were opened, want %d (%v)", len(jobs), want, err)
	}
}

// Each due run opens its job once, whatever happens to workers and clocks.
func TestScheduleCatchesUp(t *testing.T) {
	p := newPlace(t)
	id := p.createSchedule(6, boxoffice.MissedCatchUp, boxoffice.ActionJobOpen)
	first := p.run(nil, alone)
	p.run(nil, alone)
	p.untilLeft(id, 5)
	first()
	p.advance(95 * time.Minute)
	schedule := p.untilLeft(id, 2)
	p.wantJobs(4)
	for i, run := range schedule.LastRuns {
		if want := int64(4 - i); run.Number != want || run.Kind != work.KindJob {
			t.Errorf("run %d of the list is number %d, a %s", i, run.Number, run.Kind)
		}
	}
	p.advance(-5 * time.Hour) // what has run does not run again
	p.run(nil, alone)
	p.advance(5 * time.Hour)
	p.advance(30 * time.Minute)
	p.untilLeft(id, 1)
	p.advance(30 * time.Minute)
	if ended := p.untilLeft(id, 0); ended.State != boxoffice.ScheduleEnded || ended.NextRunAt != nil {
		t.Errorf("%+v", ended)
	}
	p.wantJobs(6)

	// More runs make a schedule active that had ended.
	p.admit(func(tx work.Tx, _ work.Owner) (work.Opened, error) {
		return work.TopUpSchedule(t.Context(), tx, id, 2, p.now())
	})
	p.untilLeft(id, 2)
	p.advance(31 * time.Minute)
	if schedule := p.untilLeft(id, 1); schedule.LastRuns[0].Number != 7 || schedule.RunsBought != 8 {
		t.Errorf("%+v", schedule)
	}
}

// Missed runs are skipped and stay bought.
func TestScheduleSkips(t *testing.T) {
	p := newPlace(t)
	id := p.createSchedule(5, "", boxoffice.ActionJobOpen)
	stop := p.run(nil, alone)
	begun := p.untilLeft(id, 4)
	stop()
	p.advance(100 * time.Minute)
	p.run(nil, alone)
	schedule := p.untilLeft(id, 3)
	if want := *begun.NextRunAt + 90*60_000; *schedule.NextRunAt != want {
		t.Errorf("the next run is at %s, want %s", schedule.NextRunAt, want)
	}
	p.wantJobs(2)
}

// Nothing is created ahead of time, however many runs were bought.
func TestScheduleOfAMillionRuns(t *testing.T) {
	p := newPlace(t)
	id := p.createSchedule(1_000_000, "", boxoffice.ActionJobOpen)
	p.run(nil, alone)
	p.untilLeft(id, 999_999)
	p.wantJobs(1)
}

func TestScheduledOracle(t *testing.T) {
	p := newPlace(t)
	id := p.createSchedule(1, "", boxoffice.ActionOracleRequest)
	p.run(agentFunc(func(context.Context, agent.Task) (agent.Result, error) { return vote("yes") }))
	run := p.untilLeft(id, 0).LastRuns[0]
	until(p, run.ID, p.store.Oracle, func(o work.Oracle) bool { return o.State == boxoffice.JobCompleted })
}

// Schedules that always fail do not delay the others, however many they are.
func TestSchedulesThatFail(t *testing.T) {
	p := newPlace(t)
	p.admit(func(tx work.Tx, owner work.Owner) (opened work.Opened, err error) {
		for range 501 {
			opened, err = work.CreateSchedule(t.Context(), tx, owner, work.Recurrence{
				Action: boxoffice.ActionJobOpen, Input: []byte(`"broken"`), IntervalMinutes: 30, Runs: 1,
			}, p.now()-1)
			if err != nil {
				break
			}
		}
		return opened, err
	})
	id := p.createSchedule(1, boxoffice.MissedSkip, boxoffice.ActionJobOpen)
	p.run(nil, alone, func(c *config) {
		c.Open = func(
			ctx context.Context, tx work.Tx, owner work.Owner, action string, input []byte, now boxoffice.Timestamp,
		) (work.Opened, error) {
			if string(input) == `"broken"` {
				return work.Opened{}, errors.New("it cannot be opened")
			}
			return open(ctx, tx, owner, action, input, now)
		}
	})
	p.untilLeft(id, 0)
}
