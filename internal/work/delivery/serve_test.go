package delivery_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/httpapi"
	"boxoffice/internal/httpapi/ratelimit"
	"boxoffice/internal/work"
	"boxoffice/internal/work/delivery"
)

// owners maps each job to its requester.
type owners map[boxoffice.UUID]boxoffice.Requester

var errAway = errors.New("the store is away")

func (o owners) Job(_ context.Context, requester boxoffice.Requester, id boxoffice.UUID) (work.Job, error) {
	if owner, ok := o[id]; !ok || owner != requester {
		return work.Job{}, work.ErrNotFound
	}
	return work.Job{}, nil
}

// unlimited is a rate that no test reaches.
var unlimited = ratelimit.Rate{PerSecond: 1e6, Burst: 1e6}

// jobs is a work.Store that only reads jobs.
type jobs struct {
	work.Store
	read func(context.Context, boxoffice.Requester, boxoffice.UUID) (work.Job, error)
}

func (j jobs) Job(ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID) (work.Job, error) {
	return j.read(ctx, requester, id)
}

// serve returns the handler that requesters reach.
func serve(g *delivery.Git, jobs jobs) http.Handler {
	return httpapi.New(httpapi.Config{
		Git: g, Work: jobs, BaseURL: "https://boxoffice.example", PerToken: unlimited, PerAddress: unlimited,
		Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
}

func (h service) handler(owners owners) http.Handler { return serve(h.Git, jobs{read: owners.Job}) }

// A server is a service that delivered one job and serves it.
type server struct {
	service
	*httptest.Server
	token  boxoffice.Token
	job    work.Job
	commit string
}

func openServer(t *testing.T, change func(*delivery.Config)) server {
	t.Helper()
	s := server{service: open(t, change), token: boxoffice.NewToken(), job: newJob(nil)}
	dir := s.workspace(s.job)
	write(t, dir, map[string]string{"poem": "a poem"})
	s.commit = s.deliver(s.job, dir).Commit
	undelivered := boxoffice.NewUUID()
	s.Server = httptest.NewServer(s.handler(owners{s.job.ID: s.token.Requester(), undelivered: s.token.Requester()}))
	t.Cleanup(s.Close)
	return s
}

func (s server) path() string { return "/git/" + string(s.job.ID) + ".git" }

// address returns the URL of the job's repository with credentials, as a requester gives it to git.
func (s server) address(user, password string) string {
	return strings.Replace(s.URL, "http://", "http://"+user+":"+password+"@", 1) + s.path()
}

func TestClone(t *testing.T) {
	t.Parallel()
	s := openServer(t, nil)
	for name, args := range map[string][]string{
		"protocol 2":   {"-c", "protocol.version=2", "clone", s.address("x", s.token.Reveal())},
		"protocol 1":   {"-c", "protocol.version=1", "clone", s.address("any", strings.ToUpper(s.token.Reveal()))},
		"protocol 0":   {"-c", "protocol.version=0", "clone", s.address("any", s.token.Reveal())},
		"shallow":      {"clone", "--depth=1", s.address("x", s.token.Reveal())},
		"Bearer token": {"-c", "http.extraHeader=Authorization: Bearer " + s.token.Reveal(), "clone", s.URL + s.path()},
	} {
		t.Run(name, func(t *testing.T) {
			clone := t.TempDir()
			run(t, clone, "git", append(args, ".")...)
			if got := run(t, clone, "git", "rev-parse", "HEAD"); got != s.commit {
				t.Errorf("cloned %s, delivered %s", got, s.commit)
			}
			if got, err := os.ReadFile(filepath.Join(clone, "poem")); string(got) != "a poem" {
				t.Errorf("poem is %q, %v", got, err)
			}
		})
	}
}

// When the server asks for a password, git asks its user.
func TestGitAsksForThePassword(t *testing.T) {
	s := openServer(t, nil)
	c := command(t, t.TempDir(), "git", "clone", s.URL+s.path(), ".")
	c.Env = append(c.Env, "GIT_ASKPASS="+program(t, "echo "+s.token.Reveal()))
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if said := refused(t, t.TempDir(), "git", "clone", s.URL+s.path(), "."); !strings.Contains(said, "could not read Username") {
		t.Errorf("without a password: %s", said)
	}
}

// The job's repository is a shallow clone of the requester's. A clone of it is shallow too.
func TestCloneOfAContinuedRepository(t *testing.T) {
	t.Parallel()
	f := openForge(t, nil)
	address := f.create(t, "theirs.git", map[string]string{"README": "theirs"})
	s := openServer(t, func(c *delivery.Config) { c.AllowedHosts = []string{f.host()} })
	job := newJob(func(j *work.Job) { j.Brief.RepoURL = address })
	dir := s.workspace(job)
	write(t, dir, map[string]string{"poem": "ours"})
	delivered := s.deliver(job, dir)
	server := httptest.NewServer(s.handler(owners{job.ID: s.token.Requester()}))
	defer server.Close()
	clone := t.TempDir()
	run(t, clone, "git", "clone",
		strings.Replace(server.URL, "//", "//x:"+s.token.Reveal()+"@", 1)+"/git/"+string(job.ID)+".git", ".")
	if got := run(t, clone, "git", "rev-parse", "HEAD"); got != delivered.Commit {
		t.Errorf("cloned %s, delivered %s", got, delivered.Commit)
	}
	run(t, clone, "git", "fsck", "--strict")
}

func TestOthersReadNothing(t *testing.T) {
	s := openServer(t, nil)
	for password, want := range map[string]string{
		boxoffice.NewToken().Reveal(): "not found",
		"wrong":                       "Authentication failed",
	} {
		if said := refused(t, t.TempDir(), "git", "clone", s.address("x", password), "."); !strings.Contains(said, want) {
			t.Errorf("cloning with %q: %s", password, said)
		}
	}
}

func TestPushIsRefused(t *testing.T) {
	t.Parallel()
	s := openServer(t, nil)
	clone := t.TempDir()
	run(t, clone, "git", "clone", s.address("x", s.token.Reveal()), ".")
	run(t, clone, "git", "-c", "user.name=R", "-c", "user.email=r@example",
		"commit", "--quiet", "--allow-empty", "-m", "mine")
	if said := refused(t, clone, "git", "push", "origin", "HEAD"); !strings.Contains(said, "403") {
		t.Errorf("pushing: %s", said)
	}
	if got := run(t, s.repo(s.job), "git", "rev-parse", "main"); got != s.commit {
		t.Errorf("main is at %s, delivered %s", got, s.commit)
	}
}

func TestRequests(t *testing.T) {
	t.Parallel()
	s := openServer(t, nil)
	token := s.token.Reveal()
	const upload = "application/x-git-upload-pack-request"
	flush := "0000"
	for _, test := range []struct {
		name, method, path, user string
		header                   map[string]string
		body                     string
		want                     int
	}{
		{name: "no token", path: s.path() + "/info/refs?service=git-upload-pack", user: "-", want: 401},
		{name: "a token that is none", path: s.path() + "/info/refs?service=git-upload-pack", user: "zz", want: 401},
		{name: "another's token", path: s.path() + "/info/refs?service=git-upload-pack",
			user: boxoffice.NewToken().Reveal(), want: 404},
		{name: "references", path: s.path() + "/info/refs?service=git-upload-pack", want: 200},
		{name: "the id in capitals", want: 200,
			path: "/git/" + strings.ToUpper(string(s.job.ID)) + ".git/info/refs?service=git-upload-pack"},
		{name: "to push", path: s.path() + "/info/refs?service=git-receive-pack", want: 403},
		{name: "to push, at once", method: "POST", path: s.path() + "/git-receive-pack", want: 403},
		{name: "the dumb protocol", path: s.path() + "/info/refs", want: 403},
		{name: "a file", path: s.path() + "/HEAD", want: 404},
		{name: "the configuration", path: s.path() + "/config", want: 404},
		{name: "an object", path: s.path() + "/objects/" + s.commit[:2] + "/" + s.commit[2:], want: 404},
		{name: "a job that is unknown", want: 404,
			path: "/git/" + string(boxoffice.NewUUID()) + ".git/info/refs?service=git-upload-pack"},
		{name: "a folder", path: "/git/..%2f..%2fetc.git/info/refs?service=git-upload-pack", want: 404},
		{name: "an option", path: "/git/--help.git/info/refs?service=git-upload-pack", want: 404},
		{name: "another suffix", path: "/git/" + string(s.job.ID) + "/info/refs?service=git-upload-pack", want: 404},
		{name: "another page's script", path: s.path() + "/info/refs?service=git-upload-pack",
			header: map[string]string{"Origin": "https://evil.example"}, want: 403},
		{name: "our own page's script", path: s.path() + "/info/refs?service=git-upload-pack",
			header: map[string]string{"Origin": "https://boxoffice.example"}, want: 200},
		{name: "a protocol that is an option", path: s.path() + "/info/refs?service=git-upload-pack",
			header: map[string]string{"Git-Protocol": "--x\" y"}, want: 200},
		{name: "nothing wanted", method: "POST", path: s.path() + "/git-upload-pack",
			header: map[string]string{"Content-Type": upload}, body: flush, want: 200},
		{name: "packed", method: "POST", path: s.path() + "/git-upload-pack",
			header: map[string]string{"Content-Type": upload, "Content-Encoding": "gzip"}, body: pack(flush),
			want: 200},
		{name: "packed, it says", method: "POST", path: s.path() + "/git-upload-pack",
			header: map[string]string{"Content-Type": upload, "Content-Encoding": "gzip"}, body: flush, want: 400},
		{name: "packed in another way", method: "POST", path: s.path() + "/git-upload-pack",
			header: map[string]string{"Content-Type": upload, "Content-Encoding": "br"}, body: flush, want: 400},
		{name: "a bomb", method: "POST", path: s.path() + "/git-upload-pack",
			header: map[string]string{"Content-Type": upload, "Content-Encoding": "gzip"},
			body:   pack(strings.Repeat("0", 64<<20)), want: 413},
		{name: "too large", method: "POST", path: s.path() + "/git-upload-pack",
			header: map[string]string{"Content-Type": upload}, body: strings.Repeat("0", 3<<20), want: 413},
		{name: "of another type", method: "POST", path: s.path() + "/git-upload-pack", body: flush, want: 415},
		{name: "another method", method: "PUT", path: s.path() + "/info/refs?service=git-upload-pack", want: 405},
		{name: "to read what is posted to", path: s.path() + "/git-upload-pack", want: 405},
		{name: "which methods", method: "OPTIONS", path: s.path() + "/info/refs", user: "-", want: 204},
		{name: "which methods, to post", method: "OPTIONS", path: s.path() + "/git-upload-pack", user: "-", want: 204},
		{name: "another page's browser asks first", method: "OPTIONS", path: s.path() + "/info/refs", user: "-",
			header: map[string]string{"Origin": "https://evil.example"}, want: 403},
		{name: "references, without a body", method: "HEAD", path: s.path() + "/info/refs?service=git-upload-pack",
			want: 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.method == "" {
				test.method = http.MethodGet
			}
			r, err := http.NewRequestWithContext(t.Context(), test.method, s.URL+test.path,
				strings.NewReader(test.body))
			if err != nil {
				t.Fatal(err)
			}
			switch test.user {
			case "":
				r.SetBasicAuth("x", token)
			case "-":
			default:
				r.SetBasicAuth("x", test.user)
			}
			for name, value := range test.header {
				r.Header.Set(name, value)
			}
			answer, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			text, err := io.ReadAll(answer.Body)
			if err != nil || answer.StatusCode != test.want {
				t.Errorf("status %d, want %d; %v: %.200s", answer.StatusCode, test.want, err, text)
			}
			if asks := strings.HasPrefix(answer.Header.Get("WWW-Authenticate"), "Basic "); asks != (test.want == 401) {
				t.Errorf("WWW-Authenticate %q", answer.Header.Get("WWW-Authenticate"))
			}
			allow, told := answer.Header.Get("Allow"), test.want == 405 || test.method == http.MethodOptions
			if strings.Contains(allow, "OPTIONS") != told {
				t.Errorf("Allow %q", allow)
			}
			if strings.Contains(string(text), s.dir) {
				t.Errorf("the answer shows a folder: %s", text)
			}
		})
	}
}

func TestTooManyReadsAtOnce(t *testing.T) {
	s := openServer(t, func(c *delivery.Config) { c.MaxReads = 1 })
	handler := s.handler(owners{s.job.ID: s.token.Requester()})
	request := func() *http.Request {
		r := httptest.NewRequest("GET", s.path()+"/info/refs?service=git-upload-pack", nil)
		r.SetBasicAuth("x", s.token.Reveal())
		return r
	}
	first := &slow{ResponseRecorder: httptest.NewRecorder(), begun: make(chan struct{}), goOn: make(chan struct{})}
	done := make(chan struct{})
	go func() { handler.ServeHTTP(first, request()); close(done) }()
	<-first.begun
	second := httptest.NewRecorder()
	handler.ServeHTTP(second, request())
	if second.Code != http.StatusServiceUnavailable || second.Header().Get("Retry-After") == "" {
		t.Errorf("the second of one answers %d", second.Code)
	}
	close(first.goOn)
	<-done
	third := httptest.NewRecorder()
	if handler.ServeHTTP(third, request()); third.Code != http.StatusOK {
		t.Errorf("the one after answers %d", third.Code)
	}
}

func TestStoreFails(t *testing.T) {
	s := openServer(t, nil)
	away := httptest.NewRecorder()
	r := httptest.NewRequest("GET", s.path()+"/info/refs?service=git-upload-pack", nil)
	r.SetBasicAuth("x", s.token.Reveal())
	serve(s.Git, jobs{read: broken{}.Job}).ServeHTTP(away, r)
	if away.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d", away.Code)
	}
}

type broken struct{}

func (broken) Job(context.Context, boxoffice.Requester, boxoffice.UUID) (work.Job, error) {
	return work.Job{}, errAway
}

// slow is a client that reads its answer only after goOn is closed.
type slow struct {
	*httptest.ResponseRecorder
	begun, goOn chan struct{}
}

func (s *slow) Write(p []byte) (int, error) {
	select {
	case <-s.goOn:
	default:
		close(s.begun)
		<-s.goOn
	}
	return s.ResponseRecorder.Write(p)
}

func pack(text string) string {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	io.WriteString(w, text)
	w.Close()
	return packed.String()
}
