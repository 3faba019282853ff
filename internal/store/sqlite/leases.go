package sqlite

import (
	"context"
	"database/sql"

	"boxoffice"
)

// HoldLease implements payment.Leases and engine.Store. A lease ends at until: from
// then on another holder can take it. Its holder can change until to any time.
//
// A lease that begins further in the future than it is long was taken before the
// clock was set back. Its holder may be dead, so another can take it at once.
func (s *Store) HoldLease(
	ctx context.Context, name, holder string, now, until boxoffice.Timestamp,
) (held bool, err error) {
	err = s.write(ctx, "lease", func(tx *sql.Tx) error {
		held, err = affects(ctx, tx, `
			INSERT INTO leases (name, holder, since, until) VALUES (?1, ?2, ?3, ?4)
			ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, since = excluded.since, until = excluded.until
			WHERE leases.holder = excluded.holder OR leases.until <= ?3
			   OR leases.since - (leases.until - leases.since) > ?3`,
			name, holder, now, until)
		return err
	})
	return held, err
}
