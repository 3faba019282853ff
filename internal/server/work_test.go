package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/client"
	"boxoffice/internal/server"
	"boxoffice/internal/test/servertest"
)

// shell is a small agent, as an operator could write it.
const shell = `task=$(cat)
echo "working" >&2
case "$task" in
*'"panel"'*) echo '{"outcome":"done","summary":"I think so","choice":"yes"}'; exit ;;
*"which way"*) case "$task" in
	*'"inputs"'*) ;;
	*) echo '{"outcome":"blocked","reason":"left or right?"}'; exit ;;
	esac ;;
esac
echo "$task" >> task.json
echo '{"outcome":"done","summary":"it is written"}'
`

// working makes the service run work with the agent of shell.
func working(t *testing.T) func(*server.Options) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("LEFT OUT: delivering work needs git")
	}
	script := filepath.Join(t.TempDir(), "agent.sh")
	if err := os.WriteFile(script, []byte(shell), 0o755); err != nil {
		t.Fatal(err)
	}
	return func(o *server.Options) {
		o.Work.Concurrency = 3
		o.Agents = map[string]server.AgentConfig{
			"default": {Command: []string{"sh", script}, Timeout: server.Duration(time.Minute)},
		}
	}
}

func watch(t *testing.T, buyer *client.Client, id boxoffice.UUID) boxoffice.Job {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var last boxoffice.Job
	for job, err := range buyer.WatchJob(ctx, id) {
		if err != nil {
			t.Fatal(err)
		}
		last = job
	}
	return last
}

// The operator's agent does bought work. Its result can be cloned with the requester's
// token and with no other.
func TestWorkIsDoneAndDelivered(t *testing.T) {
	w := servertest.Start(t, working(t))
	token := boxoffice.NewToken()
	buyer := w.Client(w.NewPayer(), func(c *client.Config) { c.Token = token })
	opened := buy(t, buyer, boxoffice.ActionJobOpen,
		`{"objective":"Say which way","context":[{"name":"map","text":"here"}]}`)
	id := opened.Admission.Result.ID

	blocked := watch(t, buyer, id)
	if blocked.State != boxoffice.JobBlocked || *blocked.BlockedReason != "node main needs input: left or right?" {
		t.Fatalf("%+v", blocked)
	}
	buy(t, buyer, boxoffice.ActionJobContinue, fmt.Sprintf(`{"jobId":%q,"input":"Left"}`, id))
	job := watch(t, buyer, id)
	if job.State != boxoffice.JobCompleted || job.Delivery == nil || job.Delivery.Failure != "" {
		t.Fatalf("%+v", job)
	}
	folder := clone(t, job.Delivery.RepoURL, token)
	if head := strings.TrimSpace(git(t, folder, "rev-parse", "HEAD")); head != job.Delivery.Commit {
		t.Errorf("HEAD is %s, delivered was %s", head, job.Delivery.Commit)
	}
	document, err := os.ReadFile(filepath.Join(folder, "task.json"))
	if err != nil {
		t.Fatal(err)
	}
	var task struct {
		V         int
		Job       boxoffice.UUID
		Objective string
		Inputs    []string
	}
	if err := json.Unmarshal(document, &task); err != nil || task.V != 1 || task.Job != id ||
		len(task.Inputs) != 1 || task.Inputs[0] != "Left" {
		t.Errorf("the agent was told %s (%v)", document, err)
	}
	workspace := filepath.Join(w.Options.Work.Dir, "workspaces", string(id))
	for again := time.NewTicker(10 * time.Millisecond); ; <-again.C {
		if _, err := os.Stat(workspace); errors.Is(err, os.ErrNotExist) {
			break // the next version starts from the repository
		}
	}
	if out, err := cloning(t, job.Delivery.RepoURL, boxoffice.NewToken()).CombinedOutput(); err == nil {
		t.Errorf("a stranger clones the repository: %s", out)
	}

	next := buy(t, buyer, boxoffice.ActionJobContinue,
		fmt.Sprintf(`{"jobId":%q,"input":"And back, which way"}`, id)).Admission.Result.ID
	if version := watch(t, buyer, next); version.State != boxoffice.JobBlocked ||
		version.Project.Version != 2 || version.Project.Of != 2 {
		t.Errorf("the next version %+v", version)
	}
	buy(t, buyer, boxoffice.ActionJobContinue, fmt.Sprintf(`{"jobId":%q,"input":"Right"}`, next))
	folder = clone(t, watch(t, buyer, next).Delivery.RepoURL, token)
	both, err := os.ReadFile(filepath.Join(folder, "task.json"))
	if err != nil || !strings.HasPrefix(string(both), string(document)) ||
		strings.Count(string(both), `"objective"`) != 2 {
		t.Errorf("the next version wrote %s (%v)", both, err)
	}
}

