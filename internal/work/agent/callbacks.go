package agent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"boxoffice"
	"boxoffice/internal/work"
)

// Mailbox keeps what agents answered later. A mailbox over the database lets
// the answer reach a run in another process, or one that began after a restart.
// Ids tell nothing of the work and are never reused for another task.
type Mailbox interface {
	// Open makes a box for the answer to a task of a node, unless there is one, and
	// returns the answer that is in it, if any. The box is there until the run of
	// the node is over.
	Open(ctx context.Context, id string, of boxoffice.UUID, node string) (kept []byte, err error)
	// Put keeps an answer under an id, unless there is one, and returns the one
	// that is kept, or work.ErrNotFound if there is no box.
	Put(ctx context.Context, id string, answer []byte) (kept []byte, err error)
	// Wait returns the answer that is kept under an id, when there is one.
	Wait(ctx context.Context, id string) (answer []byte, err error)
}

// CallbacksConfig is what a Callbacks needs.
type CallbacksConfig struct {
	Secrets []Secret // of every HTTP agent
	Mailbox Mailbox
	MaxBody int64            // bytes; 0: 1 MiB
	Now     func() time.Time // nil: time.Now
}

// Callbacks is the handler of POST /callbacks/{id}, where HTTP agents answer
// later. The body is an Answer, signed like the task was and with the task's
// webhook-id, which is {id}; so an answer can't be used for another task. Its
// statuses: 204 kept, also if the same is sent again; 400 not an answer; 401
// not signed, or too old; 404 no such task, or its run is over; 409 answered
// otherwise before.
type Callbacks struct{ CallbacksConfig }

// NewCallbacks returns the handler.
func NewCallbacks(config CallbacksConfig) *Callbacks {
	if config.MaxBody == 0 {
		config.MaxBody = 1 << 20
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	return &Callbacks{config}
}

func (c *Callbacks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status, detail := c.take(w, r)
	if status == http.StatusNoContent {
		w.WriteHeader(status)
		return
	}
	http.Error(w, detail, status)
}

const noSuchTask = "no such task, or it is over"

func (c *Callbacks) take(w http.ResponseWriter, r *http.Request) (status int, detail string) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return http.StatusMethodNotAllowed, "must be POST"
	}
	id := r.PathValue("id")
	secret, ok := c.owner(id)
	if !ok {
		return http.StatusNotFound, noSuchTask
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, c.MaxBody))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return http.StatusRequestEntityTooLarge, "the answer is too large"
	}
	if err != nil {
		return http.StatusBadRequest, "the answer could not be read"
	}
	signed, err := secret.Verify(r.Header, c.Now(), body)
	switch {
	case err != nil:
		return http.StatusUnauthorized, err.Error()
	case signed != id:
		return http.StatusUnauthorized, "webhook-id must be that of the task"
	}
	// Whether a choice is needed, and which, is seen where the task is known.
	if _, err := decodeAnswer(body, nil); err != nil {
		if _, err := decodeAnswer(body, &Panel{}); err != nil {
			return http.StatusBadRequest, err.Error()
		}
	}
	kept, err := c.Mailbox.Put(r.Context(), id, body)
	switch {
	case errors.Is(err, work.ErrNotFound):
		return http.StatusNotFound, noSuchTask
	case err != nil:
		return http.StatusServiceUnavailable, "try again"
	case !bytes.Equal(kept, body):
		return http.StatusConflict, "the task was answered otherwise before"
	}
	return http.StatusNoContent, ""
}

func (c *Callbacks) owner(id string) (Secret, bool) {
	for _, secret := range c.Secrets {
		if secret.owns(id) {
			return secret, true
		}
	}
	return Secret{}, false
}
