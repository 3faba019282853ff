package work

import (
	"slices"
	"testing"

	"boxoffice"

	"pgregory.net/rapid"
)

// A panel never has more members than it may have, and always comes to an end.
func TestPanelsEnd(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		size := rapid.IntRange(5, 30).Draw(rt, "size")
		var members []Node
		for i := range size {
			members = append(members, NewMember("o", i, now))
		}
		for i := 0; i < len(members); i++ {
			members[i].State = boxoffice.NodeFailed
			if rapid.IntRange(0, 3).Draw(rt, "answers") > 0 {
				members[i].State, members[i].Choice = boxoffice.NodeDone, rapid.SampledFrom([]string{"yes",
					"no"}).Draw(rt, "choice")
			}
			step := advancePanel(size, []string{"yes", "no"}, members)
			for range step.replacements {
				members = append(members, NewMember("o", len(members), now))
			}
			last := i == len(members)-1
			if len(members) > size+maxReplacements(size) || last != (step.answer != nil || step.blockedReason != "") {
				rt.Fatalf("member %d of %d: %+v", i, len(members), step)
			}
			if step.answer != nil && (step.answer.Of != size || step.answer.Votes*2 < size) {
				rt.Fatalf("answer %+v", step.answer)
			}
		}
	})
}

// The tally counts every member that has answered, most votes first.
func TestTallyIsInOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		votes, answered := 0, 0
		var members []Node
		for i := range rapid.IntRange(0, 20).Draw(rt, "members") {
			member := NewMember("o", i, now)
			member.State = rapid.SampledFrom(states{waiting, queued, running, blocked, done, failed}).Draw(rt, "state")
			if member.State == boxoffice.NodeDone {
				member.Choice = rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "choice")
				answered++
			}
			members = append(members, member)
		}
		for i, choice := range Tally(nil, members) {
			votes += choice.Votes
			if i > 0 && Tally(nil, members)[i-1].Votes < choice.Votes {
				rt.Errorf("tally %+v", Tally(nil, members))
			}
		}
		if votes != answered {
			rt.Errorf("%d votes of %d members", votes, answered)
		}
	})
}

// Choices with as many votes are in alphabetical order, whichever was given first.
func TestTallyOfEqualVotes(t *testing.T) {
	var members []Node
	for i, choice := range []string{"c", "a", "b", "b", "a", "c"} {
		member := NewMember("o", i, now)
		member.State, member.Choice = done, choice
		members = append(members, member)
	}
	want := []boxoffice.Votes{{Choice: "a", Votes: 2}, {Choice: "b", Votes: 2}, {Choice: "c", Votes: 2}}
	if got := Tally([]string{"c", "b", "a"}, members); !slices.Equal(got, want) {
		t.Errorf("tally %+v", got)
	}
}
