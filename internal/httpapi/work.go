package httpapi

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"boxoffice"
	"boxoffice/internal/work"
)

const (
	defaultJobs = 20  // on a page, if the request has no limit
	maxJobs     = 100 // on a page
	maxFilter   = 64  // characters of a template or a launchKind
)

// jobs serves GET /jobs: a page of the requester's jobs, newest first.
func (h *handler) jobs(r request) (response, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return response{}, invalid("?", "must be a query string")
	}
	query, err := jobQuery(values)
	if err != nil {
		return response{}, err
	}
	limit := query.Limit
	query.Limit++ // the additional job says whether there is a next page
	jobs, err := h.Work.Jobs(r.Context(), r.requester, query)
	if err != nil {
		return response{}, storeError(err, errNoWork)
	}
	next := len(jobs) > limit
	jobs = jobs[:min(len(jobs), limit)]
	page := boxoffice.JobList{Count: len(jobs), Jobs: make([]boxoffice.Job, len(jobs))}
	for i, job := range jobs {
		page.Jobs[i] = job.Job
		page.Jobs[i].Objective = shorten(job.Objective)
	}
	if next {
		last := jobs[limit-1]
		values.Set("cursor", formatCursor(work.JobCursor{CreatedAt: last.CreatedAt, ID: last.ID}))
		r.reply.Set("Link", "<"+h.BaseURL+"/jobs?"+values.Encode()+`>; rel="next"`)
	}
	return render(http.StatusOK, page)
}

// jobQuery reads the parameters of GET /jobs. An unknown one is refused, since a
// misspelt filter would list jobs that it should leave out.
func jobQuery(values url.Values) (work.JobQuery, error) {
	query := work.JobQuery{Limit: defaultJobs}
	for name, given := range values {
		place := "?" + name
		value := given[0]
		if len(given) > 1 {
			return query, invalid(place, "must be sent once")
		}
		switch name {
		case "state":
			switch query.State = boxoffice.JobState(value); query.State {
			case boxoffice.JobQueued, boxoffice.JobRunning, boxoffice.JobBlocked, boxoffice.JobCompleted:
			default:
				return query, invalid(place, "must be queued, running, blocked or completed")
			}
		case "template", "launchKind":
			if n := utf8.RuneCountInString(value); n < 1 || n > maxFilter || !utf8.ValidString(value) {
				return query, invalid(place, "must be 1 to 64 characters")
			}
			if name == "template" {
				query.Template = value
			} else {
				query.LaunchKind = value
			}
		case "limit":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 || n > maxJobs || strconv.Itoa(n) != value {
				return query, invalid(place, "must be an integer from 1 to 100")
			}
			query.Limit = n
		case "cursor":
			cursor, err := parseCursor(value)
			if err != nil {
				return query, invalid(place, err.Error())
			}
			query.After = &cursor
		default:
			return query, invalid(place, "is not a known parameter")
		}
	}
	return query, nil
}

// formatCursor returns base64url of the creation time in milliseconds, a dot and the
// id of the last job of the page before. A cursor needs no signature: wherever it
// points, the requester sees nothing but its own jobs.
func formatCursor(cursor work.JobCursor) string {
	text := strconv.FormatInt(int64(cursor.CreatedAt), 10) + "." + string(cursor.ID)
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

var errCursor = errors.New("must be a cursor from a Link header")

func parseCursor(s string) (work.JobCursor, error) {
	text, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil {
		return work.JobCursor{}, errCursor
	}
	moment, id, _ := strings.Cut(string(text), ".")
	milliseconds, err := strconv.ParseInt(moment, 10, 64)
	if err != nil {
		return work.JobCursor{}, errCursor
	}
	cursor := work.JobCursor{CreatedAt: boxoffice.Timestamp(milliseconds)}
	if cursor.ID, err = boxoffice.ParseUUID(id); err != nil || formatCursor(cursor) != s {
		return work.JobCursor{}, errCursor
	}
	return cursor, nil
}

// shorten cuts an objective to the length that a list shows.
func shorten(objective string) string {
	n := 0
	for i := range objective {
		if n == boxoffice.ObjectiveListLength {
			return strings.TrimRight(objective[:i], " \n\t") + "…"
		}
		n++
	}
	return objective
}

func (h *handler) job(r request) (response, error) {
	return read(r, h.Work.Job, func(j work.Job) any { return j.Job })
}

func (h *handler) oracle(r request) (response, error) {
	return read(r, h.Work.Oracle, func(o work.Oracle) any { return o.Oracle })
}

func (h *handler) workflow(r request) (response, error) {
	return read(r, h.Work.Workflow, func(w work.Workflow) any { return w.Workflow })
}

func (h *handler) schedule(r request) (response, error) {
	return read(r, h.Work.Schedule, func(s work.Schedule) any { return s.Schedule })
}

// read serves the part of a record that its requester may see.
func read[T any](
	r request, get func(context.Context, boxoffice.Requester, boxoffice.UUID) (T, error), visible func(T) any,
) (response, error) {
	id, err := r.id()
	if err != nil {
		return response{}, err
	}
	record, err := get(r.Context(), r.requester, id)
	if err != nil {
		return response{}, storeError(err, errNoWork)
	}
	return render(http.StatusOK, visible(record))
}

var errNoWork = &boxoffice.Problem{Code: boxoffice.NotFound,
	Detail: "there is no such work, or it belongs to another token"}

// storeError returns what is answered to an error of the store.
func storeError(err error, notFound *boxoffice.Problem) error {
	if errors.Is(err, work.ErrNotFound) {
		return notFound
	}
	if _, ok := errors.AsType[*boxoffice.Problem](err); ok {
		return err
	}
	return &boxoffice.Problem{
		Code: boxoffice.TemporarilyUnavailable, Detail: "the database does not answer", Cause: err,
	}
}
