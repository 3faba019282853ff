package boxoffice

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
)

// JobState is where a job, oracle or workflow stands.
type JobState string

// The states of work.
const (
	JobQueued    JobState = "queued"
	JobRunning   JobState = "running"
	JobBlocked   JobState = "blocked"
	JobCompleted JobState = "completed"
)

// Validate checks that s is one of the states of work.
func (s JobState) Validate() error {
	return oneOf("", s, JobQueued, JobRunning, JobBlocked, JobCompleted)
}

// JobList is a page of jobs (docs/protocol.md §2.9). The next page is in the Link header.
type JobList struct {
	Count int   `json:"count"`
	Jobs  []Job `json:"jobs"`
}

// Validate checks the page against docs/protocol.md §2.9.
func (l JobList) Validate() error {
	return cmp.Or(
		rule(l.Count == len(l.Jobs), "/count", "must be the number of jobs"),
		items("/jobs", l.Jobs),
	)
}

// Job is a unit of work that an admitted action created (docs/protocol.md §2.9).
type Job struct {
	ID              UUID      `json:"id"`
	State           JobState  `json:"state"`
	Template        string    `json:"template"`
	Objective       string    `json:"objective"` // in lists at most ObjectiveListLength characters
	OriginalRequest *string   `json:"originalRequest"`
	LaunchKind      *string   `json:"launchKind"`
	BlockedReason   *string   `json:"blockedReason"`
	Delivery        *Delivery `json:"delivery"`
	CreatedAt       Timestamp `json:"createdAt"`
	UpdatedAt       Timestamp `json:"updatedAt"`
	Project         *Project  `json:"project"`
	Nodes           []Node    `json:"nodes,omitempty"` // how far each of its nodes is; not in lists
}

// NodeState is where a node of a job, or a member of a panel, stands.
type NodeState string

// The states of nodes.
const (
	NodeWaiting NodeState = "waiting" // for other nodes
	NodeQueued  NodeState = "queued"
	NodeRunning NodeState = "running"
	NodeBlocked NodeState = "blocked" // needs input
	NodeDone    NodeState = "done"
	NodeFailed  NodeState = "failed" // was tried as often as the operator allows
)

// Validate checks that s is one of the states of nodes.
func (s NodeState) Validate() error {
	return oneOf("", s, NodeWaiting, NodeQueued, NodeRunning, NodeBlocked, NodeDone, NodeFailed)
}

// Node is a step of a job.
type Node struct {
	ID        string     `json:"id"`
	State     NodeState  `json:"state"`
	Template  string     `json:"template"`
	After     []string   `json:"after"`    // the nodes whose results it needs
	Attempts  int        `json:"attempts"` // runs of the agent that were started
	Summary   string     `json:"summary,omitempty"`
	Reason    string     `json:"reason,omitempty"` // what it needs, or why its last run failed
	StartedAt *Timestamp `json:"startedAt"`        // of the last run
	EndedAt   *Timestamp `json:"endedAt"`
}

// Validate checks the node.
func (n Node) Validate() error {
	return cmp.Or(
		rule(n.ID != "", "/id", "is required"),
		member("/state", n.State),
		rule(n.Attempts >= 0, "/attempts", "must not be negative"),
		moment("/startedAt", n.StartedAt),
		moment("/endedAt", n.EndedAt),
	)
}

// The kinds of launches (docs/protocol.md §2.9).
const (
	LaunchCustomToken  = "custom_token"
	LaunchUniv4Hook    = "univ4_hook"
	LaunchEVMContracts = "evm_contracts"
	LaunchEVMProject   = "evm_project"
)

