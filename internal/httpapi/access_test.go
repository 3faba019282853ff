package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"boxoffice"
	"boxoffice/internal/httpapi"
	"boxoffice/internal/order"
)

var protected = []struct{ method, path string }{
	{"POST", "/requests/quote"},
	{"POST", "/requests/" + anyID + "/submit"},
	{"GET", "/requests/" + anyID},
	{"GET", "/jobs"},
	{"GET", "/jobs/" + anyID},
	{"GET", "/oracles/" + anyID},
	{"GET", "/workflows/" + anyID},
	{"GET", "/schedules/" + anyID},
}

func TestProtectedRoutesNeedAToken(t *testing.T) {
	s := serve(t)
	for _, route := range protected {
		missing := s.do(route.method, route.path, "", without("Authorization"))
		missing.wantProblem(t, boxoffice.RequestTokenRequired)
		if got := missing.Header.Get("WWW-Authenticate"); got != "Bearer" {
			t.Errorf("WWW-Authenticate is %q", got)
		}
		s.do(route.method, route.path, "", with("Authorization", "")).wantProblem(t, boxoffice.RequestTokenRequired)
		for name, headers := range map[string][]string{
			"short":         {"Bearer abcd"},
			"not hex":       {"Bearer " + strings.Repeat("zz", 32)},
			"long":          {"Bearer " + token + "00"},
			"0x":            {"Bearer 0x" + token[2:]},
			"no token":      {"Bearer"},
			"other scheme":  {"Basic " + token},
			"no scheme":     {token},
			"two":           {"Bearer " + token + ", Bearer " + token},
			"sent twice":    {"Bearer " + token, "Bearer " + token},
			"twice, empty":  {"", "Bearer " + token},
			"trailing text": {"Bearer " + token + " x"},
		} {
			t.Run(name, func(t *testing.T) {
				malformed := s.do(route.method, route.path, "", with("Authorization", headers...))
				malformed.wantProblem(t, boxoffice.InvalidRequestToken)
				if got := malformed.Header.Get("WWW-Authenticate"); !strings.Contains(got, "invalid_token") {
					t.Errorf("WWW-Authenticate is %q", got)
				}
			})
		}
	}
}

// The token has either case, so has its scheme; both forms are one requester.
func TestTokenInEitherCase(t *testing.T) {
	s := serve(t)
	seen := map[boxoffice.Requester]bool{}
	s.flow.quote = func(who boxoffice.Requester, _ boxoffice.QuoteRequest) (boxoffice.QuoteResponse, error) {
		seen[who] = true
		return boxoffice.QuoteResponse{Order: quotedOrder(t)}, nil
	}
	for _, header := range []string{"Bearer " + token, "bearer " + strings.ToUpper(token), "BEARER  " + token} {
		s.do("POST", "/requests/quote", quoteBody, with("Authorization", header)).wantStatus(t, http.StatusOK)
	}
	if len(seen) != 1 {
		t.Errorf("%d requesters", len(seen))
	}
}

