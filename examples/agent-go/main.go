// Agent-go is an example of an agent: a program that boxoffice starts in a job's workspace. It reads a task as JSON
// from standard input and writes a result as JSON to standard output. It imports nothing of boxoffice.
//
// It writes report.md into the workspace. The service commits and delivers what is in the workspace. Its results depend
// on the task alone, so a demo shows the same every time.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"
)

// task holds the members of a task that this agent uses. ../README.md describes all of them.
type task struct {
	V            int
	Job, Node    string
	Template     string
	Objective    string
	LaunchKind   string
	ChainID      uint64
	PairWith     string
	Context      []struct{ Name, Text string }
	Predecessors []struct{ Node, Summary string }
	Inputs       []string
	Panel        *panel
}

type panel struct {
	Question     string
	Options      []string
	Member, Size int
}

type result struct {
	Outcome string `json:"outcome"`
	Summary string `json:"summary,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Choice  string `json:"choice,omitempty"`
}

// Package log writes to standard error, which is kept as the node's log.
func main() {
	log.SetFlags(0)
	result, err := work(os.Stdin, ".")
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		log.Fatal(err)
	}
}

func work(input io.Reader, workspace string) (result, error) {
	var t task
	if err := json.NewDecoder(input).Decode(&t); err != nil {
		return result{}, fmt.Errorf("read the task: %w", err)
	}
	if t.V != 1 {
		return result{}, errors.New("this agent knows version 1 of the contract")
	}
	if t.Panel != nil {
		return t.Panel.vote(), nil
	}
	log.Printf("node %s of job %s", t.Node, t.Job)
	if strings.Contains(strings.ToLower(t.Objective), "ask me") && len(t.Inputs) == 0 {
		log.Print("the objective asks for a question")
		return result{Outcome: "blocked", Reason: "The objective says to ask: what should the report say?"}, nil
	}
	name, err := write(filepath.Join(workspace, "report.md"), t.report())
	if err != nil {
		return result{}, fmt.Errorf("write the report: %w", err)
	}
	log.Printf("wrote %s", name)
	return result{Outcome: "done", Summary: fmt.Sprintf("Wrote %s on: %s", name, short(t.Objective, 80))}, nil
}

// write replaces a file. It removes the file first, because writing to a link would change the file behind it.
func write(path, text string) (name string, err error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	return filepath.Base(path), os.WriteFile(path, []byte(text), 0o644)
}

func (t task) report() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n\n", short(t.Objective, 60), t.Objective)
	fmt.Fprintf(&b, "- template: %s\n", t.Template)
	if t.Node != "" {
		fmt.Fprintf(&b, "- node: %s\n", t.Node)
	}
	if t.LaunchKind != "" {
		fmt.Fprintf(&b, "- launch: %s on chain %d, paired with %s\n", t.LaunchKind, t.ChainID, t.PairWith)
	}
	for _, document := range t.Context {
		fmt.Fprintf(&b, "\n## Given: %s\n\n%d words.\n", document.Name, len(strings.Fields(document.Text)))
	}
	for _, before := range t.Predecessors {
		fmt.Fprintf(&b, "\n## From %s\n\n%s\n", before.Node, before.Summary)
	}
	for _, given := range t.Inputs {
		fmt.Fprintf(&b, "\n## You added\n\n%s\n", given)
	}
	fmt.Fprintf(&b, "\n## Findings\n\nThe objective has %d words. A real agent would have worked on them.\n",
		len(strings.Fields(t.Objective)))
	return b.String()
}

// vote gives most members of the panel one choice, and every fourth member the next one.
func (p panel) vote() result {
	options := p.Options
	if len(options) == 0 {
		options = []string{"yes", "no"}
	}
	hash := fnv.New32a()
	hash.Write([]byte(p.Question))
	i := int(hash.Sum32() % uint32(len(options)))
	if p.Member%4 == 3 {
		i = (i + 1) % len(options)
	}
	log.Printf("member %d of %d says %s", p.Member, p.Size, options[i])
	summary := fmt.Sprintf("Member %d holds that the answer is %s.", p.Member, options[i])
	return result{Outcome: "done", Choice: options[i], Summary: summary}
}

func short(text string, most int) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}
