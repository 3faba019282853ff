// Package workspace removes folders in which an agent wrote.
package workspace

import (
	"io/fs"
	"os"
	"path/filepath"
)

// Remove removes a folder and all that is in it. An agent may have taken its own
// permissions away; it gives them back first. It follows no link.
func Remove(path string) error {
	if os.RemoveAll(path) == nil {
		return nil
	}
	filepath.WalkDir(path, func(path string, entry fs.DirEntry, _ error) error {
		if entry != nil && entry.IsDir() {
			os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(path)
}
