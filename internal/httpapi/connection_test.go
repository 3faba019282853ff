package httpapi_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"boxoffice"
	"boxoffice/internal/httpapi"
	"boxoffice/internal/work"
)

// A connection is a TCP connection to the service on which a test writes any bytes.
type connection struct {
	t *testing.T
	net.Conn
	*bufio.Reader
}

func (s *service) dial() connection {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.server.Listener.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	return connection{s.t, conn, bufio.NewReader(conn)}
}

func (l connection) send(text string) {
	l.t.Helper()
	if _, err := io.WriteString(l.Conn, text); err != nil {
		l.t.Fatal(err)
	}
}

// answer reads the next response, which is to a request with the method.
func (l connection) answer(method string) reply {
	l.t.Helper()
	response, err := http.ReadResponse(l.Reader, &http.Request{Method: method})
	if err != nil {
		l.t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	return reply{response, body}
}

// wantEnd checks that the service has closed the connection.
func (l connection) wantEnd() {
	l.t.Helper()
	if rest, err := io.ReadAll(l.Reader); len(rest) > 0 || err != nil {
		l.t.Errorf("after the answer: %q, %v", rest, err)
	}
}

const (
	hosted     = "Host: tickets.example\r\n"
	authorized = hosted + "Authorization: Bearer abababababababababababababababababababababababababababababababab\r\n"
)

func (s *service) sells() {
	s.flow.quote = func(boxoffice.Requester, boxoffice.QuoteRequest) (boxoffice.QuoteResponse, error) {
		return boxoffice.QuoteResponse{Created: true, Order: quotedOrder(s.t)}, nil
	}
}

func TestHTTP10(t *testing.T) {
	s := serve(t)
	s.sells()
	l := s.dial()
	l.send("GET /openapi.json HTTP/1.0\r\n\r\n")
	got := l.answer("GET")
	if got.StatusCode != http.StatusOK || got.ContentLength != int64(len(document(t))) ||
		len(got.TransferEncoding) > 0 ||
		!bytes.Equal(got.body, document(t)) {
		t.Errorf("answered %d with %d bytes, Content-Length %d, %v", got.StatusCode, len(got.body), got.ContentLength,
			got.TransferEncoding)
	}
	l.wantEnd()

	l = s.dial() // HTTP/1.0 keeps a connection if the client asks for it
	for range 2 {
		l.send("POST /requests/quote HTTP/1.0\r\nConnection: keep-alive\r\n" + authorized +
			fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(quoteBody), quoteBody))
		l.answer("POST").wantStatus(t, http.StatusCreated)
	}
	l.send("HEAD /jobs HTTP/1.0\r\n" + authorized + "\r\n")
	if got := l.answer("HEAD"); got.StatusCode != http.StatusOK || got.ContentLength < 1 {
		t.Errorf("HEAD answered %d, Content-Length %d", got.StatusCode, got.ContentLength)
	}
	l.wantEnd()
}

// A client that waits for 100 Continue is refused before it sends a body.
func TestExpectContinue(t *testing.T) {
	s := serve(t)
	s.sells()
	for name, test := range map[string]struct {
		headers string
		code    boxoffice.Code
	}{
		"too large": {
			authorized + fmt.Sprintf("Content-Length: %d\r\n", boxoffice.MaxBodyBytes+1), boxoffice.BodyTooLarge,
		},
		"no token": {hosted + "Content-Length: 5\r\n", boxoffice.RequestTokenRequired},
		"an Origin": {authorized + "Origin: https://evil.example\r\nTransfer-Encoding: chunked\r\n",
			boxoffice.OriginNotAllowed},
		"no such one": {authorized + "Content-Length: 5\r\n", boxoffice.MethodNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			l := s.dial()
			path := "/requests/quote"
			if test.code == boxoffice.MethodNotAllowed {
				path = "/requests/capabilities"
			}
			l.send("POST " + path + " HTTP/1.1\r\nExpect: 100-continue\r\n" + test.headers + "\r\n")
			refused := l.answer("POST")
			refused.wantProblem(t, test.code)
			if !refused.Close {
				t.Error("the body could still follow")
			}
		})
	}
	l := s.dial()
	for range 2 {
		l.send("POST /requests/quote HTTP/1.1\r\nExpect: 100-continue\r\n" + authorized +
			fmt.Sprintf("Content-Length: %d\r\n\r\n", len(quoteBody)))
		if status, err := l.ReadString('\n'); err != nil || status != "HTTP/1.1 100 Continue\r\n" {
			t.Fatalf("read %q, %v", status, err)
		}
		l.ReadString('\n')
		l.send(quoteBody)
		l.answer("POST").wantStatus(t, http.StatusCreated)
	}
}

