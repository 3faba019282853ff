package work

import (
	"time"

	"boxoffice"
)

// TakeRun takes the scheduled run that is due. It returns the schedule with one run
// less and with the time of the next, and the scheduled run with its number and due
// time. It returns ErrStale if none is due.
func (s Schedule) TakeRun(now boxoffice.Timestamp) (Schedule, boxoffice.ScheduledRun, error) {
	if s.State != boxoffice.ScheduleActive || *s.NextRunAt > now {
		return s, boxoffice.ScheduledRun{}, ErrStale
	}
	run := boxoffice.ScheduledRun{Number: s.RunsBought - s.RunsLeft + 1, DueAt: *s.NextRunAt, At: now}
	s.NextRunAt = new(nextRun(run.DueAt, now, s.IntervalMinutes, s.Missed))
	s.RunsLeft--
	s.UpdatedAt = now
	if s.RunsLeft == 0 {
		s.State, s.NextRunAt = boxoffice.ScheduleEnded, nil
	}
	return s, run, nil
}

// Stop stops a schedule. Its runs that are left stay bought. It returns ErrEnded if
// none is left.
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

// AddRuns adds bought runs to a schedule. If the schedule has ended or was stopped it
// becomes active again. Then its next run is due one interval after now, but not
// before the time at which it was due when the schedule was stopped.
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

// nextRun returns when the next run is due: a whole number of intervals after the one
// that was due. A schedule that skips missed runs takes the first such time after now;
// one that catches up takes the very next, also if it has passed.
func nextRun(due, now boxoffice.Timestamp, intervalMinutes int64, missed string) boxoffice.Timestamp {
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