func TestOrigin(t *testing.T) {
	s := serve(t)
	s.flow.fail(&boxoffice.Problem{Code: boxoffice.OrderNotFound})
	for name, test := range map[string]struct {
		origins []string
		refused bool
	}{
		"none":            {nil, false},
		"own":             {[]string{baseURL}, false},
		"other host":      {[]string{"https://evil.example"}, true},
		"suffix":          {[]string{baseURL + ".evil.example"}, true},
		"other scheme":    {[]string{"http://tickets.example"}, true},
		"other port":      {[]string{baseURL + ":8443"}, true},
		"with a path":     {[]string{baseURL + "/"}, true},
		"null":            {[]string{"null"}, true},
		"empty":           {[]string{""}, true},
		"own and another": {[]string{baseURL, "https://evil.example"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, route := range protected {
				answer := s.do(route.method, route.path, "", with("Origin", test.origins...))
				if refused := answer.StatusCode == http.StatusForbidden; refused != test.refused {
					t.Errorf("%s %s answered %d", route.method, route.path, answer.StatusCode)
				}
				asked := s.do("OPTIONS", route.path, "", with("Origin", test.origins...), without("Authorization"),
					with("Access-Control-Request-Method", route.method),
					with("Access-Control-Request-Headers", "authorization"))
				if refused := asked.StatusCode == http.StatusForbidden; refused != test.refused {
					t.Errorf("OPTIONS %s answered %d", route.path, asked.StatusCode)
				}
				for _, reply := range []reply{answer, asked} {
					for header := range reply.Header {
						if strings.HasPrefix(header, "Access-Control-") {
							t.Errorf("a protected route has %s", header)
						}
					}
				}
			}
			asked := s.do("OPTIONS", "/openapi.json", "", with("Origin", test.origins...),
				with("Access-Control-Request-Method", "GET"))
			asked.wantStatus(t, http.StatusNoContent)
			if asked.Header.Get("Access-Control-Allow-Origin") != "*" ||
				asked.Header.Get("Access-Control-Allow-Methods") != "GET, HEAD" {
				t.Errorf("a page of another origin gets %v", asked.Header)
			}
			free := s.do("GET", "/requests/capabilities", "", with("Origin", test.origins...))
			free.wantStatus(t, http.StatusOK)
		})
	}
	// The Origin is checked before the token.
	s.do("GET", "/jobs", "", with("Origin", "null"), without("Authorization")).
		wantProblem(t, boxoffice.OriginNotAllowed)
}

// Browsers omit the default port of the scheme and write hosts in lowercase.
func TestOriginOfBaseURL(t *testing.T) {
	for base, origin := range map[string]string{
		"HTTPS://Tickets.Example:443":   "https://tickets.example",
		"http://tickets.example:80/api": "http://tickets.example",
		"http://127.0.0.1:8402":         "http://127.0.0.1:8402",
		"http://[::1]:8402":             "http://[::1]:8402",
	} {
		s := serve(t, func(c *httpapi.Config) { c.BaseURL = base })
		s.do("GET", "/jobs", "", with("Origin", origin)).wantStatus(t, http.StatusOK)
	}
}

func TestMethodsAndAddresses(t *testing.T) {
	s := serve(t)
	for path, allow := range map[string]string{
		"/openapi.json":                  "GET, HEAD, OPTIONS",
		"/requests/capabilities":         "GET, HEAD, OPTIONS",
		"/requests/quote":                "OPTIONS, POST",
		"/requests/" + anyID + "/submit": "OPTIONS, POST",
		"/requests/" + anyID:             "GET, HEAD, OPTIONS",
		"/jobs":                          "GET, HEAD, OPTIONS",
		"/jobs/" + anyID:                 "GET, HEAD, OPTIONS",
		"/oracles/" + anyID:              "GET, HEAD, OPTIONS",
		"/workflows/" + anyID:            "GET, HEAD, OPTIONS",
		"/schedules/" + anyID:            "GET, HEAD, OPTIONS",
	} {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"} {
			if strings.Contains(allow, method) && method != "OPTIONS" {
				continue
			}
			answer := s.do(method, path, "", without("Authorization"))
			if got := answer.Header.Get("Allow"); got != allow {
				t.Errorf("%s %s: Allow is %q, want %q", method, path, got, allow)
			}
			switch method {
			case "OPTIONS":
				answer.wantStatus(t, http.StatusNoContent)
			case "HEAD":
				answer.wantStatus(t, http.StatusMethodNotAllowed)
			default:
				answer.wantProblem(t, boxoffice.MethodNotAllowed)
			}
		}
	}
	for _, path := range []string{
		"/", "/nothing", "/requests", "/requests/", "/jobs/", "/requests//submit", "//jobs", "/jobs/../jobs", "/./jobs",
		"/requests/" + anyID + "/", "/requests/" + anyID + "/submit/", "/requests/" + anyID + "/pay", "/openapi.json/",
		"/OPENAPI.json",
	} {
		s.do("GET", path, "").wantProblem(t, boxoffice.NotFound)
		s.do("POST", path, "{}").wantProblem(t, boxoffice.NotFound)
	}
}

