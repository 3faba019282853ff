package server_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/server"
	"boxoffice/internal/test/servertest"
	"boxoffice/internal/work/agent"
)

// An agent at an address gets a signed task and sends its result later, with files that
// are delivered. A result that is not signed with its secret is refused.
func TestHTTPAgent(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("LEFT OUT: delivering work needs git")
	}
	const key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	t.Setenv("RESEARCHER_SECRET", key)
	secret, err := agent.ParseSecret(key)
	if err != nil {
		t.Fatal(err)
	}
	tasks := make(chan agent.Task, 1)
	remote := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if _, err := secret.Verify(r.Header, time.Now(), body); err != nil {
			t.Error(err)
		}
		var task agent.Task
		if err := json.Unmarshal(body, &task); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusAccepted)
		tasks <- task
	}))
	defer remote.Close()
	w := servertest.Start(t, func(o *server.Options) {
		o.Work.Concurrency = 1
		o.Agents = map[string]server.AgentConfig{"research": {
			URL: remote.URL, SecretEnv: "RESEARCHER_SECRET", Callback: true, Timeout: server.Duration(time.Minute),
			MaxOutput: 2 << 20,
		}}
	})
	buyer := w.Client(w.NewPayer())
	id := buy(t, buyer, boxoffice.ActionJobOpen, `{"objective":"Look"}`).Admission.Result.ID
	task := <-tasks
	if task.Job != id || task.Callback == "" {
		t.Errorf("%+v", task)
	}
	answer := func(sign func(*http.Request, []byte)) int {
		t.Helper()
		body := []byte(`{"outcome":"done","summary":"seen","files":[{"path":"report.md","text":"Far away."}]}`)
		body = append(body, bytes.Repeat([]byte(" "), 1<<20)...) // as large as max_output allows
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, task.Callback, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		sign(request, body)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode
	}
	if status := answer(func(*http.Request, []byte) {}); status != http.StatusUnauthorized {
		t.Errorf("a result that is not signed: %d", status)
	}
	message := task.Callback[bytes.LastIndexByte([]byte(task.Callback), '/')+1:]
	if status := answer(func(r *http.Request,
		body []byte) {
		secret.Sign(r.Header, message, time.Now(), body)
	}); status != http.StatusNoContent {
		t.Errorf("the agent's result: %d", status)
	}
	job := watch(t, buyer, id)
	if job.State != boxoffice.JobCompleted || job.Nodes[0].Summary != "seen" || job.Delivery.Commit == "" {
		t.Errorf("%+v", job)
	}
}
