package delivery_test

import (
	"cmp"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"boxoffice/internal/work"
	"boxoffice/internal/work/delivery"
)

// program writes a shell script and returns its path.
func program(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "open-pull-request")
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestDeliverToTheRequestersRepository(t *testing.T) {
	t.Parallel()
	var sent []string // the method and the Authorization of each request
	f := openForge(t, func(backend http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			user, password, ok := r.BasicAuth()
			pushes := strings.Contains(r.URL.String(), "git-receive-pack")
			sent = append(sent, user+password)
			if ok != pushes || pushes && (user != "bot" || password != "hunter2hunter2") {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			r.Header.Set("X-Remote-User", user)
			backend.ServeHTTP(w, r)
		})
	})
	address := f.create(t, "theirs.git", map[string]string{"README": "theirs"})
	opened := filepath.Join(t.TempDir(), "opened")
	h := open(t, func(c *delivery.Config) {
		c.AllowedHosts = []string{"git.example", f.host()}
		c.Credentials = map[string]delivery.Credential{f.host(): {Username: "bot", Password: "hunter2hunter2"}}
		c.Env = []string{"FORGE_TOKEN=top-secret"}
		c.PullRequest = []string{program(t, `echo "$REPO_URL $BRANCH $JOB_ID $TITLE ${FORGE_TOKEN:+token}" >> `+opened+`; echo opening >&2; echo https://forge.example/pull/7`)}
	})
	job := newJob(func(j *work.Job) { j.Brief.RepoURL = address })
	dir := h.workspace(job)
	if got, err := os.ReadFile(filepath.Join(dir, "README")); string(got) != "theirs" {
		t.Fatalf("README is %q, %v", got, err)
	}
	write(t, dir, map[string]string{"poem": "ours"})
	delivered := h.deliver(job, dir)
	if delivered.PullRequestURL == nil || *delivered.PullRequestURL != "https://forge.example/pull/7" {
		t.Errorf("pull request %v", delivered.PullRequestURL)
	}
	theirs, branch := filepath.Join(f.dir, "theirs.git"), "boxoffice/"+string(job.ID)
	if got := run(t, theirs, "git", "rev-parse", branch); got != delivered.Commit {
		t.Errorf("their branch is at %s, delivered %s", got, delivered.Commit)
	}
	if got, want := run(t, theirs, "git", "log", "--format=%s", branch), "Write a poem\ntheirs\ntheirs"; got != want {
		t.Errorf("log:\n%s\nwant:\n%s", got, want)
	}
	if got := run(t, theirs, "git", "rev-parse", "trunk"); got != run(t, theirs, "git", "rev-parse", branch+"^") {
		t.Error("their own branch has moved")
	}
	again := h.deliver(job, dir)
	if again.Commit != delivered.Commit || *again.PullRequestURL != *delivered.PullRequestURL {
		t.Errorf("delivered again: %+v", again)
	}
	told, _ := os.ReadFile(opened)
	if want := address + " " + branch + " " + string(job.ID) + " Write a poem token\n"; string(told) != want {
		t.Errorf("the command was told %q, want %q", told, want)
	}
	if len(sent) == 0 {
		t.Error("nothing reached their server")
	}
}

// The process dies after each step in turn: after the commit, after the push, and after the pull request was opened but
// before its URL was saved.
func TestDeliverAfterACrash(t *testing.T) {
	t.Parallel()
	f := openForge(t, nil)
	opened := filepath.Join(t.TempDir(), "opened")
	open7 := program(t, `echo x >> `+opened+`; echo https://forge.example/pull/7`)
	steps := map[string]func(*delivery.Config){
		"commit": func(c *delivery.Config) { c.AllowedHosts = nil },
		"push":   func(c *delivery.Config) { c.PullRequest = []string{"false"} },
		"lost":   func(c *delivery.Config) { c.PullRequest = []string{program(t, `echo x >> `+opened+`; exit 3`)} },
	}
	for name, broken := range steps {
		t.Run(name, func(t *testing.T) {
			address := f.create(t, name+".git", map[string]string{"README": "theirs"})
			h := open(t, func(c *delivery.Config) { c.AllowedHosts = []string{f.host()}; c.PullRequest = []string{open7} })
			job := newJob(func(j *work.Job) { j.Brief.RepoURL = address })
			dir := h.workspace(job)
			write(t, dir, map[string]string{"poem": "ours"})
			before := open(t, func(c *delivery.Config) { c.Dir = h.dir; c.AllowedHosts = []string{f.host()}; broken(c) })
			before.failure(job, dir)
			commit := run(t, h.repo(job), "git", "rev-parse", "main")
			if delivered := h.deliver(job, dir); delivered.Commit != commit {
				t.Errorf("delivered %s, and committed %s before the crash", delivered.Commit, commit)
			}
			run(t, filepath.Join(f.dir, name+".git"), "git", "fsck", "--strict")
		})
	}
}

