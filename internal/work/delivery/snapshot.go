package delivery

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
)

// git never opens what an agent wrote, but for .gitignore files: a repository's
// configuration, its hooks, its attributes with their filters and a repository
// inside another are all ways to have git run a program. The workspace is read
// here, through an os.Root that no symbolic link leads out of, and streamed to
// git fast-import.

// An entry is a file of a workspace.
type entry struct {
	path string // slash-separated
	mode string // as git has it
	size int64
	link string // of a submodule: the commit that it names
}

const (
	modeFile    = "100644"
	modeProgram = "100755"
	modeLink    = "120000"

	modeSubmodule = "160000"

	maxPath   = 4096    // bytes
	maxIgnore = 1 << 20 // bytes of a .gitignore, which git reads
	// surveyed is how many entries for each that may be committed are looked at:
	// most of what an agent installs is ignored.
	surveyed = 20
)

// survey lists a workspace's files without following a link. What is neither a
// file, a link nor a folder is left out, and so is every .git.
func (g *Git) survey(root *os.Root) ([]entry, error) {
	var entries []entry
	seen := 0
	folders := []string{"."}
	for len(folders) > 0 {
		folder := folders[len(folders)-1]
		folders = folders[:len(folders)-1]
		err := list(root, folder, func(item fs.DirEntry) error {
			if dotGit(item.Name()) {
				return nil
			}
			name := path.Join(folder, item.Name())
			if seen++; seen > surveyed*g.config.MaxFiles {
				return failuref("the workspace holds more than %d files and folders", surveyed*g.config.MaxFiles)
			}
			if len(name) > maxPath {
				return failuref("the workspace holds a path longer than %d bytes", maxPath)
			}
			info, err := item.Info()
			if err != nil {
				return err
			}
			e := entry{path: name, size: info.Size()}
			switch mode := info.Mode(); {
			case mode.IsDir():
				folders = append(folders, name)
				return nil
			case mode.IsRegular() && mode&0o100 != 0:
				e.mode = modeProgram
			case mode.IsRegular():
				e.mode = modeFile
			case mode&fs.ModeSymlink != 0:
				e.mode = modeLink
			}
			if item.Name() == ".gitignore" && e.mode != modeLink && (e.mode == "" || e.size > maxIgnore) {
				return failuref("%q is not a file of at most %d bytes", name, maxIgnore)
			}
			if e.mode != "" {
				entries = append(entries, e)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	return entries, nil
}

func list(root *os.Root, folder string, visit func(fs.DirEntry) error) error {
	f, err := root.Open(folder)
	if err != nil {
		return unreadable(folder, err)
	}
	defer f.Close()
	for {
		items, err := f.ReadDir(512)
		for _, item := range items {
			if err := visit(item); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

func unreadable(name string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return failuref("%q may not be read", name)
	}
	return err
}

// dotGit reports whether some file system takes name for .git: by case, by the
// characters that HFS+ ignores, by its short name, or by what NTFS cuts off.
func dotGit(name string) bool {
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 0x200c && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f, r == 0xfeff:
			return -1
		}
		return r
	}, name)
	name, _, _ = strings.Cut(name, ":")
	name = strings.ToLower(strings.TrimRight(name, ". "))
	return name == ".git" || name == "git~1"
}

// keep leaves out what the workspace's .gitignore files name, unless the parent
// commit has it.
func (g *Git) keep(ctx context.Context, repo, dir string, entries []entry, had map[string]string) ([]entry, error) {
	var asked bytes.Buffer
	for _, e := range entries {
		if _, known := had[e.path]; !known {
			asked.WriteString(e.path + "\x00")
		}
	}
	if asked.Len() == 0 {
		return entries, nil
	}
	ignored := make(map[string]bool)
	var named bytes.Buffer
	_, err := g.git(ctx, call{dir: dir, repo: repo, env: []string{"GIT_WORK_TREE=" + dir}, stdin: &asked, stdout: &named},
		"check-ignore", "--no-index", "-z", "--stdin")
	if command, ok := errors.AsType[*commandError](err); ok && command.code == 1 { // none
		return entries, nil
	}
	if err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(named.String(), "\x00") {
		ignored[name] = true
	}
	return slices.DeleteFunc(entries, func(e entry) bool { return ignored[e.path] }), nil
}

// submodules keeps those of the parent commit whose folder still stands, and
// leaves out the files in them: they belong to another repository.
func submodules(root *os.Root, entries []entry, had map[string]string) []entry {
	var kept []entry
	for name, commit := range had {
		if commit == "" {
			continue
		}
		if info, err := root.Lstat(name); err != nil || !info.IsDir() {
			continue
		}
		kept = append(kept, entry{path: name, mode: modeSubmodule, link: commit})
		entries = slices.DeleteFunc(entries, func(e entry) bool { return strings.HasPrefix(e.path, name+"/") })
	}
	return append(entries, kept...)
}

// commit writes a commit of exactly the given files of root and returns its
// name. No reference leads to it yet.
func (g *Git) commit(ctx context.Context, repo, parent string, root *os.Root, entries []entry, message string, at time.Time) (string, error) {
	reader, writer := io.Pipe()
	written := make(chan error, 1)
	go func() {
		buffered := bufio.NewWriterSize(writer, 64<<10)
		err := g.stream(buffered, parent, root, entries, message, at)
		if err == nil {
			err = buffered.Flush()
		}
		writer.CloseWithError(err)
		written <- err
	}()
	name, err := g.git(ctx, call{repo: repo, stdin: reader}, "fast-import", "--quiet")
	reader.Close()
	if unwritten := <-written; unwritten != nil && !errors.Is(unwritten, io.ErrClosedPipe) {
		err = unwritten
	}
	return name, err
}

// stream writes the commit as git-fast-import(1) reads it. The branch that the
// format asks for is dropped again before the end.
func (g *Git) stream(w *bufio.Writer, parent string, root *os.Root, entries []entry, message string, at time.Time) error {
	const stage = "refs/boxoffice/stage"
	fmt.Fprintf(w, "feature done\ncommit %s\nmark :1\ncommitter %s %s\ndata %d\n%s\n", stage, g.author, seconds(at), len(message), message)
	if parent != "" {
		fmt.Fprintf(w, "from %s\n", parent)
	}
	fmt.Fprintln(w, "deleteall")
	for _, e := range entries {
		if e.mode == modeSubmodule {
			fmt.Fprintf(w, "M %s %s \"%s\"\n", e.mode, e.link, quote.Replace(e.path))
			continue
		}
		fmt.Fprintf(w, "M %s inline \"%s\"\ndata %d\n", e.mode, quote.Replace(e.path), e.size)
		if err := e.copy(w, root); err != nil {
			return err
		}
		w.WriteByte('\n')
	}
	_, err := fmt.Fprintf(w, "get-mark :1\nreset %s\nfrom %s\ndone\n", stage, strings.Repeat("0", 40))
	return err
}

var quote = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// copy writes the entry's content: e.size bytes, or an error if the workspace
// changed since it was surveyed.
func (e entry) copy(w io.Writer, root *os.Root) error {
	changed := fmt.Errorf("%q changed while it was read", e.path)
	if e.mode == modeLink {
		target, err := root.Readlink(e.path)
		if err == nil && int64(len(target)) != e.size {
			err = changed
		}
		if err == nil {
			_, err = io.WriteString(w, target)
		}
		return err
	}
	// Opening what has become a pipe must not wait for its other end.
	f, err := root.OpenFile(e.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return unreadable(e.path, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() != e.size {
		return errors.Join(changed, err)
	}
	_, err = io.CopyN(w, f, e.size)
	return err
}
