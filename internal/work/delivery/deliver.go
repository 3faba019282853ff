package delivery

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"boxoffice"
	"boxoffice/internal/work"
)

// Deliver commits what stands in a job's workspace, so that it can be cloned
// from this service, and pushes it to the requester's repository if there is
// one, on the branch boxoffice/<jobId>, where the operator's command opens a
// pull request. Delivering the same workspace again gives the same commit.
//
// What the workspace, the remote or the command did wrong is a failure object
// with the text of the command that failed. An error is a fault of this
// service, or ctx that has ended: deliver again.
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

// errRaced is returned when another delivery of the job was quicker.
var errRaced = errors.New("the branch has moved")

// save makes the workspace the tip of the job's own branch and returns that
// commit. The branch moves only from where it was read, so of two deliveries at
// once the second builds on the first.
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
		if !errors.Is(err, errRaced) {
			break
		}
	}
	return commit, err
}

func (g *Git) advance(ctx context.Context, id boxoffice.UUID, objective, dir string, root *os.Root) (string, error) {
	repo := g.repo(id)
	tip, err := g.git(ctx, call{repo: repo}, "rev-parse", "--verify", branch)
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
	trees, err := g.git(ctx, call{repo: repo}, "rev-parse", "--verify", commit+"^{tree}")
	if err != nil {
		return "", err
	}
	before, err := g.git(ctx, call{repo: repo}, "rev-parse", "--verify", parent+"^{tree}")
	if err != nil {
		return "", err
	}
	if trees == before { // the agent committed all of it, or it was delivered before
		commit = parent
	}
	if commit == tip {
		return tip, nil
	}
	if _, err := g.git(ctx, call{repo: repo}, "update-ref", branch, commit, tip); err != nil {
		now, unread := g.git(ctx, call{repo: repo}, "rev-parse", "--verify", branch)
		if unread == nil && now != tip {
			return "", errRaced
		}
		return "", err
	}
	return commit, nil
}

// entries returns the files of a workspace that belong to its next commit.
func (g *Git) entries(ctx context.Context, repo, parent, dir string, root *os.Root) ([]entry, error) {
	had, err := g.tree(ctx, repo, parent)
	if err != nil {
		return nil, err
	}
	entries, err := g.survey(root)
	if err != nil {
		return nil, err
	}
	entries, err = g.keep(ctx, repo, dir, submodules(root, entries, had), had)
	if err != nil {
		return nil, err
	}
	var bytes int64
	for i, e := range entries {
		bytes += e.size
		if err := g.withinLimits(i+1, bytes); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// publish pushes a commit to the requester's repository and returns the URL of
// its pull request, or nil if none is to be opened.
func (g *Git) publish(ctx context.Context, id boxoffice.UUID, job work.Job, commit string) (*string, error) {
	to, err := g.hosts.remote(job.Brief.RepoURL)
	if err != nil {
		return nil, err
	}
	name := "boxoffice/" + string(id)
	push := call{repo: g.repo(id), protocols: to.protocols}
	if credential, ok := g.credentials[to.host]; ok {
		push.env = []string{ // not an argument, which every process of the machine can read
			"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=http.extraHeader",
			"GIT_CONFIG_VALUE_0=Authorization: Basic " + credential.basic(),
		}
	}
	if _, err := g.git(ctx, push, "push", "--quiet", "--recurse-submodules=no", "--", to.url, commit+":refs/heads/"+name); err != nil {
		return nil, failed(ctx, err)
	}
	if len(g.config.PullRequest) == 0 {
		return nil, nil
	}
	// Opening a second pull request is worse than opening none, so the first
	// one's URL is kept as soon as it is known.
	kept := filepath.Join(g.repo(id), "pull-request")
	if known, err := os.ReadFile(kept); err == nil {
		address := string(known)
		return &address, nil
	}
	env := append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, g.config.Env...)
	env = append(env, "REPO_URL="+to.url, "BRANCH="+name, "JOB_ID="+string(id), "TITLE="+title(job.Objective))
	shown := filepath.Base(g.config.PullRequest[0]) + " (pull request for " + name + ")"
	printed, err := g.run(ctx, g.config.PullRequest, shown, env, call{dir: g.unfinished()})
	if err != nil {
		return nil, failed(ctx, err)
	}
	address := strings.TrimSpace(printed)
	if u, err := url.Parse(address); err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" || len(address) > 2048 {
		return nil, failuref("%s: it printed no address of a pull request", shown)
	}
	return &address, replace(kept, []byte(address))
}

// replace writes a file that is whole or absent.
func replace(name string, content []byte) error {
	if err := os.WriteFile(name+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}
