package delivery

import (
	"context"
	"errors"
	"fmt"
	"os"

	"boxoffice"
	"boxoffice/internal/work"
)

// Deliver commits the files of a job's workspace to the job's repository, from which requesters clone. If the job names
// a repository of the requester's, Deliver also pushes the commit there and opens a pull request, see publish.
// Delivering the same workspace again gives the same commit.
//
// If the workspace, the remote or a command fails, the Delivery holds the text of that failure. An error is a fault of
// this service, or that of ctx. Then the caller delivers again.
func (g *Git) Deliver(ctx context.Context, job work.Job, dir string) (boxoffice.Delivery, error) {
	id, err := boxoffice.ParseUUID(string(job.ID))
	if err != nil {
		return boxoffice.Delivery{}, fmt.Errorf("delivery: job id %w", err)
	}
	var pullRequest *string
	commit, err := g.save(ctx, id, job.Objective, dir)
	if err == nil && job.Brief.RepoURL != "" {
		pullRequest, err = g.publish(ctx, id, job, commit)
	}
	if failure, ok := errors.AsType[*work.Failure](err); ok {
		return boxoffice.Delivery{Failure: failure.Text}, nil
	}
	if err != nil {
		return boxoffice.Delivery{}, fmt.Errorf("deliver job %s: %w", id, err)
	}
	at := boxoffice.At(g.config.Now())
	return boxoffice.Delivery{
		RepoURL: g.config.BaseURL + "/git/" + string(id) + ".git", PullRequestURL: pullRequest,
		Commit: commit, DeliveredAt: &at,
	}, nil
}

// errBranchMoved is returned if another delivery of the job moved the branch first.
var errBranchMoved = errors.New("another delivery moved the branch")

// save commits the workspace to the job's own branch and returns the branch's new commit. The branch moves only from
// the commit that save read. So if two deliveries run at the same time, the second builds on the first.
func (g *Git) save(ctx context.Context, id boxoffice.UUID, objective, dir string) (commit string, err error) {
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return "", errors.Join(errors.New("the workspace is not a folder"), err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	for range 3 {
		commit, err = g.advance(ctx, id, objective, dir, root)
		if !errors.Is(err, errBranchMoved) {
			break
		}
	}
	return commit, err
}

func (g *Git) advance(ctx context.Context, id boxoffice.UUID, objective, dir string, root *os.Root) (string, error) {
	repo := g.repo(id)
	resolve := func(revision string) (string, error) {
		return g.git(ctx, call{repo: repo}, "rev-parse", "--verify", revision)
	}
	tip, err := resolve(branch)
	if err != nil {
		return "", err
	}
	parent, err := g.history(ctx, id, root, tip)
	if err != nil {
		return "", err
	}
	entries, err := g.entries(ctx, repo, parent, dir, root)
	if err != nil {
		return "", err
	}
	message := fmt.Sprintf("%s\n\nBoxoffice-Job: %s\n", title(objective), id)
	commit, err := g.commit(ctx, repo, parent, root, entries, message, g.config.Now())
	if err != nil {
		return "", err
	}
	files, err := resolve(commit + "^{tree}")
	if err != nil {
		return "", err
	}
	parentFiles, err := resolve(parent + "^{tree}")
	if err != nil {
		return "", err
	}
	if files == parentFiles { // the agent committed everything, or this was delivered before
		commit = parent
	}
	if commit == tip {
		return tip, nil
	}
	if _, err := g.git(ctx, call{repo: repo}, "update-ref", branch, commit, tip); err != nil {
		if now, unread := resolve(branch); unread == nil && now != tip {
			return "", errBranchMoved
		}
		return "", err
	}
	return commit, nil
}
