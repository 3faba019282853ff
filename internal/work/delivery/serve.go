package delivery

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"boxoffice"
	"boxoffice/internal/work"
)

// Jobs says whose a job is. A work.Store is one.
type Jobs interface {
	// Job returns the requester's job, or work.ErrNotFound if there is none.
	Job(ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID) (work.Job, error)
}

const (
	uploadPack  = "git-upload-pack"
	receivePack = "git-receive-pack"

	// maxRequest bounds what a client asks for, unpacked: a few dozen bytes for
	// each commit that it names.
	maxRequest = 2 << 20
	// busyAfter is when to come back, in seconds, if too much is being read.
	busyAfter = "5"
)

// Handler serves /git/{jobId}.git by git's smart HTTP protocol (gitprotocol-http,
// versions 0 to 2) to the requester of the job, read-only. The request token is
// the password of HTTP Basic, with any user, or a Bearer token. A refusal is
// text/plain, which git shows.
func (g *Git) Handler(jobs Jobs) http.Handler {
	s := &server{git: g, jobs: jobs}
	if base, err := url.Parse(g.config.BaseURL); err == nil {
		implied := map[string]string{"http": ":80", "https": ":443"}[base.Scheme]
		s.origin = base.Scheme + "://" + strings.TrimSuffix(strings.ToLower(base.Host), implied)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/git/{repo}/info/refs", s.protected("GET, HEAD, OPTIONS", s.advertise))
	mux.HandleFunc("/git/{repo}/"+uploadPack, s.protected("OPTIONS, POST", s.upload))
	mux.HandleFunc("/git/{repo}/"+receivePack, s.protected("OPTIONS, POST", func(w http.ResponseWriter, _ *http.Request, _ string) {
		refuse(w, http.StatusForbidden, "this repository is read-only")
	}))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { nothingHere(w) })
	return mux
}

type server struct {
	git    *Git
	jobs   Jobs
	origin string
}

func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Cache-Control", "no-store")
	http.Error(w, text, status)
}

func nothingHere(w http.ResponseWriter) {
	refuse(w, http.StatusNotFound, "there is no such repository, or it belongs to another token")
}

// protected finds the repository that a requester may read, for the methods that
// are allowed. A browser's page of another origin may read none (spec.md §5.7).
func (s *server) protected(allow string, next func(w http.ResponseWriter, r *http.Request, repo string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for _, origin := range r.Header.Values("Origin") {
			if origin != s.origin {
				refuse(w, http.StatusForbidden, "the Origin header differs from the origin of this service")
				return
			}
		}
		if r.Method == http.MethodOptions || !slices.Contains(strings.Split(allow, ", "), r.Method) {
			w.Header().Set("Allow", allow)
			if r.Method == http.MethodOptions {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			refuse(w, http.StatusMethodNotAllowed, "this address takes "+allow)
			return
		}
		token, err := tokenOf(r)
		if err != nil {
			w.Header().Set("WWW-Authenticate", `Basic realm="boxoffice: the request token is the password", charset="UTF-8"`)
			refuse(w, http.StatusUnauthorized, err.Error())
			return
		}
		name, isRepo := strings.CutSuffix(r.PathValue("repo"), ".git")
		id, err := boxoffice.ParseUUID(name)
		if !isRepo || err != nil {
			nothingHere(w)
			return
		}
		switch _, err := s.jobs.Job(r.Context(), token.Requester(), id); {
		case errors.Is(err, work.ErrNotFound):
			nothingHere(w)
			return
		case err != nil:
			unavailable(w)
			return
		}
		repo := s.git.repo(id)
		if _, err := os.Stat(repo); err != nil {
			nothingHere(w)
			return
		}
		next(w, r, repo)
	}
}

func unavailable(w http.ResponseWriter) {
	w.Header().Set("Retry-After", busyAfter)
	refuse(w, http.StatusServiceUnavailable, "the service is busy or a part of it is away; ask again")
}

// tokenOf returns the request token of HTTP Basic or Bearer.
func tokenOf(r *http.Request) (boxoffice.Token, error) {
	if len(r.Header.Values("Authorization")) != 1 {
		return boxoffice.Token{}, errors.New("the password is the request token")
	}
	_, secret, basic := r.BasicAuth()
	if !basic {
		scheme, credentials, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if strings.EqualFold(scheme, "Bearer") {
			secret = strings.TrimSpace(credentials)
		}
	}
	return boxoffice.ParseToken(secret)
}

// advertise answers the first request of a clone: what the repository holds.
func (s *server) advertise(w http.ResponseWriter, r *http.Request, repo string) {
	switch r.URL.Query().Get("service") {
	case uploadPack:
	case receivePack:
		refuse(w, http.StatusForbidden, "this repository is read-only")
		return
	default: // the dumb protocol
		refuse(w, http.StatusForbidden, "this repository is read by git's smart protocol")
		return
	}
	header := []byte("001e# service=git-upload-pack\n0000")
	if strings.Contains(version(r), "version=2") {
		header = nil
	}
	s.serve(w, r, "advertisement", header, nil, "--advertise-refs", repo)
}

// upload answers the requests after it: which commits, and then the pack.
func (s *server) upload(w http.ResponseWriter, r *http.Request, repo string) {
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
	s.serve(w, r, "result", nil, request, repo)
}

// body reads a request, at most one byte more than maxRequest of it.
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

// version returns the Git-Protocol header, if it is one.
func version(r *http.Request) string {
	if v := r.Header.Get("Git-Protocol"); protocolPattern.MatchString(v) {
		return v
	}
	return ""
}

func (s *server) serve(w http.ResponseWriter, r *http.Request, kind string, header, request []byte, args ...string) {
	select {
	case s.git.reads <- struct{}{}:
		defer func() { <-s.git.reads }()
	default:
		unavailable(w)
		return
	}
	// A pack takes as long as the command may take, whatever other answers may,
	// and no longer: a client that stopped reading must not hold a write that
	// outlives this handler.
	connection := http.NewResponseController(w)
	connection.SetWriteDeadline(time.Now().Add(s.git.config.Timeout))

	w.Header().Set("Content-Type", "application/x-"+uploadPack+"-"+kind)
	w.Header().Set("Cache-Control", "no-cache, max-age=0, must-revalidate")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	out := &started{w: w, header: header}
	args = append([]string{"upload-pack", "--strict", "--stateless-rpc"}, args...)
	_, err := s.git.git(r.Context(), call{
		env: []string{"GIT_PROTOCOL=" + version(r)}, stdin: bytes.NewReader(request), stdout: out,
	}, args...)
	switch {
	case err == nil:
		out.Write(nil)
		if connection.Flush() != nil {
			panic(http.ErrAbortHandler)
		}
		connection.SetWriteDeadline(time.Time{}) // of this answer, not of those after it on the connection
	case !out.begun:
		unavailable(w)
	default:
		panic(http.ErrAbortHandler) // so that nobody takes it for whole
	}
}

// started puts a header before the first byte of an answer.
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
