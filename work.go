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

// JobList is a page of jobs (spec.md §2.9). The next page is in the Link header.
type JobList struct {
	Count int   `json:"count"`
	Jobs  []Job `json:"jobs"`
}

// Validate checks the page against spec.md §2.9.
func (l JobList) Validate() error {
	return cmp.Or(
		rule(l.Count == len(l.Jobs), "/count", "must be the number of jobs"),
		items("/jobs", l.Jobs),
	)
}

// Job is a unit of work that an admitted action created (spec.md §2.9).
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
}

// The kinds of launches (spec.md §2.9).
const (
	LaunchCustomToken  = "custom_token"
	LaunchUniv4Hook    = "univ4_hook"
	LaunchEVMContracts = "evm_contracts"
	LaunchEVMProject   = "evm_project"
)

// Validate checks the job against spec.md §2.9. Templates are an open list: the
// specification gives those that were seen.
func (j Job) Validate() error {
	err := cmp.Or(
		member("/id", j.ID),
		member("/state", j.State),
		rule(j.Template != "", "/template", "is required"),
		rule(j.Objective != "", "/objective", "is required"),
		rule((j.BlockedReason != nil) == (j.State == JobBlocked), "/blockedReason", "must be null unless the job is blocked"),
		member("/createdAt", j.CreatedAt),
		member("/updatedAt", j.UpdatedAt),
	)
	if err == nil && j.LaunchKind != nil {
		err = oneOf("/launchKind", *j.LaunchKind, LaunchCustomToken, LaunchUniv4Hook, LaunchEVMContracts, LaunchEVMProject)
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

// The two objects that a delivery is on the wire (spec.md §2.9).
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

// Validate checks the delivery against spec.md §2.9.
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
	ID        UUID      `json:"id"`
	State     JobState  `json:"state"`
	Question  string    `json:"question"`
	PanelSize int       `json:"panelSize"`
	Options   []string  `json:"options,omitempty"`
	Context   string    `json:"context,omitempty"`
	CreatedAt Timestamp `json:"createdAt"`
	UpdatedAt Timestamp `json:"updatedAt"`
}

// Validate checks the oracle.
func (o Oracle) Validate() error {
	return cmp.Or(
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

// WorkflowNode is one step of a workflow.
type WorkflowNode struct {
	ID        string   `json:"id"`
	Objective string   `json:"objective"`
	Template  string   `json:"template"`
	After     []string `json:"after"` // the nodes whose results it needs
}

// Validate checks the node.
func (n WorkflowNode) Validate() error {
	return cmp.Or(
		rule(n.ID != "", "/id", "is required"),
		rule(n.Objective != "", "/objective", "is required"),
		rule(n.Template != "", "/template", "is required"),
		rule(!slices.Contains(n.After, n.ID), "/after", "must not name the node itself"),
	)
}

// ScheduleState says whether a schedule still has runs.
type ScheduleState string

// The states of a schedule.
const (
	ScheduleActive ScheduleState = "active"
	ScheduleEnded  ScheduleState = "ended"
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
	NextRunAt       *Timestamp      `json:"nextRunAt"` // null when ended
	CreatedAt       Timestamp       `json:"createdAt"`
	UpdatedAt       Timestamp       `json:"updatedAt"`
}

// Validate checks the schedule.
func (s Schedule) Validate() error {
	return cmp.Or(
		member("/id", s.ID),
		oneOf("/state", s.State, ScheduleActive, ScheduleEnded),
		oneOf("/action", s.Action, ActionJobOpen, ActionOracleRequest),
		rule(json.Valid(s.Input), "/input", "is required"),
		integer("/intervalMinutes", s.IntervalMinutes, 1, MaxSafeInteger),
		integer("/runsBought", s.RunsBought, 1, MaxSafeInteger),
		integer("/runsLeft", s.RunsLeft, 0, s.RunsBought),
		moment("/nextRunAt", s.NextRunAt),
		rule((s.NextRunAt != nil) == (s.State == ScheduleActive), "/nextRunAt", "must be null exactly if the schedule ended"),
		member("/createdAt", s.CreatedAt),
		member("/updatedAt", s.UpdatedAt),
	)
}
