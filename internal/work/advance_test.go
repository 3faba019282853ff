package work

import (
	"testing"

	"boxoffice"

	"pgregory.net/rapid"
)

var nodeStates = []boxoffice.NodeState{
	boxoffice.NodeWaiting, boxoffice.NodeQueued, boxoffice.NodeRunning, boxoffice.NodeBlocked, boxoffice.NodeDone, boxoffice.NodeFailed,
}

// Whatever becomes of each run, a job comes to an end: it is completed with
// every node done, or blocked by a node that says why; and no node runs before
// those that it waits for are done.
func TestJobsEnd(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		job := Job{}
		ids := []string{"a", "b", "c", "d", "e"}[:rapid.IntRange(1, 5).Draw(rt, "nodes")]
		for i, id := range ids {
			node := boxoffice.WorkflowNode{ID: id, Objective: "o"}
			for _, before := range ids[:i] {
				if rapid.Bool().Draw(rt, before+" before "+id) {
					node.After = append(node.After, before)
				}
			}
			job.Brief.Nodes = append(job.Brief.Nodes, node)
		}
		nodes := nodesOf(job)
		for range 100 {
			var ready []int
			for i, node := range nodes {
				if node.State == boxoffice.NodeQueued {
					ready = append(ready, i)
				}
			}
			if len(ready) == 0 {
				break
			}
			i := rapid.SampledFrom(ready).Draw(rt, "runs")
			for _, before := range nodes[i].After {
				for _, other := range nodes {
					if other.ID == before && other.State != boxoffice.NodeDone {
						rt.Fatalf("%s runs before %s is done", nodes[i].ID, before)
					}
				}
			}
			ends := []boxoffice.NodeState{boxoffice.NodeDone, boxoffice.NodeDone, boxoffice.NodeDone, boxoffice.NodeQueued, boxoffice.NodeBlocked, boxoffice.NodeFailed}
			nodes[i].State = rapid.SampledFrom(ends).Draw(rt, "ends")
			for _, next := range Advance(nodes, false).Queue {
				if nodes[next.Position].State != boxoffice.NodeWaiting {
					rt.Fatalf("%s is queued while it is %s", next.ID, nodes[next.Position].State)
				}
				nodes[next.Position].State = boxoffice.NodeQueued
			}
		}
		step := Advance(nodes, false)
		if !step.Busy && step.Completed == (step.BlockedReason != "") {
			rt.Fatalf("%+v", step)
		}
		if step.Completed {
			for _, node := range nodes {
				if node.State != boxoffice.NodeDone {
					rt.Fatalf("completed while %s is %s", node.ID, node.State)
				}
			}
		}
		if !step.Busy && !step.Completed && step.BlockedReason == "no node can run" {
			rt.Fatalf("blocked by nothing: %+v", nodes)
		}
	})
}

// A panel never has more members than it may, and always comes to an end.
func TestPanelsEnd(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		size := rapid.IntRange(5, 30).Draw(rt, "size")
		var members []Node
		for i := range size {
			members = append(members, NewMember("o", i))
		}
		for i := 0; i < len(members); i++ {
			members[i].State = boxoffice.NodeFailed
			if rapid.IntRange(0, 3).Draw(rt, "answers") > 0 {
				members[i].State, members[i].Choice = boxoffice.NodeDone, rapid.SampledFrom([]string{"yes", "no"}).Draw(rt, "choice")
			}
			step := AdvancePanel(size, []string{"yes", "no"}, members)
			for range step.Replacements {
				members = append(members, NewMember("o", len(members)))
			}
			last := i == len(members)-1
			if len(members) > size+MaxReplacements(size) || last != (step.Answer != nil || step.BlockedReason != "") {
				rt.Fatalf("member %d of %d: %+v", i, len(members), step)
			}
			if step.Answer != nil && (step.Answer.Of != size || step.Answer.Votes*2 < size) {
				rt.Fatalf("answer %+v", step.Answer)
			}
		}
	})
}

// The next run is after the one that was due and on its grid; a schedule that
// skips goes to the first moment after now.
func TestNextRun(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		due := boxoffice.Timestamp(rapid.Int64Range(0, 4e12).Draw(rt, "due"))
		now := due + boxoffice.Timestamp(rapid.Int64Range(0, 4e12).Draw(rt, "late"))
		minutes := rapid.Int64Range(10, 525_600).Draw(rt, "interval")
		interval := boxoffice.Timestamp(minutes * 60_000)
		if got := NextRun(due, now, minutes, boxoffice.MissedCatchUp); got != due+interval {
			rt.Errorf("catching up: %d", got)
		}
		got := NextRun(due, now, minutes, boxoffice.MissedSkip)
		if got <= now || got-interval > now || (got-due)%interval != 0 {
			rt.Errorf("skipping: %d", got)
		}
	})
}

func TestTallyIsInOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		votes, done := 0, 0
		var members []Node
		for i := range rapid.IntRange(0, 20).Draw(rt, "members") {
			member := NewMember("o", i)
			member.State = rapid.SampledFrom(nodeStates).Draw(rt, "state")
			if member.State == boxoffice.NodeDone {
				member.Choice = rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "choice")
				done++
			}
			members = append(members, member)
		}
		for i, choice := range Tally(nil, members) {
			votes += choice.Votes
			if i > 0 && Tally(nil, members)[i-1].Votes < choice.Votes {
				rt.Errorf("tally %+v", Tally(nil, members))
			}
		}
		if votes != done {
			rt.Errorf("%d votes of %d members", votes, done)
		}
	})
}
