// Package testdb gives each test a new database.
package testdb

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"boxoffice/internal/store/sqlite"
)

// Path returns the path of a new database file with the current schema. A process makes the schema once and copies the
// file then, because making it takes longer than many a test.
func Path(t testing.TB) string {
	t.Helper()
	content, err := empty()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "boxoffice.db")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

var empty = sync.OnceValues(func() (content []byte, err error) {
	dir, err := os.MkdirTemp("", "boxoffice-testdb-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "boxoffice.db")
	store, err := sqlite.Open(context.Background(), sqlite.Config{Path: path})
	if err != nil {
		return nil, err
	}
	if err := store.Close(); err != nil { // moves everything from the write-ahead log to the file
		return nil, err
	}
	return os.ReadFile(path)
})
