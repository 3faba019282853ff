package work

import (
	"fmt"
	"time"

	"boxoffice"
)

// NodeKind says what a run of a node does.
type NodeKind string

// The kinds of nodes.
const (
	NodeAgent    NodeKind = "agent"    // a step of a job: the operator's agent runs for it
	NodeMember   NodeKind = "member"   // a member of an oracle's panel
	NodeDelivery NodeKind = "delivery" // the delivery of a job, after all its steps
)

// The templates of nodes that are not steps of a job.
const (
	TemplateOracle   = "oracle"   // members of panels
	TemplateDelivery = "delivery" // deliveries: every worker runs them
)

// Node is the row of a step of a job, of its delivery, or of a member of a panel.
// A node that runs again keeps its row.
type Node struct {
	Work     boxoffice.UUID // the job or the oracle
	Position int            // within the work, from 0
	Kind     NodeKind
	boxoffice.Node
	Objective string
	Choice    string // what a member answered

	Failures    int // failed runs since the node began or got an input
	WorkersLost int // runs whose worker was lost, since the node began or got an input
	InputsGiven int // how many inputs of the job the last run was given

	DueAt     *boxoffice.Timestamp // of a queued node: when its next run may start
	Holder    string               // of a running node: the process that runs it
	HeldUntil *boxoffice.Timestamp // of a running node: when the run expires, unless its holder renews it

	// EndingHolder is the process whose run of the node was cancelled and whose
	// agent may still use the workspace. Other runs of the job wait until that
	// process reports the end, at most until EndingUntil.
	EndingHolder string
	EndingUntil  *boxoffice.Timestamp
}

// Label is the name of the node in the tasks of agents. Members of a panel are numbered.
func (n Node) Label() string {
	if n.Kind == NodeMember {
		return fmt.Sprintf("%s-%d", n.ID, n.Position+1)
	}
	return n.ID
}

// soleNode is the name of the only step of a job that is not a workflow.
const soleNode = "main"

// nodesOf returns the nodes of a new job: its steps, and its delivery as the last.
func nodesOf(job Job) []Node {
	steps := job.Brief.Nodes
	if len(steps) == 0 {
		steps = []boxoffice.WorkflowNode{{ID: soleNode, Objective: job.Objective, Template: job.Template}}
	}
	var nodes []Node
	for i, step := range steps {
		node := Node{
			Work: job.ID, Position: i, Kind: NodeAgent, Objective: step.Objective,
			Node: boxoffice.Node{ID: step.ID, State: boxoffice.NodeWaiting, Template: step.Template, After: step.After},
		}
		if len(step.After) == 0 {
			node = node.queued(job.CreatedAt)
		}
		nodes = append(nodes, node)
	}
	return append(nodes, Node{
		Work: job.ID, Position: len(steps), Kind: NodeDelivery,
		Node: boxoffice.Node{ID: string(NodeDelivery), State: boxoffice.NodeWaiting, Template: TemplateDelivery},
	})
}

// NewMember returns a queued member of a panel.
func NewMember(oracle boxoffice.UUID, position int, now boxoffice.Timestamp) Node {
	return Node{
		Work: oracle, Position: position, Kind: NodeMember,
		Node: boxoffice.Node{ID: string(NodeMember), Template: TemplateOracle},
	}.queued(now)
}

// queued returns the node queued to run at once, with its failures forgotten.
func (n Node) queued(now boxoffice.Timestamp) Node {
	n.State, n.DueAt = boxoffice.NodeQueued, &now
	n.Failures, n.WorkersLost, n.Reason = 0, 0, ""
	return n
}

// Run names one attempt to carry out a node.
type Run struct {
	Work     boxoffice.UUID `json:"work"`
	Position int            `json:"position"`
	Attempt  int            `json:"attempt"` // from 1
}

// Assignment has everything that a worker needs for a run.
type Assignment struct {
	Run
	Node         Node
	Job          Job    // of a step or a delivery
	Oracle       Oracle // of a member
	Predecessors []Node // the nodes in After, in that order; all are done
	Inputs       []string
}

// Claim says which queued nodes a worker can run.
type Claim struct {
	Templates []string // of the nodes; nil: any
	Limit     int
}

// Outcome says how a run ended.
type Outcome string

// The outcomes.
const (
	Done          Outcome = "done"
	Retry         Outcome = "retry"   // it failed, and another run can help
	Blocked       Outcome = "blocked" // it needs an input
	Failed        Outcome = "failed"  // it failed, and another run does not help
	WorkerStopped Outcome = "worker stopped"
	WorkerLost    Outcome = "worker lost"
)

// Result is how a run ended and what it produced.
type Result struct {
	Outcome    Outcome
	Summary    string              // done
	Choice     string              // done: of a member
	Delivery   *boxoffice.Delivery // done: of a delivery
	Reason     string              // retry, blocked or failed: the requester reads it
	OurFault   bool                // retry: the cause is this service, neither the agent nor the requester's side
	RetryAfter time.Duration       // retry: the next run starts no sooner
	Log        string              // the end of what the agent wrote to standard error
}

// Retries says how often and when failed runs are tried again.
type Retries struct {
	MaxFailures int           // failed runs after which a node has failed
	Backoff     time.Duration // before the first retry; it doubles with each
}

func (r Retries) after(failures int) time.Duration { return r.Backoff << min(failures, 10) }

// A Failure is what the requester's side did wrong: a host that refused a push,
// an address that may not be reached, a workspace that is too large. The
// requester reads its text, which is short and holds no secret.
type Failure struct{ Text string }

func (f *Failure) Error() string { return f.Text }
