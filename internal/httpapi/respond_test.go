package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"boxoffice"
	"boxoffice/internal/httpapi"
	"boxoffice/internal/httpapi/ratelimit"
	"boxoffice/internal/order"
	"boxoffice/internal/work"
)

var discard = slog.New(slog.DiscardHandler)

func TestFreeDocuments(t *testing.T) {
	s := serve(t)
	for _, path := range []string{"/openapi.json", "/requests/capabilities"} {
		answer := s.do("GET", path, "", without("Authorization"))
		answer.wantStatus(t, http.StatusOK)
		tag := answer.Header.Get("ETag")
		if !strings.HasPrefix(answer.Header.Get("Cache-Control"), "public") ||
			answer.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: headers %v", path, answer.Header)
		}
		for _, known := range []string{tag, strings.TrimPrefix(tag, "W/"), `"other", W/"more",` + tag, "*"} {
			again := s.do("GET", path, "", with("If-None-Match", known))
			again.wantStatus(t, http.StatusNotModified)
			for _, header := range []string{"ETag", "Cache-Control", "Vary", "Access-Control-Allow-Origin"} {
				if again.Header.Get(header) != answer.Header.Get(header) || again.Header.Get(header) == "" {
					t.Errorf("%s: the 304 has %s %q", path, header, again.Header.Get(header))
				}
			}
			if len(again.body) > 0 || again.Header.Get("Content-Type") != "" {
				t.Errorf("%s: 304 with %d bytes of %q", path, len(again.body), again.Header.Get("Content-Type"))
			}
		}
		s.do("GET", path, "", with("If-None-Match", `"other"`, tag)).wantStatus(t, http.StatusNotModified)
		s.do("GET", path, "", with("If-None-Match", strings.Trim(tag, `W/"`))).wantStatus(t, http.StatusOK)
		s.do("GET", path, "", with("If-None-Match", `"other"`)).wantStatus(t, http.StatusOK)
		head := s.do("HEAD", path, "")
		head.wantStatus(t, http.StatusOK)
		if len(head.body) > 0 || head.ContentLength != int64(len(answer.body)) || head.Header.Get("ETag") != tag {
			t.Errorf("HEAD %s: %d bytes, Content-Length %d of %d",
				path, len(head.body), head.ContentLength, len(answer.body))
		}
	}
	if !bytes.Equal(s.do("GET", "/openapi.json", "").body, document(t)) {
		t.Error("the document is not served as it is")
	}
	var capable boxoffice.Capabilities
	if s.do("GET", "/requests/capabilities", "").decode(t, &capable); capable.Validate() != nil {
		t.Error(capable.Validate())
	}
}

// No cache may store a protected response, not even an error.
func TestProtectedAnswersAreNotStored(t *testing.T) {
	s := serve(t)
	s.flow.fail(&boxoffice.Problem{Code: boxoffice.OrderNotFound})
	for _, route := range protected {
		body := ""
		if route.path == "/requests/quote" {
			body = "{}"
		}
		answer := s.do(route.method, route.path, body)
		if got := answer.Header.Get("Cache-Control"); got != "no-store" {
			t.Errorf("%s %s answered %d with Cache-Control %q", route.method, route.path, answer.StatusCode, got)
		}
	}
	head := s.do("HEAD", "/jobs", "")
	if head.wantStatus(t, http.StatusOK); head.ContentLength != int64(len(s.do("GET", "/jobs", "").body)) {
		t.Errorf("HEAD /jobs: Content-Length %d", head.ContentLength)
	}
}

