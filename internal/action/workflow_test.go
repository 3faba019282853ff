package action_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"boxoffice"
)

// workflow writes an input whose nodes are given as "id" (no after), "id<"
// (an empty one) or "id<a,b".
func workflow(shape string, nodes ...string) string {
	input := map[string]any{"objective": "o", "shape": shape}
	var list []map[string]any
	for _, text := range nodes {
		id, after, given := strings.Cut(text, "<")
		node := map[string]any{"id": id, "objective": "o"}
		if given {
			node["after"] = strings.FieldsFunc(after, func(r rune) bool { return r == ',' })
		}
		list = append(list, node)
	}
	input["nodes"] = list
	document, err := json.Marshal(input)
	if err != nil {
		panic(err)
	}
	return string(document)
}

func TestWorkflowGraphs(t *testing.T) {
	tests := []struct {
		name, input    string
		reason, detail string // none: taken
	}{
		{"one node", workflow("chain", "a"), "", ""},
		{"a chain in another order", workflow("chain", "c<b", "a<", "b<a"), "", ""},
		{"a diamond", workflow("dag", "a", "b<a", "c<a", "d<b,c"), "", ""},
		{"two parts", workflow("dag", "a", "b"), "", ""},
		{"same id", workflow("dag", "a", "b", "a"), string(boxoffice.RefusedDuplicateNode), "two nodes have the id a"},
		{"ids differ by case", workflow("dag", "a", "A"), "", ""},
		{"unknown", workflow("dag", "a", "b<a,z"), string(boxoffice.RefusedUnknownNode),
			"node b is after z, which is not a node of this workflow"},
		{"itself", workflow("dag", "a<a"), string(boxoffice.RefusedWorkflowCycle),
			"nodes wait for each other in a circle: a is after a"},
		{"a circle behind others", workflow("dag", "z<a", "a<b", "b<c", "c<a"), string(boxoffice.RefusedWorkflowCycle),
			"nodes wait for each other in a circle: a is after b is after c is after a"},
		{"a chain bites its tail", workflow("chain", "a<b", "b"), string(boxoffice.RefusedWorkflowCycle),
			"nodes wait for each other in a circle: a is after b is after a"},
		{"two firsts", workflow("chain", "a", "b<"), string(boxoffice.RefusedNotAChain),
			"a chain has one first node, and neither a nor b is after another"},
		{"a branch", workflow("chain", "a", "b", "c<a"), string(boxoffice.RefusedNotAChain),
			"a chain does not branch, and both b and c are after a"},
		{"a join", workflow("chain", "a", "b", "c<a,b"), string(boxoffice.RefusedNotAChain),
			"a node of a chain is after one other, and c is after 2"},
	}
	c := catalog(t, nil)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := prepare(c, "workflow.open", tt.input)
			if tt.reason == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if p := problem(t, err, boxoffice.ActionRefused); p.Reason != tt.reason || p.Detail != tt.detail {
				t.Error(p)
			}
		})
	}
}

// A workflow is taken exactly if its nodes can be put in an order in which each
// stands behind all that it is after.
func TestWorkflowIsTakenIfItCanBeRun(t *testing.T) {
	c := catalog(t, nil)
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "nodes")
		after := make([][]int, n)
		nodes := make([]string, n)
		for i := range nodes {
			after[i] = rapid.SliceOfNDistinct(rapid.IntRange(0, n-1), 0, 2, rapid.ID[int]).Draw(t, "after")
			var ids []string
			for _, j := range after[i] {
				ids = append(ids, fmt.Sprint("n", j))
			}
			nodes[i] = fmt.Sprint("n", i, "<", strings.Join(ids, ","))
		}
		ran := make([]bool, n)
		left := n
		for range n {
			for i := range n {
				ready := !ran[i]
				for _, j := range after[i] {
					ready = ready && ran[j]
				}
				if ready {
					ran[i] = true
					left--
				}
			}
		}
		_, err := prepare(c, "workflow.open", workflow("dag", nodes...))
		if (err == nil) != (left == 0) {
			t.Fatalf("%v: %d nodes can never run, and the error is %v", nodes, left, err)
		}
	})
}
