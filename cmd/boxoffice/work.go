package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"boxoffice"
	"boxoffice/client"
)

type jobCmd struct {
	reading
	Watch   bool          `short:"w" help:"Follow the job until it is completed or blocked: each change of each node, then the delivery. The exit code is that of the outcome."`
	Timeout time.Duration `default:"1h" help:"How long to watch."`
}

// Run shows a job as it is, or with --watch when it has ended.
func (cmd *jobCmd) Run(ctx context.Context, s *Settings, std *streams) error {
	if !cmd.Watch {
		return show(ctx, s, std, cmd.ID, (*client.Client).Job, (*page).job)
	}
	id, err := parseID(cmd.ID)
	if err != nil {
		return err
	}
	c, err := s.connect(ctx, std, needsToken)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cmd.Timeout)
	defer cancel()
	last := map[string]string{}
	show := func(name, state string) {
		if last[name] != state {
			fmt.Fprintf(std.err, "%s %s %s\n", time.Now().Format(time.TimeOnly), printable(name), printable(state))
		}
		last[name] = state
	}
	var job boxoffice.Job
	for job, err = range c.WatchJob(ctx, id) {
		if err != nil {
			break
		}
		show("job", string(job.State))
		for _, node := range job.Nodes {
			show("node "+node.ID, says(string(node.State), short(node.Summary), short(node.Reason)))
		}
	}
	var outcome error
	switch {
	case errors.Is(err, context.DeadlineExceeded) && job.ID != "":
		outcome = fmt.Errorf("%w: it is %s", errUnended, job.State)
	case err != nil:
		return err
	case job.State == boxoffice.JobBlocked:
		outcome = errBlocked
	case job.Delivery != nil && job.Delivery.Failure != "":
		outcome = errUndelivered
	}
	return errors.Join(outcome, s.result(std, func(p *page) { p.job(&job) }))
}

// says joins the texts that are not empty.
func says(texts ...string) string {
	var said []string
	for _, text := range texts {
		if text != "" {
			said = append(said, text)
		}
	}
	return strings.Join(said, ": ")
}

type cloneCmd struct {
	reading
	Dir string `arg:"" optional:"" help:"The folder to create; by default the id of the job."`
}

// Run clones the repository that a job delivered. The request token goes to git
// in its environment, where other users do not see it, and git does not save it.
func (cmd *cloneCmd) Run(ctx context.Context, s *Settings, std *streams) error {
	id, err := parseID(cmd.ID)
	if err != nil {
		return err
	}
	c, err := s.connect(ctx, std, needsToken)
	if err != nil {
		return err
	}
	job, err := c.Job(ctx, id)
	if err != nil {
		return err
	}
	switch {
	case job.Delivery == nil:
		return fmt.Errorf("job %s has no delivery yet: it is %s", id, job.State)
	case job.Delivery.Failure != "":
		return fmt.Errorf("the delivery of job %s failed: %s", id, job.Delivery.Failure)
	}
	folder := cmd.Dir
	if folder == "" {
		folder = string(id)
	}
	git := exec.CommandContext(ctx, "git", "clone", "--", job.Delivery.RepoURL, folder)
	git.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0")
	// Only the service gets the token.
	if strings.HasPrefix(job.Delivery.RepoURL, strings.TrimSuffix(s.URL, "/")+"/") {
		token, err := s.token(std, false)
		if err != nil {
			return err
		}
		basic := base64.StdEncoding.EncodeToString([]byte("token:" + token.secret.Reveal()))
		git.Env = append(git.Env, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=http."+job.Delivery.RepoURL+".extraHeader",
			"GIT_CONFIG_VALUE_0=Authorization: Basic "+basic)
	}
	git.Stdout, git.Stderr = std.err, std.err
	if err := git.Run(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return fmt.Errorf("git is needed to clone: %w", err)
		}
		return fmt.Errorf("git clone: %w", err)
	}
	if s.JSON {
		return s.result(std, nil)
	}
	_, err = fmt.Fprintln(std.out, folder)
	return err
}
