// Package workspace owns the folders in which agents work: one workspace for each job, and scratch folders. It creates
// them, finds them and removes them.
package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"boxoffice"
)

// Folders are the folders below one folder of the operator's. Any number of processes may use the same ones, if they
// are on one file system.
type Folders struct {
	dir string // a real path, without links
}

// Open creates the folders below dir that do not exist yet. It removes unfinished and scratch folders that were last
// changed before stale: the process that made them was killed.
func Open(dir string, stale time.Time) (*Folders, error) {
	f := &Folders{dir}
	for _, folder := range []string{f.workspaces(), f.Temporary()} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, err
		}
	}
	// Agents may write below the name of their workspace, so that name must not lead elsewhere through a link.
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	f.dir = real
	return f, f.removeStale(stale)
}

func (f *Folders) removeStale(stale time.Time) error {
	entries, err := os.ReadDir(f.Temporary())
	for _, entry := range entries {
		info, gone := entry.Info()
		if gone == nil && info.ModTime().Before(stale) {
			err = errors.Join(err, Remove(filepath.Join(f.Temporary(), entry.Name())))
		}
	}
	return err
}

// Dir returns the folder that holds all others, as a path without links.
func (f *Folders) Dir() string { return f.dir }

// Temporary returns the folder of unfinished and scratch folders.
func (f *Folders) Temporary() string { return filepath.Join(f.dir, "tmp") }

func (f *Folders) workspaces() string { return filepath.Join(f.dir, "workspaces") }

// Path returns where the workspace of a job is or will be. The id has to be one that boxoffice.ParseUUID returned: such
// an id is one path element and begins with a hex digit.
func (f *Folders) Path(job boxoffice.UUID) string { return filepath.Join(f.workspaces(), string(job)) }

// Workspaces returns the jobs that have a workspace.
func (f *Folders) Workspaces() ([]boxoffice.UUID, error) {
	entries, err := os.ReadDir(f.workspaces())
	var jobs []boxoffice.UUID
	for _, entry := range entries {
		if id, err := boxoffice.ParseUUID(entry.Name()); err == nil && entry.IsDir() {
			jobs = append(jobs, id)
		}
	}
	return jobs, err
}

// Discard removes the workspace of a job, from which nothing more will be delivered. It moves the workspace away before
// it empties it, so that a process never finds half a workspace, even after a crash.
func (f *Folders) Discard(job boxoffice.UUID) error {
	id, err := boxoffice.ParseUUID(string(job))
	if err != nil {
		return fmt.Errorf("workspace: job id %w", err)
	}
	away, err := f.Scratch()
	if err != nil {
		return err
	}
	defer Remove(away)
	if info, err := os.Lstat(f.Path(id)); err == nil && info.IsDir() {
		os.Chmod(f.Path(id), 0o700) // an agent may have removed the permission that a move needs
	}
	err = os.Rename(f.Path(id), filepath.Join(away, string(id)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, Remove(away))
}

// Scratch returns a new empty folder. The caller removes it. If its process dies first, a later Open removes it.
func (f *Folders) Scratch() (string, error) { return os.MkdirTemp(f.Temporary(), "") }

// Create creates a folder at path that is either complete or absent: fill fills a temporary folder, which is then
// renamed. If the folder exists already, or another process creates it first, that folder stays.
func (f *Folders) Create(path string, fill func(folder string) error) error {
	switch info, err := os.Lstat(path); {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		if err := os.Remove(path); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	folder, err := f.Scratch()
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	if err := fill(folder); err != nil {
		return err
	}
	err = os.Rename(folder, path)
	if info, found := os.Lstat(path); err != nil && found == nil && info.IsDir() {
		return nil
	}
	return err
}

// Check returns an error unless path is the absolute path of a folder and no element of it is a link. An agent may
// write below its workspace, so the path must not lead elsewhere.
func Check(path string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("workspace: %w", err)
	}
	if info, err := os.Stat(real); err != nil || !info.IsDir() || !filepath.IsAbs(path) {
		return errors.New("workspace: must be the absolute path of a folder")
	}
	if real != filepath.Clean(path) {
		return errors.New("workspace: must not be reached through a link")
	}
	return nil
}

// Remove removes a folder and everything in it. An agent may have removed its own permissions, so Remove restores them
// first. It follows no link.
func Remove(path string) error {
	if os.RemoveAll(path) == nil {
		return nil
	}
	filepath.WalkDir(path, func(path string, entry fs.DirEntry, _ error) error {
		if entry != nil && entry.IsDir() {
			os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(path)
}
