package delivery

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
	"unicode"
)

// commit writes a commit that holds exactly the given files of root, and returns its name. No reference names it yet.
func (g *Git) commit(
	ctx context.Context, repo, parent string, root *os.Root, entries []entry, message string, at time.Time,
) (string, error) {
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

// stream writes the commit in the format of git-fast-import(1). The format needs a branch, which stream removes again.
func (g *Git) stream(
	w *bufio.Writer, parent string, root *os.Root, entries []entry, message string, at time.Time,
) error {
	const stage = "refs/boxoffice/stage"
	fmt.Fprintf(w, "feature done\ncommit %s\nmark :1\ncommitter %s %d +0000\ndata %d\n%s\n",
		stage, g.author, at.Unix(), len(message), message)
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

// copy writes the entry's content, which is e.size bytes. It fails if the file changed after the survey.
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
	// If the file became a pipe, O_NONBLOCK opens it without waiting for a writer.
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

// maxTitle is how many characters the subject of a commit has at most.
const maxTitle = 72

// title makes the subject of a commit from the first line of an objective.
func title(objective string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(objective), "\n")
	line = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(line, "\uFFFD"))
	runes := []rune(strings.TrimSpace(line))
	if len(runes) > maxTitle {
		return strings.TrimSpace(string(runes[:maxTitle-1])) + "…"
	}
	return cmp.Or(string(runes), "Work")
}
