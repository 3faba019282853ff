package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"

	"boxoffice"
	"boxoffice/internal/work"
)

// CallbackStore keeps the results that agents send later. If it is kept in a database, a result
// reaches a run of another process, or a run that began after a restart. An id reveals nothing
// about the work and never names another task.
type CallbackStore interface {
	// Open saves that a result of a node's task is waited for, until the run of the node is over. If a result is kept
	// already, Open returns it.
	Open(ctx context.Context, id string, of boxoffice.UUID, node string) (kept []byte, err error)
	// Put keeps the result of a task, unless one is kept, and returns the one that is kept. It returns
	// work.ErrNotFound if no result is waited for.
	Put(ctx context.Context, id string, result []byte) (kept []byte, err error)
	// Wait waits until the result of a task is kept, and returns it.
	Wait(ctx context.Context, id string) (result []byte, err error)
}

// Callbacks is the handler of POST /callbacks/{id}, to which HTTP agents send results later. The body is a result. It
// is signed like the task, with the task's webhook-id, which is {id}. So a result cannot be used for another task.
//
//	204  the result is kept, also if it was sent before
//	400  it is no result
//	401  it is not signed, or its timestamp is too old
//	404  there is no such task, or its run is over
//	409  another result was sent before
//	413  it is larger than the agent's MaxOutput
type Callbacks struct{ agents []*HTTP }

// NewCallbacks returns the handler of the agents' callbacks.
func NewCallbacks(agents ...*HTTP) *Callbacks {
	// Agents may share a secret. Then the largest limit holds for all of them.
	largest := func(a, b *HTTP) int { return cmp.Compare(b.MaxOutput, a.MaxOutput) }
	return &Callbacks{slices.SortedFunc(slices.Values(agents), largest)}
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
	at := slices.IndexFunc(c.agents, func(agent *HTTP) bool { return agent.Secret.owns(id) })
	if at < 0 {
		return http.StatusNotFound, noSuchTask
	}
	agent := c.agents[at]
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, agent.MaxOutput))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return http.StatusRequestEntityTooLarge, "the result is too large"
	}
	if err != nil {
		return http.StatusBadRequest, "the result could not be read"
	}
	signed, err := agent.Secret.Verify(r.Header, agent.Now(), body)
	switch {
	case err != nil:
		return http.StatusUnauthorized, err.Error()
	case signed != id:
		return http.StatusUnauthorized, "webhook-id must be that of the task"
	}
	// Only the run knows whether its task has a panel and which choices are valid, so both forms are accepted here.
	if _, err := decodeResult(body, nil); err != nil {
		if _, err := decodeResult(body, &Panel{}); err != nil {
			return http.StatusBadRequest, err.Error()
		}
	}
	kept, err := agent.CallbackStore.Put(r.Context(), id, body)
	switch {
	case errors.Is(err, work.ErrNotFound):
		return http.StatusNotFound, noSuchTask
	case err != nil:
		return http.StatusServiceUnavailable, "try again"
	case !bytes.Equal(kept, body):
		return http.StatusConflict, "another result was sent before"
	}
	return http.StatusNoContent, ""
}
