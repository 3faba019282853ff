package delivery

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"boxoffice"
	"boxoffice/internal/work"
)

// branch holds a job's work in its own repository.
const branch = "refs/heads/main"

// Workspace returns the folder in which the agents of a job work. The first call creates it, or the first call after a
// crash that left it incomplete. The workspace is a clone of the job's repository, which starts with the end of the
// version before, or else with the default branch of the requester's repository, or else empty. So the agent sees the
// history and may commit. The .git of the clone names neither our repository nor the requester's, and our git never
// reads its configuration.
//
// The error is a *work.Failure if the requester's repository is not allowed or cannot be fetched. Any other error is a
// fault of this service.
func (g *Git) Workspace(ctx context.Context, job work.Job) (string, error) {
	id, err := boxoffice.ParseUUID(string(job.ID))
	if err != nil {
		return "", fmt.Errorf("delivery: job id %w", err)
	}
	err = g.Create(g.repo(id), func(folder string) error { return g.fillRepo(ctx, job, folder) })
	if err != nil {
		return "", fmt.Errorf("delivery: repository of job %s: %w", id, err)
	}
	dir := g.Path(id)
	err = g.Create(dir, func(folder string) error { return g.fillWorkspace(ctx, id, folder) })
	if err != nil {
		return "", fmt.Errorf("delivery: workspace of job %s: %w", id, err)
	}
	return dir, nil
}

func (g *Git) fillRepo(ctx context.Context, job work.Job, repo string) error {
	previous, err := g.previousRepo(job)
	if err != nil {
		return err
	}
	var theirs remote
	if previous == "" && job.Brief.RepoURL != "" {
		if theirs, err = g.hosts.remote(job.Brief.RepoURL); err != nil {
			return err
		}
	}
	_, err = g.git(ctx, call{}, "init", "--quiet", "--bare", "--template=", "--initial-branch=main", "--", repo)
	if err != nil {
		return err
	}
	if previous != "" {
		_, err = g.git(ctx, call{repo: repo, protocols: "file"}, "fetch", "--quiet", "--no-tags", "--update-shallow",
			"--no-write-fetch-head", "--", previous, branch+":"+branch)
		return err
	}
	if theirs.url != "" {
		if fetched, err := g.fetch(ctx, theirs, repo); fetched || err != nil {
			return err
		}
	}
	start := fmt.Sprintf("Start\n\nBoxoffice-Job: %s\n", job.ID)
	commit, err := g.commit(ctx, repo, "", nil, nil, start, job.CreatedAt.Time())
	if err == nil {
		_, err = g.git(ctx, call{repo: repo}, "update-ref", branch, commit)
	}
	return err
}

// previousRepo returns the repository of the version before. It is "" if there is no such version, or if that version
// never had a workspace.
func (g *Git) previousRepo(job work.Job) (string, error) {
	id, err := boxoffice.ParseUUID(string(job.Brief.Follows))
	if err != nil {
		return "", nil
	}
	switch _, err := os.Stat(g.repo(id)); {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	}
	return g.repo(id), nil
}

// fetch fetches the last commit of a requester's default branch into repo, without its history: one commit is enough to
// build on and to push from. It returns false if the requester's repository is empty.
func (g *Git) fetch(ctx context.Context, from remote, repo string) (bool, error) {
	read := call{repo: repo, protocols: from.protocols, maxFile: g.config.MaxBytes}
	heads, err := g.git(ctx, read, "ls-remote", "--quiet", "--", from.url, "HEAD")
	if err != nil || heads == "" {
		return false, failed(ctx, err)
	}
	_, err = g.git(ctx, read, "fetch", "--quiet", "--depth=1", "--no-tags", "--no-write-fetch-head",
		"--", from.url, "HEAD:"+branch)
	return err == nil, failed(ctx, err)
}

// fillWorkspace clones a job's repository. The clone copies all objects: with hard links the agent could write into
// the objects of our repository.
func (g *Git) fillWorkspace(ctx context.Context, id boxoffice.UUID, folder string) error {
	repo := g.repo(id)
	// A few bytes of objects can check out to files without bound, so the files are counted first.
	if _, err := g.tree(ctx, repo, branch); err != nil {
		return err
	}
	name, address, _ := strings.Cut(strings.TrimSuffix(g.author, ">"), " <")
	_, err := g.git(ctx, call{protocols: "file"}, "clone", "--quiet", "--no-hardlinks", "--no-tags", "--single-branch",
		"--branch=main", "--template=", "--config=user.name="+name, "--config=user.email="+address, "--", repo, folder)
	if err == nil {
		_, err = g.git(ctx, call{repo: folder + "/.git"}, "remote", "remove", "origin")
	}
	return err
}

// tree returns the paths of a commit. The value of a submodule's path is the commit that it names. Other values are
// empty. The error is a *work.Failure if the commit exceeds the limits.
func (g *Git) tree(ctx context.Context, repo, commit string) (map[string]string, error) {
	reader, writer := io.Pipe()
	paths, counted := make(map[string]string), make(chan error, 1)
	go func() {
		var err error
		var bytes int64
		records := bufio.NewScanner(reader)
		records.Split(splitNul)
		for err == nil && records.Scan() { // mode type id size TAB path
			about, path, _ := strings.Cut(records.Text(), "\t")
			fields := strings.Fields(about)
			if len(fields) != 4 {
				err = fmt.Errorf("git ls-tree printed %q", about)
				break
			}
			if fields[0] == modeSubmodule {
				paths[path] = fields[2]
			} else {
				paths[path] = ""
				size, _ := strconv.ParseInt(fields[3], 10, 64)
				bytes += size
			}
			err = g.withinLimits(len(paths), bytes)
		}
		if err == nil {
			err = records.Err()
		}
		reader.CloseWithError(err)
		counted <- err
	}()
	_, err := g.git(ctx, call{repo: repo, stdout: writer}, "ls-tree", "-r", "-l", "-z", "--full-tree", commit)
	writer.Close()
	if over := <-counted; over != nil {
		err = over
	}
	return paths, err
}

func (g *Git) withinLimits(files int, bytes int64) error {
	switch {
	case files > g.config.MaxFiles:
		return failuref("the work holds more than %d files", g.config.MaxFiles)
	case bytes > g.config.MaxBytes:
		return failuref("the work holds more than %d bytes", g.config.MaxBytes)
	}
	return nil
}

func splitNul(data []byte, atEOF bool) (int, []byte, error) {
	if i := bytes.IndexByte(data, 0); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return 0, nil, nil
}
