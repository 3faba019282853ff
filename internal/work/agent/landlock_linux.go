package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What Landlock watches over: https://docs.kernel.org/userspace-api/landlock.html.
const (
	writeFile   = unix.LANDLOCK_ACCESS_FS_WRITE_FILE
	writeFolder = unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER
	readFile = unix.LANDLOCK_ACCESS_FS_READ_FILE
)

// The first versions of its interface that have what the name says. Before
// version 2 files can't be moved between folders at all, which git needs.
const (
	abiUsable   = 2
	abiTruncate = 3
	abiScopes   = 6
)

func landlock() int {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(abi)
}

// Confinement names what confines agents on this machine, "" if nothing does.
func Confinement() string {
	switch abi := landlock(); {
	case abi < abiUsable:
		return ""
	case abi < abiTruncate:
		return fmt.Sprintf("landlock %d, without truncate and signals", abi)
	case abi < abiScopes:
		return fmt.Sprintf("landlock %d, without signals", abi)
	default:
		return fmt.Sprintf("landlock %d", abi)
	}
}

// devices may be written everywhere.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// confine puts walls around the calling thread and all that it starts. It also
// gives up root's capabilities, which see over some of the walls and which, after
// PR_SET_NO_NEW_PRIVS, no program gets back.
func confine(writable, hidden []string) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := wall(writable, hidden); err != nil {
		return err
	}
	var none [2]unix.CapUserData
	return unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0])
}

func wall(writable, hidden []string) error {
	abi := landlock()
	if abi < abiUsable {
		return nil
	}
	rules, err := newRuleset(abi, len(hidden) > 0)
	if err != nil {
		return err
	}
	defer unix.Close(rules.fd)
	for _, path := range append(slices.Clone(writable), devices...) {
		if err := rules.allow(path, rules.handled, unix.O_PATH); err != nil {
			return err
		}
	}
	if len(hidden) > 0 {
		if err := rules.allowReading("/", resolved(hidden)); err != nil {
			return err
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(rules.fd), 0, 0); errno != 0 {
		return errno
	}
	return nil
}

type ruleset struct {
	fd      int
	handled uint64 // what is refused where no rule allows it
}

func newRuleset(abi int, reading bool) (ruleset, error) {
	attributes := unix.LandlockRulesetAttr{Handled_access_fs: writeFile | writeFolder}
	if abi >= abiTruncate {
		attributes.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if reading {
		attributes.Handled_access_fs |= readFile
	}
	size := unsafe.Sizeof(attributes.Handled_access_fs)
	if abi >= abiScopes {
		attributes.Scoped = unix.LANDLOCK_SCOPE_SIGNAL | unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
		size = unsafe.Offsetof(attributes.Scoped) + unsafe.Sizeof(attributes.Scoped)
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attributes)), size, 0)
	if errno != 0 {
		return ruleset{}, errno
	}
	return ruleset{int(fd), attributes.Handled_access_fs}, nil
}

// allow allows access at and below a path. A path that does not exist is left
// out: nothing is there to be allowed.
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
	case unix.S_IFLNK: // what it leads to has a path of its own
		return nil
	case unix.S_IFDIR:
	default:
		access &= writeFile | readFile | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	beneath := unix.LandlockPathBeneathAttr{Allowed_access: access & r.handled, Parent_fd: int32(file)}
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(r.fd), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&beneath)), 0, 0, 0); errno != 0 {
		return fmt.Errorf("%s: %w", path, errno)
	}
	return nil
}

// allowReading allows reading below folder, except what is hidden. Landlock can
// only allow, so this allows all that stands beside a hidden path and its
// parents. What appears there later is hidden too.
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

// resolved follows the links of paths, whose last name need not exist yet.
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
