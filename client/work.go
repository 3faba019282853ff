package client

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"

	"boxoffice"
)

// JobQuery selects jobs; zero fields select all of them.
type JobQuery struct {
	State      boxoffice.JobState
	Template   string
	LaunchKind string
	Limit      int    // jobs of a page, 1 to 100; 0 leaves it to the service
	Cursor     string // JobPage.Next of the page before
}

// JobPage is a page of jobs, newest first.
type JobPage struct {
	boxoffice.JobList
	Next string // the cursor of the next page; empty on the last one
}

// Jobs reads a page of the requester's jobs.
func (c *Client) Jobs(ctx context.Context, query JobQuery) (JobPage, error) {
	values := url.Values{}
	for name, value := range map[string]string{
		"state": string(query.State), "template": query.Template,
		"launchKind": query.LaunchKind, "cursor": query.Cursor,
	} {
		if value != "" {
			values.Set(name, value)
		}
	}
	if query.Limit != 0 {
		values.Set("limit", strconv.Itoa(query.Limit))
	}
	got, err := c.do(ctx, call{method: http.MethodGet, path: "/jobs", query: values})
	if err != nil {
		return JobPage{}, err
	}
	list, err := read[boxoffice.JobList](got)
	if err != nil {
		return JobPage{}, err
	}
	next, err := nextCursor(got.header)
	return JobPage{JobList: list, Next: next}, err
}

// AllJobs reads the requester's jobs page after page, beginning at the query's
// cursor. It ends with the first error.
func (c *Client) AllJobs(ctx context.Context, query JobQuery) iter.Seq2[boxoffice.Job, error] {
	return func(yield func(boxoffice.Job, error) bool) {
		for {
			page, err := c.Jobs(ctx, query)
			if err != nil {
				yield(boxoffice.Job{}, err)
				return
			}
			for _, job := range page.Jobs {
				if !yield(job, nil) {
					return
				}
			}
			if page.Next == "" || page.Next == query.Cursor {
				return
			}
			query.Cursor = page.Next
		}
	}
}

// nextCursor returns the cursor in the link to the next page (RFC 8288). It
// ignores the rest of the link, so that requests go only to the configured service.
func nextCursor(header http.Header) (string, error) {
	for _, line := range header.Values("Link") {
		for link := range strings.SplitSeq(line, ",") {
			target, parameters, _ := strings.Cut(strings.TrimSpace(link), ";")
			if !strings.Contains(parameters, `rel="next"`) && !strings.Contains(parameters, "rel=next") {
				continue
			}
			u, err := url.Parse(strings.Trim(target, "<>"))
			if err != nil || u.Query().Get("cursor") == "" {
				return "", fmt.Errorf("the Link header has a next page without a cursor")
			}
			return u.Query().Get("cursor"), nil
		}
	}
	return "", nil
}

// Job reads a job.
func (c *Client) Job(ctx context.Context, id boxoffice.UUID) (boxoffice.Job, error) {
	return get[boxoffice.Job](ctx, c, "/jobs/"+string(id))
}

// WatchJob reads a job until it is completed or blocked, and yields it each time
// it has changed. It ends with the first error, beside the job as last read.
func (c *Client) WatchJob(ctx context.Context, id boxoffice.UUID) iter.Seq2[boxoffice.Job, error] {
	return func(yield func(boxoffice.Job, error) bool) {
		pause := backoff{next: c.retry.First, longest: c.retry.Longest}
		var last boxoffice.Job
		for {
			job, err := c.Job(ctx, id)
			if err == nil {
				ended := job.State == boxoffice.JobCompleted || job.State == boxoffice.JobBlocked
				if !reflect.DeepEqual(job, last) && !yield(job, nil) || ended {
					return
				}
				last = job
				err = sleep(ctx, pause.step())
			}
			if err != nil {
				yield(last, err)
				return
			}
		}
	}
}

// Oracle reads an oracle.
func (c *Client) Oracle(ctx context.Context, id boxoffice.UUID) (boxoffice.Oracle, error) {
	return get[boxoffice.Oracle](ctx, c, "/oracles/"+string(id))
}

// Workflow reads a workflow.
func (c *Client) Workflow(ctx context.Context, id boxoffice.UUID) (boxoffice.Workflow, error) {
	return get[boxoffice.Workflow](ctx, c, "/workflows/"+string(id))
}

// Schedule reads a schedule.
func (c *Client) Schedule(ctx context.Context, id boxoffice.UUID) (boxoffice.Schedule, error) {
	return get[boxoffice.Schedule](ctx, c, "/schedules/"+string(id))
}

func get[T any](ctx context.Context, c *Client, path string) (T, error) {
	got, err := c.do(ctx, call{method: http.MethodGet, path: path})
	if err != nil {
		var none T
		return none, err
	}
	return read[T](got)
}
