package agent_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"boxoffice"
	"boxoffice/internal/store/sqlite"
	"boxoffice/internal/test/testdb"
	"boxoffice/internal/work/agent"
)

const (
	done    = `{"outcome":"done","summary":"written"}`
	blocked = `{"outcome":"blocked","reason":"which chain?"}`
)

var now = time.Unix(1614265330, 0)

func clock() time.Time { return now }

func secret(t testing.TB, text string) agent.Secret {
	t.Helper()
	s, err := agent.ParseSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The vector of the Standard Webhooks libraries' own tests.
const (
	vectorSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	vectorID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	vectorBody      = `{"test": 2432232314}`
	vectorSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

func TestSignature(t *testing.T) {
	header := http.Header{}
	secret(t, vectorSecret).Sign(header, vectorID, now, []byte(vectorBody))
	want := http.Header{"Webhook-Id": {vectorID}, "Webhook-Timestamp": {"1614265330"},
		"Webhook-Signature": {vectorSignature}}
	if diff := gocmp.Diff(want, header); diff != "" {
		t.Error(diff)
	}
}

func TestVerify(t *testing.T) {
	const other = "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc="
	tests := map[string]struct {
		header, value string
		at            time.Time
		fails         bool
	}{
		"as signed":          {"", "", now, false},
		"at the edge":        {"", "", now.Add(agent.Tolerance), false},
		"too old":            {"", "", now.Add(agent.Tolerance + time.Second), true},
		"from the future":    {"", "", now.Add(-agent.Tolerance - time.Second), true},
		"one of many":        {"Webhook-Signature", other + " v2,x " + vectorSignature, now, false},
		"another signature":  {"Webhook-Signature", other, now, true},
		"another version":    {"Webhook-Signature", "v1a" + vectorSignature[2:], now, true},
		"no signature":       {"Webhook-Signature", "", now, true},
		"not base64":         {"Webhook-Signature", "v1,?", now, true},
		"another id":         {"Webhook-Id", "msg_other", now, true},
		"no id":              {"Webhook-Id", "", now, true},
		"another timestamp":  {"Webhook-Timestamp", "1614265331", now, true},
		"no timestamp":       {"Webhook-Timestamp", "", now, true},
		"an id with a point": {"Webhook-Id", vectorID + ".1614265330", now, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			header := http.Header{}
			secret(t, vectorSecret).Sign(header, vectorID, now, []byte(vectorBody))
			if test.header != "" {
				header.Set(test.header, test.value)
			}
			if _, err := secret(t, vectorSecret).Verify(header, test.at, []byte(vectorBody)); (err != nil) != test.fails {
				t.Error(err)
			}
		})
	}
}

func TestSecrets(t *testing.T) {
	for _, text := range []string{"", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_", "whsec_c2hvcnQ=", "whsec_?", "whsec_" + strings.Repeat("AAAA", 22)} {
		_, err := agent.ParseSecret(text)
		if err == nil || len(text) > 6 && strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", text, err)
		}
	}
	s := secret(t, vectorSecret)
	if shown := fmt.Sprintf("%v %+v %#v %s", s, s, s, s); strings.Contains(shown, "MfKQ") ||
		strings.Contains(shown, "49") {
		t.Error(shown)
	}
}

// A remote is an HTTP agent with its callbacks.
type remote struct {
	*agent.HTTP
	callbacks *httptest.Server
}

// newCallbackStore returns the service's CallbackStore, on a store of its own.
func newCallbackStore(t *testing.T) agent.CallbackStore {
	t.Helper()
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: testdb.Path(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return sqlite.CallbackStore{Store: store, Poll: time.Millisecond}
}

func newRemote(
	t *testing.T, store agent.CallbackStore, behave func(http.ResponseWriter, *http.Request, agent.Task),
	changes ...func(*agent.HTTPConfig),
) remote {
	t.Helper()
	key := secret(t, vectorSecret)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		var task agent.Task
		if _, err := key.Verify(r.Header, now, body); err != nil {
			t.Error(err)
		}
		if err := json.Unmarshal(body, &task); err != nil {
			t.Error(err)
		}
		behave(w, r, task)
	}))
	t.Cleanup(elsewhere.Close)
	mux := http.NewServeMux()
	callbacks := httptest.NewServer(mux)
	t.Cleanup(callbacks.Close)
	config := agent.HTTPConfig{
		URL: elsewhere.URL + "/agent?key=hidden", Secret: key, Timeout: time.Minute, MaxOutput: 1000,
		Callback: callbacks.URL + "/callbacks", CallbackStore: store, Now: clock,
	}
	for _, change := range changes {
		change(&config)
	}
	runner, err := agent.NewHTTP(config)
	if err != nil {
		t.Fatal(err)
	}
	config.Secret, config.MaxOutput = secret(t, "whsec_"+strings.Repeat("AAAA", 8)), 1<<20
	another, err := agent.NewHTTP(config)
	if err != nil {
		t.Fatal(err)
	}
	mux.Handle("/callbacks/{id}", agent.NewCallbacks(another, runner))
	return remote{HTTP: runner, callbacks: callbacks}
}

