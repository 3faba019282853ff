package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"boxoffice"
	"boxoffice/internal/payment"
	"boxoffice/internal/work"
)

const selectNode = `
	SELECT work_id, position, kind, name, template, objective, after, state, attempt, failures, summary, choice, reason,
	       started_at, ended_at
	FROM nodes `

func scanNode(from row) (node work.Node, err error) {
	err = from.Scan(&node.Work, &node.Position, &node.Kind, &node.ID, &node.Template, &node.Objective, document{&node.After},
		&node.State, &node.Attempts, &node.Failures, &node.Summary, &node.Choice, &node.Reason, &node.StartedAt, &node.EndedAt)
	if node.After == nil {
		node.After = []string{} // on the wire a list, not null
	}
	return node, err
}

func nodesOf(ctx context.Context, db querier, id boxoffice.UUID) ([]work.Node, error) {
	return collect(ctx, db, scanNode, selectNode+"WHERE work_id = ? ORDER BY position", id)
}

func isStale(err error) bool { return errors.Is(err, payment.ErrStale) || errors.Is(err, work.ErrLost) }

// take is a conditional write on a node. It returns work.ErrLost if the node is
// not where the write needs it.
func take(ctx context.Context, tx *sql.Tx, statement string, args ...any) error {
	taken, err := affects(ctx, tx, statement, args...)
	if err == nil && !taken {
		return work.ErrLost
	}
	return err
}