func TestEmptyRepository(t *testing.T) {
	f := openForge(t, nil)
	address := f.create(t, "empty.git", nil)
	h := open(t, func(c *delivery.Config) { c.AllowedHosts = []string{f.host()} })
	job := newJob(func(j *work.Job) { j.Brief.RepoURL = address })
	dir := h.workspace(job)
	write(t, dir, map[string]string{"poem": "ours"})
	delivered := h.deliver(job, dir)
	if got := run(t, filepath.Join(f.dir, "empty.git"), "git", "rev-parse", "boxoffice/"+string(job.ID)); got != delivered.Commit {
		t.Errorf("their branch is at %s, delivered %s", got, delivered.Commit)
	}
	if delivered.PullRequestURL != nil {
		t.Errorf("a pull request with no command: %s", *delivered.PullRequestURL)
	}
}

// The next version of a job with a repository goes on from the version before
// and has a branch of its own.
func TestNextVersionInTheRequestersRepository(t *testing.T) {
	t.Parallel()
	f := openForge(t, nil)
	address := f.create(t, "theirs.git", map[string]string{"README": "theirs"})
	h := open(t, func(c *delivery.Config) { c.AllowedHosts = []string{f.host()} })
	first := newJob(func(j *work.Job) { j.Brief.RepoURL = address })
	dir := h.workspace(first)
	write(t, dir, map[string]string{"poem": "one"})
	one := h.deliver(first, dir)
	second := newJob(func(j *work.Job) { j.Brief.RepoURL, j.Brief.Follows = address, first.ID })
	dir = h.workspace(second)
	write(t, dir, map[string]string{"poem": "two"})
	two := h.deliver(second, dir)
	if got := run(t, filepath.Join(f.dir, "theirs.git"), "git", "rev-parse", "boxoffice/"+string(second.ID)+"^"); got != one.Commit {
		t.Errorf("%s builds on %s, not on %s", two.Commit, got, one.Commit)
	}
}

func TestFailingRemotes(t *testing.T) {
	t.Parallel()
	answer := func(status int, header, value string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(header, value)
			w.WriteHeader(status)
		}
	}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a redirect was followed")
	}))
	t.Cleanup(elsewhere.Close)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	const secret = "s3cr3t-of-the-operator"

	for name, test := range map[string]struct {
		remote  http.Handler // nil: nobody listens
		timeout time.Duration
		want    string
	}{
		"nobody listens":         {nil, 0, "Failed to connect"},
		"asks for a password":    {answer(401, "WWW-Authenticate", `Basic realm="`+secret+`"`), 0, "could not read Username"},
		"forbids":                {answer(403, "X-Reason", "no"), 0, "403"},
		"has nothing":            {answer(404, "X-Reason", "no"), 0, "not found"},
		"redirects elsewhere":    {answer(302, "Location", elsewhere.URL+"/theirs.git/info/refs?service=git-upload-pack"), 0, "302"},
		"redirects to a file":    {answer(302, "Location", "file:///etc/passwd"), 0, "302"},
		"speaks something else":  {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("<html>\n<p>hello</p>\n</html>\n")) }), 0, "not valid"},
		"hangs before it speaks": {http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), time.Second, "given up after 1s"},
		"never ends": {http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			for r.Context().Err() == nil {
				w.Write([]byte("0040" + strings.Repeat("a", 60)))
			}
		}), time.Second, ""},
		"says what it likes": {http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.WriteHeader(500)
			w.Write([]byte("\x1b[2Joops " + r.Header.Get("Authorization") + " https://user:" + secret + "@host/ " + strings.Repeat("long ", 4000)))
		}), 0, "500"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := "http://" + closed.Addr().String() + "/theirs.git"
			if test.remote != nil {
				remote := httptest.NewServer(test.remote)
				defer remote.Close()
				defer remote.CloseClientConnections()
				address = remote.URL + "/theirs.git"
			}
			host := strings.TrimSuffix(strings.TrimPrefix(address, "http://"), "/theirs.git")
			h := open(t, func(c *delivery.Config) {
				c.AllowedHosts, c.Timeout = []string{host}, cmp.Or(test.timeout, c.Timeout)
				c.Credentials = map[string]delivery.Credential{host: {Username: "bot", Password: secret}}
			})
			job := newJob(nil)
			dir := h.workspace(job)
			write(t, dir, map[string]string{"poem": "ours"})
			job.Brief.RepoURL = address
			failure := h.failure(job, dir)
			check := func(text string) {
				t.Helper()
				switch {
				case !strings.Contains(text, test.want), !strings.Contains(text, address):
					t.Errorf("failure %q, want %q", text, test.want)
				case strings.Contains(text, secret), strings.Contains(text, h.dir), strings.Contains(text, "\x1b"), len(text) > 4<<10:
					t.Errorf("failure shows too much: %q", text)
				}
			}
			check(failure)
			if !strings.HasPrefix(failure, "git push ") {
				t.Errorf("failure %q does not begin with the command", failure)
			}
			if failure, ok := errors.AsType[*work.Failure](func() error {
				_, err := h.Workspace(t.Context(), newJob(func(j *work.Job) { j.Brief.RepoURL = address }))
				return err
			}()); !ok {
				t.Error("the workspace of a repository that cannot be read is no failure")
			} else {
				check(failure.Text)
			}
		})
	}
}

