// Package examples_test runs the example agents as the service runs them.
package examples_test

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"boxoffice"
	"boxoffice/internal/work/agent"
)

// agents returns the command of each example.
func agents(t *testing.T) map[string][]string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "agent-go")
	if output, err := exec.Command("go", "build", "-o", program, "./agent-go").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	commands := map[string][]string{"agent-go": {program}}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Log("SKIPPED: agent-python needs python3")
		return commands
	}
	script, err := filepath.Abs("agent-python/agent.py")
	if err != nil {
		t.Fatal(err)
	}
	commands["agent-python"] = []string{python, script}
	return commands
}

// do runs an agent in a workspace and returns its result and its report.md.
func do(t *testing.T, argv []string, task agent.Task) (agent.Result, string) {
	t.Helper()
	workspace, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	command, err := agent.NewCommand(agent.CommandConfig{
		Argv: argv, Timeout: time.Minute, Grace: time.Second, MaxOutput: 1 << 20, MaxLog: 64 << 10,
		MaxMemory: 256 << 20,
		Scratch:   t.TempDir(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	task.Job, task.Node, task.Template = boxoffice.NewUUID(), "main", "research"
	report, err := command.Run(t.Context(), workspace, task)
	if err != nil {
		t.Fatalf("%v: %s", err, report.Log)
	}
	text, err := os.ReadFile(filepath.Join(workspace, "report.md"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if len(report.Log) == 0 && text != nil {
		t.Error("it wrote no log")
	}
	return report.Result, string(text)
}

func TestExamples(t *testing.T) {
	for name, argv := range agents(t) {
		t.Run(name, func(t *testing.T) {
			task := agent.Task{
				Objective:    "Compare “embedded” databases",
				Context:      []boxoffice.Document{{Name: "notes", Text: "two words"}},
				Predecessors: []agent.Predecessor{{Node: "collect", Summary: "Found three."}},
			}
			result, report := do(t, argv, task)
			if result.Outcome != agent.Done {
				t.Errorf("got %+v", result)
			}
			for _, part := range []string{task.Objective, "Found three."} {
				if !strings.Contains(report, part) {
					t.Errorf("%q is not in %s", part, report)
				}
			}
			againResult, again := do(t, argv, task)
			if diff := cmp.Diff(report, again) + cmp.Diff(result, againResult); diff != "" {
				t.Error(diff)
			}

			task.Objective = "Ask me for the colour"
			if result, report = do(t, argv, task); result.Outcome != agent.Blocked || report != "" {
				t.Errorf("got %+v, %s", result, report)
			}
			task.Inputs = []string{"blue"}
			if result, report = do(t, argv, task); result.Outcome != agent.Done || !strings.Contains(report, "blue") {
				t.Errorf("got %+v, %s", result, report)
			}
		})
	}
}

// At least four of the five members of a panel make the same choice.
func TestExamplePanels(t *testing.T) {
	for name, argv := range agents(t) {
		t.Run(name, func(t *testing.T) {
			tally := map[string]int{}
			for member := range 5 {
				result, _ := do(t, argv, agent.Task{Objective: "Will it rain?", Panel: &agent.Panel{
					Question: "Will it rain?", Options: []string{"yes", "no", "perhaps"}, Member: member, Size: 5,
				}})
				tally[result.Choice]++
			}
			most := 0
			for _, n := range tally {
				most = max(most, n)
			}
			if most < 4 {
				t.Errorf("the tally is %v", tally)
			}
			if result, _ := do(t, argv, agent.Task{Objective: "?", Panel: &agent.Panel{Question: "?", Size: 5}}); result.Choice == "" {
				t.Errorf("got %+v", result)
			}
		})
	}
}
