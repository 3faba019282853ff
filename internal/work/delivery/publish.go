package delivery

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"boxoffice"
	"boxoffice/internal/work"
)

// publish pushes a commit to the branch boxoffice/<jobId> of the requester's repository, and opens a pull request with
// the operator's command. It returns the pull request's URL, or nil if the operator has no such command.
func (g *Git) publish(ctx context.Context, id boxoffice.UUID, job work.Job, commit string) (*string, error) {
	to, err := g.hosts.remote(job.Brief.RepoURL)
	if err != nil {
		return nil, err
	}
	name := "boxoffice/" + string(id)
	push := call{repo: g.repo(id), protocols: to.protocols}
	if credential, ok := g.credentials[to.host]; ok {
		// The environment, because every process of the machine can read the arguments.
		push.env = []string{
			"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=http.extraHeader",
			"GIT_CONFIG_VALUE_0=Authorization: Basic " + credential.basic(),
		}
	}
	_, err = g.git(ctx, push, "push", "--quiet", "--recurse-submodules=no", "--", to.url, commit+":refs/heads/"+name)
	if err != nil {
		return nil, failed(ctx, err)
	}
	if len(g.config.PullRequest) == 0 {
		return nil, nil
	}
	// A second pull request would be worse than none, so the URL of the first is saved as soon as it is known.
	saved := filepath.Join(g.repo(id), "pull-request")
	if known, err := os.ReadFile(saved); err == nil {
		address := string(known)
		return &address, nil
	}
	env := append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, g.config.Env...)
	env = append(env, "REPO_URL="+to.url, "BRANCH="+name, "JOB_ID="+string(id), "TITLE="+title(job.Objective))
	shown := filepath.Base(g.config.PullRequest[0]) + " (pull request for " + name + ")"
	printed, err := g.run(ctx, g.config.PullRequest, shown, env, call{dir: g.Temporary()})
	if err != nil {
		return nil, failed(ctx, err)
	}
	address := strings.TrimSpace(printed)
	if !webAddress(address) {
		return nil, failuref("%s: it printed no address of a pull request", shown)
	}
	return &address, replace(saved, []byte(address))
}

func webAddress(address string) bool {
	u, err := url.Parse(address)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil &&
		len(address) <= 2048
}

// replace writes a file that is always complete or absent.
func replace(name string, content []byte) error {
	if err := os.WriteFile(name+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}