// A branch that the requester moved is not overwritten.
func TestPushIsNeverForced(t *testing.T) {
	t.Parallel()
	f := openForge(t, nil)
	address := f.create(t, "theirs.git", map[string]string{"README": "theirs"})
	h := open(t, func(c *delivery.Config) { c.AllowedHosts = []string{f.host()} })
	job := newJob(func(j *work.Job) { j.Brief.RepoURL = address })
	dir := h.workspace(job)
	write(t, dir, map[string]string{"poem": "ours"})
	theirs := filepath.Join(f.dir, "theirs.git")
	tree := run(t, theirs, "git", "rev-parse", "trunk^{tree}")
	moved := run(t, theirs, "git", "-c", "user.name=R", "-c", "user.email=r@example", "commit-tree", "-m", "moved", tree)
	run(t, theirs, "git", "update-ref", "refs/heads/boxoffice/"+string(job.ID), moved)
	if failure := h.failure(job, dir); !strings.Contains(failure, "rejected") {
		t.Errorf("failure %q", failure)
	}
	if got := run(t, theirs, "git", "rev-parse", "boxoffice/"+string(job.ID)); got != moved {
		t.Error("their branch was overwritten")
	}
}

func TestRepositoryBeyondTheLimits(t *testing.T) {
	t.Parallel()
	f := openForge(t, nil)
	many := make(map[string]string)
	for i := range 201 {
		many["f"+strings.Repeat("x", i)] = ""
	}
	noise := make([]byte, 5<<20)
	for i, x := 0, uint32(1); i < len(noise); i++ {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		noise[i] = byte(x)
	}
	for name, files := range map[string]map[string]string{
		"many.git": many, "zeros.git": {"zeros": strings.Repeat("\x00", 5<<20)}, "noise.git": {"noise": string(noise)},
	} {
		address := f.create(t, name, files)
		h := open(t, func(c *delivery.Config) { c.AllowedHosts = []string{f.host()} })
		_, err := h.Workspace(t.Context(), newJob(func(j *work.Job) { j.Brief.RepoURL = address }))
		if _, ok := errors.AsType[*work.Failure](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFailingPullRequestCommand(t *testing.T) {
	t.Parallel()
	f := openForge(t, nil)
	address := f.create(t, "theirs.git", map[string]string{"README": "theirs"})
	for script, want := range map[string]string{
		"echo cannot: token ghp_0123456789abcdef top-secret-value >&2; exit 4": "exit status 4: cannot: [redacted] [redacted]",
		"echo no address":           "printed no address",
		"echo 'javascript:alert()'": "printed no address",
		"echo https://a@b/c":        "printed no address",
		"exit 0":                    "printed no address",
		"sleep 60 & sleep 60":       "given up after 1s",
		"yes https://x.example/":    "",
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			h := open(t, func(c *delivery.Config) {
				c.AllowedHosts, c.Timeout, c.Env = []string{f.host()}, time.Second, []string{"TOKEN=top-secret-value"}
				c.PullRequest = []string{program(t, script)}
			})
			job := newJob(func(j *work.Job) { j.Brief.RepoURL = address })
			dir := h.workspace(job)
			write(t, dir, map[string]string{"poem": "ours"})
			failure := h.failure(job, dir)
			if !strings.Contains(failure, want) || !strings.HasPrefix(failure, "open-pull-request ") {
				t.Errorf("failure %q, want %q", failure, want)
			}
		})
	}
}

// A repoUrl reaches only the allowed hosts. It never reaches a file, and never becomes an option or a program.
func TestHostileAddresses(t *testing.T) {
	t.Parallel()
	f := openForge(t, nil)
	f.create(t, "theirs.git", map[string]string{"README": "theirs"})
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a host that is not listed was reached") }))
	defer other.Close()
	local := filepath.Join(f.dir, "theirs.git")
	trap := filepath.Join(t.TempDir(), "trap")
	h := open(t, func(c *delivery.Config) { c.AllowedHosts = []string{"git.example", "203.0.113.7", f.host()} })
	for _, address := range []string{
		"file://" + local, "file:///etc", local, "." + local, "../theirs.git", "~/x", "theirs.git",
		"ext::sh -c touch% " + trap, "ext::touch " + trap, "fd::0", "http::" + f.URL + "/theirs.git", "https::" + f.URL,
		"-oProxyCommand=touch " + trap, "--upload-pack=touch " + trap, "-c", "--",
		"ssh://git.example/x.git", "ssh://-oProxyCommand=touch%20" + trap + "/x", "git@git.example:x.git", "git.example:x.git",
		"git://git.example/x.git", "ftp://git.example/x.git", "rsync://git.example/x", "HTTPS", "https:", "https://", "https:///x.git",
		"https:git.example/x.git", "//git.example/x.git", "https://git.example", "https://git.example/", "https://git.example//x.git",
		"http://git.example/x.git", "http://203.0.113.7/x.git", other.URL + "/theirs.git", "https://other.example/x.git",
		"https://git.example.evil.example/x.git", "https://evil.example/git.example/x.git", "https://git.example:8443/x.git", "https://git.example.:443/x.git",
		"https://user@git.example/x.git", "https://user:pass@git.example/x.git", "https://@git.example/x.git", "https://git.example@evil.example/x.git",
		"https://evil.example\\@git.example/x.git", "https://git.example\\@evil.example/x.git", "https://git.example#@evil.example/x.git",
		"https://git.example/x.git?service=x", "https://git.example/x.git?", "https://git.example/x.git#main", "https://git.example/x.git#",
		"https://git.example/a/../x.git", "https://git.example/%2e%2e/x.git", "https://git.example/a%2fb.git", "https://git.example/x%0aHost:evil", "https://git.example/x%00.git",
		"https://git.example/x y.git", "https://git.example/x\ny.git", "https://git.example/\u202ex.git", " https://git.example/x.git", "https://git.example/x.git\n",
		"https://[::1]/x.git", "https://127.0.0.1/x.git", "http://localhost/x.git", "https://0x7f000001/x.git", "https://gіt.example/x.git",
		strings.Replace(f.URL, "http:", "https:", 1) + "/x?", f.URL + "/" + strings.Repeat("a", 2048),
	} {
		before, err := os.ReadDir(h.dir + "/repos")
		if err != nil {
			t.Fatal(err)
		}
		job := newJob(func(j *work.Job) { j.Brief.RepoURL = address })
		_, err = h.Workspace(t.Context(), job)
		if failure, ok := errors.AsType[*work.Failure](err); !ok || !strings.HasPrefix(failure.Text, "repoUrl refused") {
			t.Errorf("%q: %v", address, err)
		}
		if after, _ := os.ReadDir(h.dir + "/repos"); len(after) != len(before) {
			t.Errorf("%q left a repository behind", address)
		}
	}
	job := newJob(nil)
	dir := h.workspace(job)
	job.Brief.RepoURL = "ext::touch " + trap
	if failure := h.failure(job, dir); !strings.HasPrefix(failure, "repoUrl refused") {
		t.Errorf("failure %q", failure)
	}
	if _, err := os.Stat(trap); err == nil {
		t.Error("an address ran a program")
	}
	h.workspace(newJob(func(j *work.Job) { j.Brief.RepoURL = f.URL + "/theirs.git" })) // the one that is allowed
}

// A host with https's default port and the same host without a port are equal, in the configuration and in an address.
func TestAllowedHostWithItsPort(t *testing.T) {
	h := open(t, func(c *delivery.Config) {
		c.AllowedHosts = []string{"127.0.0.1:443"}
		c.Credentials = map[string]delivery.Credential{"127.0.0.1": {Username: "bot", Password: "hunter2hunter2"}}
	})
	for _, address := range []string{"https://127.0.0.1/r.git", "https://127.0.0.1:443/r.git"} {
		job := newJob(func(j *work.Job) { j.Brief.RepoURL = address })
		_, err := h.Workspace(t.Context(), job)
		failure, ok := errors.AsType[*work.Failure](err)
		if !ok || !strings.HasPrefix(failure.Text, "git ls-remote") { // the host was allowed
			t.Errorf("%s: %v", address, err)
		}
	}
}
