package delivery_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"boxoffice/internal/work"
	"boxoffice/internal/work/delivery"

	"github.com/google/go-cmp/cmp"
)

// An agent may leave anything in its workspace. None of it runs, and nothing outside of the workspace is delivered.
func TestHostileWorkspace(t *testing.T) {
	t.Parallel()
	trap := filepath.Join(t.TempDir(), "trap") // exists if a program of the agent's ran
	spring := "#!/bin/sh\ntouch " + trap + "\n"
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, "/", map[string]string{secret: "the operator's secret"})
	config := `[core]
	fsmonitor = touch ` + trap + `
	sshCommand = touch ` + trap + `
	hooksPath = hooks
	worktree = /etc
	pager = touch ` + trap + `
	attributesFile = ../attributes
	alternateRefsCommand = touch ` + trap + `
[alias]
	log = !touch ` + trap + `
	check-ignore = !touch ` + trap + `
[filter "evil"]
	clean = touch ` + trap + `
	smudge = touch ` + trap + `
	process = touch ` + trap + `
[diff "evil"]
	textconv = touch ` + trap + `
[uploadpack]
	packObjectsHook = touch ` + trap + `
[remote "origin"]
	url = ext::touch ` + trap + `
	promisor = true
[extensions]
	partialClone = origin
[include]
	path = ` + secret + `
`
	for name, attack := range map[string]func(t *testing.T, dir string) (want map[string]string){
		"hooks": func(t *testing.T, dir string) map[string]string {
			for _, hook := range []string{"pre-commit", "post-commit", "reference-transaction", "post-index-change", "pre-push", "post-checkout", "fsmonitor-watchman"} {
				write(t, dir, map[string]string{".git/hooks/" + hook: spring})
				if err := os.Chmod(filepath.Join(dir, ".git/hooks", hook), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			return nil
		},
		"configuration": func(t *testing.T, dir string) map[string]string {
			write(t, dir, map[string]string{".git/config": config, ".gitattributes": "* filter=evil diff=evil text eol=crlf ident\n", "id": "$Id$\n"})
			return map[string]string{".gitattributes": "100644 * filter=evil diff=evil text eol=crlf ident", "id": "100644 $Id$"}
		},
		"configuration and commits": func(t *testing.T, dir string) map[string]string {
			write(t, dir, map[string]string{"mine": "mine"})
			run(t, dir, "git", "add", "mine")
			run(t, dir, "git", "commit", "--quiet", "-m", "mine")
			write(t, dir, map[string]string{".git/config": config, ".git/objects/info/alternates": filepath.Dir(secret) + "\n"})
			return map[string]string{"mine": "100644 mine"}
		},
		"a repository inside": func(t *testing.T, dir string) map[string]string {
			run(t, dir, "git", "init", "--quiet", "sub")
			write(t, dir, map[string]string{"sub/.git/config": config, "sub/.git/hooks/post-index-change": spring, "sub/file": "kept"})
			return map[string]string{"sub/file": "100644 kept"}
		},
		".git by its other names": func(t *testing.T, dir string) map[string]string {
			write(t, dir, map[string]string{
				".GIT/config": config, "a/GIT~1/config": config, "b/.g\u200cit/config": config, "c/.git. ./config": config, "d/.git::$INDEX_ALLOCATION/config": config,
				"e/.github": "kept",
			})
			return map[string]string{"e/.github": "100644 kept"}
		},
		"links": func(t *testing.T, dir string) map[string]string {
			link(t, "/etc/passwd", filepath.Join(dir, "passwd"))
			link(t, filepath.Dir(secret), filepath.Join(dir, "folder"))
			link(t, secret, filepath.Join(dir, ".gitignore"))
			link(t, secret, filepath.Join(dir, ".gitattributes"))
			link(t, "nowhere", filepath.Join(dir, "-dangling"))
			return map[string]string{
				"passwd": "120000 /etc/passwd", "folder": "120000 " + filepath.Dir(secret), "-dangling": "120000 nowhere",
				".gitignore": "120000 " + secret, ".gitattributes": "120000 " + secret,
			}
		},
		".git a file that points elsewhere": func(t *testing.T, dir string) map[string]string {
			other := t.TempDir()
			run(t, other, "git", "init", "--quiet")
			write(t, other, map[string]string{".git/config": config})
			replace(t, dir, ".git", func(name string) { write(t, "/", map[string]string{name: "gitdir: " + other + "/.git\n"}) })
			return nil
		},
		".git a link to another job's": func(t *testing.T, dir string) map[string]string {
			replace(t, dir, ".git", func(name string) { link(t, filepath.Dir(secret), name) })
			return nil
		},
		"objects a link to another folder": func(t *testing.T, dir string) map[string]string {
			write(t, dir, map[string]string{".git/HEAD": strings.Repeat("a", 40) + "\n"})
			replace(t, dir, ".git/objects", func(name string) { link(t, filepath.Dir(secret), name) })
			return nil
		},
		"HEAD outside of the workspace": func(t *testing.T, dir string) map[string]string {
			write(t, dir, map[string]string{".git/HEAD": "ref: refs/heads/../../../../secret\n"})
			return nil
		},
		"HEAD that is an option": func(t *testing.T, dir string) map[string]string {
			write(t, dir, map[string]string{".git/HEAD": "--upload-pack=touch " + trap + "\n"})
			return nil
		},
		"garbage for objects": func(t *testing.T, dir string) map[string]string {
			garbage := strings.Repeat("0123456789abcdef", 3)[:40]
			write(t, dir, map[string]string{
				".git/HEAD": garbage + "\n", ".git/objects/01/" + garbage[2:]: "garbage",
				".git/objects/pack/pack-" + garbage + ".pack": "PACKgarbage", ".git/objects/pack/pack-" + garbage + ".idx": "garbage",
			})
			return nil
		},
		"pipes": func(t *testing.T, dir string) map[string]string {
			pipe(t, filepath.Join(dir, "pipe"))
			replace(t, dir, ".git/HEAD", func(name string) { pipe(t, name) })
			return nil
		},
		"names that are options": func(t *testing.T, dir string) map[string]string {
			write(t, dir, map[string]string{"--work-tree=/etc": "a", "-x/--stdin": "b", ":(top)c": "c", "M 100644 inline x\ny": "d"})
			return map[string]string{"--work-tree=/etc": "100644 a", "-x/--stdin": "100644 b", ":(top)c": "100644 c", "M 100644 inline x\ny": "100644 d"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, job := open(t, nil), newJob(nil)
			dir := h.workspace(job)
			want := attack(t, dir)
			if want == nil {
				want = map[string]string{}
			}
			delivered := h.deliver(job, dir)
			if diff := cmp.Diff(want, h.files(job, delivered.Commit)); diff != "" {
				t.Error(diff)
			}
			run(t, h.repo(job), "git", "fsck")
			if again := h.deliver(job, dir); again.Commit != delivered.Commit {
				t.Errorf("delivered again as %s, first as %s", again.Commit, delivered.Commit)
			}
			if _, err := os.Stat(trap); err == nil {
				t.Fatal("a program of the agent's ran as the service")
			}
		})
	}
}

func TestWorkspaceBeyondTheLimits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fill func(t *testing.T, dir string)
		want string
	}{
		"a huge file, all of it holes": {func(t *testing.T, dir string) {
			write(t, dir, map[string]string{"huge": ""})
			if err := os.Truncate(filepath.Join(dir, "huge"), 1<<40); err != nil {
				t.Fatal(err)
			}
		}, "more than 4194304 bytes"},
		"too many files": {func(t *testing.T, dir string) {
			for i := range 201 {
				write(t, dir, map[string]string{"f" + strings.Repeat("x", i): ""})
			}
		}, "more than 200 files"},
		"too many folders": {func(t *testing.T, dir string) {
			for i := range 4001 {
				if err := os.Mkdir(filepath.Join(dir, strconv.Itoa(i)), 0o755); err != nil {
					t.Fatal(err)
				}
			}
		}, "more than 4000 files and folders"},
		"a .gitignore that is a pipe": {func(t *testing.T, dir string) {
			pipe(t, filepath.Join(dir, ".gitignore"))
		}, "is not a file of at most"},
		"a .gitignore that is a mebibyte": {func(t *testing.T, dir string) {
			write(t, dir, map[string]string{".gitignore": strings.Repeat("*\n", 1<<20)})
		}, "is not a file of at most"},
		"history that is too large": {func(t *testing.T, dir string) {
			write(t, dir, map[string]string{".git/HEAD": strings.Repeat("a", 40), ".git/objects/pack/pack-" + strings.Repeat("a", 40) + ".pack": ""})
			if err := os.Truncate(filepath.Join(dir, ".git/objects/pack/pack-"+strings.Repeat("a", 40)+".pack"), 9<<20); err != nil {
				t.Fatal(err)
			}
		}, ".git holds more than 8388608 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			h, job := open(t, nil), newJob(nil)
			dir := h.workspace(job)
			test.fill(t, dir)
			if failure := h.failure(job, dir); !strings.Contains(failure, test.want) {
				t.Errorf("failure %q, want %q", failure, test.want)
			}
		})
	}
	// Ignored files count only towards the number of files that are listed.
	h, job := open(t, nil), newJob(nil)
	dir := h.workspace(job)
	write(t, dir, map[string]string{".gitignore": "f*\n", "kept": ""})
	for i := range 220 {
		write(t, dir, map[string]string{"f" + strings.Repeat("x", i): strings.Repeat("x", 20<<10)})
	}
	h.deliver(job, dir)
}

