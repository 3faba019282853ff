// Package sqlite stores orders, their payments and their work in one SQLite file. It
// executes state changes that order, payment and work have decided. A commit is on
// the disk before the call returns, and the schema refuses a second admission, a
// permit of two orders, a Transfer log credited twice and every state change that
// docs/states.md does not have.
//
// Several processes can use one file at the same time.
package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/gofrs/flock"
	"github.com/pressly/goose/v3"
	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"boxoffice/internal/action"
	"boxoffice/internal/crash"
	"boxoffice/internal/order"
	"boxoffice/internal/payment"
	"boxoffice/internal/work"
)

// Config says where the database is.
type Config struct {
	// Path of the database file. If the file is missing, it is created in an existing
	// directory, readable by its owner only. SQLite adds files with the suffixes -wal
	// and -shm; opening takes a lock on one with .lock.
	Path string
}

// Store is an open database. It is safe for concurrent use.
type Store struct {
	writer  *sql.DB // one connection: SQLite has one writer, and waiting for a connection ends with the context
	readers *sql.DB // read the last commit and never wait for the writer
	queued  signal  // is broadcast when a transaction of this process has queued a node
}

var (
	_ order.Store      = (*Store)(nil)
	_ payment.Store    = (*Store)(nil)
	_ payment.History  = (*Store)(nil)
	_ work.Store       = (*Store)(nil)
	_ action.Originals = (*Store)(nil)
)

//go:embed migrations/*.sql
var migrations embed.FS

// The times and sizes of a connection.
const (
	busyTimeout     = 5 * time.Second // how long a write waits for a write of another process
	openPoll        = 10 * time.Millisecond
	walLimit        = 64 << 20 // bytes to which the write-ahead log is cut after a checkpoint
	leastReaders    = 4
	privateFileMode = 0o600 // anyone who reads a payment before it is broadcast can settle it
)

// Open opens the database, creates it if it is missing, and brings its schema
// up to date. It refuses a database whose schema is newer than the program.
func Open(ctx context.Context, config Config) (*Store, error) {
	path, err := filepath.Abs(config.Path)
	if err != nil || config.Path == "" {
		return nil, fmt.Errorf("sqlite: path %q: must name a file", config.Path)
	}
	// SQLite does not wait for its own lock when it switches a file to WAL, and two
	// processes must not migrate at once. So they open the file one after the other.
	lock := flock.New(path+".lock", flock.SetPermissions(privateFileMode))
	if _, err := lock.TryLockContext(ctx, openPoll); err != nil {
		return nil, fmt.Errorf("sqlite: path: lock: %w", err)
	}
	defer lock.Close()
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, privateFileMode)
	if err != nil {
		return nil, fmt.Errorf("sqlite: path: %w", err)
	}
	file.Close()

	store := new(Store)
	if err := store.open(ctx, path); err != nil {
		return nil, errors.Join(fmt.Errorf("sqlite: open: %w", err), store.Close())
	}
	return store, nil
}

func (s *Store) open(ctx context.Context, path string) (err error) {
	if s.writer, err = connect(path, 1, url.Values{"_txlock": {"immediate"}}); err != nil {
		return err
	}
	s.readers, err = connect(path, max(leastReaders, runtime.NumCPU()), url.Values{"_query_only": {"true"}})
	if err != nil {
		return err
	}
	var mode string
	if err := s.writer.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("the file system does not support a write-ahead log: the journal mode is %s", mode)
	}
	return migrate(ctx, s.writer)
}

func connect(path string, connections int, params url.Values) (*sql.DB, error) {
	params.Set("_busy_timeout", fmt.Sprint(busyTimeout.Milliseconds()))
	params.Set("_synchronous", "FULL")
	params.Set("_foreign_keys", "true")
	params.Set("_defensive", "true")
	params.Set("_dqs", "false")
	params.Set("_pragma", fmt.Sprintf("journal_size_limit(%d)", walLimit))
	name := url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(path), RawQuery: params.Encode()}
	connector, err := driver.NewConnector(name.String())
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}

func migrate(ctx context.Context, db *sql.DB) error {
	scripts, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, scripts,
		goose.WithLogger(goose.NopLogger()), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	current, known, err := provider.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	if current > known {
		return fmt.Errorf("the schema has version %d, this program knows %d", current, known)
	}
	return nil
}

// Close closes the store. What was committed is safe without it.
func (s *Store) Close() error {
	var errs []error
	for _, db := range []*sql.DB{s.readers, s.writer} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

// Ping reports whether the database answers.
func (s *Store) Ping(ctx context.Context) error {
	var orders int
	found := s.readers.QueryRowContext(ctx, "SELECT count(*) FROM (SELECT 1 FROM orders LIMIT 1)")
	return named(ctx, "ping", found.Scan(&orders))
}

// write runs change in a transaction that has the write lock from its start, so it
// never fails because of a transaction at the same time.
func (s *Store) write(ctx context.Context, name string, change func(*sql.Tx) error) error {
	return named(ctx, name, transact(ctx, s.writer, func(tx *sql.Tx) error {
		err := change(tx)
		if err == nil {
			crash.AtCommit(name)
		}
		return err
	}))
}

// view runs several queries on one snapshot of the database.
func (s *Store) view(ctx context.Context, name string, read func(*sql.Tx) error) error {
	return named(ctx, name, transact(ctx, s.readers, read))
}

func transact(ctx context.Context, db *sql.DB, do func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after a commit
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// named adds to an error which operation failed. SQLite's messages name constraints
// and columns, never values. Below, a cancelled context appears as different errors;
// named makes all of them the error of the context.
func named(ctx context.Context, name string, err error) error {
	if err == nil {
		return nil
	}
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("sqlite: %s: %w: %w", name, cause, err)
	}
	return fmt.Errorf("sqlite: %s: %w", name, err)
}

// move is a conditional write on one row. It returns payment.ErrStale if no row
// fulfils the condition.
func move(ctx context.Context, tx *sql.Tx, statement string, args ...any) error {
	moved, err := affects(ctx, tx, statement, args...)
	if err == nil && !moved {
		return payment.ErrStale
	}
	return err
}

func affects(ctx context.Context, tx *sql.Tx, statement string, args ...any) (bool, error) {
	result, err := tx.ExecContext(ctx, statement, args...)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

// ifTaken returns outcome instead of an error that says that a row with the same
// unique values exists.
func ifTaken(err, outcome error) error {
	if failure, ok := errors.AsType[*driver.Error](err); ok {
		switch failure.Code() {
		case codes.SQLITE_CONSTRAINT_UNIQUE, codes.SQLITE_CONSTRAINT_PRIMARYKEY:
			return outcome
		}
	}
	return err
}
