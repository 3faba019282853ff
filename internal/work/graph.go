package work

import (
	"errors"
	"slices"

	"boxoffice"
)

// Graph is a job or an oracle with its nodes, as a store reads it in the
// transaction that changes it. Its methods decide what changes. They read no
// clock and no database, and return the rows to write as a Change.
//
// The states of a node, and the methods that change it:
//
//	          the nodes before it are done            Start
//	waiting ───────────────────────────────▶ queued ──────────▶ running
//	   ▲                                      ▲  │                │ │ │
//	   │      Finish: retry, worker stopped,  │  │ Cancel         │ │ │
//	   │      or a new input; Expire          └──┼────────────────┘ │ │
//	   │                                         ▼     Finish       │ │
//	   │                    GiveInput: queued  failed ◀─────────────┤ │
//	   │                    GiveInput: queued  blocked ◀────────────┤ │
//	   │                    a new input: queued  done ◀─────────────┘ │
//	   └──────────────────────────────────────────────────────────────┘
//	      a delivery ended, and a step has to run again for a new input
type Graph struct {
	Kind  string // KindJob or KindOracle
	ID    boxoffice.UUID
	State boxoffice.JobState
	Nodes []Node // by position; the last node of a job is its delivery

	Inputs int // of a job: how many inputs the requester has given

	PanelSize int      // of an oracle
	Options   []string // of an oracle
}

// Change is what a store writes, in the transaction in which it read the Graph.
// Each write is conditional: it sets To where the row still is From. If one row
// has changed the store writes nothing and returns ErrStale.
type Change struct {
	Nodes   []NodeChange
	Members []Node // new members of a panel
	Input   *Input // a new input of a job
	Record  *RecordChange
}

// Node returns the new row of the node at a position, which the change includes.
func (c Change) Node(position int) Node {
	i := slices.IndexFunc(c.Nodes, func(change NodeChange) bool { return change.To.Position == position })
	return c.Nodes[i].To
}

// NodeChange is a write on the row of a node: where state, attempts and holder
// are those of From, it sets everything that can change to the values of To.
type NodeChange struct {
	From, To Node
	Log      *string // nil: the log stays
	// TaskEnded says that the task of the run is over: no run waits for a result that
	// the agent reports for it later.
	TaskEnded bool
}

// RecordChange is a write on the row of the job or oracle: where the state is
// From, it sets the others.
type RecordChange struct {
	From, To      boxoffice.JobState
	BlockedReason *string
	Delivery      *boxoffice.Delivery    // of a job that is completed
	Answer        *boxoffice.PanelAnswer // of an oracle that is completed
	UpdatedAt     boxoffice.Timestamp
}

// Input is what a requester paid to tell a job.
type Input struct {
	OrderID boxoffice.UUID
	Text    string
	At      boxoffice.Timestamp
}

// The reasons for which a Graph or a Schedule is not changed.
var (
	// ErrStale: the run is not the caller's any more, or the rows were changed
	// by another process.
	ErrStale = errors.New("work: the rows have changed, or the run belongs to another process")
	// ErrEnding: a run of the work was cancelled and its agent may still use the workspace.
	ErrEnding = errors.New("work: the agent of a cancelled run has not ended yet")
	// ErrEnded: the work is completed, or the schedule has no runs left. It takes
	// no input, and there is nothing to cancel.
	ErrEnded = errors.New("work: it has ended")
)

// Predecessors returns the steps whose results the node at a position needs.
func (g Graph) Predecessors(position int) (before []Node) {
	for _, name := range g.Nodes[position].After {
		i := slices.IndexFunc(g.Nodes, func(node Node) bool { return node.ID == name && node.Kind == NodeAgent })
		if i >= 0 {
			before = append(before, g.Nodes[i])
		}
	}
	return before
}

// ending reports whether the agent of a cancelled run may still use the workspace.
func (g Graph) ending(now boxoffice.Timestamp) bool {
	return slices.ContainsFunc(g.Nodes, func(node Node) bool {
		return node.EndingUntil != nil && *node.EndingUntil >= now
	})
}

// hasInputFor reports whether the requester gave an input that the last run of
// a step was not given.
func (g Graph) hasInputFor(node Node) bool {
	return node.Kind == NodeAgent && g.Inputs > node.InputsGiven
}

// advance returns the change of one node together with everything that follows from
// it: the nodes that can run now, and the new state of the job or oracle.
func (g Graph) advance(first NodeChange, delivery *boxoffice.Delivery, now boxoffice.Timestamp) Change {
	nodes := slices.Clone(g.Nodes)
	nodes[first.To.Position] = first.To
	record := &RecordChange{From: g.State, To: boxoffice.JobRunning, UpdatedAt: now}
	var members []Node
	if g.Kind == KindOracle {
		next := advancePanel(g.PanelSize, g.Options, nodes)
		for i := range next.replacements {
			members = append(members, NewMember(g.ID, len(nodes)+i, now))
		}
		switch {
		case next.answer != nil:
			record.To, record.Answer = boxoffice.JobCompleted, next.answer
		case next.blockedReason != "":
			record.To, record.BlockedReason = boxoffice.JobBlocked, &next.blockedReason
		}
	} else {
		next := advanceJob(nodes, g.Inputs)
		for _, position := range next.queue {
			nodes[position] = nodes[position].queued(now)
		}
		if next.redeliver {
			nodes[len(nodes)-1].State = boxoffice.NodeWaiting
		}
		switch {
		case next.completed:
			record.To, record.Delivery = boxoffice.JobCompleted, delivery
		case next.blockedReason != "":
			record.To, record.BlockedReason = boxoffice.JobBlocked, &next.blockedReason
		}
	}
	change := Change{Members: members, Record: record}
	for i, node := range nodes {
		switch {
		case i == first.To.Position:
			change.Nodes = append(change.Nodes, NodeChange{first.From, node, first.Log, first.TaskEnded})
		case node.State != g.Nodes[i].State:
			change.Nodes = append(change.Nodes, NodeChange{From: g.Nodes[i], To: node})
		}
	}
	return change
}
