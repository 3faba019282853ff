package work

import (
	"time"

	"boxoffice"
)

// TakeRun takes the run of a schedule that is due: it returns the schedule with
// one run less and the next time on its grid, and the run's number and due time.
// It returns ErrStale if no run is due.
func (s Schedule) TakeRun(now boxoffice.Timestamp) (Schedule, boxoffice.ScheduledRun, error) {
	if s.State != boxoffice.ScheduleActive || *s.NextRunAt > now {
		return s, boxoffice.ScheduledRun{}, ErrStale
	}
	run := boxoffice.ScheduledRun{Number: s.RunsBought - s.RunsLeft + 1, DueAt: *s.NextRunAt, At: now}
	s.NextRunAt = new(NextRun(run.DueAt, now, s.IntervalMinutes, s.Missed))
	s.RunsLeft--
	s.UpdatedAt = now
	if s.RunsLeft == 0 {
		s.State, s.NextRunAt = boxoffice.ScheduleEnded, nil
	}
	return s, run, nil
}

// Stop stops a schedule, which keeps its runs. It returns ErrEnded if no runs are left.
func (s Schedule) Stop(now boxoffice.Timestamp) (Schedule, error) {
	switch s.State {
	case boxoffice.ScheduleEnded:
		return s, ErrEnded
	case boxoffice.ScheduleActive:
		s.State, s.UpdatedAt = boxoffice.ScheduleStopped, now
		s.StoppedBefore, s.NextRunAt = s.NextRunAt, nil
	}
	return s, nil
}

// AddRuns adds bought runs to a schedule. One that has ended or was stopped
// becomes active: its next run is one interval after now, and no sooner than the
// run before which it was stopped.
func (s Schedule) AddRuns(runs int64, now boxoffice.Timestamp) Schedule {
	if s.State != boxoffice.ScheduleActive {
		next := now + interval(s.IntervalMinutes)
		if s.StoppedBefore != nil {
			next = max(next, *s.StoppedBefore)
		}
		s.State, s.NextRunAt, s.StoppedBefore = boxoffice.ScheduleActive, &next, nil
	}
	s.RunsBought += runs
	s.RunsLeft += runs
	s.UpdatedAt = now
	return s
}

// NextRun returns the time of the run after the one that was due, which is on
// the same grid. A schedule that skips missed runs goes to the first time after
// now; one that catches up goes to the very next.
func NextRun(due, now boxoffice.Timestamp, intervalMinutes int64, missed string) boxoffice.Timestamp {
	step := interval(intervalMinutes)
	next := due + step
	if missed != boxoffice.MissedCatchUp && next <= now {
		next += ((now-next)/step + 1) * step
	}
	return next
}

func interval(minutes int64) boxoffice.Timestamp {
	return boxoffice.Timestamp(minutes * time.Minute.Milliseconds())
}
