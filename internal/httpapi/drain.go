package httpapi

import (
	"io"
	"net/http"
)

// maxDrain is how many bytes of an unread body are read, as many as net/http reads
// before it reuses a connection.
const maxDrain = 256 << 10

// drainBody returns next, and after it reads what it left of the body where the
// connection closes; net/http does so only where it keeps the connection. A client
// that sends its whole body before it reads then gets the response, which is mostly
// a refusal. Closing a connection with unread bytes resets it, and a proxy that
// speaks HTTP/1.0, as nginx does by default, then answers 502 instead.
func drainBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r)
		closes := r.Close || !r.ProtoAtLeast(1, 1)
		// A client that waits for 100 Continue does not send a body that was not asked for.
		waits := r.Header.Get("Expect") != ""
		if !closes || waits || r.Body == nil || r.Body == http.NoBody {
			return
		}
		http.NewResponseController(w).Flush() // first, since the client may wait for the response
		io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxDrain))
	})
}