func TestAnswersAtOnce(t *testing.T) {
	sent := agent.Task{Job: boxoffice.NewUUID(), Node: "n", Objective: "write", Inputs: []string{"yes"}}
	r := newRemote(t, newCallbackStore(t), func(w http.ResponseWriter, r *http.Request, got agent.Task) {
		if want := r.Header.Get("Webhook-Id"); !strings.HasSuffix(got.Callback, "/callbacks/"+want) {
			t.Errorf("called back at %q, want %q", got.Callback, want)
		}
		want := sent
		want.V, want.Callback = agent.Version, got.Callback
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		io.WriteString(w, `{"outcome":"done","summary":"written","files":[{"path":"a/report.md","text":"# Report\n"}]}`)
	})
	folder := workspace(t)
	report, err := r.Run(t.Context(), folder, sent)
	if err != nil || report.Result.Summary != "written" || report.ExitCode != -1 {
		t.Errorf("got %+v, %v", report, err)
	}
	if text, err := os.ReadFile(filepath.Join(folder, "a", "report.md")); err != nil || string(text) != "# Report\n" {
		t.Errorf("got %q, %v", text, err)
	}
}

func TestFailuresOverHTTP(t *testing.T) {
	tests := map[string]struct {
		status int
		header [2]string
		body   string
		want   agent.Failure
	}{
		"not JSON": {200, [2]string{}, "hello",
			agent.Failure{Kind: agent.BadResult, Detail: "is not JSON: invalid character 'h' at start of value",
				Retryable: true}},
		"too much": {200, [2]string{}, strings.Repeat("x", 1001),
			agent.Failure{Kind: agent.TooMuchOutput, Detail: "more than 1000 bytes", Retryable: true}},
		"its own fault": {500, [2]string{}, "out of\ncheese",
			agent.Failure{Kind: agent.BadStatus, Code: 500, Detail: "out of", Retryable: true}},
		"busy": {429, [2]string{"Retry-After", "7"}, "",
			agent.Failure{Kind: agent.BadStatus, Code: 429, Retryable: true, RetryAfter: 7 * time.Second}},
		"busy until": {503, [2]string{"Retry-After", now.Add(time.Minute).UTC().Format(http.TimeFormat)}, "",
			agent.Failure{Kind: agent.BadStatus, Code: 503, Retryable: true, RetryAfter: time.Minute}},
		"busy forever": {503, [2]string{"Retry-After", "4000000000"}, "",
			agent.Failure{Kind: agent.BadStatus, Code: 503, Retryable: true, RetryAfter: 24 * time.Hour}},
		"gone":         {410, [2]string{}, "", agent.Failure{Kind: agent.BadStatus, Code: 410}},
		"no signature": {401, [2]string{}, "who?", agent.Failure{Kind: agent.BadStatus, Code: 401, Detail: "who?"}},
		"elsewhere": {307, [2]string{"Location", "http://127.0.0.1:1/"}, "",
			agent.Failure{Kind: agent.BadStatus, Code: 307}},
	}
	callbacks := newCallbackStore(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRemote(t, callbacks, func(w http.ResponseWriter, _ *http.Request, _ agent.Task) {
				if test.header[0] != "" {
					w.Header().Set(test.header[0], test.header[1])
				}
				w.WriteHeader(test.status)
				io.WriteString(w, test.body)
			})
			_, err := r.Run(t.Context(), workspace(t), agent.Task{Job: boxoffice.NewUUID()})
			failure, ok := errors.AsType[*agent.Failure](err)
			if !ok {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(test.want, *failure); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	r := newRemote(t, newCallbackStore(t),
		func(http.ResponseWriter, *http.Request, agent.Task) { panic(http.ErrAbortHandler) })
	_, err := r.Run(t.Context(), workspace(t), agent.Task{Job: boxoffice.NewUUID()})
	if kind(err) != agent.Unreachable || strings.Contains(err.Error(), "hidden") {
		t.Error(err)
	}
}

// deliver posts an answer to a callback and returns the status.
func deliver(t *testing.T, url, id, body string, at time.Time) int {
	t.Helper()
	request, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	secret(t, vectorSecret).Sign(request.Header, id, at, []byte(body))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

func TestAnswersLater(t *testing.T) {
	type asked struct{ id, callback string }
	tasks := make(chan asked, 1)
	callbacks := newCallbackStore(t)
	r := newRemote(t, callbacks, func(w http.ResponseWriter, r *http.Request, task agent.Task) {
		tasks <- asked{r.Header.Get("Webhook-Id"), task.Callback}
		w.WriteHeader(http.StatusAccepted)
	})
	task := agent.Task{Job: boxoffice.NewUUID(), Objective: "write"}
	outcomes := make(chan outcome, 1)
	folder := workspace(t)
	runTask := func() {
		report, err := r.Run(t.Context(), folder, task)
		outcomes <- outcome{report, err}
	}
	killed, kill := context.WithCancel(t.Context())
	before := make(chan asked, 1)
	go func() { before <- <-tasks; kill() }()
	if _, err := r.Run(killed, folder, task); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	go runTask()
	first := <-tasks
	if again := <-before; again != first { // the same task after a restart is the same message
		t.Errorf("asked %v, then %v", again, first)
	}
	other := first.callback[:len(first.callback)-1] + "x"
	for _, refused := range []struct {
		url, id, body string
		at            time.Time
		status        int
	}{
		{other, first.id, done, now, 404},
		{r.callbacks.URL + "/callbacks/msg_", "msg_", done, now, 404},
		{first.callback, "msg_other", done, now, 401},
		{first.callback, first.id, done, now.Add(-time.Hour), 401},
		{first.callback, first.id, "hello", now, 400},
		{first.callback, first.id, strings.Repeat("x", 1001), now, 413},
	} {
		if status := deliver(t, refused.url, refused.id, refused.body, refused.at); status != refused.status {
			t.Errorf("%+v: status %d", refused, status)
		}
	}
	if response, err := http.Get(first.callback); err != nil || response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("got %v, %v", response, err)
	}
	for _, kept := range []struct {
		body   string
		status int
	}{{done, 204}, {done, 204}, {blocked, 409}} {
		if status := deliver(t, first.callback, first.id, kept.body, now); status != kept.status {
			t.Errorf("%+v: status %d", kept, status)
		}
	}
	if got := <-outcomes; got.err != nil || got.report.Result.Summary != "written" {
		t.Errorf("got %+v", got)
	}

	// After a restart the agent is not asked again.
	runTask()
	select {
	case again := <-tasks:
		t.Errorf("asked %v again", again)
	default:
	}
	if got := <-outcomes; got.err != nil || got.report.Result.Summary != "written" {
		t.Errorf("got %+v", got)
	}

	// After a failure the task is another one.
	task.Failures = 1
	go runTask()
	if again := <-tasks; again.id == first.id || deliver(t, again.callback, first.id, done, now) != 401 {
		t.Errorf("asked %v again", again)
	} else if deliver(t, again.callback, again.id, blocked, now) != 204 {
		t.Error("not kept")
	}
	if got := <-outcomes; got.err != nil || got.report.Result.Reason != "which chain?" {
		t.Errorf("got %+v", got)
	}
}

// An answer that is sent later may be as large as one that is the response.
func TestLargeAnswerLater(t *testing.T) {
	r := newRemote(t, newCallbackStore(t), func(w http.ResponseWriter, r *http.Request, task agent.Task) {
		w.WriteHeader(http.StatusAccepted)
		text := strings.Repeat("x", 3<<19)
		large := `{"outcome":"done","summary":"large","files":[{"path":"x","text":"` + text + `"}]}`
		if status := deliver(t, task.Callback, r.Header.Get("Webhook-Id"), large, now); status != 204 {
			t.Errorf("status %d", status)
		}
	}, func(c *agent.HTTPConfig) { c.MaxOutput = 2 << 20 })
	report, err := r.Run(t.Context(), workspace(t), agent.Task{Job: boxoffice.NewUUID()})
	if err != nil || report.Result.Summary != "large" {
		t.Errorf("got %+v, %v", report, err)
	}
}

func TestNeverAnswersLater(t *testing.T) {
	callbacks := newCallbackStore(t)
	asked := make(chan struct{}, 2)
	r := newRemote(t, callbacks, func(w http.ResponseWriter, _ *http.Request, _ agent.Task) {
		w.WriteHeader(http.StatusAccepted)
		asked <- struct{}{}
	})
	config := r.HTTPConfig
	config.Timeout = 100 * time.Millisecond
	short, err := agent.NewHTTP(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := short.Run(t.Context(), workspace(t), agent.Task{Job: boxoffice.NewUUID()}); kind(err) != agent.TimedOut {
		t.Error(err)
	}
	<-asked
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if _, err := r.Run(ctx, workspace(t), agent.Task{Job: boxoffice.NewUUID()}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestHTTPConfiguration(t *testing.T) {
	key := secret(t, vectorSecret)
	for _, config := range []agent.HTTPConfig{
		{Secret: key}, {URL: "file:///etc/passwd", Secret: key}, {URL: "http://x"},
		{URL: "http://x", Secret: key, Timeout: -1}, {URL: "http://x", Secret: key, MaxOutput: -1},
		{URL: "http://x", Secret: key, Callback: "http://y"},
	} {
		config.Timeout, config.MaxOutput = cmp.Or(config.Timeout, 1), cmp.Or(config.MaxOutput, 1)
		if _, err := agent.NewHTTP(config); err == nil {
			t.Errorf("%+v is accepted", config)
		}
	}
}
