package delivery_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/work"
	"boxoffice/internal/work/delivery"
	"boxoffice/internal/work/workspace"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// A service is a Git and its folder.
type service struct {
	*delivery.Git
	t   *testing.T
	dir string
}

func config(t *testing.T) delivery.Config {
	return delivery.Config{
		Dir: t.TempDir(), BaseURL: "https://boxoffice.example", Author: "Agents of Boxoffice <agents@boxoffice.example>",
		Timeout: 30 * time.Second, MaxFiles: 200, MaxBytes: 4 << 20, MaxReads: 16, Now: func() time.Time { return noon },
	}
}

func open(t *testing.T, change func(*delivery.Config)) service {
	t.Helper()
	config := config(t)
	if change != nil {
		change(&config)
	}
	git, err := delivery.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return service{git, t, config.Dir}
}

func newJob(change func(*work.Job)) work.Job {
	job := work.Job{Job: boxoffice.Job{
		ID: boxoffice.NewUUID(), Objective: "Write a poem\nabout boxes.", CreatedAt: boxoffice.At(noon.Add(-time.Hour)),
	}}
	if change != nil {
		change(&job)
	}
	return job
}

func (h service) workspace(job work.Job) string {
	h.t.Helper()
	dir, err := h.Workspace(h.t.Context(), job)
	if err != nil {
		h.t.Fatal(err)
	}
	return dir
}

// deliver delivers and expects a success.
func (h service) deliver(job work.Job, dir string) boxoffice.Delivery {
	h.t.Helper()
	delivered, err := h.Deliver(h.t.Context(), job, dir)
	if err != nil {
		h.t.Fatal(err)
	}
	if delivered.Failure != "" {
		h.t.Fatalf("failure: %s", delivered.Failure)
	}
	if err := delivered.Validate(); err != nil {
		h.t.Fatal(err)
	}
	return delivered
}

// failure delivers and expects a failure object.
func (h service) failure(job work.Job, dir string) string {
	h.t.Helper()
	delivered, err := h.Deliver(h.t.Context(), job, dir)
	if err != nil {
		h.t.Fatal(err)
	}
	if delivered.Failure == "" {
		h.t.Fatalf("delivered %s", delivered.Commit)
	}
	if err := delivered.Validate(); err != nil {
		h.t.Fatal(err)
	}
	return delivered.Failure
}

func (h service) repo(job work.Job) string {
	return filepath.Join(h.dir, "repos", string(job.ID)+".git")
}

// files returns what a commit of a job holds: path to mode and content.
func (h service) files(job work.Job, commit string) map[string]string {
	h.t.Helper()
	files := make(map[string]string)
	for line := range strings.SplitSeq(run(h.t, h.repo(job), "git", "ls-tree", "-r", "-z", commit), "\x00") {
		if about, path, ok := strings.Cut(line, "\t"); ok {
			fields := strings.Fields(about)
			files[path] = fields[0] + " " + fields[2]
			if fields[1] == "blob" {
				files[path] = fields[0] + " " + run(h.t, h.repo(job), "git", "cat-file", "blob", fields[2])
			}
		}
	}
	return files
}

// write writes files below a folder.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// command is a program that an agent or a requester runs.
func command(t *testing.T, dir, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir = dir
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0"}
	return c
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	c := command(t, dir, name, args...)
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, &stderr)
	}
	return strings.TrimSpace(string(out))
}

// refused runs a command that has to fail, and returns its output.
func refused(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	out, err := command(t, dir, name, args...).CombinedOutput()
	if err == nil {
		t.Fatalf("%s %s succeeded", name, strings.Join(args, " "))
	}
	return string(out)
}

// A forge is a git server of the requester's, on loopback HTTP.
type forge struct {
	*httptest.Server
	dir string
}

