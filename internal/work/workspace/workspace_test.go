package workspace_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/work/workspace"
)

func open(t *testing.T, dir string, stale time.Time) *workspace.Folders {
	t.Helper()
	folders, err := workspace.Open(dir, stale)
	if err != nil {
		t.Fatal(err)
	}
	return folders
}

func TestIsGitName(t *testing.T) {
	for _, name := range []string{
		".git", ".GIT", ".Git", "git~1", "GIT~1", ".git.", ".git ", ".git. .", ".git::$INDEX_ALLOCATION", ".g\u200cit",
		"\ufeff.git",
		".gi\u202et", "\u206a.git", ".git:x",
	} {
		if !workspace.IsGitName(name) {
			t.Errorf("%q is not taken for .git", name)
		}
	}
	for _, name := range []string{"", ".", "git", ".gitignore", ".github", ".git2", "git~2", "x.git", ".gitmodules", ". git"} {
		if workspace.IsGitName(name) {
			t.Errorf("%q is taken for .git", name)
		}
	}
}

// A folder is complete or absent, and one that exists stays.
func TestCreate(t *testing.T) {
	folders := open(t, t.TempDir(), time.Time{})
	job := boxoffice.NewUUID()
	path := folders.Path(job)
	if err := os.WriteFile(path, nil, 0o600); err != nil { // a file is no workspace
		t.Fatal(err)
	}
	failure := errors.New("fails")
	half := func(folder string) error {
		return errors.Join(os.WriteFile(filepath.Join(folder, "half"), nil, 0o600), failure)
	}
	if err := folders.Create(path, half); !errors.Is(err, failure) {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("half a folder was left: %v", err)
	}
	another := func(string) error { // while this process fills its folder, another creates it
		return os.MkdirAll(filepath.Join(path, "another's"), 0o700)
	}
	if err := folders.Create(path, another); err != nil {
		t.Fatal(err)
	}
	if err := folders.Create(path, half); err != nil {
		t.Errorf("a folder that exists was filled again: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(path, "another's")); err != nil {
		t.Error(err)
	}
	if jobs, err := folders.Workspaces(); err != nil || !slices.Equal(jobs, []boxoffice.UUID{job}) {
		t.Errorf("got %v, %v", jobs, err)
	}
}

// A workspace is removed even if its agent took all permissions away, and what a killed process left goes once it is
// stale.
func TestRemoval(t *testing.T) {
	dir := t.TempDir()
	folders := open(t, dir, time.Time{})
	job := boxoffice.NewUUID()
	inner := filepath.Join(folders.Path(job), "a", "b")
	for _, err := range []error{
		os.MkdirAll(inner, 0o700), os.Chmod(filepath.Dir(inner), 0), os.Chmod(folders.Path(job), 0),
		folders.Discard(job), folders.Discard(job),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if err := folders.Discard("../tmp"); err == nil {
		t.Error("discarded what is no job's")
	}
	scratch, err := folders.Scratch()
	if err != nil {
		t.Fatal(err)
	}
	open(t, dir, time.Now().Add(-time.Hour))
	if _, err := os.Stat(scratch); err != nil {
		t.Errorf("a folder in use is gone: %v", err)
	}
	open(t, dir, time.Now().Add(time.Hour))
	for _, folder := range []string{folders.Temporary(), filepath.Dir(folders.Path(job))} {
		if entries, err := os.ReadDir(folder); err != nil || len(entries) > 0 {
			t.Errorf("left %v, %v", entries, err)
		}
	}
}

func TestCheck(t *testing.T) {
	folder, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	link, file := filepath.Join(folder, "link"), filepath.Join(folder, "file")
	for _, err := range []error{os.Symlink("/", link), os.WriteFile(file, nil, 0o600), workspace.Check(folder)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{link, filepath.Join(link, "tmp"), file, "", "relative", filepath.Join(folder, "none")} {
		if workspace.Check(path) == nil {
			t.Errorf("%q is accepted as a workspace", path)
		}
	}
}
