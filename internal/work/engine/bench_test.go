package engine_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/store/sqlite"
	"boxoffice/internal/work"
	"boxoffice/internal/work/agent"
)

// asInProduction sets the times that the configuration has by default, except
// the lease, which has its least value so that the benchmark ends sooner.
func asInProduction(c *config) {
	c.Poll, c.Backoff, c.Scheduling = 250*time.Millisecond, 5*time.Second, 5*time.Second
	c.Lease, c.Heartbeat = 10*time.Second, 2*time.Second
}

// finished counts the jobs that are completed: the engine discards the workspace
// of a job after it saved the job's delivery.
type finished struct {
	fakeDeliverer
	jobs chan struct{}
}

func (f *finished) Discard(id boxoffice.UUID) error {
	f.jobs <- struct{}{}
	return f.fakeDeliverer.Discard(id)
}

// BenchmarkRuns completes jobs of one step that does nothing. Each job is two
// runs: its step and its delivery.
func BenchmarkRuns(b *testing.B) {
	for _, concurrency := range []int{4, 16} {
		b.Run(fmt.Sprint("concurrency=", concurrency), func(b *testing.B) {
			const jobs = 500
			runs, took := 0, time.Duration(0)
			for range b.N {
				p := newPlace(b)
				p.admit(func(tx work.Tx, owner work.Owner) (opened work.Opened, err error) {
					for range jobs {
						opened, err = open(b.Context(), tx, owner, boxoffice.ActionJobOpen, []byte("look"), p.now())
						if err != nil {
							return opened, err
						}
					}
					return opened, nil
				})
				folders := &finished{jobs: make(chan struct{}, jobs)}
				begin := time.Now()
				stop := p.run(agentFunc(func(context.Context, agent.Task) (agent.Result, error) { return done("x") }),
					asInProduction, func(c *config) { c.Concurrency, c.Deliverer = concurrency, folders })
				for range jobs {
					<-folders.jobs
				}
				took += time.Since(begin)
				runs += 2 * jobs
				stop()
			}
			b.ReportMetric(float64(runs)/took.Seconds(), "runs/s")
		})
	}
}

// BenchmarkStart measures the time from the commit of an admission to the call
// of the agent, on an engine that has nothing else to do. In "another process"
// the admission is written through a second connection to the same database.
func BenchmarkStart(b *testing.B) {
	for _, name := range []string{"same process", "another process"} {
		b.Run(name, func(b *testing.B) {
			p := newPlace(b)
			started := make(chan time.Time, 1)
			p.run(agentFunc(func(context.Context, agent.Task) (agent.Result, error) {
				started <- time.Now()
				return done("x")
			}), asInProduction)
			if name == "another process" {
				other, err := sqlite.Open(b.Context(), sqlite.Config{Path: p.path})
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { other.Close() })
				p.store = other
			}
			waits := make([]time.Duration, 0, b.N)
			for b.Loop() {
				job := p.openJob("look")
				admitted := time.Now()
				waits = append(waits, (<-started).Sub(admitted))
				p.untilJob(job, boxoffice.JobCompleted)
			}
			slices.Sort(waits)
			b.ReportMetric(float64(waits[len(waits)/2].Microseconds())/1000, "median-ms")
			b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}

// BenchmarkRetry measures how much later than its backoff a failed run is tried again.
func BenchmarkRetry(b *testing.B) {
	p := newPlace(b)
	var failedAt atomic.Int64
	late := make(chan time.Duration, 1)
	const backoff = 2 * time.Second
	p.run(agentFunc(func(_ context.Context, task agent.Task) (agent.Result, error) {
		if task.Failures == 0 {
			failedAt.Store(time.Now().UnixNano())
			return agent.Result{}, &agent.Failure{Kind: agent.Exited, Code: 1, Retryable: true}
		}
		late <- time.Since(time.Unix(0, failedAt.Load())) - backoff
		return done("x")
	}), asInProduction, func(c *config) { c.Backoff = backoff })
	var sum time.Duration
	for b.Loop() {
		job := p.openJob("look")
		sum += <-late
		p.untilJob(job, boxoffice.JobCompleted)
	}
	b.ReportMetric(float64(sum.Milliseconds())/float64(b.N), "late-ms")
}

// BenchmarkKilledWorker kills the process that was started first while its agent
// runs. It measures how long it takes until a process that was started second
// runs that node again, and until it opens the run of a schedule that is due.
func BenchmarkKilledWorker(b *testing.B) {
	if path := os.Getenv(childVariable); path != "" {
		placeAt(b, path).run(untilKilled, asInProduction)
		select {}
	}
	var again, scheduled time.Duration
	for range b.N {
		p := newPlace(b)
		id := p.openJob("look")
		kill := startChild(p, "-test.run=^$", "-test.bench=^BenchmarkKilledWorker$", "-test.benchtime=1x")
		started := make(chan time.Time, 10)
		stop := p.run(agentFunc(func(_ context.Context, task agent.Task) (agent.Result, error) {
			if task.Job == id {
				started <- time.Now()
			}
			return done("x")
		}), asInProduction)
		kill()
		killed := time.Now()
		schedule := p.createSchedule(1, boxoffice.MissedSkip, boxoffice.ActionJobOpen)
		until(p, schedule, p.store.Schedule, func(s work.Schedule) bool { return s.RunsLeft == 0 })
		scheduled += time.Since(killed)
		again += (<-started).Sub(killed)
		stop()
	}
	b.ReportMetric(again.Seconds()/float64(b.N), "again-s")
	b.ReportMetric(scheduled.Seconds()/float64(b.N), "schedule-s")
}