func openForge(t *testing.T, guard func(http.Handler) http.Handler) forge {
	t.Helper()
	dir := t.TempDir()
	backend := &cgi.Handler{
		Path: filepath.Join(run(t, dir, "git", "--exec-path"), "git-http-backend"),
		Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=2",
			"GIT_CONFIG_KEY_0=http.receivepack", "GIT_CONFIG_VALUE_0=true",
			"GIT_CONFIG_KEY_1=safe.directory", "GIT_CONFIG_VALUE_1=*"},
		Stderr: t.Output(),
	}
	var handler http.Handler = backend
	if guard != nil {
		handler = guard(backend)
	}
	f := forge{Server: httptest.NewServer(handler), dir: dir}
	t.Cleanup(f.Close)
	return f
}

func (f forge) host() string { return strings.TrimPrefix(f.URL, "http://") }

// create creates a repository with two commits, of which the last has the files. Without files it stays empty.
func (f forge) create(t *testing.T, name string, files map[string]string) (address string) {
	t.Helper()
	run(t, f.dir, "git", "init", "--quiet", "--bare", "--initial-branch=trunk", name)
	if files != nil {
		clone := t.TempDir()
		run(t, clone, "git", "init", "--quiet", "--initial-branch=trunk")
		write(t, clone, map[string]string{"old": "old"})
		identity := []string{"-c", "user.name=R", "-c", "user.email=r@example"}
		for _, change := range []map[string]string{{"old": "gone soon"}, files} {
			write(t, clone, change)
			run(t, clone, "git", "add", "-A", "-f")
			run(t, clone, "git", append(identity, "commit", "--quiet", "-m", "theirs")...)
		}
		run(t, clone, "git", "push", "--quiet", filepath.Join(f.dir, name), "trunk")
	}
	return f.URL + "/" + name
}

