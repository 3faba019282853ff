package httpapi

import (
	"io"
	"net/http"
)

// maxLinger is how much of a body nobody wants is read, in bytes; as much as
// net/http reads before it keeps a connection.
const maxLinger = 256 << 10

// Linger returns next with what net/http does only for connections that it
// keeps: an answer that was given before the body was read, mostly a refusal,
// reaches a client that sends the whole body first. Closing a connection on which
// something unread lies resets it, and then a proxy that speaks HTTP/1.0, as nginx
// does by default, says 502 in place of what was answered.
func Linger(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r)
		closes := r.Close || !r.ProtoAtLeast(1, 1)
		waits := r.Header.Get("Expect") != "" // for 100 Continue: it will not send what was not asked for
		if !closes || waits || r.Body == nil || r.Body == http.NoBody {
			return
		}
		http.NewResponseController(w).Flush() // first, since a client may also wait for it
		io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxLinger))
	})
}
