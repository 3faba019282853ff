package httpapi

import (
	"net/http"
	"strings"

	"boxoffice"
)

const gitPrefix = "/git/"

var errNoRepository = &boxoffice.Problem{Code: boxoffice.NotFound,
	Detail: "there is no such repository, or it belongs to another token"}

// git serves the repository of a job to the job's requester, read-only. Refusals are
// text/plain, which git shows to its user.
func (h *handler) git(x *exchange, r *http.Request) (response, error) {
	if err := checkOrigin(r, h.origin); err != nil {
		return response{}, err
	}
	token, err := gitToken(r)
	if err != nil {
		x.Header().Set("WWW-Authenticate",
			`Basic realm="boxoffice: the request token is the password", charset="UTF-8"`)
		return response{}, &boxoffice.Problem{Code: boxoffice.InvalidRequestToken,
			Detail: "the password must be the request token: 64 hex characters"}
	}
	requester, err := h.admit(x, r, token)
	if err != nil {
		return response{}, err
	}
	name, isRepository := strings.CutSuffix(r.PathValue("repo"), ".git")
	id, err := boxoffice.ParseUUID(name)
	if !isRepository || err != nil {
		return response{}, errNoRepository
	}
	if _, err := h.Work.Job(r.Context(), requester, id); err != nil {
		return response{}, storeError(err, errNoRepository)
	}
	h.Git.ServeGit(x, r, id)
	return response{}, nil
}
