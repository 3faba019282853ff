package delivery

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"

	"boxoffice"
	"boxoffice/internal/work"
	"boxoffice/internal/work/workspace"
)

// branch is where a job's work stands in its own repository.
const branch = "refs/heads/main"

// Workspace returns the folder in which a job's agent works, which is made the
// first time it is asked for, also after a crash. It holds what the work starts
// from: the end of the version before, else the default branch of the
// requester's repository, else nothing. It is a clone with a .git of its own,
// so the agent sees history and may commit; that .git knows neither our
// repository nor the requester's, and nothing of ours reads its configuration.
//
// The error is a *work.Failure if the requester's repository may not be or cannot be
// reached; any other is a fault of this service.
func (g *Git) Workspace(ctx context.Context, job work.Job) (string, error) {
	id, err := boxoffice.ParseUUID(string(job.ID))
	if err != nil {
		return "", fmt.Errorf("delivery: job id %w", err)
	}
	err = g.build(g.repo(id), func(folder string) error { return g.fillRepo(ctx, job, folder) })
	if err != nil {
		return "", fmt.Errorf("delivery: repository of job %s: %w", id, err)
	}
	dir := g.workspace(id)
	err = g.build(dir, func(folder string) error { return g.fillWorkspace(ctx, id, folder) })
	if err != nil {
		return "", fmt.Errorf("delivery: workspace of job %s: %w", id, err)
	}
	return dir, nil
}

// Workspaces returns the jobs that have a workspace.
func (g *Git) Workspaces() ([]boxoffice.UUID, error) {
	entries, err := os.ReadDir(g.workspaces())
	var jobs []boxoffice.UUID
	for _, entry := range entries {
		if id, err := boxoffice.ParseUUID(entry.Name()); err == nil && entry.IsDir() {
			jobs = append(jobs, id)
		}
	}
	return jobs, err
}

// Discard removes a job's workspace, once nothing more will be delivered from
// it. The repository stays. It takes the folder away before it empties it, so
// that nobody finds half a workspace, also after a crash.
func (g *Git) Discard(id boxoffice.UUID) error {
	id, err := boxoffice.ParseUUID(string(id))
	if err != nil {
		return fmt.Errorf("delivery: job id %w", err)
	}
	away, err := g.Scratch()
	if err != nil {
		return err
	}
	defer workspace.Remove(away)
	if info, err := os.Lstat(g.workspace(id)); err == nil && info.IsDir() {
		os.Chmod(g.workspace(id), 0o700) // an agent may have taken the right to move it
	}
	err = os.Rename(g.workspace(id), filepath.Join(away, string(id)))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return errors.Join(err, workspace.Remove(away))
}

// Scratch returns a new empty folder. The caller removes it; what a killed
// process left is removed when the next one starts, after a day.
func (g *Git) Scratch() (string, error) { return os.MkdirTemp(g.unfinished(), "") }

func (g *Git) fillRepo(ctx context.Context, job work.Job, repo string) error {
	if _, err := g.git(ctx, call{}, "init", "--quiet", "--bare", "--template=", "--initial-branch=main", "--", repo); err != nil {
		return err
	}
	if previous, err := boxoffice.ParseUUID(string(job.Brief.Follows)); err == nil {
		_, err := os.Stat(g.repo(previous))
		if err == nil {
			_, err = g.git(ctx, call{repo: repo, protocols: "file"}, "fetch", "--quiet", "--no-tags", "--update-shallow",
				"--no-write-fetch-head", "--", g.repo(previous), branch+":"+branch)
			return err
		}
		if !errors.Is(err, os.ErrNotExist) { // a version that never had a workspace left nothing to go on from
			return err
		}
	}
	if job.Brief.RepoURL != "" {
		switch base, err := g.fetch(ctx, job.Brief.RepoURL, repo); {
		case err != nil:
			return err
		case base:
			return nil
		}
	}
	start := fmt.Sprintf("Start\n\nBoxoffice-Job: %s\n", job.ID)
	commit, err := g.commit(ctx, repo, "", nil, nil, start, job.CreatedAt.Time())
	if err == nil {
		_, err = g.git(ctx, call{repo: repo}, "update-ref", branch, commit)
	}
	return err
}

// fetch brings the tip of a requester's default branch into repo. One commit is
// enough to build on and to push from, so history is left where it is. It
// reports false if the repository is empty.
func (g *Git) fetch(ctx context.Context, address, repo string) (bool, error) {
	from, err := g.hosts.remote(address)
	if err != nil {
		return false, err
	}
	reach := call{repo: repo, protocols: from.protocols, maxFile: g.config.MaxBytes}
	heads, err := g.git(ctx, reach, "ls-remote", "--quiet", "--", from.url, "HEAD")
	if err != nil || heads == "" {
		return false, failed(ctx, err)
	}
	_, err = g.git(ctx, reach, "fetch", "--quiet", "--depth=1", "--no-tags", "--no-write-fetch-head", "--", from.url, "HEAD:"+branch)
	return err == nil, failed(ctx, err)
}

// fillWorkspace clones a repository of ours. It copies: a hard link would let
// the agent write into our objects.
func (g *Git) fillWorkspace(ctx context.Context, id boxoffice.UUID, folder string) error {
	repo := g.repo(id)
	// What a few bytes of objects check out to has no bound, so it is counted first.
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

// tree returns the paths of a commit, each submodule's with the commit that it
// names, or a *work.Failure if they exceed the limits.
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

// title is the first line of an objective, as the subject of a commit.
func title(objective string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(objective), "\n")
	line = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(line, "\uFFFD"))
	runes := []rune(strings.TrimSpace(line))
	if len(runes) > 72 {
		return strings.TrimSpace(string(runes[:71])) + "…"
	}
	return orDefault(string(runes), "Work")
}

func seconds(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) + " +0000" }
