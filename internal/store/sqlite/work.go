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
func queryWork[T any](
	ctx context.Context, db querier, scan func(row) (T, error), query string, args ...any,
) (T, error) {
	record, err := scan(db.QueryRowContext(ctx, query, args...))
	if errors.Is(err, sql.ErrNoRows) {
		err = work.ErrNotFound
	}
	return record, err
}

const selectJob = `
	SELECT j.requester, j.payer, j.order_id, j.id, j.state, j.template, j.objective,
	       j.launch_kind, j.blocked_reason, j.delivery, j.created_at, j.updated_at, j.brief,
	       j.project_id, j.project_version, (SELECT count(*) FROM jobs v WHERE v.project_id = j.project_id)
	FROM jobs j `

func scanJob(from row) (work.Job, error) {
	var (
		job     work.Job
		project *boxoffice.UUID
		version *int
		of      int
	)
	err := from.Scan(append(intoOwner(&job.Owner),
		&job.ID, &job.State, &job.Template, &job.Objective,
		&job.LaunchKind, &job.BlockedReason, document{&job.Delivery}, &job.CreatedAt, &job.UpdatedAt,
		document{&job.Brief}, &project, &version, &of)...)
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
		where = append(where, "(j.created_at, j.id) < (?, ?)")
		args = append(args, query.After.CreatedAt, query.After.ID)
	}
	statement = selectJob + "WHERE " + strings.Join(where, " AND ") + " ORDER BY j.created_at DESC, j.id DESC LIMIT ?"
	return statement, append(args, query.Limit)
}

// Job implements work.Store.
func (s *Store) Job(ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID) (job work.Job, err error) {
	err = s.view(ctx, "read job", func(tx *sql.Tx) error {
		const where = "WHERE j.id = ? AND j.requester = ?"
		if job, err = queryWork(ctx, tx, scanJob, selectJob+where, id, identity(requester)); err != nil {
			return err
		}
		nodes, err := nodesOf(ctx, tx, id)
		for _, node := range nodes {
			if node.Kind == work.NodeAgent {
				job.Nodes = append(job.Nodes, node.Node)
			}
		}
		return err
	})
	return job, err
}

// Delivered returns those of the given jobs whose work is over: it was delivered,
// or its delivery failed before the given moment.
func (s *Store) Delivered(
	ctx context.Context, jobs []boxoffice.UUID, failedBefore boxoffice.Timestamp,
) ([]boxoffice.UUID, error) {
	over, err := collect(ctx, s.readers, scanValue[boxoffice.UUID], `
		SELECT id FROM jobs WHERE id IN (SELECT value FROM json_each(?)) AND state = 'completed'
		AND (delivery ->> '$.failure' IS NULL OR updated_at < ?)`, document{jobs}, failedBefore)
	return over, named(ctx, "read delivered jobs", err)
}

const selectOracle = `
	SELECT ` + ownerColumns + `, id, state, question, panel_size,
	       options, context, blocked_reason, answer, created_at, updated_at
	FROM oracles `

func scanOracle(from row) (oracle work.Oracle, err error) {
	err = from.Scan(append(intoOwner(&oracle.Owner), &oracle.ID, &oracle.State, &oracle.Question, &oracle.PanelSize,
		document{&oracle.Options}, &oracle.Context, &oracle.BlockedReason, document{&oracle.Answer},
		&oracle.CreatedAt, &oracle.UpdatedAt)...)
	return oracle, err
}

// Oracle implements work.Store.
func (s *Store) Oracle(
	ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID,
) (oracle work.Oracle, err error) {
	err = s.view(ctx, "read oracle", func(tx *sql.Tx) error {
		const where = "WHERE id = ? AND requester = ?"
		if oracle, err = queryWork(ctx, tx, scanOracle, selectOracle+where, id, identity(requester)); err != nil {
			return err
		}
		members, err := nodesOf(ctx, tx, id)
		oracle.Tally = work.Tally(oracle.Options, members)
		for _, member := range members {
			oracle.Members = append(oracle.Members, boxoffice.Member{
				Number: member.Position + 1, State: member.State, Choice: member.Choice,
				Summary: member.Summary, Reason: member.Reason, EndedAt: member.EndedAt,
			})
		}
		return err
	})
	return oracle, err
}

// Workflow implements work.Store.
func (s *Store) Workflow(
	ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID,
) (workflow work.Workflow, err error) {
	err = s.view(ctx, "read workflow", func(tx *sql.Tx) error {
		if workflow, err = queryWork(ctx, tx, scanWorkflow, `
			SELECT w.requester, w.payer, w.order_id, w.id, j.state, w.objective, w.shape, w.nodes, w.job_id,
			       w.created_at, j.updated_at
			FROM workflows w JOIN jobs j ON j.id = w.job_id WHERE w.id = ? AND w.requester = ?`,
			id, identity(requester),
		); err != nil {
			return err
		}
		nodes, err := nodesOf(ctx, tx, workflow.JobID)
		for _, node := range nodes {
			if node.Kind == work.NodeAgent {
				step := &workflow.Nodes[node.Position]
				step.State, step.Summary, step.Reason = node.State, node.Summary, node.Reason
			}
		}
		return err
	})
	return workflow, err
}

func scanWorkflow(from row) (workflow work.Workflow, err error) {
	err = from.Scan(append(intoOwner(&workflow.Owner),
		&workflow.ID, &workflow.State, &workflow.Objective, &workflow.Shape, document{&workflow.Nodes},
		&workflow.JobID, &workflow.CreatedAt, &workflow.UpdatedAt)...)
	return workflow, err
}

// JobPayer implements action.Originals.
func (s *Store) JobPayer(
	ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID,
) (common.Address, error) {
	return s.payer(ctx, "SELECT payer FROM jobs WHERE id = ? AND requester = ?", requester, id)
}

// SchedulePayer implements action.Originals.
func (s *Store) SchedulePayer(
	ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID,
) (common.Address, error) {
	return s.payer(ctx, "SELECT payer FROM schedules WHERE id = ? AND requester = ?", requester, id)
}

func (s *Store) payer(
	ctx context.Context, query string, requester boxoffice.Requester, id boxoffice.UUID,
) (payer common.Address, err error) {
	err = s.readers.QueryRowContext(ctx, query, id, identity(requester)).Scan(intoText{&payer})
	if errors.Is(err, sql.ErrNoRows) {
		err = action.ErrNoOriginal
	}
	return payer, named(ctx, "read payer", err)
}
