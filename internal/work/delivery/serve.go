package delivery

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"os"
	"path"
	"regexp"
	"strings"
	"time"

	"boxoffice"
)

const (
	uploadPack  = "git-upload-pack"
	receivePack = "git-receive-pack"

	maxRequest = 2 << 20 // bytes of an unpacked request, which has a few dozen for each commit that it names
)

// ServeGit serves a request below /git/{job}.git/ by git's smart HTTP protocol (gitprotocol-http, versions 0 to 2),
// read-only. The caller has checked that the requester may read the job. A refusal is text/plain, because git shows
// that to its user.
func (g *Git) ServeGit(w http.ResponseWriter, r *http.Request, job boxoffice.UUID) {
	repo := g.repo(job)
	if _, err := os.Stat(repo); err != nil {
		refuse(w, http.StatusNotFound, "this job has no repository yet")
		return
	}
	switch path.Base(r.URL.Path) {
	case "refs":
		g.advertise(w, r, repo)
	case uploadPack:
		g.upload(w, r, repo)
	default:
		refuse(w, http.StatusForbidden, "this repository is read-only")
	}
}

func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Cache-Control", "no-store")
	http.Error(w, text, status)
}

func unavailable(w http.ResponseWriter) {
	refuse(w, http.StatusServiceUnavailable, "the service is busy or not ready; ask again")
}

// advertise answers the first request of a clone, which asks what the repository holds.
func (g *Git) advertise(w http.ResponseWriter, r *http.Request, repo string) {
	switch r.URL.Query().Get("service") {
	case uploadPack:
	case receivePack:
		refuse(w, http.StatusForbidden, "this repository is read-only")
		return
	default: // git's older "dumb" protocol
		refuse(w, http.StatusForbidden, "this repository is read by git's smart protocol")
		return
	}
	header := []byte("001e# service=git-upload-pack\n0000")
	if strings.Contains(version(r), "version=2") {
		header = nil
	}
	g.serve(w, r, "advertisement", header, nil, "--advertise-refs", repo)
}

// upload answers the requests after the first, which name the wanted commits. The last answer is the pack.
func (g *Git) upload(w http.ResponseWriter, r *http.Request, repo string) {
	if r.Header.Get("Content-Type") != "application/x-"+uploadPack+"-request" {
		refuse(w, http.StatusUnsupportedMediaType, "this address takes application/x-"+uploadPack+"-request")
		return
	}
	request, err := body(w, r)
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge || len(request) > maxRequest {
		refuse(w, http.StatusRequestEntityTooLarge, "the request is too large")
		return
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, "the body is not what its headers say")
		return
	}
	g.serve(w, r, "result", nil, request, repo)
}

// body reads and unpacks a request. It stops after maxRequest bytes and one more.
func body(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	var reader io.Reader = http.MaxBytesReader(w, r.Body, maxRequest)
	switch r.Header.Get("Content-Encoding") {
	case "", "identity":
	case "gzip", "x-gzip":
		unpacked, err := gzip.NewReader(reader)
		if err != nil {
			return nil, err
		}
		reader = unpacked
	default:
		return nil, errors.New("unknown encoding")
	}
	return io.ReadAll(io.LimitReader(reader, maxRequest+1))
}

var protocolPattern = regexp.MustCompile(`^[a-z0-9=:.]{1,64}$`)

// version returns the Git-Protocol header if it is well formed, or else "".
func version(r *http.Request) string {
	if v := r.Header.Get("Git-Protocol"); protocolPattern.MatchString(v) {
		return v
	}
	return ""
}

func (g *Git) serve(w http.ResponseWriter, r *http.Request, kind string, header, request []byte, args ...string) {
	select {
	case g.reads <- struct{}{}:
		defer func() { <-g.reads }()
	default:
		unavailable(w)
		return
	}
	// A pack may take longer than other answers of the server: as long as the command may run. It needs a deadline all
	// the same, because a client that stopped reading would block the handler for ever.
	connection := http.NewResponseController(w)
	connection.SetWriteDeadline(time.Now().Add(g.config.Timeout))

	w.Header().Set("Content-Type", "application/x-"+uploadPack+"-"+kind)
	w.Header().Set("Cache-Control", "no-cache, max-age=0, must-revalidate")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	out := &started{w: w, header: header}
	args = append([]string{"upload-pack", "--strict", "--stateless-rpc"}, args...)
	_, err := g.git(r.Context(), call{
		env: []string{"GIT_PROTOCOL=" + version(r)}, stdin: bytes.NewReader(request), stdout: out,
	}, args...)
	switch {
	case err == nil:
		out.Write(nil)
		if connection.Flush() != nil {
			panic(http.ErrAbortHandler)
		}
		connection.SetWriteDeadline(time.Time{}) // the connection may carry further answers
	case !out.begun:
		unavailable(w)
	default:
		panic(http.ErrAbortHandler) // it closes the connection, so the client knows that the answer is incomplete
	}
}

// A started writer writes a header before the first byte of an answer.
type started struct {
	w      http.ResponseWriter
	header []byte
	begun  bool
}

func (s *started) Write(p []byte) (int, error) {
	if !s.begun {
		s.begun = true
		if _, err := s.w.Write(s.header); err != nil {
			return 0, err
		}
	}
	return s.w.Write(p)
}