func TestBodiesOnTheWire(t *testing.T) {
	s := serve(t)
	s.sells()
	chunks := func(body string, size int) (wire string) {
		for ; len(body) > size; body = body[size:] {
			wire += fmt.Sprintf("%x\r\n%s\r\n", size, body[:size])
		}
		return wire + fmt.Sprintf("%x\r\n%s\r\n0\r\n", len(body), body)
	}
	full := quoteBody + strings.Repeat(" ", boxoffice.MaxBodyBytes-len(quoteBody))
	const post, chunked = "POST /requests/quote HTTP/1.1\r\n" + authorized, "Transfer-Encoding: chunked\r\n\r\n"
	for name, test := range map[string]struct {
		wire   string
		status int
	}{
		"chunks": {post + chunked + chunks(quoteBody, 7) + "\r\n", 201},
		"a trailer": {post + "Trailer: X-Sum\r\n" + chunked + chunks(quoteBody, 100) + "X-Sum: 1\r\n\r\n",
			201},
		"chunks of the limit": {post + chunked + chunks(full, 1000) + "\r\n", 201},
		"chunks beyond it":    {post + chunked + chunks(full+" ", 1000) + "\r\n", 413},
		"chunks that do not end": {post + chunked + strings.Repeat("400\r\n"+strings.Repeat("x", 1024)+"\r\n", 100),
			413},
		"a chunk that is none":        {post + chunked + "zz\r\n", 400},
		"a megabyte, not asked first": {post + "Content-Length: 1048576\r\n\r\n" + strings.Repeat("x", 1<<20), 413},
		"two lengths":                 {post + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400},
		"a proxy's address":           {"GET http://tickets.example/openapi.json HTTP/1.1\r\n" + hosted + "\r\n", 200},
		"no Host":                     {"GET /openapi.json HTTP/1.1\r\n\r\n", 400},
		"another expectation":         {post + "Expect: tea\r\nContent-Length: 2\r\n\r\n{}", 417},
	} {
		t.Run(name, func(t *testing.T) {
			l := s.dial()
			sent := make(chan error, 1)
			go func() {
				_, err := io.WriteString(l.Conn, test.wire)
				sent <- err
			}()
			l.answer("POST").wantStatus(t, test.status)
			l.Conn.Close()
			<-sent
		})
	}
}

// A client that sends its whole body before it reads gets the refusal, also when the
// connection closes after it. nginx speaks HTTP/1.0 to the service and would answer 502
// if the connection were reset.
func TestRefusalReachesClientThatSendsItsBodyFirst(t *testing.T) {
	s := serve(t)
	for _, end := range []string{"HTTP/1.0\r\n", "HTTP/1.1\r\nConnection: close\r\n"} {
		for name, test := range map[string]struct {
			request string
			length  int
			status  int
		}{
			"too large":       {"POST /requests/quote " + end + authorized, boxoffice.MaxBodyBytes + 1, 413},
			"a megabyte":      {"POST /requests/quote " + end + authorized, 1 << 20, 413},
			"no token":        {"POST /requests/quote " + end + hosted, 12 << 10, 401},
			"another origin":  {"POST /requests/quote " + end + authorized + "Origin: null\r\n", 12 << 10, 403},
			"no such method":  {"PUT /jobs " + end + hosted, 12 << 10, 405},
			"no such address": {"POST /nothing " + end + hosted, 12 << 10, 404},
			"a free document": {"GET /openapi.json " + end + hosted, 12 << 10, 200},
		} {
			t.Run(end[:8]+" "+name, func(t *testing.T) {
				l := s.dial()
				sent := make(chan error, 1)
				go func() {
					_, err := fmt.Fprintf(l.Conn, "%sContent-Length: %d\r\n\r\n%s", test.request, test.length,
						strings.Repeat("x", test.length))
					sent <- err
				}()
				l.answer("POST").wantStatus(t, test.status)
				l.wantEnd()
				l.Conn.Close()
				<-sent
			})
		}
	}
}

