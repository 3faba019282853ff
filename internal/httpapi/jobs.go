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
	defaultJobs = 20
	maxJobs     = 100
	maxFilter   = 64 // characters of a template or a launchKind
)

// jobs answers GET /jobs: a page of the requester's jobs, newest first.
func (d *door) jobs(c call) (answer, error) {
	values, err := url.ParseQuery(c.URL.RawQuery)
	if err != nil {
		return answer{}, invalid("?", "must be a query string")
	}
	query, err := jobQuery(values)
	if err != nil {
		return answer{}, err
	}
	limit := query.Limit
	query.Limit++ // one more says whether there is a next page
	jobs, err := d.Work.Jobs(c.Context(), c.requester, query)
	if err != nil {
		return answer{}, away(err)
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
		c.reply.Set("Link", "<"+d.BaseURL+"/jobs?"+values.Encode()+`>; rel="next"`)
	}
	return render(http.StatusOK, page)
}

// jobQuery reads the parameters of GET /jobs. One that is not known is refused:
// a filter that was misspelt would list what it should have left out.
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

// A cursor on the wire is base64url of the creation time in milliseconds, a
// dot and the id of the last job of the page before. It needs no signature: it
// shows nothing beyond the requester's own jobs, wherever it points.
func formatCursor(cursor work.JobCursor) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(int64(cursor.CreatedAt), 10) + "." + string(cursor.ID)))
}

var errCursor = errors.New("must be a cursor that a Link header gave")

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

// shorten cuts an objective to what a list shows of it.
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

func (d *door) job(c call) (answer, error) {
	return read(c, d.Work.Job, func(j work.Job) any { return j.Job })
}

func (d *door) oracle(c call) (answer, error) {
	return read(c, d.Work.Oracle, func(o work.Oracle) any { return o.Oracle })
}

func (d *door) workflow(c call) (answer, error) {
	return read(c, d.Work.Workflow, func(w work.Workflow) any { return w.Workflow })
}

func (d *door) schedule(c call) (answer, error) {
	return read(c, d.Work.Schedule, func(s work.Schedule) any { return s.Schedule })
}

// read answers with the resource that {id} names, as its requester sees it.
func read[T any](
	c call, get func(context.Context, boxoffice.Requester, boxoffice.UUID) (T, error), shown func(T) any,
) (answer, error) {
	id, err := c.id()
	if err != nil {
		return answer{}, err
	}
	record, err := get(c.Context(), c.requester, id)
	switch {
	case errors.Is(err, work.ErrNotFound):
		return answer{}, &boxoffice.Problem{Code: boxoffice.NotFound, Detail: "there is no such work, or it belongs to another token"}
	case err != nil:
		return answer{}, away(err)
	}
	return render(http.StatusOK, shown(record))
}

// away is the answer to an error of the store.
func away(err error) error {
	if _, ok := errors.AsType[*boxoffice.Problem](err); ok {
		return err
	}
	return &boxoffice.Problem{Code: boxoffice.TemporarilyUnavailable, Detail: "the store is away", Cause: err}
}
