package crashtest

import (
	"context"
	"math/rand/v2"
	"time"

	"boxoffice/internal/crash"
)

// death is how a life of the server is to end: at a step, or at a random moment
// if there is none.
type death struct {
	step  crash.Step
	tries int // lives that were over before it
}

// patience is how long a server may take to get to the step that it dies at.
const patience = 2500 * time.Millisecond

// maxTries is in how many lives a step is waited for, for each death at it.
const maxTries = 5

// torment starts servers that die, one after the other, and hands out the
// orders between them.
func (s *suite) torment(ctx context.Context) error {
	random := s.random(2)
	var plan []death
	for _, step := range s.Steps {
		for range s.Each {
			plan = append(plan, death{step: step})
		}
	}
	for range s.Random {
		plan = append(plan, death{})
	}
	random.Shuffle(len(plan), func(i, j int) { plan[i], plan[j] = plan[j], plan[i] })

	for len(plan) > 0 {
		next := plan[0]
		plan = plan[1:]
		share := (s.Orders - s.issued) / (len(plan) + 1)
		s.issue(max(share-len(s.tickets), 0))
		if len(s.tickets) == 0 && (s.issued < s.Orders || next.tries > 0) {
			s.issue(1) // beyond s.Orders, if a step was not reached before
		}
		died, err := s.live(ctx, random, next, share)
		if err != nil {
			return err
		}
		if !died && next.tries < maxTries {
			next.tries++
			at := random.IntN(len(plan) + 1)
			plan = append(plan[:at], append([]death{next}, plan[at:]...)...)
		}
	}
	s.issue(s.Orders - s.issued)
	return nil
}

// issue lets n more orders be bought.
func (s *suite) issue(n int) {
	for range n {
		s.tickets <- s.issued
		s.issued++
	}
}

// live starts a server to which a share of the orders goes, and sees it die. It
// reports whether it died as it was meant to.
func (s *suite) live(ctx context.Context, random *rand.Rand, end death, share int) (died bool, err error) {
	until, count := patience, 1
	switch end.step {
	case "":
		until = time.Duration(20+random.IntN(1500)) * time.Millisecond
		s.chain.mood.Store(int32(random.IntN(4)))
	case crash.ReplacementSigned, crash.ReplacementSaved, crash.ReplacementSent, crash.CommitReplacement:
		s.chain.mood.Store(stalled)
	case crash.CommitLease:
		count = 1 + random.IntN(40)
		s.chain.mood.Store([]int32{calm, forgetful, fickle}[random.IntN(3)])
	default:
		if end.tries == 0 && share > 4 {
			count = 1 + random.IntN(3)
		}
		s.chain.mood.Store([]int32{calm, calm, forgetful, fickle}[random.IntN(4)])
	}
	p, err := s.station.start(ctx, end.step, count)
	if err != nil {
		return false, err
	}
	timer := time.NewTimer(until)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		if err := p.kill(); err != nil {
			return false, err
		}
	case <-ctx.Done():
		_ = p.kill() // ctx has killed it
		return false, context.Cause(ctx)
	}
	if err := p.died(); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.killed.Load() {
		s.report.AtRandom++
	} else {
		s.report.Kills[end.step]++
	}
	s.tell("life %d: meant to die at %q, did: %t; %d of %d orders bought", s.station.starts, end.step, !p.killed.Load(), s.bought, s.Orders)
	return !p.killed.Load() || end.step == "", nil
}
