package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"boxoffice/internal/work/workspace"
)

// valid reports whether a result may bring a file with this path. It has to be inside the workspace and outside of
// .git, because git runs what a .git folder configures.
func (f File) valid() bool {
	if f.Path == "." || f.Path != path.Clean(f.Path) || !filepath.IsLocal(filepath.FromSlash(f.Path)) ||
		len(f.Path) > 1024 || strings.ContainsAny(f.Path, "\x00\\") {
		return false
	}
	return !slices.ContainsFunc(strings.Split(f.Path, "/"), workspace.IsGitName)
}

// write writes the files of a result into the workspace. os.Root keeps every path inside, even if the workspace holds
// links that lead out.
func write(dir string, files []File) error {
	if len(files) == 0 {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("agent: open the workspace: %w", err)
	}
	defer root.Close()
	for i, file := range files {
		if err := createFile(root, file); err != nil {
			return &Failure{Kind: BadResult, Detail: fmt.Sprintf("/files/%d: %v", i, err), Retryable: true}
		}
	}
	return nil
}

// createFile writes a file and creates its folders. It follows no link, because a link could lead into .git. It
// replaces what exists at the path, because opening a pipe there would wait for ever.
func createFile(root *os.Root, file File) error {
	name := filepath.FromSlash(file.Path)
	for i, r := range name {
		if r != filepath.Separator {
			continue
		}
		folder := name[:i]
		if err := root.Mkdir(folder, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if info, err := root.Lstat(folder); err != nil || !info.IsDir() {
			return fmt.Errorf("%s is not a folder", folder)
		}
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	created, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = created.WriteString(file.Text)
	return errors.Join(err, created.Close())
}
