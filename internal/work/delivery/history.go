package delivery

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"boxoffice"
)

// An agent may commit as it works, and its commits are delivered. But its .git is not trusted. Only HEAD and the files
// of objects are read from it. The object files are copied into a repository with our configuration, and the job's
// repository fetches from that one with all checks of a foreign repository. The fetch hashes and checks every object.

var (
	commitName = regexp.MustCompile(`^[0-9a-f]{40}$`)
	refName    = regexp.MustCompile(`^refs/heads/[A-Za-z0-9._/-]{1,200}$`)
	objectFile = regexp.MustCompile(`^(?:[0-9a-f]{2}/[0-9a-f]{38}|pack/pack-[0-9a-f]{40}\.(?:pack|idx))$`)
)

// maxRefs is how many bytes of HEAD, of a ref and of the file of packed refs are read.
const maxRefs = 1 << 20

// history fetches the agent's commits into the job's repository. It returns the commit that the delivery builds on: the
// agent's last commit if it descends from tip, or else tip, the last commit of the job's branch.
func (g *Git) history(ctx context.Context, id boxoffice.UUID, root *os.Root, tip string) (string, error) {
	head := agentHead(root)
	if head == "" || head == tip {
		return tip, nil
	}
	repo := g.repo(id)
	if g.descends(ctx, repo, head, tip) { // it was fetched before
		return tip, nil
	}
	quarantined, err := g.quarantine(ctx, repo, root, head)
	if quarantined != "" {
		defer os.RemoveAll(quarantined)
	}
	if err == nil {
		_, err = g.git(ctx, call{repo: repo, protocols: "file"}, "fetch", "--quiet", "--no-tags", "--update-shallow",
			"--no-write-fetch-head", "--", quarantined, "refs/heads/agent")
	}
	_, broken := errors.AsType[*commandError](err)
	if broken && ctx.Err() == nil || errors.Is(err, errNoObjects) {
		return tip, nil // the history is damaged, so only the files are delivered
	}
	if err != nil {
		return "", err
	}
	if g.descends(ctx, repo, tip, head) {
		return head, nil
	}
	return tip, nil
}

// descends reports whether ancestor is descendant itself or one of its ancestors.
func (g *Git) descends(ctx context.Context, repo, ancestor, descendant string) bool {
	_, err := g.git(ctx, call{repo: repo}, "merge-base", "--is-ancestor", ancestor, descendant)
	return err == nil
}

// quarantine creates a repository of the agent's object files, whose refs/heads/agent is head. The caller removes the
// returned folder.
func (g *Git) quarantine(ctx context.Context, repo string, root *os.Root, head string) (string, error) {
	folder, err := g.Scratch()
	if err != nil {
		return "", err
	}
	if _, err := g.git(ctx, call{}, "init", "--quiet", "--bare", "--template=", "--", folder); err != nil {
		return folder, err
	}
	// The agent's clone may lack objects that the job's repository has, and both end at the same shallow commits.
	alternates := filepath.Join(folder, "objects/info/alternates")
	if err := os.WriteFile(alternates, []byte(repo+"/objects\n"), 0o600); err != nil {
		return folder, err
	}
	switch shallow, err := os.ReadFile(filepath.Join(repo, "shallow")); {
	case err == nil:
		if err := os.WriteFile(filepath.Join(folder, "shallow"), shallow, 0o600); err != nil {
			return folder, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return folder, err
	}
	if err := g.copyObjects(root, filepath.Join(folder, "objects")); err != nil {
		return folder, err
	}
	_, err = g.git(ctx, call{repo: folder}, "update-ref", "refs/heads/agent", head)
	return folder, err
}

// errNoObjects is returned for a .git without a folder of objects.
var errNoObjects = errors.New("no folder of objects")

// copyObjects copies the agent's object files. It fails if they exceed the limits.
func (g *Git) copyObjects(root *os.Root, into string) error {
	left := 2 * g.config.MaxBytes // for the files and for their earlier versions
	files := 4 * g.config.MaxFiles
	const objects = ".git/objects"
	if info, err := root.Lstat(objects); err != nil || !info.IsDir() {
		return errNoObjects
	}
	return list(root, objects, func(folder fs.DirEntry) error {
		if !folder.IsDir() || len(folder.Name()) != 2 && folder.Name() != "pack" {
			return nil
		}
		return list(root, objects+"/"+folder.Name(), func(item fs.DirEntry) error {
			name := folder.Name() + "/" + item.Name()
			if !objectFile.MatchString(name) || !item.Type().IsRegular() {
				return nil
			}
			if files--; files < 0 {
				return failuref("the workspace's .git holds too many objects")
			}
			from, err := root.OpenFile(objects+"/"+name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
			if err != nil {
				return unreadable(objects+"/"+name, err)
			}
			defer from.Close()
			if err := os.MkdirAll(filepath.Join(into, folder.Name()), 0o700); err != nil {
				return err
			}
			to, err := os.OpenFile(filepath.Join(into, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return err
			}
			defer to.Close()
			n, err := io.CopyN(to, from, left+1)
			if left -= n; left < 0 {
				return failuref("the workspace's .git holds more than %d bytes", 2*g.config.MaxBytes)
			}
			if err != io.EOF {
				return err
			}
			return nil
		})
	})
}

// agentHead returns the commit that the agent's HEAD names. It returns "" if HEAD cannot be read: then only the files
// are delivered.
func agentHead(root *os.Root) string {
	if info, err := root.Lstat(".git"); err != nil || !info.IsDir() {
		return ""
	}
	head := readRef(root, ".git/HEAD")
	ref, symbolic := strings.CutPrefix(head, "ref: ")
	if symbolic {
		if !refName.MatchString(ref) || strings.Contains(ref, "..") {
			return ""
		}
		head = readRef(root, ".git/"+ref)
		if head == "" {
			for line := range strings.Lines(readRef(root, ".git/packed-refs")) {
				if name, packed, _ := strings.Cut(strings.TrimSpace(line), " "); packed == ref {
					head = name
				}
			}
		}
	}
	if !commitName.MatchString(head) {
		return ""
	}
	return head
}

func readRef(root *os.Root, name string) string {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	text, err := io.ReadAll(io.LimitReader(f, maxRefs))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
