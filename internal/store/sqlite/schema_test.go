package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"boxoffice/internal/store/sqlite"
	"boxoffice/internal/test/testdb"
)

// raw opens a database without the Store, as an operator's tool would.
func raw(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path+"?_foreign_keys=true")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func must(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.Exec(statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

const (
	hex20 = "'0x00000000000000000000000000000000000000aa'"
	hex32 = "'00000000000000000000000000000000000000000000000000000000000000bb'"
	id1   = "'00000000-0000-7000-8000-000000000001'"
	id2   = "'00000000-0000-7000-8000-000000000002'"
	slot1 = "'00000000-0000-7000-8000-00000000000a'"
)

// seed makes two orders: the first has a payment that waits, the second is quoted.
func seed(t *testing.T, db *sql.DB) {
	for _, id := range []string{id1, id2} {
		must(t, db, `INSERT INTO orders
			(id, requester, request_key, status, quote, input, submitted_hash, requirements, created_at)
			VALUES (`+id+`, `+hex32+`, `+id+`, 'quoted', '{}', '{}', `+hex32+`, '{}', 1)`)
	}
	must(t, db, `INSERT INTO permits (chain_id, owner, nonce, order_id) VALUES (1, `+hex20+`, '7', `+id1+`)`)
	must(t, db, insertIntent)
	must(t, db, `UPDATE orders SET status = 'payment_pending', intent_id = `+id1+` WHERE id = `+id1)
	must(t, db, `INSERT INTO slots (id, chain_id, sender, wallet_nonce, opened_at) VALUES (`+slot1+`, 1, `+hex20+`, 0, 1)`)
	must(t, db, `INSERT INTO slot_intents (slot_id, position, intent_id) VALUES (`+slot1+`, 0, `+id1+`)`)
}

var (
	signature    = "'0x" + strings.Repeat("00", 65) + "'"
	insertIntent = `INSERT INTO intents (id, order_id, chain_id, owner, nonce, token, amount,
			payload, payload_hash, quote_signature, state, submitted_at)
		VALUES (` + id1 + `, ` + id1 + `, 1, ` + hex20 + `, '7', ` + hex20 + `, '1',
			'{}', ` + hex32 + `, ` + signature + `, 'waiting', 1)`
	anotherIntent = strings.Replace(insertIntent, "("+id1, "("+id2, 1)
	submission    = `INSERT INTO submissions (id) VALUES (` + id1 + `);
		INSERT INTO permits VALUES (1, ` + hex20 + `, '8', NULL, ` + id1 + `)`
	submitted = `INSERT INTO intents (id, order_id, submission_id, chain_id, owner, nonce, token, amount,
			payload, payload_hash, quote_signature, state, submitted_at)
		VALUES (` + id2 + `, NULL, ` + id1 + `, 1, ` + hex20 + `, '8', ` + hex20 + `, '1',
			'{}', ` + hex32 + `, NULL, 'waiting', 1)`
	slotTwo = `INSERT INTO slots VALUES (` + id2 + `, 1, ` + hex20 + `, 1, 1, NULL);
		INSERT INTO slot_intents (slot_id, position, intent_id) VALUES (` + id2 + `, 0, ` + id1 + `)`
	evidence = `tx_hash = '0x` + strings.Repeat("ab", 32) + `', log_index = 0, block_number = 1, settled_at = 1`
)

func sendIn(slot string) string { return `UPDATE intents SET state = 'sent', slot_id = ` + slot }

// TestSchemaRefuses runs statements, without the Store, that the schema must refuse.
func TestSchemaRefuses(t *testing.T) {
	settle := `UPDATE intents SET state = 'settled', ` + evidence
	pay := `UPDATE orders SET status = 'paid', paid_at = 1 WHERE id = ` + id1
	fail := `UPDATE intents SET state = 'failed', reason = 'no'`
	for name, test := range map[string]struct {
		before []string
		then   string
	}{
		"an order that begins as paid": {
			nil,
			`INSERT INTO orders SELECT ` + slot1 + `, requester, ` + slot1 + `, 'paid', quote, input,
				submitted_hash, requirements, NULL, 1, 1, NULL FROM orders LIMIT 1`,
		},
		"a second order with the same key": {
			nil,
			`INSERT INTO orders SELECT ` + slot1 + `, requester, request_key, 'quoted', quote, input,
				submitted_hash, requirements, NULL, 1, NULL, NULL FROM orders LIMIT 1`,
		},
		"an unknown status": {
			nil,
			`UPDATE orders SET status = 'expired' WHERE id = ` + id1,
		},
		"an order paid by nothing": {nil, pay},
		"a quote that changes":     {nil, `UPDATE orders SET quote = '{"v":2}'`},
		"a paid order that is pending again": {
			[]string{settle, pay},
			`UPDATE orders SET status = 'payment_pending', paid_at = NULL WHERE id = ` + id1,
		},
		"a paid order that was paid at another time": {
			[]string{settle, pay},
			`UPDATE orders SET paid_at = 2 WHERE id = ` + id1,
		},
		"a paid order with another payment": {
			[]string{
				fail, anotherIntent, settle + ` WHERE id = ` + id2,
				`UPDATE orders SET intent_id = ` + id2 + ` WHERE id = ` + id1, pay,
			},
			`UPDATE orders SET intent_id = ` + id1 + ` WHERE id = ` + id1,
		},
		"an order admitted before it is paid": {nil, `UPDATE orders SET admitted_at = 1 WHERE id = ` + id1},
		"an order admitted to nothing": {
			[]string{settle, pay},
			`UPDATE orders SET admitted_at = 1 WHERE id = ` + id1,
		},
		"an order with another's payment": {
			nil,
			`UPDATE orders SET status = 'payment_pending', intent_id = ` + id1 + ` WHERE id = ` + id2,
		},
		"a permit that moves to another order": {nil, `UPDATE permits SET order_id = ` + id2},
		"a permit with a second owner": {
			nil,
			`INSERT INTO permits VALUES (1, ` + hex20 + `, '7', ` + id2 + `, NULL)`,
		},
		"a permit in other digits": {
			nil,
			`INSERT INTO permits VALUES (1, ` + hex20 + `, '07', ` + id2 + `, NULL)`,
		},
		"a permit in other letters": {
			nil,
			`INSERT INTO permits VALUES (1, upper(` + hex20 + `), '7', ` + id2 + `, NULL)`,
		},
		"a permit that is forgotten": {
			[]string{`PRAGMA foreign_keys = OFF`},
			`DELETE FROM permits`,
		},
		"a permit of nothing": {
			nil,
			`INSERT INTO permits VALUES (1, ` + hex20 + `, '8', NULL, NULL)`,
		},
		"a permit of an order and a submission": {
			[]string{submission},
			`INSERT INTO permits VALUES (1, ` + hex20 + `, '9', ` + id2 + `, ` + id1 + `)`,
		},
		"a submission with the permit of an order": {
			[]string{submission},
			strings.Replace(submitted, "'8'", "'7'", 1),
		},
		"a second payment of a submission": {
			[]string{submission, submitted},
			strings.Replace(submitted, "("+id2, "("+slot1, 1),
		},
		"a submission with a quote approval": {
			[]string{submission},
			strings.Replace(submitted, "NULL, 'waiting'", signature+", 'waiting'", 1),
		},
		"a payment for an order and a submission": {
			[]string{submission},
			strings.Replace(submitted, "NULL, "+id1, id1+", "+id1, 1),
		},
		"a payment without a quote approval": {nil, strings.Replace(anotherIntent, signature, "NULL", 1)},
		"sent in a second slot":              {[]string{slotTwo, sendIn(slot1)}, sendIn(id2)},
		"a payment that begins as settled": {
			nil,
			strings.Replace(anotherIntent, "'waiting'", "'settled'", 1),
		},
		"a second payment that is alive":        {nil, anotherIntent},
		"a payment with another's permit":       {nil, strings.ReplaceAll(insertIntent, id1, id2)},
		"a payment that changes":                {nil, `UPDATE intents SET amount = '2'`},
		"settled without evidence":              {nil, `UPDATE intents SET state = 'settled'`},
		"settled with half of the evidence":     {nil, settle + `, block_number = NULL`},
		"failed without a reason":               {nil, `UPDATE intents SET state = 'failed'`},
		"a settled payment that fails":          {[]string{settle}, fail},
		"a settled payment with other evidence": {[]string{settle}, `UPDATE intents SET log_index = 1`},
		"a final failure that settles": {
			[]string{fail + `, final = 1`},
			settle + `, reason = NULL, final = 0`,
		},
		"a final failure that is no longer final": {
			[]string{fail + `, final = 1`},
			`UPDATE intents SET final = 0`,
		},
		"a failure that waits again": {
			[]string{fail},
			`UPDATE intents SET state = 'waiting', reason = NULL`,
		},
		"a sent payment that fails": {[]string{sendIn(slot1)}, fail + `, slot_id = NULL`},
		"sent in no slot":           {nil, `UPDATE intents SET state = 'sent'`},
		"sent in a closed slot": {
			[]string{`UPDATE slots SET closed_at = 1`},
			`UPDATE intents SET state = 'sent', slot_id = ` + slot1,
		},
		"a slot closed before its payments": {
			[]string{`UPDATE intents SET state = 'sent', slot_id = ` + slot1},
			`UPDATE slots SET closed_at = 1`,
		},
		"a slot that closes again": {
			[]string{`UPDATE slots SET closed_at = 1`},
			`UPDATE slots SET closed_at = 2`,
		},
		"evidence of what is not settled": {nil, `UPDATE intents SET ` + evidence},
		"a second slot of a nonce": {
			nil,
			`INSERT INTO slots SELECT ` + id2 + `, chain_id, sender, wallet_nonce, 1, NULL FROM slots`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := raw(t, testdb.Path(t))
			db.SetMaxOpenConns(1)
			seed(t, db)
			for _, statement := range test.before {
				must(t, db, statement)
			}
			_, err := db.Exec(test.then)
			if err == nil {
				t.Fatal("it was done")
			}
			if !strings.Contains(err.Error(), "constraint failed") {
				t.Errorf("refused for another reason: %v", err)
			}
		})
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "boxoffice.db")
	store := open(t, path)
	db := raw(t, path)
	must(t, db, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)`)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err == nil || !strings.Contains(err.Error(), "9999") {
		t.Errorf("a database of version 9999 opened: %v", err)
	}
}