// A fault of the service is a 500 that names the log record and hides the fault.
func TestFaults(t *testing.T) {
	s := serve(t)
	for name, fault := range map[string]func(boxoffice.UUID) (boxoffice.Status, error){
		"error": func(boxoffice.UUID) (boxoffice.Status, error) {
			return boxoffice.Status{}, errors.New("the secret fault")
		},
		"panic": func(boxoffice.UUID) (boxoffice.Status, error) { panic("the secret fault") },
	} {
		t.Run(name, func(t *testing.T) {
			s.flow.status = fault
			answer := s.do("GET", "/requests/"+anyID, "")
			problem := answer.wantProblem(t, boxoffice.Internal)
			id := answer.Header.Get("X-Request-Id")
			if strings.Contains(string(answer.body), "secret") || !strings.Contains(problem.Detail, id) {
				t.Errorf("answered %s to request %s", answer.body, id)
			}
			record := lastRecord(t, s)
			if record["id"] != id || record["level"] != "ERROR" ||
				!strings.Contains(record["err"].(string), "the secret fault") {
				t.Errorf("logged %v", record)
			}
			if _, stack := record["stack"]; stack != (name == "panic") {
				t.Errorf("logged %v", record)
			}
		})
	}
}

// http.ErrAbortHandler closes the connection without a response.
func TestAbortIsPassedOn(t *testing.T) {
	s := serve(t)
	s.flow.status = func(boxoffice.UUID) (boxoffice.Status, error) { panic(http.ErrAbortHandler) }
	request, _ := http.NewRequest("GET", s.server.URL+"/requests/"+anyID, nil)
	request.Header.Set("Authorization", "Bearer "+token)
	if response, err := s.server.Client().Do(request); err == nil {
		t.Errorf("answered %d", response.StatusCode)
	}
}

// A request that its client closed is not logged as an error.
func TestRequestClosedByClient(t *testing.T) {
	s := serve(t)
	gone, leave := context.WithCancel(context.Background())
	s.flow.status = func(boxoffice.UUID) (boxoffice.Status, error) {
		leave()
		return boxoffice.Status{}, context.Canceled
	}
	request := httptest.NewRequestWithContext(gone, "GET", "/requests/"+anyID, nil)
	request.Header.Set("Authorization", "Bearer "+token)
	s.server.Config.Handler.ServeHTTP(httptest.NewRecorder(), request)
	if record := lastRecord(t, s); record["level"] != "INFO" || record["code"] != "temporarily_unavailable" {
		t.Errorf("logged %v", record)
	}
}

// The log names the route, never the address, a header or a body.
func TestLog(t *testing.T) {
	s := serve(t)
	s.flow.fail(&boxoffice.Problem{Code: boxoffice.PaymentRejected, Reason: "permit2_token_mismatch"})
	header := paymentHeader(t)
	s.do("POST", submitPath+"?secret=1", approval, with("PAYMENT-SIGNATURE", header), with("Origin", baseURL))
	s.do("GET", "/jobs?template=secret", "", with("Authorization", "Bearer "+token+"00"))
	text := s.log.String()
	for _, secret := range []string{token, header, approval, "secret", anyID, baseURL} {
		if strings.Contains(text, secret) {
			t.Errorf("the log has %q", secret)
		}
	}
	var first map[string]any
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&first); err != nil {
		t.Fatal(err)
	}
	parsed, err := boxoffice.ParseToken(token)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"msg": "request", "method": "POST", "route": "/requests/{id}/submit",
		"status": 402.0, "code": "payment_rejected",
		"requester": parsed.Requester().String()[:8],
	} {
		if first[name] != want {
			t.Errorf("%s is %v, want %v", name, first[name], want)
		}
	}
	if first["bytes"].(float64) == 0 || first["duration"] == nil || first["id"] == "" {
		t.Errorf("logged %v", first)
	}
}

func lastRecord(t *testing.T, s *service) map[string]any {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(s.log.String()), "\n")
	var record map[string]any
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &record); err != nil {
		t.Fatal(err)
	}
	return record
}

