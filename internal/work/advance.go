package work

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"boxoffice"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Step is what follows from how the nodes of a job stand.
type Step struct {
	Queue         []Node // to be queued now
	Reopened      bool   // the node to be queued is done: an input came after its run
	Busy          bool   // something is queued or runs
	Completed     bool   // everything is done and delivered
	BlockedReason string // of a job that is neither busy nor completed
}

// Advance decides what to do next for a job with the given nodes, in their
// order. unseen says that the requester gave an input that no run was told.
func Advance(nodes []Node, unseen bool) Step {
	steps, delivery := nodes[:len(nodes)-1], nodes[len(nodes)-1]
	done := map[string]bool{}
	for _, node := range steps {
		done[node.ID] = node.State == boxoffice.NodeDone
	}
	var step Step
	finished := true
	for _, node := range steps {
		ready := node.State == boxoffice.NodeWaiting &&
			!slices.ContainsFunc(node.After, func(before string) bool { return !done[before] })
		if ready {
			step.Queue = append(step.Queue, node)
		}
		finished = finished && done[node.ID]
	}
	switch {
	case finished && unseen && delivery.State != boxoffice.NodeQueued && delivery.State != boxoffice.NodeRunning:
		step.Queue, step.Reopened = []Node{steps[len(steps)-1]}, true
	case finished && delivery.State == boxoffice.NodeWaiting:
		step.Queue = []Node{delivery}
	}
	step.Busy = len(step.Queue) > 0 || slices.ContainsFunc(nodes, func(node Node) bool {
		return node.State == boxoffice.NodeQueued || node.State == boxoffice.NodeRunning
	})
	step.Completed = !step.Busy && finished && delivery.State == boxoffice.NodeDone
	if !step.Busy && !step.Completed {
		step.BlockedReason = BlockedReason(nodes)
	}
	return step
}

// CancelledReason is why a node failed that an operator cancelled.
const CancelledReason = "cancelled by the operator"

// BlockedReason says of a job with the given nodes which of them need input, or
// that analysis failed (spec.md §2.9).
func BlockedReason(nodes []Node) string {
	var reasons []string
	for _, node := range nodes {
		switch {
		case node.State == boxoffice.NodeBlocked:
			reasons = append(reasons, fmt.Sprintf("node %s needs input: %s", node.ID, node.Reason))
		case node.State == boxoffice.NodeFailed && node.Kind == NodeDelivery:
			reasons = append(reasons, "delivery failed: "+node.Reason)
		case node.State == boxoffice.NodeFailed:
			reasons = append(reasons, fmt.Sprintf("analysis failed at node %s: %s", node.ID, node.Reason))
		}
	}
	return cmp.Or(strings.Join(reasons, "; "), "no node can run")
}

// PanelStep is what follows from how the members of a panel stand.
type PanelStep struct {
	Replacements  int                    // members to be added
	Answer        *boxoffice.PanelAnswer // when the whole panel answered
	BlockedReason string                 // when it never will
}

// MaxReplacements is how many members of a panel may be replaced.
func MaxReplacements(size int) int { return max(2, size/2) }

// AdvancePanel decides what to do next for an oracle with the given members.
func AdvancePanel(size int, options []string, members []Node) PanelStep {
	answered, busy := 0, 0
	for _, member := range members {
		switch member.State {
		case boxoffice.NodeDone:
			answered++
		case boxoffice.NodeQueued, boxoffice.NodeRunning:
			busy++
		}
	}
	if answered >= size {
		votes := Tally(options, members)[0]
		return PanelStep{Answer: &boxoffice.PanelAnswer{Choice: votes.Choice, Votes: votes.Votes, Of: size}}
	}
	missing := size - answered - busy
	step := PanelStep{Replacements: max(0, min(missing, size+MaxReplacements(size)-len(members)))}
	if busy+step.Replacements == 0 {
		step.BlockedReason = fmt.Sprintf("the panel could not be reached: %d of %d members answered, and no more than %d may be replaced",
			answered, size, MaxReplacements(size))
	}
	return step
}

// Tally counts the choices of the members that answered, most votes first and
// those with as many in alphabetical order. Of a question without options,
// choices that differ in case, in white space or in Unicode form alone are one,
// spelt as by the member with the lowest number.
func Tally(options []string, members []Node) []boxoffice.Votes {
	var tally []boxoffice.Votes
	known := map[string]int{} // where in tally a choice is
	for _, member := range members {
		if member.State != boxoffice.NodeDone {
			continue
		}
		shown, choice := member.Choice, member.Choice
		if len(options) == 0 {
			shown, choice = strings.TrimSpace(shown), alike(choice)
		}
		i, found := known[choice]
		if !found {
			i, known[choice] = len(tally), len(tally)
			tally = append(tally, boxoffice.Votes{Choice: shown})
		}
		tally[i].Votes++
	}
	slices.SortFunc(tally, func(a, b boxoffice.Votes) int {
		return cmp.Or(cmp.Compare(b.Votes, a.Votes), cmp.Compare(a.Choice, b.Choice))
	})
	return tally
}

// alike returns the same text for choices that are one.
func alike(choice string) string {
	return strings.Join(strings.Fields(norm.NFC.String(cases.Fold().String(norm.NFC.String(choice)))), " ")
}

// NextRun returns when the run after the one that was due is, which is on the
// same grid. A schedule that skips what it missed goes to the first moment after
// now, one that catches up to the very next.
func NextRun(due, now boxoffice.Timestamp, intervalMinutes int64, missed string) boxoffice.Timestamp {
	interval := boxoffice.Timestamp(intervalMinutes * time.Minute.Milliseconds())
	next := due + interval
	if missed != boxoffice.MissedCatchUp && next <= now {
		next += ((now-next)/interval + 1) * interval
	}
	return next
}
