package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	landlock "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// The rights that Landlock controls for an agent: https://docs.kernel.org/userspace-api/landlock.html. A right that a
// ruleset handles is refused wherever no rule of the ruleset allows it.
const (
	writeFolder = landlock.AccessFSRemoveDir | landlock.AccessFSRemoveFile | landlock.AccessFSMakeChar |
		landlock.AccessFSMakeDir | landlock.AccessFSMakeReg | landlock.AccessFSMakeSock |
		landlock.AccessFSMakeFifo | landlock.AccessFSMakeBlock | landlock.AccessFSMakeSym | landlock.AccessFSRefer
	writeFile = landlock.AccessFSWriteFile
	readFile  = landlock.AccessFSReadFile
	truncate  = landlock.AccessFSTruncate
	scopes    = landlock.ScopeSignal | landlock.ScopeAbstractUnixSocket
)

// The versions of Landlock from which these rights exist. Version 1 refuses every move of a file between folders. Git
// needs such moves, so version 1 is not used.
const (
	versionRefer    = 2
	versionTruncate = 3
	versionScopes   = 6
)

// landlockVersion returns the version of Landlock that the kernel has, or 0 if it has none that can be used.
func landlockVersion() int {
	version, err := landlock.LandlockGetABIVersion()
	if err != nil || version < versionRefer {
		return 0
	}
	return version
}

// Confinement names what confines agents on this machine. It is empty if nothing does.
func Confinement() string {
	switch version := landlockVersion(); {
	case version == 0:
		return ""
	case version < versionTruncate:
		return fmt.Sprintf("landlock %d, without truncate and signals", version)
	case version < versionScopes:
		return fmt.Sprintf("landlock %d, without signals", version)
	default:
		return fmt.Sprintf("landlock %d", version)
	}
}

// devices are files that every agent may write.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// confine restricts the calling thread and every process that the thread starts later. It also gives up root's
// capabilities, because some of them override Landlock. PR_SET_NO_NEW_PRIVS prevents that a program gets them back.
func confine(writable, hidden []string) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if version := landlockVersion(); version > 0 {
		if err := restrict(version, writable, hidden); err != nil {
			return err
		}
	}
	var none [2]unix.CapUserData
	return unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0])
}

func restrict(version int, writable, hidden []string) error {
	handled := landlock.RulesetAttr{HandledAccessFS: writeFile | writeFolder}
	if version >= versionTruncate {
		handled.HandledAccessFS |= truncate
	}
	if version >= versionScopes {
		handled.Scoped = scopes
	}
	if len(hidden) > 0 {
		handled.HandledAccessFS |= readFile
	}
	fd, err := landlock.LandlockCreateRuleset(&handled, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	rules := ruleset{fd, handled.HandledAccessFS}
	for _, path := range slices.Concat(writable, devices) {
		if err := rules.allow(path, rules.handled, unix.O_PATH); err != nil {
			return err
		}
	}
	if len(hidden) > 0 {
		if err := rules.allowReading("/", resolved(hidden)); err != nil {
			return err
		}
	}
	return landlock.LandlockRestrictSelf(fd, 0)
}

// A ruleset is a Landlock ruleset that is not in force yet.
type ruleset struct {
	fd      int
	handled uint64 // the rights that are refused where no rule allows them
}

// allow allows access to a path and to everything below it. It skips a path that does not exist.
func (r ruleset) allow(path string, access uint64, flags int) error {
	file, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer unix.Close(file)
	var stat unix.Stat_t
	if err := unix.Fstat(file, &stat); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFLNK: // its target is allowed or hidden by the target's own path
		return nil
	case unix.S_IFDIR:
	default:
		access &= writeFile | readFile | truncate
	}
	rule := landlock.PathBeneathAttr{AllowedAccess: access & r.handled, ParentFd: file}
	if err := landlock.LandlockAddPathBeneathRule(r.fd, &rule, 0); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// allowReading allows reading everything below a folder except the hidden paths. Landlock has rules that allow and
// none that forbid, so this adds a rule for each entry beside a hidden path and beside each of its parents. An entry
// that is created there later has no rule and cannot be read.
func (r ruleset) allowReading(folder string, hidden []string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join(folder, entry.Name())
		switch {
		case slices.Contains(hidden, path):
		case slices.ContainsFunc(hidden, func(h string) bool { return strings.HasPrefix(h, path+"/") }):
			if err := r.allowReading(path, hidden); err != nil {
				return err
			}
		default:
			err := r.allow(path, readFile, unix.O_PATH|unix.O_NOFOLLOW)
			if err != nil && !errors.Is(err, fs.ErrPermission) {
				return err
			}
		}
	}
	return nil
}

// resolved follows the links in paths. The last element of a path need not exist.
func resolved(paths []string) (list []string) {
	for _, path := range paths {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			list = append(list, real)
		} else if folder, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
			list = append(list, filepath.Join(folder, filepath.Base(path)))
		}
	}
	return list
}
