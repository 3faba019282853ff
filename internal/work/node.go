package work

import (
	"errors"
	"fmt"
	"time"

	"boxoffice"
)

// NodeKind says what running a node means.
type NodeKind string

// The kinds of nodes.
const (
	NodeAgent    NodeKind = "agent"    // a step of a job: the operator's agent runs for it
	NodeMember   NodeKind = "member"   // of an oracle's panel
	NodeDelivery NodeKind = "delivery" // of a job, after all its steps
)

// Node is what is run: a step of a job or its delivery, or a member of a panel.
// A node that is run again keeps its row.
type Node struct {
	Work     boxoffice.UUID // the job or the oracle
	Position int            // within the work, from 0
	Kind     NodeKind
	boxoffice.Node
	Objective string
	Choice    string // a member's
	Failures  int    // of the agent, since it last began or got an answer
}

// Label is what agents know the node by: members of a panel are numbered.
func (n Node) Label() string {
	if n.Kind == NodeMember {
		return fmt.Sprintf("%s-%d", n.ID, n.Position+1)
	}
	return n.ID
}

// soleNode names the node of a job that is no graph.
const soleNode = "main"

// nodesOf returns the nodes of a new job: those of its graph, or one, and its
// delivery.
func nodesOf(job Job) []Node {
	steps := job.Brief.Nodes
	if len(steps) == 0 {
		steps = []boxoffice.WorkflowNode{{ID: soleNode, Objective: job.Objective, Template: job.Template}}
	}
	var nodes []Node
	for i, step := range steps {
		state := boxoffice.NodeWaiting
		if len(step.After) == 0 {
			state = boxoffice.NodeQueued
		}
		nodes = append(nodes, Node{
			Work: job.ID, Position: i, Kind: NodeAgent, Objective: step.Objective,
			Node: boxoffice.Node{ID: step.ID, State: state, Template: step.Template, After: step.After},
		})
	}
	return append(nodes, Node{
		Work: job.ID, Position: len(steps), Kind: NodeDelivery,
		Node: boxoffice.Node{ID: string(NodeDelivery), State: boxoffice.NodeWaiting},
	})
}

// NewMember returns a queued member of a panel.
func NewMember(oracle boxoffice.UUID, position int) Node {
	return Node{
		Work: oracle, Position: position, Kind: NodeMember,
		Node: boxoffice.Node{ID: string(NodeMember), State: boxoffice.NodeQueued},
	}
}

// Run names one attempt at a node. It is what the queue carries: the node's row
// decides whether the attempt is still wanted, so a run that is queued twice, or
// that two workers take, happens once.
type Run struct {
	Work     boxoffice.UUID `json:"work"`
	Position int            `json:"position"`
	Attempt  int            `json:"attempt"` // from 1
}

// Kind names the run in the queue.
func (Run) Kind() string { return "node" }

// Assignment is everything that a run needs to know.
type Assignment struct {
	Run
	Node         Node
	Job          Job    // of a step or a delivery
	Oracle       Oracle // of a member
	Predecessors []Node // that are done, in the order of After
	Answers      []string
}

// Verdict says how a run ended.
type Verdict string

// The verdicts.
const (
	Done      Verdict = "done"
	Blocked   Verdict = "blocked"   // it needs input
	Again     Verdict = "again"     // it failed, and is tried again
	Failed    Verdict = "failed"    // it failed, and is not tried again
	Abandoned Verdict = "abandoned" // its worker stopped: it is tried again as if it had not been
	Lost      Verdict = "lost"      // its worker fell silent: it is tried again, as the same attempt of the agent
)

// Result is what a run came to.
type Result struct {
	Verdict  Verdict
	Summary  string              // done
	Choice   string              // a member that is done
	Reason   string              // blocked, again or failed: for the requester
	After    time.Duration       // again: when
	Log      string              // the end of what the agent said on the side
	Delivery *boxoffice.Delivery // a delivery that is done
	Lapsed   bool                // counts only if the holder has not renewed the run by now
}

// Held is a run that a worker took and has not ended.
type Held struct {
	Run
	Holder string
	Losses int // runs of its node before it whose worker was lost, since that last began or got an answer
}

// A Failure is what somebody else did wrong: a host that refused a push, an
// address that may not be reached, a workspace that is too large. Its text is
// bounded, holds no secret, and is what the requester reads.
type Failure struct{ Text string }

func (f *Failure) Error() string { return f.Text }

// ErrLost is returned for a run that is not, or no longer, the caller's: the
// node was taken by another, or decided.
var ErrLost = errors.New("work: the run is not the caller's")

// ErrLeaving is returned for a run that has to wait: one before it was cancelled,
// and its agent may still be in the workspace.
var ErrLeaving = errors.New("work: a run before it has not ended")
