package crashtest

import (
	"context"
	"math/rand/v2"
	"time"

	"boxoffice/internal/crash"
)

// kill is how a server has to end: at a step, or at a random moment if step is "".
type kill struct {
	step     crash.Step
	attempts int // servers that were started for it and did not reach the step
}

const (
	stepTimeout = 2500 * time.Millisecond // how long a server may take to reach the step
	maxAttempts = 5                       // servers that are started for one kill, after the first
)

// killServers starts one server after the other, each of which is killed, and releases the orders to the buyers
// between them.
func (s *suite) killServers(ctx context.Context) error {
	random := s.random(2)
	var plan []kill
	for _, step := range s.Steps {
		for range s.Each {
			plan = append(plan, kill{step: step})
		}
	}
	for range s.Random {
		plan = append(plan, kill{})
	}
	random.Shuffle(len(plan), func(i, j int) { plan[i], plan[j] = plan[j], plan[i] })

	for len(plan) > 0 {
		next := plan[0]
		plan = plan[1:]
		share := (s.Orders - s.released) / (len(plan) + 1)
		s.release(max(share-len(s.orders), 0))
		if len(s.orders) == 0 && (s.released < s.Orders || next.attempts > 0) {
			s.release(1) // after a missed step this can go beyond s.Orders
		}
		reached, err := s.runAndKill(ctx, random, next, share)
		if err != nil {
			return err
		}
		if !reached && next.attempts < maxAttempts {
			next.attempts++
			at := random.IntN(len(plan) + 1)
			plan = append(plan[:at], append([]kill{next}, plan[at:]...)...)
		}
	}
	s.release(s.Orders - s.released)
	return nil
}

// release lets the buyers buy n more orders.
func (s *suite) release(n int) {
	for range n {
		s.orders <- s.released
		s.released++
	}
}

// runAndKill starts a server, waits until it has died at the step or kills it, and reports whether the kill was the
// planned one. share is how many orders were released for this server.
func (s *suite) runAndKill(ctx context.Context, random *rand.Rand, k kill, share int) (planned bool, err error) {
	timeout, count := stepTimeout, 1
	switch k.step {
	case "":
		timeout = time.Duration(20+random.IntN(1500)) * time.Millisecond
		s.chain.behaviour.Store(int32(random.IntN(4)))
	case crash.ReplacementSigned, crash.ReplacementSaved, crash.ReplacementSent, crash.CommitReplacement:
		s.chain.behaviour.Store(ignoring)
	case crash.CommitReopening:
		s.chain.behaviour.Store(forgetting)
	case crash.CommitLease:
		count = 1 + random.IntN(40)
		s.chain.behaviour.Store([]int32{regular, dropping, reorganising}[random.IntN(3)])
	default:
		if k.attempts == 0 && share > 4 {
			count = 1 + random.IntN(3)
		}
		s.chain.behaviour.Store([]int32{regular, regular, dropping, reorganising}[random.IntN(4)])
	}
	p, err := s.servers.start(ctx, k.step, count)
	if err != nil {
		return false, err
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		if err := p.kill(); err != nil {
			return false, err
		}
	case <-ctx.Done():
		_ = p.kill() // the end of ctx has killed it already
		return false, context.Cause(ctx)
	}
	if err := p.wasKilled(); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	atStep := !p.killedByUs.Load()
	if atStep {
		s.report.Kills[k.step]++
	} else {
		s.report.AtRandom++
	}
	where := "at a random moment"
	switch {
	case atStep:
		where = "at " + string(k.step)
	case k.step != "":
		where += ", since it did not reach " + string(k.step)
	}
	s.progress("server %d was killed %s; %d of %d orders are bought", s.servers.started, where, s.bought, s.Orders)
	return atStep || k.step == "", nil
}
