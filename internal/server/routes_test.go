package server_test

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/client"
	"boxoffice/internal/server"
	"boxoffice/internal/test/servertest"
	"boxoffice/internal/work/agent"
)

// The routes of git and of late results of agents answer as the document says, and a
// late result completes the job.
func TestDocumentedAnswersOfGitAndAgents(t *testing.T) {
	const text = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	t.Setenv("AGENT_SECRET", text)
	secret, err := agent.ParseSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	tasks := make(chan string, 1)
	remote := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tasks <- r.Header.Get("Webhook-Id")
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(remote.Close)
	w := servertest.Start(t, working(t), func(o *server.Options) {
		o.Agents["default"] = server.AgentConfig{URL: remote.URL, SecretEnv: "AGENT_SECRET", Callback: true,
			Timeout: server.Duration(time.Minute)}
	})
	d := newRequester(t, w)
	id := d.bought(w, w.NewPayer(), 1, boxoffice.ActionJobOpen, `{"objective":"Look"}`)
	task := <-tasks
	expect := func(status int, method, path, body string, headers ...string) {
		t.Helper()
		if r := d.send(method, path, body, headers...); r.Status != status {
			t.Errorf("%s %s answered %d %s, want %d", method, path, r.Status, r.Body, status)
		}
	}
	signed := func(id, body string, secret agent.Secret) []string {
		header := http.Header{}
		secret.Sign(header, id, w.Now(), []byte(body))
		headers := []string{"Authorization", ""}
		for name := range header {
			headers = append(headers, name, header.Get(name))
		}
		return headers
	}
	const done, otherwise = `{"outcome":"done","summary":"seen"}`, `{"outcome":"blocked","reason":"what?"}`
	strange := "msg_" + strings.Repeat("0", 64)
	expect(401, "POST", "/callbacks/"+task, done)
	expect(400, "POST", "/callbacks/"+task, `{}`, signed(task, `{}`, secret)...)
	expect(404, "POST", "/callbacks/"+strange, done, signed(strange, done, secret)...)
	expect(413, "POST", "/callbacks/"+task, strings.Repeat(" ", 2<<20))
	expect(204, "POST", "/callbacks/"+task, done, signed(task, done, secret)...)

	buyer := w.Client(w.NewPayer(), func(c *client.Config) { c.Token = d.token })
	job := watch(t, buyer, id)
	if job.State != boxoffice.JobCompleted || job.Nodes[0].Summary != "seen" {
		t.Fatalf("%+v", job)
	}
	expect(404, "POST", "/callbacks/"+task, done, signed(task, done, secret)...) // the run is over

	second := d.bought(w, w.NewPayer(), 1, boxoffice.ActionJobOpen, `{"objective":"Look again"}`)
	task = <-tasks
	restore := removeTables(t, w, "nodes") // so that the run is not over when the answer comes twice
	expect(204, "POST", "/callbacks/"+task, done, signed(task, done, secret)...)
	expect(204, "POST", "/callbacks/"+task, done, signed(task, done, secret)...)
	expect(409, "POST", "/callbacks/"+task, otherwise, signed(task, otherwise, secret)...)
	restore()
	watch(t, buyer, second)

	repository := "/git/" + string(id) + ".git/"
	refs, fetch := repository+"info/refs?service=git-upload-pack", repository+"git-upload-pack"
	password := base64.StdEncoding.EncodeToString([]byte("any:" + d.token.Reveal()))
	pack := []string{"Content-Type", "application/x-git-upload-pack-request"}
	want := "0032want " + job.Delivery.Commit + "\n00000009done\n"
	expect(200, "GET", refs, "", "Authorization", "Basic "+password)
	expect(200, "POST", fetch, want, pack...)
	expect(400, "POST", fetch, want, append(pack, "Content-Encoding", "gzip")...)
	expect(413, "POST", fetch, strings.Repeat("0", 3<<20), pack...)
	expect(415, "POST", fetch, want)
	expect(403, "GET", repository+"info/refs?service=git-receive-pack", "")
	for _, route := range [][2]string{{"GET", refs}, {"POST", fetch}} {
		expect(401, route[0], route[1], "", "Authorization", "")
		expect(403, route[0], route[1], "", "Origin", "https://elsewhere.example")
		expect(404, route[0], strings.Replace(route[1], string(id), string(boxoffice.NewUUID()), 1), "")
	}
	restore = removeTables(t, w, "jobs", "callbacks")
	expect(503, "GET", refs, "")
	expect(503, "POST", fetch, want, pack...)
	expect(503, "POST", "/callbacks/"+task, done, signed(task, done, secret)...)
	restore()

	w.Validator.RequireSeen("429", "500", // those and the other routes have their own tests
		"getDocument", "getCapabilities", "createQuote", "submitOrder", "getOrder", "listJobs", "getJob", "getOracle",
		"getWorkflow", "getSchedule")
}
