package delivery_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"boxoffice/internal/work/delivery"
)

// If a client asks for a large pack and then does not read it, the connection is closed after the timeout.
func TestClientThatStopsReading(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 24<<20) // more than the buffers of both sockets hold
	for i, x := 0, uint32(1); i < len(noise); i++ {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		noise[i] = byte(x)
	}
	s := openServer(t, func(c *delivery.Config) { c.MaxBytes = 64 << 20 })
	dir := s.workspace(s.job)
	write(t, dir, map[string]string{"noise": string(noise)})
	commit := s.deliver(s.job, dir).Commit

	hasty := open(t, func(c *delivery.Config) { c.Dir, c.Timeout = s.dir, 2*time.Second })
	handler, returned := hasty.handler(owners{s.job.ID: s.token.Requester()}), make(chan any, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			fault := recover()
			returned <- fault
			panic(fault)
		}()
		handler.ServeHTTP(w, r)
	}))
	defer server.Close()
	connection, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	connection.(*net.TCPConn).SetReadBuffer(4 << 10)
	wants := "0032want " + commit + "\n00000009done\n"
	fmt.Fprintf(connection, "POST %s/git-upload-pack HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/x-git-upload-pack-request\r\nContent-Length: %d\r\n\r\n%s", s.path(), s.token.Reveal(), len(wants), wants)
	first := make([]byte, 12)
	if _, err := io.ReadFull(connection, first); err != nil || !strings.HasSuffix(string(first), " 200") {
		t.Fatalf("answer %q, %v", first, err)
	}
	if fault := <-returned; fault != http.ErrAbortHandler {
		t.Errorf("the connection was not closed: %v", fault)
	}
}

// The deadline of an answer does not hold for later answers on the same connection.
func TestConnectionOutlivesItsAnswers(t *testing.T) {
	s := openServer(t, nil)
	s.deliver(s.job, s.workspace(s.job))
	deadlines := make(chan time.Time, 8)
	handler := s.handler(owners{s.job.ID: s.token.Requester()})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(watched{w, deadlines}, r)
	}))
	defer server.Close()
	request, err := http.NewRequest(http.MethodGet, server.URL+s.path()+"/info/refs?service=git-upload-pack", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+s.token.Reveal())
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK || len(text) == 0 {
		t.Fatalf("%s: %q, %v", response.Status, text, err)
	}
	if begun, ended := <-deadlines, <-deadlines; begun.IsZero() || !ended.IsZero() {
		t.Errorf("an answer's deadline is %v, and %v after it", begun, ended)
	}
}

// watched sends the deadlines that are set on a connection to a channel.
type watched struct {
	http.ResponseWriter
	deadlines chan time.Time
}

func (w watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w watched) SetWriteDeadline(deadline time.Time) error {
	w.deadlines <- deadline
	return http.NewResponseController(w.ResponseWriter).SetWriteDeadline(deadline)
}
