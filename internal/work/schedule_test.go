package work

import (
	"errors"
	"testing"

	"boxoffice"

	"pgregory.net/rapid"
)

// The next run is after the one that was due and on its grid. A schedule that
// skips missed runs goes to the first time after now.
func TestNextRun(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		due := boxoffice.Timestamp(rapid.Int64Range(0, 4e12).Draw(rt, "due"))
		now := due + boxoffice.Timestamp(rapid.Int64Range(0, 4e12).Draw(rt, "late"))
		minutes := rapid.Int64Range(10, 525_600).Draw(rt, "interval")
		interval := boxoffice.Timestamp(minutes * 60_000)
		if got := nextRun(due, now, minutes, boxoffice.MissedCatchUp); got != due+interval {
			rt.Errorf("catching up: %d", got)
		}
		got := nextRun(due, now, minutes, boxoffice.MissedSkip)
		if got <= now || got-interval > now || (got-due)%interval != 0 {
			rt.Errorf("skipping: %d", got)
		}
	})
}

// TestSchedules has one case for each change of a schedule in docs/states.md.
func TestSchedules(t *testing.T) {
	const half = 30 * 60 * second
	schedule := func(state boxoffice.ScheduleState, left int64) Schedule {
		s := Schedule{Schedule: boxoffice.Schedule{
			State: state, IntervalMinutes: 30, RunsBought: 5, RunsLeft: left, Missed: boxoffice.MissedSkip,
		}}
		at := now
		switch state {
		case boxoffice.ScheduleActive:
			s.NextRunAt = &at
		case boxoffice.ScheduleStopped:
			s.StoppedBefore = &at
		}
		return s
	}
	take := func(s Schedule, at boxoffice.Timestamp) (Schedule, error) {
		next, run, err := s.TakeRun(at)
		if err == nil && (run.Number != s.RunsBought-s.RunsLeft+1 || run.DueAt != now || run.At != at) {
			t.Errorf("run %+v", run)
		}
		return next, err
	}
	stop := func(s Schedule, at boxoffice.Timestamp) (Schedule, error) { return s.Stop(at) }
	topUp := func(s Schedule, at boxoffice.Timestamp) (Schedule, error) { return s.AddRuns(2, at), nil }
	const active, stopped, ended = boxoffice.ScheduleActive, boxoffice.ScheduleStopped, boxoffice.ScheduleEnded
	for name, test := range map[string]struct {
		from Schedule
		do   func(Schedule, boxoffice.Timestamp) (Schedule, error)
		at   boxoffice.Timestamp
		want boxoffice.ScheduleState
		left int64
		next boxoffice.Timestamp // 0: none
		err  error
	}{
		"a run is taken":                 {schedule(active, 5), take, now, active, 4, now + half, nil},
		"missed runs are skipped":        {schedule(active, 5), take, now + 2*half, active, 4, now + 3*half, nil},
		"the last run is taken":          {schedule(active, 1), take, now, ended, 0, 0, nil},
		"no run is due":                  {schedule(active, 5), take, now - 1, active, 5, now, ErrStale},
		"no run of a stopped one":        {schedule(stopped, 5), take, now, stopped, 5, 0, ErrStale},
		"no run of an ended one":         {schedule(ended, 0), take, now, ended, 0, 0, ErrStale},
		"stopped":                        {schedule(active, 5), stop, now, stopped, 5, 0, nil},
		"stopped again":                  {schedule(stopped, 5), stop, now, stopped, 5, 0, nil},
		"an ended one cannot be stopped": {schedule(ended, 0), stop, now, ended, 0, 0, ErrEnded},
		"runs for an active one":         {schedule(active, 5), topUp, now, active, 7, now, nil},
		"runs for an ended one":          {schedule(ended, 0), topUp, now, active, 2, now + half, nil},
		"runs for a stopped one":         {schedule(stopped, 5), topUp, now, active, 7, now + half, nil},
		"runs before the start":          {schedule(stopped, 5), topUp, now - 9*half, active, 7, now, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := test.do(test.from, test.at)
			var next boxoffice.Timestamp
			if got.NextRunAt != nil {
				next = *got.NextRunAt
			}
			if !errors.Is(err, test.err) || got.State != test.want || got.RunsLeft != test.left || next != test.next {
				t.Errorf("%s with %d runs left, next at %d; %v", got.State, got.RunsLeft, next, err)
			}
			if (got.State == stopped) != (got.StoppedBefore != nil) {
				t.Errorf("stopped before %v", got.StoppedBefore)
			}
		})
	}
}
