package engine_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"boxoffice"
	"boxoffice/internal/work"
	"boxoffice/internal/work/agent"
)

func vote(choice string) (agent.Result, error) {
	return agent.Result{Outcome: agent.Done, Summary: "because", Choice: choice}, nil
}

func TestOracle(t *testing.T) {
	p := newPlace(t)
	id := p.openOracle(5, "yes", "no")
	p.run(agentFunc(func(_ context.Context, task agent.Task) (agent.Result, error) {
		switch task.Panel.Member {
		case 0, 3:
			return agent.Result{}, &agent.Failure{Kind: agent.TimedOut, Retryable: true}
		case 1:
			return vote("no")
		}
		return vote("yes")
	}))
	oracle := until(p, id, p.store.Oracle, func(o work.Oracle) bool { return o.State == boxoffice.JobCompleted })
	if err := oracle.Validate(); err != nil {
		t.Error(err)
	}
	if *oracle.Answer != (boxoffice.PanelAnswer{Choice: "yes", Votes: 4, Of: 5}) || len(oracle.Members) != 7 ||
		!slices.Equal(oracle.Tally, []boxoffice.Votes{{Choice: "yes", Votes: 4}, {Choice: "no", Votes: 1}}) {
		t.Errorf("%+v", oracle.Oracle)
	}
	if member := oracle.Members[0]; member.State != boxoffice.NodeFailed ||
		member.Reason != "the agent did not answer in time" {
		t.Errorf("the first member %+v", member)
	}
}

// Without options the members' own words are counted, however they write them.
func TestOracleOfFreeText(t *testing.T) {
	for name, test := range map[string]struct {
		options, said []string
		want          []boxoffice.Votes
	}{
		"free text": {nil,
			[]string{" Café\u00a0 Central ", "tea house", "CAFE\u0301 central", "café central", "Tea House\n"},
			[]boxoffice.Votes{{Choice: "Café\u00a0 Central", Votes: 3}, {Choice: "tea house", Votes: 2}}},
		"options": {[]string{"A", "a"}, []string{"A", "a", "a", "A", "a"},
			[]boxoffice.Votes{{Choice: "a", Votes: 3}, {Choice: "A", Votes: 2}}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			id := p.openOracle(5, test.options...)
			p.run(agentFunc(func(_ context.Context, task agent.Task) (agent.Result, error) {
				return vote(test.said[task.Panel.Member])
			}))
			oracle := until(p, id, p.store.Oracle,
				func(o work.Oracle) bool { return o.State == boxoffice.JobCompleted })
			if !slices.Equal(oracle.Tally, test.want) ||
				*oracle.Answer != (boxoffice.PanelAnswer{Choice: test.want[0].Choice, Votes: 3, Of: 5}) {
				t.Errorf("%+v, %+v", oracle.Tally, oracle.Answer)
			}
			if member := oracle.Members[0]; member.Choice != test.said[0] {
				t.Errorf("the first member said %q", member.Choice)
			}
		})
	}
}

func TestOracleWithoutItsPanel(t *testing.T) {
	p := newPlace(t)
	id := p.openOracle(6)
	p.run(agentFunc(func(_ context.Context, task agent.Task) (agent.Result, error) {
		if task.Panel.Member == 2 {
			return vote("perhaps")
		}
		return agent.Result{Outcome: agent.Blocked, Reason: "cannot say"}, nil
	}))
	oracle := until(p, id, p.store.Oracle, func(o work.Oracle) bool { return o.State == boxoffice.JobBlocked })
	if err := oracle.Validate(); err != nil {
		t.Error(err)
	}
	if want := "1 of 6 members answered"; !strings.Contains(*oracle.BlockedReason, want) ||
		len(oracle.Members) != 6+3 {
		t.Errorf("%q with %d members", *oracle.BlockedReason, len(oracle.Members))
	}
	if len(oracle.Tally) != 1 || oracle.Answer != nil {
		t.Errorf("tally %v, answer %v", oracle.Tally, oracle.Answer)
	}
}
