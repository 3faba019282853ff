package sqlite

import (
	"context"
	"fmt"

	"boxoffice"
	"boxoffice/internal/work"
)

const selectNode = `
	SELECT work_id, position, kind, name, template, objective, after,
	       state, attempts, failures, workers_lost, inputs_given,
	       due_at, coalesce(holder, ''), held_until, coalesce(ending_holder, ''), ending_until,
	       summary, choice, reason, started_at, ended_at
	FROM nodes `

func scanNode(from row) (node work.Node, err error) {
	err = from.Scan(
		&node.Work, &node.Position, &node.Kind, &node.ID, &node.Template, &node.Objective, document{&node.After},
		&node.State, &node.Attempts, &node.Failures, &node.WorkersLost, &node.InputsGiven,
		&node.DueAt, &node.Holder, &node.HeldUntil, &node.EndingHolder, &node.EndingUntil,
		&node.Summary, &node.Choice, &node.Reason, &node.StartedAt, &node.EndedAt)
	if node.After == nil {
		node.After = []string{} // on the wire a list, not null
	}
	return node, err
}

func nodesOf(ctx context.Context, db querier, id boxoffice.UUID) ([]work.Node, error) {
	return collect(ctx, db, scanNode, selectNode+"WHERE work_id = ? ORDER BY position", id)
}

func (t *workTx) insertNodes(ctx context.Context, nodes []work.Node) error {
	for _, node := range nodes {
		t.queued = t.queued || node.State == boxoffice.NodeQueued
		if _, err := t.tx.ExecContext(ctx, `
			INSERT INTO nodes (work_id, position, kind, name, template, objective, after,
			                   state, attempts, failures, workers_lost, inputs_given, due_at, summary, choice, reason)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			node.Work, node.Position, node.Kind, node.ID, node.Template, node.Objective, document{node.After},
			node.State, node.Attempts, node.Failures, node.WorkersLost, node.InputsGiven, node.DueAt,
			node.Summary, node.Choice, node.Reason,
		); err != nil {
			return fmt.Errorf("insert node: %w", err)
		}
	}
	return nil
}

// Change implements work.Changer. The transaction holds the write lock, so
// nothing that it has read changes before it ends.
func (t *workTx) Change(ctx context.Context, id boxoffice.UUID, decide func(work.Graph) (work.Change, error)) error {
	graph, err := queryWork(ctx, t.tx, scanGraph, selectGraph, id)
	if err != nil {
		return err
	}
	if graph.Nodes, err = nodesOf(ctx, t.tx, id); err != nil {
		return err
	}
	change, err := decide(graph)
	if err != nil {
		return err
	}
	for _, node := range change.Nodes {
		if err := t.updateNode(ctx, node); err != nil {
			return fmt.Errorf("update node: %w", err)
		}
	}
	if err := t.insertNodes(ctx, change.Members); err != nil {
		return err
	}
	if input := change.Input; input != nil {
		if _, err := t.tx.ExecContext(ctx, "INSERT INTO job_inputs (order_id, job_id, text, at) VALUES (?, ?, ?, ?)",
			input.OrderID, id, input.Text, input.At); err != nil {
			return fmt.Errorf("insert input: %w", err)
		}
	}
	if change.Record != nil {
		return t.updateRecord(ctx, graph, *change.Record)
	}
	return nil
}

const selectGraph = `
	SELECT 'job', id, state, (SELECT count(*) FROM job_inputs WHERE job_id = id), 0, NULL FROM jobs WHERE id = ?1
	UNION ALL SELECT 'oracle', id, state, 0, panel_size, options FROM oracles WHERE id = ?1`

func scanGraph(from row) (graph work.Graph, err error) {
	err = from.Scan(&graph.Kind, &graph.ID, &graph.State, &graph.Inputs, &graph.PanelSize, document{&graph.Options})
	return graph, err
}

func (t *workTx) updateNode(ctx context.Context, change work.NodeChange) error {
	from, to := change.From, change.To
	t.queued = t.queued || to.State == boxoffice.NodeQueued
	if err := moveWork(ctx, t.tx, `
		UPDATE nodes SET state = ?, attempts = ?, failures = ?, workers_lost = ?, inputs_given = ?,
		       due_at = ?, holder = ?, held_until = ?, ending_holder = ?, ending_until = ?,
		       summary = ?, choice = ?, reason = ?, log = coalesce(?, log), started_at = ?, ended_at = ?
		WHERE work_id = ? AND position = ? AND state = ? AND attempts = ? AND holder IS ?`,
		to.State, to.Attempts, to.Failures, to.WorkersLost, to.InputsGiven,
		to.DueAt, unlessEmpty(to.Holder), to.HeldUntil, unlessEmpty(to.EndingHolder), to.EndingUntil,
		to.Summary, to.Choice, to.Reason, change.Log, to.StartedAt, to.EndedAt,
		from.Work, from.Position, from.State, from.Attempts, unlessEmpty(from.Holder),
	); err != nil || !change.TaskEnded {
		return err
	}
	_, err := t.tx.ExecContext(ctx, "DELETE FROM callbacks WHERE work_id = ? AND node = ?", from.Work, from.Label())
	return err
}

func (t *workTx) updateRecord(ctx context.Context, graph work.Graph, change work.RecordChange) error {
	if graph.Kind == work.KindOracle {
		return moveWork(ctx, t.tx, `
			UPDATE oracles SET state = ?, blocked_reason = ?, answer = ?, updated_at = ? WHERE id = ? AND state = ?`,
			change.To, change.BlockedReason, document{change.Answer}, change.UpdatedAt, graph.ID, change.From)
	}
	return moveWork(ctx, t.tx, `
		UPDATE jobs SET state = ?, blocked_reason = ?, delivery = ?, updated_at = ? WHERE id = ? AND state = ?`,
		change.To, change.BlockedReason, document{change.Delivery}, change.UpdatedAt, graph.ID, change.From)
}
