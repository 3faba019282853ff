package server_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/httpapi"
	"boxoffice/internal/server"
	"boxoffice/internal/test/servertest"
)

// cancel cancels work through the operator's HTTP.
func cancel(t *testing.T, w *servertest.World, id, origin string) (
	status int, body struct{ Kind, State, Error string },
) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		"http://"+w.OperatorAddr()+"/work/"+id+"/cancel", nil)
	if err != nil {
		t.Fatal(err)
	}
	if origin != "" {
		request.Header.Set("Origin", origin)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&body); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, body
}

// An operator cancels a job whose agent runs in another process: the agent and its child
// processes end, the job is blocked, and a paid input resumes it.
func TestCancelOnAWorker(t *testing.T) {
	run := working(t)
	script := filepath.Join(t.TempDir(), "agent.sh")
	endless := `case "$(tee task.json)" in
*'"inputs"'*) echo '{"outcome":"done","summary":"after all"}'; exit ;;
esac
sleep 1000 &
echo $$ $! > new && mv new pids
wait
`
	if err := os.WriteFile(script, []byte(endless), 0o600); err != nil {
		t.Fatal(err)
	}
	w := servertest.Start(t, run, func(o *server.Options) {
		o.Work.Concurrency = 0
		o.Agents["default"] = server.AgentConfig{Command: []string{"sh", script}}
	})
	options := w.Options
	options.Work.Concurrency = 1
	defer startWorker(t, options)()

	buyer := w.Client(w.NewPayer())
	id := buy(t, buyer, boxoffice.ActionJobOpen, `{"objective":"Look for ever"}`).Admission.Result.ID
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	pids := filepath.Join(w.Options.Work.Dir, "workspaces", string(id), "pids")
	var agents []int
	for len(agents) == 0 {
		<-again.C
		if written, err := os.ReadFile(pids); err == nil {
			for _, field := range strings.Fields(string(written)) {
				pid, err := strconv.Atoi(field)
				if err != nil {
					t.Fatal(err)
				}
				agents = append(agents, pid)
			}
		}
	}
	if status, refused := cancel(t, w, string(id), "http://elsewhere.example"); status != http.StatusForbidden {
		t.Errorf("a page of a browser is answered %d %+v", status, refused)
	}
	if status, cancelled := cancel(t, w, string(id), ""); status != http.StatusOK ||
		cancelled.Kind != "job" || cancelled.State != "blocked" {
		t.Fatalf("answered %d %+v", status, cancelled)
	}
	if job := watch(t, buyer, id); job.State != boxoffice.JobBlocked ||
		*job.BlockedReason != "analysis failed at node main: cancelled by the operator" {
		t.Errorf("%+v", job)
	}
	late := time.After(15 * time.Second)
	for _, pid := range agents {
		for syscall.Kill(pid, 0) == nil {
			select {
			case <-again.C:
			case <-late:
				t.Fatalf("process %d goes on", pid)
			}
		}
	}

	buy(t, buyer, boxoffice.ActionJobContinue, `{"jobId":"`+string(id)+`","input":"Come home"}`)
	if job := watch(t, buyer, id); job.State != boxoffice.JobCompleted || job.Nodes[0].Summary != "after all" {
		t.Errorf("%+v", job)
	}
	if status, refused := cancel(t, w, string(id), ""); status != http.StatusConflict ||
		refused.Error != string(httpapi.WorkEnded) {
		t.Errorf("a completed job is answered %d %+v", status, refused)
	}
	if status, refused := cancel(t, w, string(boxoffice.NewUUID()), ""); status != http.StatusNotFound ||
		refused.Error != string(boxoffice.NotFound) {
		t.Errorf("an unknown job is answered %d %+v", status, refused)
	}
	if status, refused := cancel(t, w, "7", ""); status != http.StatusBadRequest ||
		refused.Error != string(boxoffice.InvalidRequest) {
		t.Errorf("what is no id is answered %d %+v", status, refused)
	}
}