// Validate checks the job against docs/protocol.md §2.9. Templates are an open list: new
// ones can be added.
func (j Job) Validate() error {
	err := cmp.Or(
		member("/id", j.ID),
		member("/state", j.State),
		rule(j.Template != "", "/template", "is required"),
		rule(j.Objective != "", "/objective", "is required"),
		rule((j.BlockedReason != nil) == (j.State == JobBlocked), "/blockedReason",
			"must be null unless the job is blocked"),
		member("/createdAt", j.CreatedAt),
		member("/updatedAt", j.UpdatedAt),
	)
	if err == nil {
		err = items("/nodes", j.Nodes)
	}
	if err == nil && j.LaunchKind != nil {
		err = oneOf("/launchKind", *j.LaunchKind,
			LaunchCustomToken, LaunchUniv4Hook, LaunchEVMContracts, LaunchEVMProject)
	}
	if err == nil && j.Delivery != nil {
		err = member("/delivery", j.Delivery)
	}
	if err == nil && j.Project != nil {
		err = member("/project", j.Project)
	}
	return err
}

// ObjectiveListLength is how many characters of an objective a list shows
// before its ellipsis.
const ObjectiveListLength = 200

// Delivery is what a job delivered: a success (RepoURL and the members after
// it) or the text of the delivery command that failed.
type Delivery struct {
	RepoURL        string
	PullRequestURL *string
	Commit         string // 40 hex characters
	DeliveredAt    *Timestamp
	Failure        string
}

// The two objects that a delivery is on the wire (docs/protocol.md §2.9).
type (
	deliverySuccess struct {
		RepoURL        string     `json:"repoUrl"`
		PullRequestURL *string    `json:"pullRequestUrl"`
		Commit         string     `json:"commit"`
		DeliveredAt    *Timestamp `json:"deliveredAt"`
	}
	deliveryFailure struct {
		Failure string `json:"failure"`
	}
)

// MarshalJSON writes the success object or the failure object, never both.
func (d Delivery) MarshalJSON() ([]byte, error) {
	if d.Failure != "" {
		return json.Marshal(deliveryFailure{d.Failure})
	}
	return json.Marshal(deliverySuccess{d.RepoURL, d.PullRequestURL, d.Commit, d.DeliveredAt})
}

// UnmarshalJSON reads either object and refuses a mixture of both.
func (d *Delivery) UnmarshalJSON(data []byte) error {
	var both struct {
		deliverySuccess
		deliveryFailure
	}
	if err := json.Unmarshal(data, &both); err != nil {
		return err
	}
	if both.Failure != "" && both.deliverySuccess != (deliverySuccess{}) {
		return errors.New("delivery must be a success or a failure")
	}
	*d = Delivery{both.RepoURL, both.PullRequestURL, both.Commit, both.DeliveredAt, both.Failure}
	return nil
}

// Validate checks the delivery against docs/protocol.md §2.9.
func (d *Delivery) Validate() error {
	if d.Failure != "" {
		return rule(d.RepoURL == "" && d.PullRequestURL == nil && d.Commit == "" && d.DeliveredAt == nil,
			"/failure", "must stand alone")
	}
	err := cmp.Or(
		uri("/repoUrl", d.RepoURL),
		rule(commitPattern.MatchString(d.Commit), "/commit", "must be 40 hex characters"),
		rule(d.DeliveredAt != nil, "/deliveredAt", "is required"),
		moment("/deliveredAt", d.DeliveredAt),
	)
	if err == nil && d.PullRequestURL != nil {
		err = uri("/pullRequestUrl", *d.PullRequestURL)
	}
	return err
}

// Project places a job among the versions of what it makes.
type Project struct {
	ID      UUID `json:"id"`
	Version int  `json:"version"`
	Of      int  `json:"of"`
}

// Validate checks that the version is one of the total, counted from 1.
func (p *Project) Validate() error {
	return cmp.Or(
		member("/id", p.ID),
		rule(p.Version >= 1, "/version", "must be at least 1"),
		rule(p.Of >= p.Version, "/of", "must be at least the version"),
	)
}

