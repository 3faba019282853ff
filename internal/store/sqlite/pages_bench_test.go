package sqlite

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"boxoffice"
	"boxoffice/internal/work"
)

// BenchmarkFirstPage reads the first page of a requester's list among few jobs
// and among a million, unfiltered and by every filter. The rarest job of each
// filter is one in a thousand.
func BenchmarkFirstPage(b *testing.B) {
	for _, jobs := range []int{1_000, 1_000_000} {
		b.Run(fmt.Sprint("jobs=", jobs), func(b *testing.B) {
			store, err := Open(b.Context(), Config{Path: filepath.Join(b.TempDir(), "boxoffice.db")})
			if err != nil {
				b.Fatal(err)
			}
			defer store.Close()
			var requester boxoffice.Requester
			const order = "00000000-0000-7000-8000-000000000001"
			for _, statement := range []string{
				`INSERT INTO orders (id, requester, request_key, status, quote, input, submitted_hash, requirements, created_at)
				 VALUES ('` + order + `', '` + strings.Repeat("0", 64) + `', '` + order + `', 'quoted', '{}', '{}', '` + strings.Repeat("0", 64) + `', '{}', 1)`,
				fmt.Sprintf(`WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
				 INSERT INTO jobs (id, requester, payer, order_id, state, template, objective, launch_kind, blocked_reason, brief, created_at, updated_at)
				 SELECT printf('00000000-0000-7000-8000-%%012x', i + 2), '`+strings.Repeat("0", 64)+`', '0x`+strings.Repeat("0", 40)+`', '`+order+`',
				        CASE WHEN i %% 1000 = 7 THEN 'blocked' ELSE 'completed' END, CASE WHEN i %% 1000 IN (7, 8) THEN 'audit' ELSE 'research' END, 'look around',
				        CASE WHEN i %% 1000 = 9 THEN 'custom_token' WHEN i %% 2 = 0 OR i = 7 THEN 'evm_project' END, CASE WHEN i %% 1000 = 7 THEN 'why?' END, '{}', i, i
				 FROM n`, jobs-1),
			} {
				if _, err := store.writer.ExecContext(b.Context(), statement); err != nil {
					b.Fatal(err)
				}
			}
			for _, list := range []struct {
				name  string
				query work.JobQuery
			}{
				{"all", work.JobQuery{}},
				{"state", work.JobQuery{State: boxoffice.JobBlocked}},
				{"template", work.JobQuery{Template: "audit"}},
				{"launchKind", work.JobQuery{LaunchKind: "custom_token"}},
				{"state+launchKind", work.JobQuery{State: boxoffice.JobBlocked, LaunchKind: "evm_project"}},
				{"state+template", work.JobQuery{State: boxoffice.JobCompleted, Template: "audit"}},
			} {
				list.query.Limit = 21
				b.Run(list.name, func(b *testing.B) {
					for b.Loop() {
						if page, err := store.Jobs(b.Context(), requester, list.query); err != nil || len(page) == 0 {
							b.Fatal(len(page), err)
						}
					}
				})
			}
		})
	}
}