// A repository on a host that is not allowed is refused before payment. One that cannot
// be reached blocks the job, and the requester reads why.
func TestRepositoriesOfRequesters(t *testing.T) {
	w := servertest.Start(t, working(t), func(o *server.Options) {
		o.Delivery.AllowedHosts = []string{"localhost:1", "git.example"}
		o.Work.MaxFailures = 1
	})
	d := newRequester(t, w)
	for _, input := range []string{
		`{"action":"job.open","input":{"objective":"Look","repoUrl":"https://other.example/r.git"},"requestKey":%q}`,
		`{"action":"schedule.create","input":{"action":"job.open","input":{"objective":"Look","repoUrl":"https://git.example:8443/r.git"},
			"intervalMinutes":30,"runs":1},"requestKey":%q}`,
	} {
		d.send("POST", "/requests/quote", fmt.Sprintf(input, boxoffice.NewUUID())).
			want(t, http.StatusUnprocessableEntity, boxoffice.ActionRefused, "repository_refused")
	}
	buyer := w.Client(w.NewPayer())
	capabilities, err := buyer.Capabilities(t.Context())
	if err != nil || !slices.Equal(capabilities.Limits.RepositoryHosts, w.Options.Delivery.AllowedHosts) {
		t.Errorf("capabilities list %v (%v)", capabilities.Limits.RepositoryHosts, err)
	}
	opened := buy(t, buyer, boxoffice.ActionJobOpen, `{"objective":"Look","repoUrl":"https://localhost:1/r.git"}`)
	job := watch(t, buyer, opened.Admission.Result.ID)
	if job.State != boxoffice.JobBlocked || !strings.Contains(*job.BlockedReason, "ls-remote") ||
		!strings.Contains(*job.BlockedReason, "https://localhost:1/r.git") {
		t.Errorf("%+v, %s", job, *job.BlockedReason)
	}
}

func TestOraclesAndSchedulesRun(t *testing.T) {
	w := servertest.Start(t, working(t))
	buyer := w.Client(w.NewPayer())
	asked := buy(t, buyer, boxoffice.ActionOracleRequest,
		`{"question":"Is it so?","panelSize":5,"options":["yes","no"]}`).Admission.Result.ID
	planned := buy(t, buyer, boxoffice.ActionScheduleCreate,
		`{"action":"job.open","input":{"objective":"Look again"},"intervalMinutes":30,"runs":2}`).Admission.Result.ID
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()
	for {
		oracle, err := buyer.Oracle(ctx, asked)
		if err != nil {
			t.Fatal(err)
		}
		schedule, err := buyer.Schedule(ctx, planned)
		if err != nil {
			t.Fatal(err)
		}
		if oracle.State == boxoffice.JobCompleted && schedule.RunsLeft == 1 {
			if *oracle.Answer != (boxoffice.PanelAnswer{Choice: "yes", Votes: 5, Of: 5}) {
				t.Errorf("%+v", oracle)
			}
			if job := watch(t, buyer, schedule.LastRuns[0].ID); job.State != boxoffice.JobCompleted ||
				job.Objective != "Look again" {
				t.Errorf("%+v", job)
			}
			return
		}
		<-retry.C
	}
}