func TestMalformedPathParameter(t *testing.T) {
	s := serve(t)
	for _, id := range []string{
		"x", "1", anyID[:35], anyID + "0", "%20", "0198f0a4-6c1e-9c3a-9f5e-2b7d1c4e8a90", "%2e",
	} {
		for _, route := range protected {
			if strings.Contains(route.path, anyID) {
				s.do(route.method, strings.Replace(route.path, anyID, id, 1), "").
					wantProblem(t, boxoffice.InvalidRequest, "{id}")
			}
		}
	}
}

func TestIDsAreReadInEitherCase(t *testing.T) {
	s := serve(t)
	for _, id := range []string{anyID, strings.ToUpper(anyID), "00000000-0000-0000-0000-000000000000",
		"FFFFFFFF-ffff-ffff-ffff-ffffffffffff"} {
		s.flow.status = func(got boxoffice.UUID) (boxoffice.Status, error) {
			if string(got) != strings.ToLower(id) {
				t.Errorf("id is %s", got)
			}
			return boxoffice.Status{Status: boxoffice.Quoted, Order: quotedOrder(t)}, nil
		}
		s.do("GET", "/requests/"+id, "").wantStatus(t, http.StatusOK)
	}
}

func TestBodyLimit(t *testing.T) {
	s := serve(t)
	s.flow.fail(&boxoffice.Problem{Code: boxoffice.OrderNotFound})
	s.flow.challenge = func(boxoffice.UUID) (order.SubmitResult, error) {
		return order.SubmitResult{}, &boxoffice.Problem{Code: boxoffice.QuoteExpired}
	}
	full := "{}" + strings.Repeat(" ", boxoffice.MaxBodyBytes-2)
	for _, route := range protected {
		for _, length := range [][]edit{nil, {chunked}} {
			s.do(route.method, route.path, full+" ", length...).wantProblem(t, boxoffice.BodyTooLarge)
			if answer := s.do(route.method, route.path, full, length...); answer.StatusCode == http.StatusRequestEntityTooLarge {
				t.Errorf("%s %s: a body of the limit is refused", route.method, route.path)
			}
		}
	}
}

func TestContentType(t *testing.T) {
	s := serve(t)
	s.flow.quote = func(boxoffice.Requester, boxoffice.QuoteRequest) (boxoffice.QuoteResponse, error) {
		return boxoffice.QuoteResponse{Order: quotedOrder(t)}, nil
	}
	for _, taken := range []string{"", "application/json", "Application/JSON; charset=utf-8"} {
		s.do("POST", "/requests/quote", quoteBody, with("Content-Type", taken)).wantStatus(t, http.StatusOK)
	}
	s.do("POST", "/requests/quote", quoteBody, with("Content-Encoding", "gzip")).wantProblem(t, boxoffice.InvalidRequest,
		"Content-Encoding")
	s.do("POST", "/requests/quote", quoteBody, with("Content-Encoding", "identity")).wantStatus(t, http.StatusOK)
	// An empty body asks for the challenge, also with the Content-Type that curl -d '' sends.
	s.flow.fail(&boxoffice.Problem{Code: boxoffice.QuoteExpired})
	s.do("POST", "/requests/"+anyID+"/submit", "",
		with("Content-Type", "application/x-www-form-urlencoded")).wantProblem(t, boxoffice.QuoteExpired)
}

// An incomplete body is the client's fault: 400.
func TestBrokenBody(t *testing.T) {
	s := serve(t)
	request := httptest.NewRequest("POST", "/requests/quote", brokenBody{})
	request.Header.Set("Authorization", "Bearer "+token)
	recorder := httptest.NewRecorder()
	s.server.Config.Handler.ServeHTTP(recorder, request)
	s.validator.Check(request, recorder.Code, recorder.Header(), recorder.Body.Bytes())
	if recorder.Code != http.StatusBadRequest {
		t.Errorf("answered %d", recorder.Code)
	}
}

type brokenBody struct{}

func (brokenBody) Read([]byte) (int, error) { return 0, http.ErrHandlerTimeout }