// Oracle is a question put to a panel.
type Oracle struct {
	ID        UUID     `json:"id"`
	State     JobState `json:"state"`
	Question  string   `json:"question"`
	PanelSize int      `json:"panelSize"`
	Options   []string `json:"options,omitempty"`
	Context   string   `json:"context,omitempty"`

	BlockedReason *string      `json:"blockedReason"`     // null unless it is blocked: the panel was not reached
	Answer        *PanelAnswer `json:"answer"`            // null until the whole panel answered
	Tally         []Votes      `json:"tally,omitempty"`   // of the answers so far, most votes first
	Members       []Member     `json:"members,omitempty"` // of the panel, replacements included

	CreatedAt Timestamp `json:"createdAt"`
	UpdatedAt Timestamp `json:"updatedAt"`
}

// PanelAnswer is what a panel answered: the choice with the most votes.
type PanelAnswer struct {
	Choice string `json:"choice"`
	Votes  int    `json:"votes"`
	Of     int    `json:"of"` // the size of the panel; the share is votes of this
}

// Votes is how many members of a panel made a choice.
type Votes struct {
	Choice string `json:"choice"`
	Votes  int    `json:"votes"`
}

// Member is one run of the agent on a panel.
type Member struct {
	Number  int        `json:"number"` // from 1; above the panel's size are replacements
	State   NodeState  `json:"state"`
	Choice  string     `json:"choice,omitempty"`
	Summary string     `json:"summary,omitempty"` // its grounds
	Reason  string     `json:"reason,omitempty"`  // why it failed
	EndedAt *Timestamp `json:"endedAt"`
}

// Validate checks the member.
func (m Member) Validate() error {
	return cmp.Or(
		rule(m.Number >= 1, "/number", "must be at least 1"),
		member("/state", m.State),
		rule((m.Choice != "") == (m.State == NodeDone), "/choice", "must be given exactly if the member is done"),
		moment("/endedAt", m.EndedAt),
	)
}

// Validate checks the oracle.
func (o Oracle) Validate() error {
	return cmp.Or(
		rule((o.BlockedReason != nil) == (o.State == JobBlocked), "/blockedReason",
			"must be null unless the oracle is blocked"),
		rule((o.Answer != nil) == (o.State == JobCompleted), "/answer", "must be null until the oracle is completed"),
		items("/members", o.Members),
		member("/id", o.ID),
		member("/state", o.State),
		rule(o.Question != "", "/question", "is required"),
		rule(o.PanelSize >= 1, "/panelSize", "must be at least 1"),
		member("/createdAt", o.CreatedAt),
		member("/updatedAt", o.UpdatedAt),
	)
}

// Workflow is a graph of nodes and the job that carries it.
type Workflow struct {
	ID        UUID           `json:"id"`
	State     JobState       `json:"state"` // that of its job
	Objective string         `json:"objective"`
	Shape     string         `json:"shape"` // chain or dag
	Nodes     []WorkflowNode `json:"nodes"`
	JobID     UUID           `json:"jobId"`
	CreatedAt Timestamp      `json:"createdAt"`
	UpdatedAt Timestamp      `json:"updatedAt"`
}

// The shapes of a workflow.
const (
	ShapeChain = "chain"
	ShapeDAG   = "dag"
)

// Validate checks the workflow. That its graph has no cycle was decided when it
// was quoted.
func (w Workflow) Validate() error {
	return cmp.Or(
		member("/id", w.ID),
		member("/state", w.State),
		rule(w.Objective != "", "/objective", "is required"),
		oneOf("/shape", w.Shape, ShapeChain, ShapeDAG),
		rule(len(w.Nodes) > 0, "/nodes", "must have at least one item"),
		items("/nodes", w.Nodes),
		member("/jobId", w.JobID),
		member("/createdAt", w.CreatedAt),
		member("/updatedAt", w.UpdatedAt),
	)
}