// plain sends exactly the given request, without headers that http.Client adds, and
// returns the body as it was sent.
func (s *service) plain(method, path string, edits ...edit) reply {
	s.t.Helper()
	request, err := http.NewRequest(method, s.server.URL+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, change := range edits {
		change(request)
	}
	transport := &http.Transport{DisableCompression: true, DisableKeepAlives: true}
	response, err := transport.RoundTrip(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return reply{response, body}
}

func TestHeadIsGetWithoutABody(t *testing.T) {
	s := serve(t)
	s.work = storedWork{listed: []work.Job{job(0), job(1)}, oracles: work.Oracle{}, err: nil}
	s.flow.status = func(boxoffice.UUID) (boxoffice.Status, error) {
		return boxoffice.Status{Status: boxoffice.Quoted, Order: quotedOrder(t)}, nil
	}
	for _, path := range []string{
		"/", "/nothing", "/openapi.json", "/requests/capabilities",
		"/requests/" + anyID, "/requests/x", "/requests/quote",
		"/jobs", "/jobs?limit=1", "/jobs?limit=0", "/jobs/" + anyID, "/oracles/" + anyID, "/workflows/" + anyID,
		"/schedules/" + anyID,
	} {
		for _, edits := range [][]edit{
			nil, {with("Authorization", "Bearer "+token)}, {with("Accept-Encoding", "gzip")}, {with("Origin", "null")},
			{with("Accept", "text/html")},
		} {
			get, head := s.plain("GET", path, edits...), s.plain("HEAD", path, edits...)
			if path == "/requests/quote" { // both get the same 405
				get.wantStatus(t, http.StatusMethodNotAllowed)
			}
			if head.StatusCode != get.StatusCode || len(head.body) > 0 || head.ContentLength != int64(len(get.body)) {
				t.Errorf("HEAD %s answered %d, %d bytes, Content-Length %d; GET answered %d, %d bytes",
					path, head.StatusCode, len(head.body), head.ContentLength, get.StatusCode, len(get.body))
			}
			for _, own := range []string{"Date", "X-Request-Id"} {
				get.Header.Del(own)
				head.Header.Del(own)
			}
			if got, want := fmt.Sprint(head.Header), fmt.Sprint(get.Header); got != want {
				t.Errorf("HEAD %s has %s, GET %s", path, got, want)
			}
		}
	}
}

func TestGzip(t *testing.T) {
	s := serve(t)
	for _, path := range []string{"/openapi.json", "/requests/capabilities", "/"} {
		html := with("Accept", "text/html") // only the landing page reads it
		whole := s.plain("GET", path, html)
		for accepted, packed := range map[string]bool{
			"gzip": true, "gzip, deflate, br, zstd": true, "GZIP": true,
			"br;q=1.0, gzip;q=0.8, *;q=0.1": true, "*": true,
			"identity;q=0.5, gzip;q=1.0": true,
			"":                           false, "br": false, "identity": false,
			"gzip;q=0": false, "gzip; Q=0.000": false, "*;q=0": false,
			"gzip;q=0, *":          false,
			"gzip;q=0.5, identity": false, "gzip;q=x": false, "xgzip": false,
		} {
			got := s.plain("GET", path, html, with("Accept-Encoding", accepted))
			got.wantStatus(t, http.StatusOK)
			body := got.body
			if is := got.Header.Get("Content-Encoding") == "gzip"; is != packed {
				t.Errorf("%s for %q is gzipped: %v", path, accepted, is)
			}
			if packed {
				reader, err := gzip.NewReader(bytes.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				if body, err = io.ReadAll(reader); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(body, whole.body) || packed == (len(got.body) >= len(body)) {
				t.Errorf("%s for %q: %d bytes, which are %d", path, accepted, len(got.body), len(body))
			}
			for _, header := range []string{"ETag", "Content-Type", "Vary"} {
				if got.Header.Get(header) != whole.Header.Get(header) || got.Header.Get(header) == "" {
					t.Errorf("%s for %q has %s %q", path, accepted, header, got.Header.Get(header))
				}
			}
			if !strings.Contains(strings.Join(got.Header.Values("Vary"), ","), "Accept-Encoding") {
				t.Errorf("%s for %q varies by %v", path, accepted, got.Header.Values("Vary"))
			}
			again := s.plain("GET", path, html, with("Accept-Encoding", accepted),
				with("If-None-Match", whole.Header.Get("ETag")))
			again.wantStatus(t, http.StatusNotModified)
			if again.Header.Get("Content-Encoding") != "" {
				t.Error("nothing is gzipped")
			}
		}
	}
	if got := s.plain("GET", "/jobs", with("Authorization", "Bearer "+token),
		with("Accept-Encoding", "gzip")); got.Header.Get("Content-Encoding") != "" {
		t.Error("a protected response is compressed") // its length would reveal parts of it
	}
}

// GET / is a page for browsers, and for programs a 404 that names the description.
func TestLandingPage(t *testing.T) {
	name := "Tickets"
	s := serve(t, func(c *httpapi.Config) {
		c.Capabilities = func(context.Context) boxoffice.Capabilities {
			current := capabilities(t)
			current.Payment.ServiceName = name
			return current
		}
	})
	for accept, page := range map[string]bool{
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": true, "text/html": true,
		"application/json;q=0.5, TEXT/HTML": true,
		"*/*":                               false, "": false, "application/json": false,
		"application/json, text/html": false, "text/html;q=0": false,
		"text/*": false,
	} {
		got := s.plain("GET", "/", with("Accept", accept))
		if is := got.StatusCode == http.StatusOK; is != page {
			t.Errorf("Accept %q answered %d", accept, got.StatusCode)
		}
		if !strings.Contains(strings.Join(got.Header.Values("Vary"), ","), "Accept") {
			t.Errorf("Accept %q varies by %q", accept, got.Header.Values("Vary"))
		}
		if page {
			continue
		}
		problem := got.wantProblem(t, boxoffice.NotFound)
		if link := got.Header.Get("Link"); !strings.Contains(problem.Detail, baseURL+"/openapi.json") ||
			link != "<"+baseURL+`/openapi.json>; rel="service-desc"` {
			t.Errorf("%s, Link %s", got.body, link)
		}
	}

	browser := with("Accept", "text/html")
	got := s.plain("GET", "/", browser)
	for _, words := range []string{"<h1>Tickets</h1>", `href="openapi.json"`, `href="requests/capabilities"`,
		"<td>job.open<td>0.000000000001 TT\n", "<td>schedule.create<td>0.000000000001 TT a run\n"} {
		if !strings.Contains(string(got.body), words) {
			t.Errorf("the page lacks %s", words)
		}
	}
	for header, want := range map[string]string{
		"Content-Type":           "text/html; charset=utf-8",
		"X-Content-Type-Options": "nosniff", "Cache-Control": "public, no-cache",
		"Access-Control-Allow-Origin": "",
	} {
		if got.Header.Get(header) != want {
			t.Errorf("%s is %q", header, got.Header.Get(header))
		}
	}
	if policy := got.Header.Get("Content-Security-Policy"); !strings.HasPrefix(policy,
		"default-src 'none'; style-src 'sha256-") || !strings.Contains(policy, "frame-ancestors 'none'") {
		t.Errorf("Content-Security-Policy %q", policy)
	}
	if len(got.body) > 4<<10 || bytes.Contains(got.body, []byte("<script")) {
		t.Errorf("the page has %d bytes:\n%s", len(got.body), got.body)
	}

	name = "A <b>&</b> C" // the page follows the capabilities, and escapes names
	again := s.plain("GET", "/", browser, with("If-None-Match", got.Header.Get("ETag")))
	if !bytes.Contains(again.body, []byte("<h1>A &lt;b&gt;&amp;&lt;/b&gt; C</h1>")) {
		t.Errorf("%d %s", again.StatusCode, again.body)
	}
	for _, method := range []string{"POST", "PUT", "OPTIONS"} {
		s.plain(method, "/", browser).wantProblem(t, boxoffice.NotFound)
	}
	s.plain("GET", "/nothing", browser).wantProblem(t, boxoffice.NotFound)
}

// Addresses in responses and the allowed origin come from the configuration, whatever
// Host and X-Forwarded-* say.
func TestForwardedHostsAreIgnored(t *testing.T) {
	s := serve(t)
	s.sells()
	s.work.listed = []work.Job{job(0), job(1)}
	forwarded := []edit{
		with("X-Forwarded-Host", "evil.example"), with("X-Forwarded-Proto", "http"), with("X-Forwarded-Port", "1"),
		with("X-Forwarded-Prefix", "/evil"),
		with("Forwarded", "for=192.0.2.1;host=evil.example;proto=http"),
		func(r *http.Request) { r.Host = "evil.example" },
	}
	quoted := s.do("POST", "/requests/quote", quoteBody, forwarded...)
	quoted.wantStatus(t, http.StatusCreated)
	if got := quoted.Header.Get("Location"); !strings.HasPrefix(got, baseURL+"/requests/") {
		t.Errorf("Location is %s", got)
	}
	if got := s.do("GET", "/jobs?limit=1", "", forwarded...).Header.Get("Link"); !strings.HasPrefix(got,
		"<"+baseURL+"/jobs?") {
		t.Errorf("Link is %s", got)
	}
	s.do("GET", "/jobs", "", append(forwarded, with("Origin", "http://evil.example"))...).wantProblem(t,
		boxoffice.OriginNotAllowed)
	s.do("GET", "/jobs", "", append(forwarded, with("Origin", baseURL))...).wantStatus(t, http.StatusOK)
}