func (t workTx) insertNodes(ctx context.Context, nodes []work.Node, now boxoffice.Timestamp) error {
	for _, node := range nodes {
		var due *boxoffice.Timestamp
		if node.State == boxoffice.NodeQueued {
			due = &now
		}
		if _, err := t.tx.ExecContext(ctx, `
			INSERT INTO nodes (work_id, position, kind, name, template, objective, after, state, due_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			node.Work, node.Position, node.Kind, node.ID, node.Template, node.Objective, document{node.After}, node.State, due,
		); err != nil {
			return fmt.Errorf("insert node: %w", err)
		}
		if node.State == boxoffice.NodeQueued {
			if err := t.enqueue(ctx, node, now, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// requeue queues a node that waits, is blocked, has failed or is done.
func (t workTx) requeue(ctx context.Context, node work.Node, now boxoffice.Timestamp) error {
	if err := take(ctx, t.tx, `
		UPDATE nodes SET state = 'queued', due_at = ?, failures = 0, losses = 0, reason = ''
		WHERE work_id = ? AND position = ? AND attempt = ? AND state = ?`,
		now, node.Work, node.Position, node.Attempts, node.State,
	); err != nil {
		return err
	}
	return t.enqueue(ctx, node, now, 0)
}

// Claim takes a queued run for holder, who has to renew its hold before until,
// and returns what the run needs to know. It returns work.ErrLost if the run is
// not the node's next one, work.ErrLeaving if a run of the same work that was
// cancelled may not have ended yet, and the error of able, if that is not nil and
// has one for the node. Then nothing was taken.
func (s *Store) Claim(ctx context.Context, run work.Run, holder string, until, now boxoffice.Timestamp, able func(work.Node) error) (assignment work.Assignment, err error) {
	err = s.write(ctx, "claim run", func(tx *sql.Tx) error {
		var leaving bool
		if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM nodes WHERE work_id = ? AND leaving_until >= ?)", run.Work, now).
			Scan(&leaving); err != nil {
			return err
		}
		if leaving {
			return work.ErrLeaving
		}
		if err := take(ctx, tx, `
			UPDATE nodes SET state = 'running', attempt = attempt + 1, holder = ?, held_until = ?, due_at = NULL, queue_id = NULL,
			       started_at = ?, ended_at = NULL, seen = (SELECT count(*) FROM job_answers WHERE job_id = work_id)
			WHERE work_id = ? AND position = ? AND state = 'queued' AND attempt = ? - 1`,
			holder, until, now, run.Work, run.Position, run.Attempt,
		); err != nil {
			return err
		}
		for _, table := range []string{"jobs", "oracles"} {
			if _, err := tx.ExecContext(ctx, `
				UPDATE `+table+` SET state = 'running', updated_at = ? WHERE id = ? AND state = 'queued'`, now, run.Work); err != nil {
				return err
			}
		}
		if assignment, err = assign(ctx, tx, run); err == nil && able != nil {
			err = able(assignment.Node)
		}
		return err
	})
	return assignment, err
}

func assign(ctx context.Context, tx *sql.Tx, run work.Run) (work.Assignment, error) {
	assignment := work.Assignment{Run: run}
	nodes, err := nodesOf(ctx, tx, run.Work)
	if err != nil {
		return assignment, err
	}
	assignment.Node = nodes[run.Position]
	for _, name := range assignment.Node.After {
		i := slices.IndexFunc(nodes, func(node work.Node) bool { return node.ID == name && node.Kind == work.NodeAgent })
		if i >= 0 {
			assignment.Predecessors = append(assignment.Predecessors, nodes[i])
		}
	}
	if assignment.Node.Kind == work.NodeMember {
		assignment.Oracle, err = queryWork(ctx, tx, scanOracle, selectOracle+"WHERE id = ?", run.Work)
		return assignment, err
	}
	if assignment.Job, err = queryWork(ctx, tx, scanJob, selectJob+"WHERE j.id = ?", run.Work); err != nil {
		return assignment, err
	}
	assignment.Answers, err = collect(ctx, tx, func(from row) (answer string, err error) {
		err = from.Scan(&answer)
		return answer, err
	}, "SELECT text FROM job_answers WHERE job_id = ? ORDER BY at, order_id", run.Work)
	return assignment, err
}

// Left says that a run of holder that was cancelled has ended: others may run
// where it ran.
func (s *Store) Left(ctx context.Context, run work.Run, holder string) error {
	_, err := s.writer.ExecContext(ctx, `
		UPDATE nodes SET leaving = NULL, leaving_until = NULL WHERE work_id = ? AND position = ? AND leaving = ?`,
		run.Work, run.Position, holder)
	return named(ctx, "leave run", err)
}

// Renew keeps every run of holder until the given moment, and returns them.
func (s *Store) Renew(ctx context.Context, holder string, until boxoffice.Timestamp) (held []work.Run, err error) {
	held, err = collect(ctx, s.writer, func(from row) (run work.Run, err error) {
		err = from.Scan(&run.Work, &run.Position, &run.Attempt)
		return run, err
	}, `UPDATE nodes SET held_until = ? WHERE holder = ? AND state = 'running' RETURNING work_id, position, attempt`, until, holder)
	return held, named(ctx, "renew runs", err)
}

const selectLapsed = `
	SELECT work_id, position, attempt, holder, losses FROM nodes WHERE state = 'running' AND held_until < ? ORDER BY held_until LIMIT ?`

// Lapsed returns the runs whose holder has not renewed them, oldest first.
func (s *Store) Lapsed(ctx context.Context, now boxoffice.Timestamp, limit int) ([]work.Held, error) {
	lapsed, err := collect(ctx, s.readers, func(from row) (held work.Held, err error) {
		err = from.Scan(&held.Work, &held.Position, &held.Attempt, &held.Holder, &held.Losses)
		return held, err
	}, selectLapsed, now, limit)
	return lapsed, named(ctx, "read lapsed runs", err)
}

// Finish saves what a run came to and, in the same transaction, everything that
// follows from it: the nodes that can run now, the state of the job or oracle,
// its answer or its delivery. It returns work.ErrLost, and changes nothing, if
// the run is not holder's any more, or, of a result that says that it lapsed, if
// it was renewed.
func (s *Store) Finish(ctx context.Context, run work.Run, holder string, result work.Result, now boxoffice.Timestamp) error {
	return s.write(ctx, "finish run", func(tx *sql.Tx) (err error) {
		fresh := false // the node is begun anew, for an input that it was not told
		state, failed, lost, due := boxoffice.NodeQueued, 0, 0, (*boxoffice.Timestamp)(nil)
		switch result.Verdict {
		case work.Done:
			state = boxoffice.NodeDone
		case work.Failed, work.Blocked:
			if fresh, err = unseen(ctx, tx, run.Work, run.Position); err != nil {
				return err
			}
			switch {
			case fresh: // the input that it needs may be there already
			case result.Verdict == work.Failed:
				state = boxoffice.NodeFailed
			default:
				state = boxoffice.NodeBlocked
			}
		case work.Again:
			failed = 1
		case work.Lost:
			lost = 1
		}
		if state == boxoffice.NodeQueued {
			due = &now
		}
		if err := take(ctx, tx, `
			UPDATE nodes SET state = ?1, holder = NULL, held_until = NULL, due_at = ?2, ended_at = ?5,
			       failures = iif(?14, 0, failures + ?3), losses = iif(?14, 0, losses + ?4),
			       summary = ?6, choice = ?7, reason = ?8, log = ?9
			WHERE work_id = ?10 AND position = ?11 AND attempt = ?12 AND holder = ?13 AND state = 'running' AND (held_until < ?5 OR NOT ?15)`,
			state, due, failed, lost, now, result.Summary, result.Choice, result.Reason, result.Log,
			run.Work, run.Position, run.Attempt, holder, fresh, result.Lapsed,
		); err != nil {
			return err
		}
		t := workTx{tx, s.queue}
		nodes, err := nodesOf(ctx, tx, run.Work)
		if err != nil {
			return err
		}
		node := nodes[run.Position]
		if result.Verdict != work.Abandoned && result.Verdict != work.Lost { // these are asked the same again
			if err := emptied(ctx, tx, run.Work, node.Label()); err != nil {
				return err
			}
		}
		if state == boxoffice.NodeQueued {
			if err := t.enqueue(ctx, node, now, result.After); err != nil {
				return err
			}
		}
		if node.Kind == work.NodeMember {
			return t.advanceOracle(ctx, run.Work, nodes, now)
		}
		return t.advanceJob(ctx, run.Work, nodes, result.Delivery, now)
	})
}

// unseen reports whether the requester gave an input that the last runs of the
// node at a position, or of all nodes for a negative one, were not told.
func unseen(ctx context.Context, tx *sql.Tx, job boxoffice.UUID, position int) (unseen bool, err error) {
	err = tx.QueryRowContext(ctx, `
		SELECT coalesce((SELECT count(*) FROM job_answers WHERE job_id = ?1) >
		       (SELECT max(seen) FROM nodes WHERE work_id = ?1 AND kind = 'agent' AND (position = ?2 OR ?2 < 0)), false)`, job, position).Scan(&unseen)
	return unseen, err
}

func (t workTx) advanceJob(ctx context.Context, id boxoffice.UUID, nodes []work.Node, delivery *boxoffice.Delivery, now boxoffice.Timestamp) error {
	more, err := unseen(ctx, t.tx, id, -1)
	if err != nil {
		return err
	}
	step := work.Advance(nodes, more)
	if step.Reopened {
		if _, err := t.tx.ExecContext(ctx, `
			UPDATE nodes SET state = 'waiting' WHERE work_id = ? AND kind = 'delivery' AND state IN ('done', 'failed')`, id); err != nil {
			return err
		}
	}
	for _, node := range step.Queue {
		if err := t.requeue(ctx, node, now); err != nil {
			return err
		}
	}
	state, reason := boxoffice.JobRunning, (*string)(nil)
	switch {
	case step.Completed:
		state = boxoffice.JobCompleted
	case !step.Busy:
		state, reason = boxoffice.JobBlocked, &step.BlockedReason
	}
	if state != boxoffice.JobCompleted {
		delivery = nil
	}
	return take(ctx, t.tx, `
		UPDATE jobs SET state = ?, blocked_reason = ?, delivery = ?, updated_at = ? WHERE id = ? AND state = 'running'`,
		state, reason, document{delivery}, now, id)
}

func (t workTx) advanceOracle(ctx context.Context, id boxoffice.UUID, members []work.Node, now boxoffice.Timestamp) error {
	var size int
	var options []string
	if err := t.tx.QueryRowContext(ctx, "SELECT panel_size, options FROM oracles WHERE id = ?", id).Scan(&size, document{&options}); err != nil {
		return err
	}
	step := work.AdvancePanel(size, options, members)
	for i := range step.Replacements {
		if err := t.insertNodes(ctx, []work.Node{work.NewMember(id, len(members)+i)}, now); err != nil {
			return err
		}
	}
	state := boxoffice.JobRunning
	switch {
	case step.Answer != nil:
		state = boxoffice.JobCompleted
	case step.BlockedReason != "":
		state = boxoffice.JobBlocked
	}
	return take(ctx, t.tx, `
		UPDATE oracles SET state = ?, blocked_reason = ?, answer = ?, updated_at = ? WHERE id = ? AND state = 'running'`,
		state, unlessEmpty(step.BlockedReason), document{step.Answer}, now, id)
}
