package work

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"boxoffice"
)

// jobAdvance is what follows from the states of the nodes of a job.
type jobAdvance struct {
	queue         []int // positions of the nodes to be queued now
	redeliver     bool  // a step has to run again, and the delivery waits for it
	completed     bool  // every step and the delivery are done
	blockedReason string
}

// advanceJob decides what comes next for a job. The last of the nodes is its delivery;
// inputs is how many inputs the requester has given.
func advanceJob(nodes []Node, inputs int) (next jobAdvance) {
	steps, delivery := nodes[:len(nodes)-1], nodes[len(nodes)-1]
	done, given := map[string]bool{}, 0
	for _, node := range steps {
		done[node.ID] = node.State == boxoffice.NodeDone
		given = max(given, node.InputsGiven)
	}
	allDone := true
	for i, node := range steps {
		ready := !slices.ContainsFunc(node.After, func(before string) bool { return !done[before] })
		if node.State == boxoffice.NodeWaiting && ready {
			next.queue = append(next.queue, i)
		}
		allDone = allDone && done[node.ID]
	}
	underWay := func(node Node) bool {
		return node.State == boxoffice.NodeQueued || node.State == boxoffice.NodeRunning
	}
	switch {
	case allDone && inputs > given && !underWay(delivery):
		// No step was given the newest input: the last one runs again with it.
		next.queue, next.redeliver = []int{len(steps) - 1}, true
	case allDone && delivery.State == boxoffice.NodeWaiting:
		next.queue = []int{len(steps)}
	}
	switch {
	case len(next.queue) > 0 || slices.ContainsFunc(nodes, underWay):
	case allDone && delivery.State == boxoffice.NodeDone:
		next.completed = true
	default:
		next.blockedReason = blockedReason(nodes)
	}
	return next
}

// blockedReason says which nodes of a job need an input, and which have failed
// (docs/protocol.md §2.9).
func blockedReason(nodes []Node) string {
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
