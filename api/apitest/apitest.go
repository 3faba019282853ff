// Package apitest checks the responses of a service against the OpenAPI document that it serves.
package apitest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

// A Validator fails its test for every response that the document does not describe: an undocumented status, a missing
// header, or a body that does not match its schema. The document allows unknown members in a body, so that later
// versions can add some; the Validator does not.
//
// It remembers which responses of which operations it saw. It is safe for concurrent use.
type Validator struct {
	t      testing.TB
	doc    *openapi3.T
	errors *openapi3.Schema

	mu   sync.Mutex
	seen map[string]int
}

// New loads and validates the document, which is the response of GET /openapi.json.
func New(t testing.TB, document []byte) *Validator {
	t.Helper()
	known, ok := contracts.Load(string(document))
	if !ok {
		known, _ = contracts.LoadOrStore(string(document), contract(t, document))
	}
	doc := known.(*openapi3.T)
	return &Validator{t: t, doc: doc, errors: doc.Components.Schemas["Error"].Value, seen: map[string]int{}}
}

// contracts has the loaded documents by their text: loading is slow, and most tests have the same document.
var contracts sync.Map

func contract(t testing.TB, document []byte) *openapi3.T {
	t.Helper()
	if err := load(t, document).Validate(context.Background(), openapi3.EnableExamplesValidation()); err != nil {
		t.Fatalf("the OpenAPI document: %v", err)
	}
	var tree map[string]any
	if err := json.Unmarshal(document, &tree); err != nil {
		t.Fatalf("the OpenAPI document: %v", err)
	}
	closeObjects(tree)
	closed, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return load(t, closed)
}

func load(t testing.TB, document []byte) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(document)
	if err != nil {
		t.Fatalf("the OpenAPI document: %v", err)
	}
	return doc
}

// closeObjects makes every object schema without additionalProperties refuse unknown members.
func closeObjects(node any) {
	switch node := node.(type) {
	case map[string]any:
		for _, child := range node {
			closeObjects(child)
		}
		_, described := node["properties"].(map[string]any)
		_, decided := node["additionalProperties"]
		if described && !decided && node["type"] == "object" {
			node["additionalProperties"] = false
		}
	case []any:
		for _, child := range node {
			closeObjects(child)
		}
	}
}

// Transport returns a transport that checks every response of next. Nil is http.DefaultTransport.
func (v *Validator) Transport(next http.RoundTripper) http.RoundTripper {
	if next == nil {
		next = http.DefaultTransport
	}
	return transport{v, next}
}

type transport struct {
	*Validator
	next http.RoundTripper
}

func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	t.Check(request, response.StatusCode, response.Header, body)
	return response, nil
}

// Check checks one response.
func (v *Validator) Check(request *http.Request, status int, header http.Header, body []byte) {
	v.t.Helper()
	if err := v.check(request, status, header, body); err != nil {
		v.t.Errorf("%s %s answered %d: %v\n%s", request.Method, request.URL.Path, status, err, body)
	}
}

func (v *Validator) check(request *http.Request, status int, header http.Header, body []byte) error {
	if header.Get("X-Content-Type-Options") != "nosniff" {
		return fmt.Errorf("X-Content-Type-Options is not nosniff")
	}
	method := request.Method
	if method == http.MethodHead {
		method = http.MethodGet
		if len(body) > 0 {
			return fmt.Errorf("a HEAD has a body")
		}
	}
	operation := v.operation(method, request.URL.EscapedPath())
	if operation == nil {
		return v.checkRefusal(request.Method, status, header, body)
	}
	v.mu.Lock()
	v.seen[pair(operation.OperationID, strconv.Itoa(status))]++
	v.mu.Unlock()
	err := openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{
			Request: &http.Request{Method: method, URL: request.URL, Header: request.Header},
			Route:   &routers.Route{Spec: v.doc, Operation: operation, Method: method},
		},
		Status: status,
		Header: header,
		Body:   io.NopCloser(bytes.NewReader(body)),
		Options: &openapi3filter.Options{
			IncludeResponseStatus: true,
			ExcludeResponseBody:   request.Method == http.MethodHead,
			MultiError:            true,
		},
	})
	if err == nil && status == http.StatusNotModified && len(body) > 0 {
		return fmt.Errorf("a 304 has a body")
	}
	return err
}

// operation returns the operation of a path, or nil. The server's address does not matter. A path without parameters
// comes before one with parameters.
func (v *Validator) operation(method, path string) *openapi3.Operation {
	if item := v.doc.Paths.Value(path); item != nil {
		return item.GetOperation(method)
	}
	segments := strings.Split(path, "/")
	for pattern, item := range v.doc.Paths.Map() {
		match := slices.EqualFunc(strings.Split(pattern, "/"), segments, func(want, got string) bool {
			return want == got || strings.HasPrefix(want, "{") && got != ""
		})
		if match {
			return item.GetOperation(method)
		}
	}
	return nil
}

// checkRefusal checks the response to a request for which the document has no operation: OPTIONS, an unknown path or
// method, or a request over the rate limit.
func (v *Validator) checkRefusal(method string, status int, header http.Header, body []byte) error {
	options := method == http.MethodOptions
	switch {
	case (status == http.StatusMethodNotAllowed || options && status == http.StatusNoContent) &&
		header.Get("Allow") == "":
		return fmt.Errorf("header Allow is missing")
	case options && status == http.StatusNoContent:
		return nil
	case options && status == http.StatusForbidden:
	case status == http.StatusTooManyRequests && header.Get("Retry-After") == "":
		return fmt.Errorf("header Retry-After is missing")
	case status == http.StatusMethodNotAllowed, status == http.StatusNotFound, status == http.StatusTooManyRequests:
	default:
		return fmt.Errorf("the document has no such operation")
	}
	if method == http.MethodHead {
		return nil
	}
	if got := header.Get("Content-Type"); got != "application/json" {
		return fmt.Errorf("Content-Type is %q", got)
	}
	var value any
	if err := json.Unmarshal(body, &value); err != nil {
		return err
	}
	return v.errors.VisitJSON(value, openapi3.EnableJSONSchema2020(), openapi3.VisitAsResponse())
}

// Missing returns the documented responses that were not seen, such as "getOrder 404", sorted. An exception is such a
// pair, a status of every operation, or an operation with every status.
func (v *Validator) Missing(except ...string) []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var missing []string
	for _, item := range v.doc.Paths.Map() {
		for _, operation := range item.Operations() {
			for status := range operation.Responses.Map() {
				response := pair(operation.OperationID, status)
				if v.seen[response] == 0 && !slices.Contains(except, response) && !slices.Contains(except, status) &&
					!slices.Contains(except, operation.OperationID) {
					missing = append(missing, response)
				}
			}
		}
	}
	slices.Sort(missing)
	return missing
}

// RequireSeen fails the test if a documented response was not seen.
func (v *Validator) RequireSeen(except ...string) {
	v.t.Helper()
	if missing := v.Missing(except...); missing != nil {
		v.t.Errorf("documented responses that no request got:\n%s", strings.Join(missing, "\n"))
	}
}

func pair(operation, status string) string { return operation + " " + status }
