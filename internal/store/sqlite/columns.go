package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding"
	"encoding/json"
	"fmt"

	"boxoffice"
)

// querier is a database or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// row is a *sql.Row, or *sql.Rows at its current row.
type row interface{ Scan(dest ...any) error }

// collect reads every row of a query.
func collect[T any](
	ctx context.Context, db querier, scan func(row) (T, error), query string, args ...any,
) ([]T, error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []T
	for rows.Next() {
		item, err := scan(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, item)
	}
	return list, rows.Err()
}

// scanValue reads a row of one column.
func scanValue[T any](from row) (value T, err error) {
	err = from.Scan(&value)
	return value, err
}

// text stores a value as the text that it has in JSON.
type text struct{ encoding.TextMarshaler }

func (t text) Value() (driver.Value, error) {
	written, err := t.MarshalText()
	return string(written), err
}

// intoText reads what text stored. NULL does not change the destination.
type intoText struct{ encoding.TextUnmarshaler }

func (t intoText) Scan(src any) error {
	switch src := src.(type) {
	case nil:
		return nil
	case string:
		return t.UnmarshalText([]byte(src))
	default:
		return fmt.Errorf("column holds %T, not text", src)
	}
}

// document stores a value as JSON, and JSON null as NULL.
type document struct{ value any }

func (d document) Value() (driver.Value, error) {
	written, err := json.Marshal(d.value)
	if err != nil || string(written) == "null" {
		return nil, err
	}
	return string(written), nil
}

// Scan reads JSON into the value, which has to be a pointer. NULL does not change it.
func (d document) Scan(src any) error {
	switch src := src.(type) {
	case nil:
		return nil
	case string:
		return json.Unmarshal([]byte(src), d.value)
	default:
		return fmt.Errorf("column holds %T, not text", src)
	}
}

// identity stores a requester as lowercase hex.
func identity(requester boxoffice.Requester) text { return text{boxoffice.Hash(requester)} }

func intoIdentity(requester *boxoffice.Requester) intoText {
	return intoText{(*boxoffice.Hash)(requester)}
}

// unlessEmpty stores an empty string as NULL.
func unlessEmpty[S ~string](s S) *S {
	if s == "" {
		return nil
	}
	return &s
}

// orZero returns the value that p points to, the zero value for nil.
func orZero[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}