// The service sends every response that the document declares for every operation, in
// the documented form.
func TestEveryDocumentedAnswer(t *testing.T) {
	var s *service
	s = serve(t, func(c *httpapi.Config) {
		c.PerToken = ratelimit.Rate{PerSecond: 1e-3, Burst: 200}
		c.Capabilities = func(context.Context) boxoffice.Capabilities {
			if s.work.err != nil {
				panic(s.work.err)
			}
			return capabilities(t)
		}
	})
	s.work = storedWork{
		listed:  []work.Job{job(0)},
		oracles: work.Oracle{Oracle: boxoffice.Oracle{ID: anyID, State: boxoffice.JobQueued, PanelSize: 5}},
		workflows: work.Workflow{Workflow: boxoffice.Workflow{
			ID: anyID, State: boxoffice.JobQueued, Shape: "chain", JobID: anyID,
			Nodes: []boxoffice.WorkflowNode{{Template: "research", After: []string{}}},
		}},
		schedules: work.Schedule{Schedule: boxoffice.Schedule{
			ID: anyID, State: boxoffice.ScheduleEnded, Action: "job.open", Input: []byte(`{}`), IntervalMinutes: 30,
			RunsBought: 1,
		}},
	}
	s.work.listed[0].ID = anyID
	created, current := true, status(t, boxoffice.Admitted, boxoffice.PaymentStatusSettled)
	s.flow = flow{
		quote: func(boxoffice.Requester, boxoffice.QuoteRequest) (boxoffice.QuoteResponse, error) {
			return boxoffice.QuoteResponse{Created: created, Order: current.Order}, nil
		},
		challenge: func(boxoffice.UUID) (order.SubmitResult, error) {
			return order.SubmitResult{Status: &current}, nil
		},
		status: func(boxoffice.UUID) (boxoffice.Status, error) { return current, nil },
	}
	routes := map[string]struct{ method, path, body string }{
		"getDocument":     {"GET", "/openapi.json", ""},
		"getCapabilities": {"GET", "/requests/capabilities", ""},
		"createQuote":     {"POST", "/requests/quote", quoteBody},
		"submitOrder":     {"POST", submitPath, ""},
		"getOrder":        {"GET", "/requests/" + anyID, ""},
		"listJobs":        {"GET", "/jobs", ""},
		"getJob":          {"GET", "/jobs/" + anyID, ""},
		"getOracle":       {"GET", "/oracles/" + anyID, ""},
		"getWorkflow":     {"GET", "/workflows/" + anyID, ""},
		"getSchedule":     {"GET", "/schedules/" + anyID, ""},
	}
	for _, route := range routes {
		known := s.do(route.method, route.path, route.body).Header.Get("ETag")
		s.do(route.method, route.path, route.body, with("If-None-Match", known))
		s.do(route.method, route.path, route.body, without("Authorization"))
		s.do(route.method, route.path, route.body, with("Origin", "null"))
		s.do(route.method, route.path, strings.Repeat(" ", boxoffice.MaxBodyBytes+1))
		s.do(route.method, strings.Replace(route.path, anyID, "x", 1)+"?x=1", "{")
	}
	created, current = false, status(t, boxoffice.AdmissionPending, boxoffice.PaymentStatusSettled)
	s.do("POST", "/requests/quote", quoteBody)
	s.do("POST", submitPath, "")
	faults := map[string]boxoffice.Code{
		"402": boxoffice.PaymentRejected, "404": boxoffice.NotFound, "409": boxoffice.PaymentConflict,
		"410": boxoffice.QuoteExpired,
		"422": boxoffice.ActionRefused, "500": boxoffice.Internal, "503": boxoffice.TemporarilyUnavailable,
	}
	for _, answer := range s.validator.Missing("429") {
		operation, status, _ := strings.Cut(answer, " ")
		fault := &boxoffice.Problem{Code: faults[status]}
		s.flow.fail(fault)
		s.work.err = fault
		s.do(routes[operation].method, routes[operation].path, routes[operation].body)
	}
	for s.do("GET", "/nothing", "").StatusCode != http.StatusTooManyRequests { // uses up the rate of the address
	}
	for _, route := range routes {
		s.do(route.method, route.path, route.body)
	}
	s.validator.RequireSeen("getRepositoryRefs", "fetchRepository", "answerTask") // served by other packages
}