// Submodules of the requester's stay as they are, and tracked files that a .gitignore names stay tracked.
func TestSubmodulesAndIgnoredFilesOfTheRequester(t *testing.T) {
	t.Parallel()
	f := openForge(t, nil)
	address := f.create(t, "theirs.git", map[string]string{".gitignore": "*.log\n", "tracked.log": "tracked", "gone": "gone"})
	bare := filepath.Join(f.dir, "theirs.git")
	clone := t.TempDir()
	run(t, clone, "git", "clone", "--quiet", bare, ".")
	sub := strings.Repeat("5", 40)
	for _, name := range []string{"module", "dropped"} {
		run(t, clone, "git", "update-index", "--add", "--cacheinfo", "160000,"+sub+","+name)
	}
	run(t, clone, "git", "-c", "user.name=R", "-c", "user.email=r@example", "commit", "--quiet", "-m", "modules")
	run(t, clone, "git", "push", "--quiet")

	h := open(t, func(c *delivery.Config) { c.AllowedHosts = []string{f.host()} })
	job := newJob(func(j *work.Job) { j.Brief.RepoURL = address })
	dir := h.workspace(job)
	write(t, dir, map[string]string{"new.log": "noise", "module/inside": "checked out", "tracked.log": "changed"})
	for _, name := range []string{"gone", "dropped"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(map[string]string{
		".gitignore": "100644 *.log", "tracked.log": "100644 changed", "old": "100644 gone soon", "module": "160000 " + sub,
	}, h.files(job, h.deliver(job, dir).Commit)); diff != "" {
		t.Error(diff)
	}
}

func link(t *testing.T, target, name string) {
	t.Helper()
	if err := os.Symlink(target, name); err != nil {
		t.Fatal(err)
	}
}

func pipe(t *testing.T, name string) {
	t.Helper()
	if err := syscall.Mkfifo(name, 0o644); err != nil {
		t.Fatal(err)
	}
}

// replace removes a part of the workspace, and put creates something else in its place.
func replace(t *testing.T, dir, name string, put func(name string)) {
	t.Helper()
	name = filepath.Join(dir, name)
	if err := os.RemoveAll(name); err != nil {
		t.Fatal(err)
	}
	put(name)
}
