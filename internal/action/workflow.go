package action

import (
	"slices"
	"strings"

	"boxoffice"
)

// completeWorkflow fills in the template and the after of each node, and checks that the nodes form a graph of the
// workflow's shape.
func completeWorkflow(_ *Catalog, w *boxoffice.WorkflowOpen) error {
	for i := range w.Nodes {
		node := &w.Nodes[i]
		if node.Template == "" {
			node.Template = boxoffice.DefaultTemplate
		}
		if node.After != nil {
			continue
		}
		node.After = []string{}
		if w.Shape == boxoffice.ShapeChain && i > 0 {
			node.After = []string{w.Nodes[i-1].ID}
		}
	}
	after := make(map[string][]string, len(w.Nodes))
	for _, node := range w.Nodes {
		if _, taken := after[node.ID]; taken {
			return refuse(boxoffice.RefusedDuplicateNode, "two nodes have the id %s", node.ID)
		}
		after[node.ID] = node.After
	}
	for _, node := range w.Nodes {
		for _, id := range node.After {
			if _, known := after[id]; !known {
				return refuse(boxoffice.RefusedUnknownNode,
					"node %s is after %s, which is not a node of this workflow", node.ID, id)
			}
		}
	}
	if cycle := findCycle(w.Nodes, after); cycle != nil {
		return refuse(boxoffice.RefusedWorkflowCycle,
			"nodes wait for each other in a circle: %s", strings.Join(cycle, " is after "))
	}
	if w.Shape == boxoffice.ShapeChain {
		return checkChain(w.Nodes)
	}
	return nil
}

// findCycle returns the ids along a cycle, with the first id again at the end. It returns nil if there is no cycle.
func findCycle(nodes []boxoffice.WorkflowNode, after map[string][]string) []string {
	done := make(map[string]bool, len(nodes))
	var path []string
	var visit func(id string) []string
	visit = func(id string) []string {
		if at := slices.Index(path, id); at >= 0 {
			return append(slices.Clone(path[at:]), id)
		}
		if done[id] {
			return nil
		}
		path = append(path, id)
		for _, earlier := range after[id] {
			if cycle := visit(earlier); cycle != nil {
				return cycle
			}
		}
		path = path[:len(path)-1]
		done[id] = true
		return nil
	}
	for _, node := range nodes {
		if cycle := visit(node.ID); cycle != nil {
			return cycle
		}
	}
	return nil
}

// checkChain refuses an acyclic graph that is not one line: a node comes after two others, two nodes come after the
// same one, or two nodes come after none.
func checkChain(nodes []boxoffice.WorkflowNode) error {
	first := ""
	followers := make(map[string]string, len(nodes))
	for _, node := range nodes {
		switch len(node.After) {
		case 0:
			if first != "" {
				return refuse(boxoffice.RefusedNotAChain,
					"a chain has one first node, and neither %s nor %s is after another", first, node.ID)
			}
			first = node.ID
		case 1:
			earlier := node.After[0]
			if other, taken := followers[earlier]; taken {
				return refuse(boxoffice.RefusedNotAChain,
					"a chain does not branch, and both %s and %s are after %s", other, node.ID, earlier)
			}
			followers[earlier] = node.ID
		default:
			return refuse(boxoffice.RefusedNotAChain,
				"a node of a chain is after one other, and %s is after %d", node.ID, len(node.After))
		}
	}
	return nil
}
