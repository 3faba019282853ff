package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// plain reports whether a file's path names a file that an answer may bring.
// Git's own folder is not one: what stands in there can be run by git.
func (f File) plain() bool {
	if f.Path == "." || f.Path != path.Clean(f.Path) || !filepath.IsLocal(filepath.FromSlash(f.Path)) ||
		len(f.Path) > 1024 || strings.ContainsAny(f.Path, "\x00\\") {
		return false
	}
	for name := range strings.SplitSeq(f.Path, "/") {
		if gitFolder(name) {
			return false
		}
	}
	return true
}

// gitFolder reports whether some file system takes name for ".git". Windows and
// HFS+ fold case, drop trailing dots and spaces, know git~1, and ignore some
// runes; a clone of the delivery may end up there.
func gitFolder(name string) bool {
	name = strings.Map(func(r rune) rune {
		if r >= 0x200c && r <= 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x206a && r <= 0x206f || r == 0xfeff {
			return -1
		}
		return r
	}, name)
	name, _, _ = strings.Cut(name, ":")
	name = strings.TrimRight(name, ". ")
	return strings.EqualFold(name, ".git") || strings.EqualFold(name, "git~1")
}

// write puts the files of an answer into the workspace. os.Root keeps every
// path inside, whatever links lie in there.
func write(workspace string, files []File) error {
	if len(files) == 0 {
		return nil
	}
	root, err := os.OpenRoot(workspace)
	if err != nil {
		return fmt.Errorf("agent: open the workspace: %w", err)
	}
	defer root.Close()
	for i, file := range files {
		if err := place(root, file); err != nil {
			return &Failure{Kind: BadAnswer, Detail: fmt.Sprintf("/files/%d: %v", i, err), Retryable: true}
		}
	}
	return nil
}

// place writes a file and makes its folders. It replaces what stands at the
// path instead of writing through it, and follows no link: one could lead into
// .git, and a pipe would never end.
func place(root *os.Root, file File) error {
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
