package work

import (
	"slices"
	"testing"
	"time"

	"boxoffice"
)

// A cancellation marks the runs whose agents may still use the workspace, keeps
// earlier marks, and ends every task.
func TestCancelMarks(t *testing.T) {
	graph, until := panel(5, done, running), now+second
	graph.Nodes[2].EndingHolder, graph.Nodes[2].EndingUntil = "worker 2", &until
	change, err := graph.Cancel(now)
	if err != nil || len(change.Nodes) != 4 {
		t.Fatalf("%+v, %v", change, err)
	}
	for _, node := range change.Nodes {
		if !node.TaskEnded || node.To.EndedAt == nil {
			t.Errorf("node %d: %+v", node.To.Position, node)
		}
	}
	if node := change.Node(1); node.EndingHolder != worker || *node.EndingUntil != *graph.Nodes[1].HeldUntil {
		t.Errorf("the node that ran: %+v", node)
	}
	if node := change.Node(2); node.EndingHolder != "worker 2" || *node.EndingUntil != until {
		t.Errorf("the node with an earlier mark: %+v", node)
	}
	if change, err := written(graph, change).RunEnded(Run{"oracle", 1, 1}, "worker 2"); err != nil ||
		change.Nodes != nil {
		t.Errorf("another process removed the mark: %+v, %v", change, err)
	}
}

// A node that is blocked shows when its run ended; an input removes the reason.
func TestEndAndReason(t *testing.T) {
	graph := chain(running)
	change, err := finishing(Result{Outcome: Blocked, Reason: "which?"})(graph)
	if err != nil || change.Node(0).EndedAt == nil || *change.Node(0).EndedAt != now {
		t.Fatalf("%+v, %v", change, err)
	}
	change, err = givingInput(written(graph, change))
	if err != nil || change.Node(0).Reason != "" {
		t.Errorf("%+v, %v", change, err)
	}
}

// If any step was given the newest input, a job whose steps are done is delivered,
// also if the last step was given none.
func TestInputGivenToAnEarlierStep(t *testing.T) {
	graph := with(chain(running, done), boxoffice.JobRunning, 1)
	graph.Nodes[0].InputsGiven = 1
	change, err := finishing(Result{Outcome: Done})(graph)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := statesOf(written(graph, change)), (states{done, done, queued}); !slices.Equal(got, want) {
		t.Errorf("nodes %v, want %v", got, want)
	}
}

func TestLongestBackoff(t *testing.T) {
	if got, want := retries.after(64), retries.Backoff*1024; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A schedule that skips missed runs does not run twice at one moment.
func TestNextRunOnTheGrid(t *testing.T) {
	minute := 60 * second
	if got := nextRun(now, now+minute, 1, "skip"); got != now+2*minute {
		t.Errorf("next run after %s, want 2m", time.Duration(got-now)*time.Millisecond)
	}
}