// The database fails for a minute in which agents finish. Their results are kept until
// it works again, and count once.
func TestDatabaseAwayWhileWorking(t *testing.T) {
	run, folder := working(t), t.TempDir()
	gate, script := filepath.Join(folder, "gate"), filepath.Join(folder, "agent.sh")
	patient := "until [ -e " + gate + " ]; do sleep 0.02; done\n" + shell
	if err := os.WriteFile(script, []byte(patient), 0o755); err != nil {
		t.Fatal(err)
	}
	w := servertest.Start(t, run, func(o *server.Options) {
		o.Agents["default"] = server.AgentConfig{Command: []string{"sh", script}, Timeout: server.Duration(time.Minute)}
	})
	token := boxoffice.NewToken()
	buyer := w.Client(w.NewPayer(), func(c *client.Config) { c.Token = token })
	var jobs []boxoffice.UUID
	retry := time.NewTicker(5 * time.Millisecond)
	defer retry.Stop()
	for range 3 {
		id := buy(t, buyer, boxoffice.ActionJobOpen, `{"objective":"Look"}`).Admission.Result.ID
		for state := boxoffice.JobQueued; state != boxoffice.JobRunning; <-retry.C {
			job, err := buyer.Job(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			state = job.State
		}
		jobs = append(jobs, id)
	}

	restore := removeTables(t, w, "nodes", "jobs")
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, id := range jobs {
		for !strings.Contains(w.Log.String(),
			`msg="a result could not be saved; saving is repeated" work=`+string(id)) {
			<-retry.C
		}
	}
	w.Advance(time.Minute)
	restore()
	for _, id := range jobs {
		job := watch(t, buyer, id)
		if job.State != boxoffice.JobCompleted || job.Delivery == nil || job.Delivery.Failure != "" ||
			job.Nodes[0].Attempts != 1 {
			t.Fatalf("%+v", job)
		}
		if written, err := os.ReadFile(filepath.Join(clone(t, job.Delivery.RepoURL, token), "task.json")); err != nil || strings.Count(string(written), `"objective"`) != 1 {
			t.Errorf("the agent wrote %q (%v)", written, err)
		}
	}
}

// A worker process does the work of a server that runs none.
func TestWorker(t *testing.T) {
	run := working(t)
	w := servertest.Start(t, run, func(o *server.Options) { o.Work.Concurrency = 0 })
	buyer := w.Client(w.NewPayer())
	id := buy(t, buyer, boxoffice.ActionJobOpen, `{"objective":"Look"}`).Admission.Result.ID
	options := w.Options
	run(&options)
	defer startWorker(t, options)()
	if job := watch(t, buyer, id); job.State != boxoffice.JobCompleted {
		t.Errorf("%+v", job)
	}
}

// startWorker starts a worker process and returns how to stop it.
func startWorker(t *testing.T, options server.Options) (stop func()) {
	t.Helper()
	worker, err := server.NewWorker(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	return func() {
		cancel()
		if err := errors.Join(<-ended, worker.Close()); err != nil {
			t.Error(err)
		}
	}
}

func cloning(t *testing.T, address string, token boxoffice.Token) *exec.Cmd {
	address = strings.Replace(address, "://", "://token:"+token.Reveal()+"@", 1)
	command := exec.CommandContext(t.Context(), "git", "clone", "--quiet", address, filepath.Join(t.TempDir(), "clone"))
	command.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0")
	return command
}

func clone(t *testing.T, address string, token boxoffice.Token) (folder string) {
	t.Helper()
	command := cloning(t, address, token)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("git clone: %v\n%s", err, out)
	}
	return command.Args[len(command.Args)-1]
}

func git(t *testing.T, folder string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", folder}, args...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
