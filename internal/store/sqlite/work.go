package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/ethereum/go-ethereum/common"

	"boxoffice"
	"boxoffice/internal/action"
	"boxoffice/internal/work"
)

const ownerColumns = "requester, payer, order_id"

func intoOwner(owner *work.Owner) []any {
	return []any{intoIdentity(&owner.Requester), intoText{&owner.Payer}, &owner.OrderID}
}

// queryWork reads one record of work.
func queryWork[T any](ctx context.Context, db querier, scan func(row) (T, error), query string, args ...any) (T, error) {
	record, err := scan(db.QueryRowContext(ctx, query, args...))
	if errors.Is(err, sql.ErrNoRows) {
		err = work.ErrNotFound
	}
	return record, err
}

const selectJob = `
	SELECT j.requester, j.payer, j.order_id, j.id, j.state, j.template, j.objective, j.launch_kind, j.blocked_reason, j.delivery,
	       j.created_at, j.updated_at, j.brief, j.project_id, j.project_version,
	       (SELECT count(*) FROM jobs v WHERE v.project_id = j.project_id)
	FROM jobs j `

func scanJob(from row) (work.Job, error) {
	var (
		job     work.Job
		project *boxoffice.UUID
		version *int
		of      int
	)
	err := from.Scan(append(intoOwner(&job.Owner),
		&job.ID, &job.State, &job.Template, &job.Objective, &job.LaunchKind, &job.BlockedReason, document{&job.Delivery},
		&job.CreatedAt, &job.UpdatedAt, document{&job.Brief}, &project, &version, &of)...)
	if project != nil {
		job.Project = &boxoffice.Project{ID: *project, Version: orZero(version), Of: of}
	}
	return job, err
}

// Jobs implements work.Store.
func (s *Store) Jobs(ctx context.Context, requester boxoffice.Requester, query work.JobQuery) ([]work.Job, error) {
	statement, args := selectJobs(requester, query)
	jobs, err := collect(ctx, s.readers, scanJob, statement, args...)
	return jobs, named(ctx, "read jobs", err)
}

func selectJobs(requester boxoffice.Requester, query work.JobQuery) (statement string, args []any) {
	where, args := []string{"j.requester = ?"}, []any{identity(requester)}
	filter := func(condition, value string) {
		if value != "" {
			where, args = append(where, condition), append(args, value)
		}
	}
	filter("j.state = ?", string(query.State))
	filter("j.template = ?", query.Template)
	filter("j.launch_kind = ?", query.LaunchKind)
	if query.After != nil {
		where, args = append(where, "(j.created_at, j.id) < (?, ?)"), append(args, query.After.CreatedAt, query.After.ID)
	}
	return selectJob + "WHERE " + strings.Join(where, " AND ") + " ORDER BY j.created_at DESC, j.id DESC LIMIT ?", append(args, query.Limit)
}

// Job implements work.Store.
func (s *Store) Job(ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID) (work.Job, error) {
	job, err := queryWork(ctx, s.readers, scanJob, selectJob+"WHERE j.id = ? AND j.requester = ?", id, identity(requester))
	return job, named(ctx, "read job", err)
}

// Oracle implements work.Store.
func (s *Store) Oracle(ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID) (work.Oracle, error) {
	oracle, err := queryWork(ctx, s.readers, func(from row) (oracle work.Oracle, err error) {
		err = from.Scan(append(intoOwner(&oracle.Owner), &oracle.ID, &oracle.State, &oracle.Question, &oracle.PanelSize,
			document{&oracle.Options}, &oracle.Context, &oracle.CreatedAt, &oracle.UpdatedAt)...)
		return oracle, err
	}, `SELECT `+ownerColumns+`, id, state, question, panel_size, options, context, created_at, updated_at
		FROM oracles WHERE id = ? AND requester = ?`, id, identity(requester))
	return oracle, named(ctx, "read oracle", err)
}

// Workflow implements work.Store.
func (s *Store) Workflow(ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID) (work.Workflow, error) {
	workflow, err := queryWork(ctx, s.readers, func(from row) (workflow work.Workflow, err error) {
		err = from.Scan(append(intoOwner(&workflow.Owner), &workflow.ID, &workflow.State, &workflow.Objective, &workflow.Shape,
			document{&workflow.Nodes}, &workflow.JobID, &workflow.CreatedAt, &workflow.UpdatedAt)...)
		return workflow, err
	}, `SELECT w.requester, w.payer, w.order_id, w.id, j.state, w.objective, w.shape, w.nodes, w.job_id, w.created_at, j.updated_at
		FROM workflows w JOIN jobs j ON j.id = w.job_id WHERE w.id = ? AND w.requester = ?`, id, identity(requester))
	return workflow, named(ctx, "read workflow", err)
}

// Schedule implements work.Store.
func (s *Store) Schedule(ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID) (work.Schedule, error) {
	schedule, err := queryWork(ctx, s.readers, func(from row) (schedule work.Schedule, err error) {
		var input string
		err = from.Scan(append(intoOwner(&schedule.Owner), &schedule.ID, &schedule.State, &schedule.Action, &input,
			&schedule.IntervalMinutes, &schedule.RunsBought, &schedule.RunsLeft, &schedule.NextRunAt,
			&schedule.CreatedAt, &schedule.UpdatedAt)...)
		schedule.Input = []byte(input)
		return schedule, err
	}, `SELECT `+ownerColumns+`, id, state, action, input, interval_minutes, runs_bought, runs_left, next_run_at, created_at, updated_at
		FROM schedules WHERE id = ? AND requester = ?`, id, identity(requester))
	return schedule, named(ctx, "read schedule", err)
}

// JobPayer implements action.Originals.
func (s *Store) JobPayer(ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID) (common.Address, error) {
	return s.payer(ctx, "SELECT payer FROM jobs WHERE id = ? AND requester = ?", requester, id)
}

// SchedulePayer implements action.Originals.
func (s *Store) SchedulePayer(ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID) (common.Address, error) {
	return s.payer(ctx, "SELECT payer FROM schedules WHERE id = ? AND requester = ?", requester, id)
}

func (s *Store) payer(ctx context.Context, query string, requester boxoffice.Requester, id boxoffice.UUID) (payer common.Address, err error) {
	err = s.readers.QueryRowContext(ctx, query, id, identity(requester)).Scan(intoText{&payer})
	if errors.Is(err, sql.ErrNoRows) {
		err = action.ErrNoOriginal
	}
	return payer, named(ctx, "read payer", err)
}