// WorkflowNode is one step of a workflow, as it is bought and as it is read.
type WorkflowNode struct {
	ID        string `json:"id"`
	Objective string `json:"objective"`
	Template  string `json:"template,omitempty"` // empty in an input: DefaultTemplate
	// After names the nodes whose results it needs. Nil in an input waits for the
	// node before it in a chain, and for none otherwise; when read it is never nil.
	After []string `json:"after,omitzero"`

	// Only when it is read:
	State   NodeState `json:"state,omitempty"`
	Summary string    `json:"summary,omitempty"`
	Reason  string    `json:"reason,omitempty"` // what it needs, or why its last run failed
}

// Validate checks the node.
func (n WorkflowNode) Validate() error {
	return cmp.Or(
		rule(n.ID != "", "/id", "is required"),
		rule(n.Objective != "", "/objective", "is required"),
		rule(n.Template != "", "/template", "is required"),
		rule(!slices.Contains(n.After, n.ID), "/after", "must not name the node itself"),
		rule(n.State == "" || n.State.Validate() == nil, "/state", "must be a state of nodes"),
	)
}

// ScheduleState says whether a schedule opens runs.
type ScheduleState string

// The states of a schedule.
const (
	ScheduleActive  ScheduleState = "active"
	ScheduleStopped ScheduleState = "stopped" // by the operator; a top-up makes it active again
	ScheduleEnded   ScheduleState = "ended"   // no runs are left
)

// Schedule opens a job or an oracle again and again.
type Schedule struct {
	ID              UUID            `json:"id"`
	State           ScheduleState   `json:"state"`
	Action          string          `json:"action"` // job.open or oracle.request
	Input           json.RawMessage `json:"input"`  // of that action, prepared
	IntervalMinutes int64           `json:"intervalMinutes"`
	RunsBought      int64           `json:"runsBought"`
	RunsLeft        int64           `json:"runsLeft"`
	NextRunAt       *Timestamp      `json:"nextRunAt"`          // null unless active
	Missed          string          `json:"missed,omitempty"`   // MissedSkip, the default, or MissedCatchUp
	LastRuns        []ScheduledRun  `json:"lastRuns,omitempty"` // newest first
	CreatedAt       Timestamp       `json:"createdAt"`
	UpdatedAt       Timestamp       `json:"updatedAt"`
}

// What happens to runs that fell due while no worker ran. Skipped runs are not
// lost: they happen later.
const (
	MissedSkip    = "skip"
	MissedCatchUp = "catch_up"
)

// ScheduledRun is work that a schedule opened.
type ScheduledRun struct {
	Number int64     `json:"number"` // counted from 1
	Kind   string    `json:"kind"`   // job or oracle
	ID     UUID      `json:"id"`
	DueAt  Timestamp `json:"dueAt"`
	At     Timestamp `json:"at"` // when it was opened
}

// Validate checks the run.
func (r ScheduledRun) Validate() error {
	return cmp.Or(
		rule(r.Number >= 1, "/number", "must be at least 1"),
		oneOf("/kind", r.Kind, "job", "oracle"),
		member("/id", r.ID),
		member("/dueAt", r.DueAt),
		member("/at", r.At),
	)
}

// Validate checks the schedule.
func (s Schedule) Validate() error {
	return cmp.Or(
		member("/id", s.ID),
		oneOf("/state", s.State, ScheduleActive, ScheduleStopped, ScheduleEnded),
		oneOf("/action", s.Action, ActionJobOpen, ActionOracleRequest),
		rule(json.Valid(s.Input), "/input", "is required"),
		integer("/intervalMinutes", s.IntervalMinutes, 1, MaxSafeInteger),
		integer("/runsBought", s.RunsBought, 1, MaxSafeInteger),
		integer("/runsLeft", s.RunsLeft, 0, s.RunsBought),
		moment("/nextRunAt", s.NextRunAt),
		rule((s.NextRunAt != nil) == (s.State == ScheduleActive), "/nextRunAt",
			"must be null exactly if the schedule is not active"),
		oneOf("/missed", s.Missed, "", MissedSkip, MissedCatchUp),
		items("/lastRuns", s.LastRuns),
		member("/createdAt", s.CreatedAt),
		member("/updatedAt", s.UpdatedAt),
	)
}
