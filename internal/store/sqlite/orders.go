package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"boxoffice"
	"boxoffice/internal/order"
	"boxoffice/internal/payment"
	"boxoffice/internal/work"
)

const selectOrder = `
	SELECT o.id, o.requester, o.request_key, o.status, o.quote, o.input, o.submitted_hash, o.requirements,
	       o.created_at, o.paid_at, o.admitted_at, a.kind, a.work_id, a.job_id, ` + intentColumns + `
	FROM orders o
	LEFT JOIN intents i ON i.id = o.intent_id
	LEFT JOIN admissions a ON a.order_id = o.id `

func scanOrder(from row) (order.Record, error) {
	var (
		record     order.Record
		admittedAt *boxoffice.Timestamp
		kind       *string
		workID     *boxoffice.UUID
		jobID      *boxoffice.UUID
		last       intentRow
	)
	err := from.Scan(append([]any{
		&record.ID, intoIdentity(&record.Requester), &record.RequestKey, &record.Status, document{&record.Quote},
		&record.InputJSON, intoText{&record.SubmittedHash}, document{&record.Requirements},
		&record.CreatedAt, &record.PaidAt, &admittedAt, &kind, &workID, &jobID,
	}, last.columns()...)...)
	if err != nil {
		return order.Record{}, err
	}
	if admittedAt != nil {
		record.Admission = &order.Admission{
			AdmittedAt: *admittedAt,
			Opened:     work.Opened{Kind: orZero(kind), ID: orZero(workID), JobID: orZero(jobID)},
		}
	}
	if last.id != nil {
		intent, err := last.intent()
		if err != nil {
			return order.Record{}, err
		}
		record.Payment = &intent
	}
	return record, nil
}

func queryOrder(ctx context.Context, db querier, where string, args ...any) (order.Record, error) {
	record, err := scanOrder(db.QueryRowContext(ctx, selectOrder+where, args...))
	if errors.Is(err, sql.ErrNoRows) {
		return order.Record{}, order.ErrNotFound
	}
	return record, err
}

const orderByKey = "WHERE o.requester = ? AND o.request_key = ?"

// Create implements order.Store.
func (s *Store) Create(ctx context.Context, record order.Record) (saved order.Record, created bool, err error) {
	err = s.write(ctx, "create order", func(tx *sql.Tx) error {
		created, err = affects(ctx, tx, `
			INSERT INTO orders (id, requester, request_key, status, quote, input, submitted_hash, requirements, created_at)
			VALUES (?, ?, ?, 'quoted', ?, ?, ?, ?, ?)
			ON CONFLICT (requester, request_key) DO NOTHING`,
			record.ID, identity(record.Requester), record.RequestKey, document{record.Quote}, record.InputJSON,
			text{record.SubmittedHash}, document{record.Requirements}, record.CreatedAt)
		if err != nil {
			return err
		}
		saved, err = queryOrder(ctx, tx, orderByKey, identity(record.Requester), record.RequestKey)
		return err
	})
	if err != nil {
		return order.Record{}, false, err
	}
	return saved, created, nil
}

// Order implements order.Store.
func (s *Store) Order(ctx context.Context, requester boxoffice.Requester, id boxoffice.UUID) (order.Record, error) {
	record, err := queryOrder(ctx, s.readers, "WHERE o.id = ? AND o.requester = ?", id, identity(requester))
	return record, named(ctx, "read order", err)
}

// OrderByKey implements order.Store.
func (s *Store) OrderByKey(
	ctx context.Context, requester boxoffice.Requester, requestKey boxoffice.UUID,
) (order.Record, error) {
	record, err := queryOrder(ctx, s.readers, orderByKey, identity(requester), requestKey)
	return record, named(ctx, "read order by key", err)
}

// BeginPayment implements order.Store.
func (s *Store) BeginPayment(ctx context.Context, intent payment.Intent, change order.Change) error {
	return s.write(ctx, "begin payment", func(tx *sql.Tx) error {
		if err := changeOrder(ctx, tx, change); err != nil {
			return err
		}
		// After a failed payment the permit may belong to this order already.
		ours, err := affects(ctx, tx, `
			INSERT INTO permits (chain_id, owner, nonce, order_id) VALUES (?, ?, ?, ?)
			ON CONFLICT (chain_id, owner, nonce) DO UPDATE SET order_id = order_id WHERE order_id = excluded.order_id`,
			intent.ChainID, text{intent.Permit.From}, text{intent.Permit.Nonce}, intent.OrderID)
		if err != nil {
			return err
		}
		if !ours {
			return order.ErrPermitTaken
		}
		return insertIntent(ctx, tx, intent)
	})
}

// changeOrder executes one conditional write on an order.
func changeOrder(ctx context.Context, tx *sql.Tx, change order.Change) error {
	from, to := change.From, change.To
	return move(ctx, tx, `
		UPDATE orders SET (status, intent_id, paid_at, admitted_at) = (?, ?, ?, ?)
		WHERE id = ? AND (status, intent_id, paid_at, admitted_at) IS (?, ?, ?, ?)`,
		to.Status, to.IntentID, to.PaidAt, to.AdmittedAt, change.OrderID,
		from.Status, from.IntentID, from.PaidAt, from.AdmittedAt)
}

const selectUnadmitted = selectOrder + `
	WHERE o.status = 'paid' AND o.admitted_at IS NULL
	ORDER BY o.paid_at, o.id LIMIT ?`

// Unadmitted implements order.Store.
func (s *Store) Unadmitted(ctx context.Context, limit int) ([]order.Record, error) {
	records, err := collect(ctx, s.readers, scanOrder, selectUnadmitted, limit)
	return records, named(ctx, "read unadmitted orders", err)
}

// Admit implements order.Store. It calls open at most once.
func (s *Store) Admit(ctx context.Context, change order.Change, open func(work.Tx) (work.Opened, error)) error {
	return s.writeWork(ctx, "admit", func(t *workTx) error {
		if err := changeOrder(ctx, t.tx, change); err != nil {
			return err
		}
		opened, err := open(t)
		if err != nil {
			return fmt.Errorf("open: %w", err)
		}
		_, err = t.tx.ExecContext(ctx, `
			INSERT INTO admissions (order_id, admitted_at, kind, work_id, job_id) VALUES (?, ?, ?, ?, ?)`,
			change.OrderID, change.To.AdmittedAt, opened.Kind, opened.ID, unlessEmpty(opened.JobID))
		return err
	})
}
