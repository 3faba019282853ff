package delivery

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"boxoffice/internal/work/workspace"
)

// Git opens nothing that an agent wrote except .gitignore files. A repository's configuration, its hooks, its
// attributes with their filters and a repository inside another can all make git run a program. So this file reads the
// workspace through an os.Root, which no symbolic link leaves, and commit.go streams the files to git fast-import.

// An entry is a file of a workspace.
type entry struct {
	path string // with slashes
	mode string // as git writes it
	size int64
	link string // of a submodule: the commit that it names
}

const (
	modeFile      = "100644"
	modeProgram   = "100755"
	modeLink      = "120000"
	modeSubmodule = "160000"

	maxPath   = 4096    // bytes
	maxIgnore = 1 << 20 // bytes of a .gitignore, which git reads
	// listedPerFile is how many files and folders of a workspace are listed for each file that may be committed. It is
	// large, because most of what an agent installs is ignored.
	listedPerFile = 20
)

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
	entries, err = g.dropIgnored(ctx, repo, dir, keepSubmodules(root, entries, had), had)
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

// survey lists a workspace's files and links, and follows no link. It leaves out devices, pipes and sockets, and every
// .git.
func (g *Git) survey(root *os.Root) ([]entry, error) {
	var entries []entry
	listed := 0
	folders := []string{"."}
	for len(folders) > 0 {
		folder := folders[len(folders)-1]
		folders = folders[:len(folders)-1]
		err := list(root, folder, func(item fs.DirEntry) error {
			if workspace.IsGitName(item.Name()) {
				return nil
			}
			name := path.Join(folder, item.Name())
			if listed++; listed > listedPerFile*g.config.MaxFiles {
				return failuref("the workspace holds more than %d files and folders", listedPerFile*g.config.MaxFiles)
			}
			if len(name) > maxPath {
				return failuref("the workspace holds a path longer than %d bytes", maxPath)
			}
			info, err := item.Info()
			if err != nil {
				return err
			}
			e := entry{path: name, size: info.Size()}
			switch mode := info.Mode(); {
			case mode.IsDir():
				folders = append(folders, name)
				return nil
			case mode.IsRegular() && mode&0o100 != 0:
				e.mode = modeProgram
			case mode.IsRegular():
				e.mode = modeFile
			case mode&fs.ModeSymlink != 0:
				e.mode = modeLink
			}
			if item.Name() == ".gitignore" && e.mode != modeLink && (e.mode == "" || e.size > maxIgnore) {
				return failuref("%q is not a file of at most %d bytes", name, maxIgnore)
			}
			if e.mode != "" {
				entries = append(entries, e)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	return entries, nil
}

func list(root *os.Root, folder string, visit func(fs.DirEntry) error) error {
	f, err := root.Open(folder)
	if err != nil {
		return unreadable(folder, err)
	}
	defer f.Close()
	for {
		items, err := f.ReadDir(512)
		for _, item := range items {
			if err := visit(item); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// unreadable makes a failure of the agent's from an error that the agent caused by taking a permission away.
func unreadable(name string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return failuref("%q may not be read", name)
	}
	return err
}

// dropIgnored removes the entries that the workspace's .gitignore files name. It keeps those that the parent commit
// has.
func (g *Git) dropIgnored(
	ctx context.Context, repo, dir string, entries []entry, had map[string]string,
) ([]entry, error) {
	var fresh bytes.Buffer
	for _, e := range entries {
		if _, known := had[e.path]; !known {
			fresh.WriteString(e.path + "\x00")
		}
	}
	if fresh.Len() == 0 {
		return entries, nil
	}
	ignored := make(map[string]bool)
	var named bytes.Buffer
	check := call{dir: dir, repo: repo, env: []string{"GIT_WORK_TREE=" + dir}, stdin: &fresh, stdout: &named}
	_, err := g.git(ctx, check, "check-ignore", "--no-index", "-z", "--stdin")
	if command, ok := errors.AsType[*commandError](err); ok && command.code == 1 { // none is ignored
		return entries, nil
	}
	if err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(named.String(), "\x00") {
		ignored[name] = true
	}
	return slices.DeleteFunc(entries, func(e entry) bool { return ignored[e.path] }), nil
}

// keepSubmodules keeps each submodule of the parent commit whose folder still exists. It removes the entries inside
// these folders, because they belong to another repository.
func keepSubmodules(root *os.Root, entries []entry, had map[string]string) []entry {
	var kept []entry
	for name, commit := range had {
		if commit == "" {
			continue
		}
		if info, err := root.Lstat(name); err != nil || !info.IsDir() {
			continue
		}
		kept = append(kept, entry{path: name, mode: modeSubmodule, link: commit})
		entries = slices.DeleteFunc(entries, func(e entry) bool { return strings.HasPrefix(e.path, name+"/") })
	}
	return append(entries, kept...)
}
