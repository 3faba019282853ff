package apitest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"boxoffice"
	"boxoffice/api"
	"boxoffice/api/apitest"
)

// A witness is a test that records its failures.
type witness struct {
	testing.TB
	failures []string
}

func (w *witness) Helper() {}

func (w *witness) Errorf(format string, args ...any) {
	w.failures = append(w.failures, fmt.Sprintf(format, args...))
}

func document(t *testing.T) []byte {
	t.Helper()
	document, err := api.Document(api.Options{BaseURL: "https://tickets.example", ServiceName: "Tickets",
		Policies: []boxoffice.Policy{{
			Action: "job.open", Version: "job-1", QuoteTTLSeconds: 600, Payment: boxoffice.Payment{Network: "eip155:1"},
		}},
		Schemas: map[string]json.RawMessage{"job.open": json.RawMessage(`{"type": "object"}`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return document
}

const (
	jobsBody   = `{"count":0,"jobs":[]}`
	errorBody  = `{"error":"not_found"}`
	nestedBody = `{"error":"invalid_request","problems":[{"path":"","message":"","at":1}]}`
)

func TestValidator(t *testing.T) {
	for name, test := range map[string]struct {
		request string // method and path
		status  int
		header  string // name: value, instead of the right value
		body    string
		fault   string // what the failure contains; "" if there is none
	}{
		"right":                 {"GET /jobs", 200, "", jobsBody, ""},
		"right, with a query":   {"GET /jobs?limit=1", 200, "", jobsBody, ""},
		"right HEAD":            {"HEAD /jobs", 200, "", "", ""},
		"right refusal":         {"GET /nothing", 404, "", errorBody, ""},
		"right method refusal":  {"PUT /jobs", 405, "Allow: GET", `{"error":"method_not_allowed"}`, ""},
		"concrete before id":    {"GET /requests/quote", 405, "Allow: POST", `{"error":"method_not_allowed"}`, ""},
		"status":                {"GET /jobs", 404, "", errorBody, "status is not supported"},
		"member is missing":     {"GET /jobs", 200, "", `{"jobs":[]}`, "count"},
		"member is unknown":     {"GET /jobs", 200, "", `{"count":0,"jobs":[],"next":null}`, "next"},
		"nested is unknown":     {"GET /jobs", 400, "", nestedBody, "at"},
		"code is unknown":       {"GET /jobs", 400, "", `{"error":"no_such_code"}`, "error"},
		"type":                  {"GET /jobs", 200, "", `{"count":"0","jobs":[]}`, "count"},
		"not JSON":              {"GET /jobs", 200, "", `{`, "decode"},
		"content type":          {"GET /jobs", 200, "Content-Type: text/plain", jobsBody, "Content-Type"},
		"no request id":         {"GET /jobs", 200, "X-Request-Id: ", jobsBody, "X-Request-Id"},
		"header pattern":        {"GET /jobs", 200, "Link: next", jobsBody, "Link"},
		"may be sniffed":        {"GET /jobs", 200, "X-Content-Type-Options: ", jobsBody, "nosniff"},
		"HEAD with a body":      {"HEAD /jobs", 200, "", jobsBody, "body"},
		"HEAD status":           {"HEAD /jobs", 404, "", "", "status is not supported"},
		"304 with a body":       {"GET /openapi.json", 304, `ETag: W/"00"`, "{}", "body"},
		"no such operation":     {"GET /nothing", 200, "", "{}", "no such operation"},
		"OPTIONS, no Allow":     {"OPTIONS /jobs", 204, "", "", "Allow"},
		"OPTIONS, answered":     {"OPTIONS /jobs", 200, "Allow: GET", "{}", "no such operation"},
		"no Allow":              {"PUT /jobs", 405, "", `{"error":"method_not_allowed"}`, "Allow"},
		"no Retry-After":        {"GET /nothing", 429, "", `{"error":"rate_limited"}`, "Retry-After"},
		"refusal, content type": {"GET /nothing", 404, "Content-Type: text/plain", errorBody, "Content-Type"},
		"refusal, body":         {"GET /nothing", 404, "", `{"message":"not found"}`, "error"},
		"refusal, not JSON":     {"GET /nothing", 404, "", `404`, "object"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &witness{TB: t}
			method, target, _ := strings.Cut(test.request, " ")
			header := http.Header{}
			header.Set("Content-Type", "application/json")
			header.Set("X-Request-Id", "0123456789abcdef")
			header.Set("X-Content-Type-Options", "nosniff")
			if name, value, ok := strings.Cut(test.header, ": "); ok {
				header.Set(name, value)
				if value == "" {
					header.Del(name)
				}
			}
			request := httptest.NewRequest(method, target, nil)
			apitest.New(w, document(t)).Check(request, test.status, header, []byte(test.body))
			failures := strings.Join(w.failures, "\n")
			if (failures == "") != (test.fault == "") || !strings.Contains(failures, test.fault) {
				t.Errorf("failures are %q, want one that names %q", failures, test.fault)
			}
		})
	}
}

// The transport checks a response and returns it unchanged. What it saw is no longer missing.
func TestTransportAndMissing(t *testing.T) {
	body := strings.Replace(jobsBody, "}", ` }`, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Request-Id", "0123456789abcdef")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		fmt.Fprint(w, body)
	}))
	defer server.Close()
	w := &witness{TB: t}
	validator := apitest.New(w, document(t))
	client := http.Client{Transport: validator.Transport(nil)}
	if !slices.Contains(validator.Missing(), "listJobs 200") ||
		slices.Contains(validator.Missing("200"), "listJobs 200") {
		t.Errorf("missing: %v", validator.Missing())
	}
	response, err := client.Get(server.URL + "/jobs")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	got := make([]byte, 100)
	n, _ := response.Body.Read(got)
	if string(got[:n]) != body || w.failures != nil {
		t.Errorf("read %q, failures %q", got[:n], w.failures)
	}
	missing := validator.Missing()
	if slices.Contains(missing, "listJobs 200") || !slices.Contains(missing, "listJobs 400") {
		t.Errorf("missing: %v", missing)
	}
	validator.RequireSeen("listJobs 400")
	if len(w.failures) != 1 || strings.Contains(w.failures[0], "listJobs 400") ||
		!strings.Contains(w.failures[0], "getJob 404") {
		t.Errorf("failures: %q", w.failures)
	}
}