func TestDeliverAFreshJob(t *testing.T) {
	t.Parallel()
	h, job := open(t, nil), newJob(nil)
	dir := h.workspace(job)
	write(t, dir, map[string]string{
		"poem.txt": "A box.\n", "a/b/c\"\\\nd é.bin": "\x00\xff", "run.sh": "#!/bin/sh\n", ".gitignore": "*.log\nbuild/\n",
		"noise.log": "noise", "build/out": "noise", "sub/.gitignore": "!kept.log\n", "sub/kept.log": "kept",
	})
	if err := os.Chmod(filepath.Join(dir, "run.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	delivered := h.deliver(job, dir)

	at := boxoffice.At(noon)
	want := boxoffice.Delivery{
		RepoURL: "https://boxoffice.example/git/" + string(job.ID) + ".git", Commit: delivered.Commit, DeliveredAt: &at,
	}
	if diff := cmp.Diff(want, delivered); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{
		"poem.txt": "100644 A box.", "a/b/c\"\\\nd é.bin": "100644 \x00\xff", "run.sh": "100755 #!/bin/sh",
		".gitignore": "100644 *.log\nbuild/", "sub/.gitignore": "100644 !kept.log", "sub/kept.log": "100644 kept",
	}, h.files(job, delivered.Commit)); diff != "" {
		t.Error(diff)
	}
	log := run(t, h.repo(job), "git", "log", "--format=%an <%ae>|%B", "main")
	author := "Agents of Boxoffice <agents@boxoffice.example>"
	if want := author + "|Write a poem\n\nBoxoffice-Job: " + string(job.ID) + "\n\n" +
		author + "|Start\n\nBoxoffice-Job: " + string(job.ID); log != want {
		t.Errorf("log:\n%s\nwant:\n%s", log, want)
	}
	run(t, h.repo(job), "git", "fsck", "--strict")
	if again := h.deliver(job, dir); again.Commit != delivered.Commit {
		t.Errorf("delivered again as %s, first as %s", again.Commit, delivered.Commit)
	}
	write(t, dir, map[string]string{"poem.txt": "Two boxes.\n"})
	if more := h.deliver(job, dir); run(t, h.repo(job), "git", "rev-parse", more.Commit+"^") != delivered.Commit {
		t.Error("the second delivery does not build on the first")
	}
}

// Deliver keeps the agent's own commits.
func TestAgentsOwnCommits(t *testing.T) {
	t.Parallel()
	h, job := open(t, nil), newJob(nil)
	dir := h.workspace(job)
	if got := run(t, dir, "git", "remote"); got != "" {
		t.Errorf("the workspace names the remote %q", got)
	}
	for _, word := range []string{"first", "second"} {
		write(t, dir, map[string]string{"poem": word})
		run(t, dir, "git", "add", "poem")
		run(t, dir, "git", "commit", "--quiet", "-m", word)
	}
	head := run(t, dir, "git", "rev-parse", "HEAD")
	if delivered := h.deliver(job, dir); delivered.Commit != head {
		t.Errorf("delivered %s, and the agent committed %s", delivered.Commit, head)
	}
	run(t, dir, "git", "gc", "--quiet") // packs objects and refs
	write(t, dir, map[string]string{"rest": "uncommitted"})
	delivered := h.deliver(job, dir)
	if got, want := run(t, h.repo(job), "git", "log", "--format=%s", delivered.Commit), "Write a poem\nsecond\nfirst\nStart"; got != want {
		t.Errorf("log:\n%s\nwant:\n%s", got, want)
	}
	run(t, h.repo(job), "git", "fsck", "--strict")
	if again := h.deliver(job, dir); again.Commit != delivered.Commit {
		t.Errorf("delivered again as %s, first as %s", again.Commit, delivered.Commit)
	}
}

// If an agent rewrites the history that it was given, its files are delivered on top of our history.
func TestRewrittenHistory(t *testing.T) {
	h, job := open(t, nil), newJob(nil)
	dir := h.workspace(job)
	write(t, dir, map[string]string{"poem": "mine"})
	run(t, dir, "git", "add", "poem")
	run(t, dir, "git", "commit", "--quiet", "--amend", "-m", "I was always here")
	delivered := h.deliver(job, dir)
	if got, want := run(t, h.repo(job), "git", "log", "--format=%s", delivered.Commit), "Write a poem\nStart"; got != want {
		t.Errorf("log:\n%s\nwant:\n%s", got, want)
	}
}

func TestNextVersionBuildsOnTheFirst(t *testing.T) {
	t.Parallel()
	h, first := open(t, nil), newJob(nil)
	dir := h.workspace(first)
	write(t, dir, map[string]string{"poem": "one"})
	one := h.deliver(first, dir)

	second := newJob(func(j *work.Job) { j.Brief.Follows, j.Objective = first.ID, "Make it longer" })
	dir = h.workspace(second)
	if got := run(t, dir, "git", "log", "-1", "--format=%H"); got != one.Commit {
		t.Errorf("the next version starts at %s, not at %s", got, one.Commit)
	}
	write(t, dir, map[string]string{"more": "two"})
	two := h.deliver(second, dir)
	if run(t, h.repo(second), "git", "rev-parse", two.Commit+"^") != one.Commit {
		t.Error("the next version does not build on the first")
	}
	if diff := cmp.Diff(map[string]string{"poem": "100644 one", "more": "100644 two"}, h.files(second, two.Commit)); diff != "" {
		t.Error(diff)
	}
	if run(t, h.repo(first), "git", "rev-parse", "main") != one.Commit {
		t.Error("the first version has changed")
	}
	// A version that never had a workspace has no repository to build on.
	h.workspace(newJob(func(j *work.Job) { j.Brief.Follows = boxoffice.NewUUID() }))
}

// A process that dies leaves each folder complete or absent.
func TestWorkspaceAfterACrash(t *testing.T) {
	t.Parallel()
	h, job := open(t, nil), newJob(nil)
	dir := h.workspace(job)
	write(t, dir, map[string]string{"poem": "half written"})
	if again := h.workspace(job); again != dir {
		t.Errorf("reopened as %s", again)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "poem")); string(got) != "half written" {
		t.Errorf("the agent's work is gone: %q, %v", got, err)
	}
	if err := h.Discard(job.ID); err != nil {
		t.Fatal(err)
	}
	if dir = h.workspace(job); run(t, dir, "git", "status", "--porcelain") != "" {
		t.Error("the workspace was not created again")
	}

	// Above, the repository existed and the workspace did not. Now it is the other way round.
	if err := os.RemoveAll(h.repo(job)); err != nil {
		t.Fatal(err)
	}
	h.workspace(job)
	write(t, dir, map[string]string{"poem": "a poem"})
	h.deliver(job, dir)

	// A folder that a killed process left half made is removed once it is old.
	write(t, h.dir, map[string]string{"tmp/half/HEAD": "half made"})
	open(t, func(c *delivery.Config) {
		c.Dir, c.Now = h.dir, func() time.Time { return time.Now().Add(48 * time.Hour) }
	})
	if left, _ := os.ReadDir(filepath.Join(h.dir, "tmp")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestDeliverAtOnce(t *testing.T) {
	t.Parallel()
	h, job := open(t, nil), newJob(nil)
	dir := h.workspace(job)
	write(t, dir, map[string]string{"poem": "a poem"})
	commits := make(chan string)
	for range 4 {
		go func() {
			delivered, err := h.Deliver(context.Background(), job, dir)
			if err != nil {
				t.Error(err)
			}
			commits <- delivered.Commit
		}()
	}
	first := <-commits
	for range 3 {
		if other := <-commits; other != first {
			t.Errorf("delivered as %s and %s", first, other)
		}
	}
}

func TestFaultsAreErrors(t *testing.T) {
	h, job := open(t, nil), newJob(nil)
	dir := h.workspace(job)
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := h.Deliver(ended, job, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	if _, err := h.Deliver(t.Context(), newJob(nil), dir); err == nil {
		t.Error("delivered a job that has no repository")
	}
	for _, id := range []boxoffice.UUID{"", "../../x", "-x"} {
		if _, err := h.Workspace(t.Context(), newJob(func(j *work.Job) { j.ID = id })); err == nil {
			t.Errorf("a workspace for the job %q", id)
		}
	}
}

func TestNew(t *testing.T) {
	good := config(t)
	for _, test := range []struct {
		change func(*delivery.Config)
		want   string
	}{
		{func(*delivery.Config) {}, ""},
		{func(c *delivery.Config) { c.Dir = "" }, "a folder"},
		{func(c *delivery.Config) { c.BaseURL = "boxoffice.example/" }, "base URL"},
		{func(c *delivery.Config) { c.Author = "nobody" }, "author"},
		{func(c *delivery.Config) { c.Timeout = 0 }, "must be positive"},
		{func(c *delivery.Config) { c.MaxReads = 0 }, "must be positive"},
		{func(c *delivery.Config) { c.AllowedHosts = []string{"https://git.example"} }, "allowed host"},
		{func(c *delivery.Config) { c.AllowedHosts = []string{"-oProxyCommand=x"} }, "allowed host"},
		{func(c *delivery.Config) { c.Credentials = map[string]delivery.Credential{"git.example": {}} }, "credentials"},
	} {
		config := good
		test.change(&config)
		_, err := delivery.New(config)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%v, want %q", err, test.want)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := delivery.New(good); err == nil || !strings.Contains(err.Error(), "install git") {
		t.Errorf("without git: %v", err)
	}
	if err := os.WriteFile(filepath.Join(os.Getenv("PATH"), "git"), []byte("#!/bin/sh\necho git version 2.9.1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := delivery.New(good); err == nil || !strings.Contains(err.Error(), "or newer is needed") {
		t.Errorf("with an old git: %v", err)
	}
}

// Agents may write below the real path of their workspace. So Workspace returns a path without links.
func TestDirBehindALink(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	h := open(t, func(c *delivery.Config) { c.Dir = link })
	if err := workspace.Check(h.workspace(newJob(nil))); err != nil {
		t.Error(err)
	}
}
