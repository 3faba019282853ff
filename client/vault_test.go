package client_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"boxoffice/client"
)

func vaults(t *testing.T) map[string][2]client.Vault { // two views of one vault
	dir := t.TempDir()
	memory := client.NewMemoryVault()
	var files [2]client.Vault
	for i := range files {
		vault, err := client.OpenFileVault(dir)
		if err != nil {
			t.Fatal(err)
		}
		files[i] = vault
	}
	return map[string][2]client.Vault{"memory": {memory, memory}, "file": files}
}

func TestVaultKeeps(t *testing.T) {
	for name, views := range vaults(t) {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			if _, err := views[0].Get(ctx, "payment-a"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("error %v of an empty vault, want fs.ErrNotExist", err)
			}
			for _, text := range []string{"one", "and a longer two", "3"} {
				if err := views[0].Put(ctx, "payment-a", []byte(text)); err != nil {
					t.Fatal(err)
				}
				if got, err := views[1].Get(ctx, "payment-a"); err != nil || string(got) != text {
					t.Errorf("got %q, %v, want %q", got, err, text)
				}
			}
		})
	}
}

// An empty name is refused, and makes no folder for locks where the program runs.
func TestVaultWithoutName(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, err := client.OpenFileVault(""); err == nil {
		t.Error("a vault without a name was opened")
	}
	if made, err := os.ReadDir("."); err != nil || len(made) > 0 {
		t.Errorf("made %v, %v", made, err)
	}
}

// Goroutines add to one number through both views. The lock keeps every addition.
func TestVaultLocks(t *testing.T) {
	for name, views := range vaults(t) {
		t.Run(name, func(t *testing.T) {
			const rounds = 20
			var group sync.WaitGroup
			for i := range rounds {
				group.Go(func() {
					vault := views[i%2]
					unlock, err := vault.Lock(t.Context(), "nonces-1")
					if err != nil {
						t.Error(err)
						return
					}
					defer unlock()
					data, _ := vault.Get(t.Context(), "nonces-1")
					n, _ := strconv.Atoi(string(data))
					if err := vault.Put(t.Context(), "nonces-1", fmt.Append(nil, n+1)); err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
			if got, err := views[0].Get(t.Context(), "nonces-1"); string(got) != strconv.Itoa(rounds) {
				t.Errorf("counted to %s, %v, want %d", got, err, rounds)
			}
		})
	}
}

func TestVaultLockEndsWithContext(t *testing.T) {
	for name, views := range vaults(t) {
		t.Run(name, func(t *testing.T) {
			unlock, err := views[0].Lock(t.Context(), "payment-a")
			if err != nil {
				t.Fatal(err)
			}
			over, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := views[1].Lock(over, "payment-a"); !errors.Is(err, context.Canceled) {
				t.Errorf("error %v, want canceled", err)
			}
			// The lock of the wallet's nonces is taken inside that of a payment.
			inner, err := views[0].Lock(t.Context(), "nonces-a")
			if err != nil {
				t.Fatal(err)
			}
			inner()
			unlock()
			if unlock, err = views[1].Lock(t.Context(), "payment-a"); err != nil {
				t.Fatal(err)
			}
			unlock()
		})
	}
}

func TestFileVaultIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "vault")
	vault, err := client.OpenFileVault(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := vault.Put(t.Context(), "payment-a", []byte("secret")); err != nil {
		t.Fatal(err)
	}
	unlock, err := vault.Lock(t.Context(), "payment-a")
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		if strings.HasSuffix(path, ".tmp") {
			t.Errorf("%s was left behind", path)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
