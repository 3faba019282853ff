package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"boxoffice"
	"boxoffice/internal/work"
)

// signal wakes all goroutines of this process that wait for it.
type signal struct {
	mu   sync.Mutex
	next chan struct{} // closed by the next broadcast
}

func (s *signal) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = make(chan struct{})
	}
	return s.next
}

func (s *signal) broadcast() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next != nil {
		close(s.next)
		s.next = nil
	}
}

// Queued returns a channel that is closed when this process next commits a node
// that is queued. It does not see what other processes queue: that takes a poll.
func (s *Store) Queued() <-chan struct{} { return s.queued.wait() }

// Update runs change in one transaction.
func (s *Store) Update(ctx context.Context, name string, change func(work.Tx) error) error {
	return s.writeWork(ctx, name, func(t *workTx) error { return change(t) })
}

// writeWork is write for transactions in which nodes may be queued.
func (s *Store) writeWork(ctx context.Context, name string, change func(*workTx) error) error {
	var t workTx
	err := s.write(ctx, name, func(tx *sql.Tx) error {
		t = workTx{tx: tx}
		return change(&t)
	})
	if err == nil && t.queued {
		s.queued.broadcast()
	}
	return err
}

// While the agent of a cancelled run may still use the workspace of a job, the
// job's other nodes wait.
const selectDueNodes = `
	SELECT work_id, position FROM nodes
	WHERE state = 'queued' AND due_at <= ?1 AND (?2 IS NULL OR template IN (SELECT value FROM json_each(?2)))
	  AND NOT EXISTS (SELECT 1 FROM nodes e WHERE e.work_id = nodes.work_id AND e.ending_until >= ?1)
	ORDER BY due_at LIMIT ?3`

func scanPlace(from row) (run work.Run, err error) {
	err = from.Scan(&run.Work, &run.Position)
	return run, err
}

// Claim gives a worker up to claim.Limit due nodes that it can run, those that
// are due longest first. start decides how each row changes; a node for which it
// returns work.ErrStale or work.ErrEnding is skipped. If a node cannot be claimed
// for another reason none is, and that node is due again a minute later.
func (s *Store) Claim(
	ctx context.Context, claim work.Claim, now boxoffice.Timestamp, start func(work.Graph, int) (work.Change, error),
) (claimed []work.Assignment, err error) {
	// Most polls find nothing, so the first look does not take the write lock.
	due, err := collect(ctx, s.readers, scanPlace, selectDueNodes, now, document{claim.Templates}, 1)
	if err != nil || len(due) == 0 {
		return nil, named(ctx, "look for due nodes", err)
	}
	var failed work.Run
	err = s.writeWork(ctx, "claim nodes", func(t *workTx) error {
		due, err := collect(ctx, t.tx, scanPlace, selectDueNodes, now, document{claim.Templates}, claim.Limit)
		if err != nil {
			return err
		}
		for _, place := range due {
			assignment, err := t.claim(ctx, place, start)
			switch {
			case err == nil:
				claimed = append(claimed, assignment)
			case !errors.Is(err, work.ErrStale) && !errors.Is(err, work.ErrEnding):
				failed = place
				return fmt.Errorf("node %d of %s: %w", place.Position, place.Work, err)
			}
		}
		return nil
	})
	switch {
	case err == nil:
		return claimed, nil
	case failed.Work != "":
		return nil, errors.Join(err, s.postpone(ctx, failed, now))
	default:
		return nil, err
	}
}

// claimAgainAfter is when a node that could not be claimed is due again.
const claimAgainAfter = boxoffice.Timestamp(time.Minute / time.Millisecond)

// postpone makes a queued node due later, so that a row that cannot be read does
// not keep workers from the nodes that are due after it.
func (s *Store) postpone(ctx context.Context, node work.Run, now boxoffice.Timestamp) error {
	_, err := s.writer.ExecContext(ctx,
		"UPDATE nodes SET due_at = ? WHERE work_id = ? AND position = ? AND state = 'queued'",
		now+claimAgainAfter, node.Work, node.Position)
	return named(ctx, "postpone node", err)
}

func (t *workTx) claim(
	ctx context.Context, place work.Run, start func(work.Graph, int) (work.Change, error),
) (assignment work.Assignment, err error) {
	var node work.Node
	if err := t.Change(ctx, place.Work, func(graph work.Graph) (work.Change, error) {
		change, err := start(graph, place.Position)
		if err == nil {
			node, assignment.Predecessors = change.Node(place.Position), graph.Predecessors(place.Position)
		}
		return change, err
	}); err != nil {
		return assignment, err
	}
	assignment.Run = work.Run{Work: node.Work, Position: node.Position, Attempt: node.Attempts}
	assignment.Node = node
	if node.Kind == work.NodeMember {
		assignment.Oracle, err = queryWork(ctx, t.tx, scanOracle, selectOracle+"WHERE id = ?", node.Work)
		return assignment, err
	}
	if assignment.Job, err = queryWork(ctx, t.tx, scanJob, selectJob+"WHERE j.id = ?", node.Work); err != nil {
		return assignment, err
	}
	assignment.Inputs, err = collect(ctx, t.tx, scanValue[string],
		"SELECT text FROM job_inputs WHERE job_id = ? ORDER BY at, order_id", node.Work)
	return assignment, err
}

func scanRun(from row) (run work.Run, err error) {
	err = from.Scan(&run.Work, &run.Position, &run.Attempt)
	return run, err
}

const renewRuns = `
	UPDATE nodes SET held_until = ? WHERE state = 'running' AND holder = ? AND (work_id, position, attempts) IN (
		SELECT value ->> 'work', value ->> 'position', value ->> 'attempt' FROM json_each(?))
	RETURNING work_id, position, attempts`

// Renew keeps those of the runs that still belong to holder until the given
// moment, and returns them.
func (s *Store) Renew(
	ctx context.Context, holder string, runs []work.Run, until boxoffice.Timestamp,
) ([]work.Run, error) {
	held, err := collect(ctx, s.writer, scanRun, renewRuns, until, holder, document{runs})
	return held, named(ctx, "renew runs", err)
}

const selectExpired = `
	SELECT work_id, position, attempts FROM nodes
	WHERE state = 'running' AND held_until < ? ORDER BY held_until LIMIT ?`

// Expired returns the runs whose holders did not renew them, oldest first.
func (s *Store) Expired(ctx context.Context, now boxoffice.Timestamp, limit int) ([]work.Run, error) {
	expired, err := collect(ctx, s.readers, scanRun, selectExpired, now, limit)
	return expired, named(ctx, "read expired runs", err)
}

// DueTemplates returns how many queued nodes are due, by template.
func (s *Store) DueTemplates(ctx context.Context, now boxoffice.Timestamp) (map[string]int, error) {
	var due map[string]int
	err := s.readers.QueryRowContext(ctx, `
		SELECT json_group_object(template, due) FROM (
			SELECT template, count(*) due FROM nodes WHERE state = 'queued' AND due_at <= ? GROUP BY template)`, now,
	).Scan(document{&due})
	return due, named(ctx, "count due nodes", err)
}
