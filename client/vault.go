package client

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gofrs/flock"
)

// Vault keeps the payments that a client signed, the nonces that it gave to orders
// and the request keys of the orders. Names are at most 100 letters, digits and dashes. Keep a vault secret:
// anyone can settle the payments in it.
//
// Processes that may buy with the same request key have to share a vault. Others
// may share one: payments of one vault cost less gas than those of many.
type Vault interface {
	// Get returns the data of a name. The error is fs.ErrNotExist if there is none.
	Get(ctx context.Context, name string) ([]byte, error)
	// Put replaces the data of a name. When it has returned nil, a crash does not
	// lose the data. After a crash during Put the name has its old data or the new.
	Put(ctx context.Context, name string, data []byte) error
	// Lock waits until no other caller has the lock of the name, in this process or
	// in another that shares the vault, and takes it.
	Lock(ctx context.Context, name string) (unlock func(), err error)
}

// MemoryVault is a Vault in memory. Its data ends with the process.
type MemoryVault struct {
	mu    sync.Mutex
	data  map[string][]byte
	locks map[string]chan struct{}
}

// NewMemoryVault returns an empty vault.
func NewMemoryVault() *MemoryVault {
	return &MemoryVault{data: make(map[string][]byte), locks: make(map[string]chan struct{})}
}

// Get implements Vault.
func (v *MemoryVault) Get(_ context.Context, name string) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	data, ok := v.data[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return data, nil
}

// Put implements Vault.
func (v *MemoryVault) Put(_ context.Context, name string, data []byte) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.data[name] = append([]byte(nil), data...)
	return nil
}

// Lock implements Vault.
func (v *MemoryVault) Lock(ctx context.Context, name string) (func(), error) {
	v.mu.Lock()
	lock, ok := v.locks[name]
	if !ok {
		lock = make(chan struct{}, 1)
		v.locks[name] = lock
	}
	v.mu.Unlock()
	select {
	case lock <- struct{}{}:
		return func() { <-lock }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// FileVault is a Vault in a directory that only its owner can read. Processes
// on one machine may share it.
type FileVault struct{ dir string }

const (
	lockStripes = 64
	lockPoll    = 5 * time.Millisecond
)

// OpenFileVault returns the vault in a directory, and creates the directory if it
// does not exist.
func OpenFileVault(dir string) (*FileVault, error) {
	if dir == "" {
		return nil, errors.New("vault: the name of the directory is empty")
	}
	if err := os.MkdirAll(filepath.Join(dir, "locks"), 0o700); err != nil {
		return nil, fmt.Errorf("vault: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, fmt.Errorf("vault: %w", err)
	}
	// Otherwise a crash could lose the directory.
	if err := syncDirectory(filepath.Dir(filepath.Clean(dir))); err != nil {
		return nil, fmt.Errorf("vault: %w", err)
	}
	return &FileVault{dir}, nil
}

func (v *FileVault) path(name string) string { return filepath.Join(v.dir, name+".json") }

// Get implements Vault.
func (v *FileVault) Get(_ context.Context, name string) ([]byte, error) {
	data, err := os.ReadFile(v.path(name))
	if err != nil {
		return nil, fmt.Errorf("vault: %w", err)
	}
	return data, nil
}

// Put implements Vault: it writes and syncs a new file, renames it and syncs the
// directory.
func (v *FileVault) Put(_ context.Context, name string, data []byte) (err error) {
	file, err := os.CreateTemp(v.dir, name+".*.tmp") // with mode 0600
	if err != nil {
		return fmt.Errorf("vault: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name()) // fails if it was renamed
			err = fmt.Errorf("vault: %w", err)
		}
	}()
	_, err = file.Write(data)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err = os.Rename(file.Name(), v.path(name)); err != nil {
		return err
	}
	return syncDirectory(v.dir)
}

func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	switch {
	case errors.Is(err, fs.ErrPermission): // this user may not list a directory above the vault
		return nil
	case err != nil:
		return err
	}
	// Some systems cannot sync a directory; there the rename has to be enough.
	if err := d.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrInvalid) &&
		!errors.Is(err, fs.ErrPermission) {
		return errors.Join(err, d.Close())
	}
	return d.Close()
}

// Lock implements Vault with the system's file locks, which end with the process
// that holds them. All names share a fixed number of lock files, so that old
// payments leave none behind. Names of different kinds never share one, because a
// client takes the lock of an order or of a wallet's nonces while it holds that of a
// payment.
func (v *FileVault) Lock(ctx context.Context, name string) (func(), error) {
	kind, hash := name, fnv.New32a()
	hash.Write([]byte(name))
	for i, c := range name {
		if c == '-' {
			kind = name[:i]
			break
		}
	}
	path := filepath.Join(v.dir, "locks", fmt.Sprintf("%s-%02d", kind, hash.Sum32()%lockStripes))
	lock := flock.New(path, flock.SetPermissions(0o600))
	if _, err := lock.TryLockContext(ctx, lockPoll); err != nil {
		return nil, fmt.Errorf("vault: lock: %w", err)
	}
	return func() { _ = lock.Unlock() }, nil // this closes the descriptor, which unlocks
}
