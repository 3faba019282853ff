package agent

import (
	"bytes"
	"fmt"
	"io"
)

// tail keeps the end of what is written to it and counts the rest.
type tail struct {
	most    int
	kept    []byte // at most twice most, so that bytes move rarely
	dropped int64
}

// Write implements io.Writer. It never fails.
func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	if excess := n - t.most; excess > 0 {
		t.dropped += int64(len(t.kept) + excess)
		t.kept = append(t.kept[:0], p[excess:]...)
		return n, nil
	}
	t.kept = append(t.kept, p...)
	if len(t.kept) > 2*t.most {
		t.trim()
	}
	return n, nil
}

func (t *tail) trim() {
	if excess := len(t.kept) - t.most; excess > 0 {
		t.dropped += int64(excess)
		t.kept = append(t.kept[:0], t.kept[excess:]...)
	}
}

// text returns what is kept as UTF-8 without NUL, which every database accepts. If bytes were dropped, the text begins
// with a line that says so, and continues with a complete line of the agent's if it holds one.
func (t *tail) text() []byte {
	t.trim()
	kept, dropped := t.kept, t.dropped
	if dropped > 0 {
		if i := bytes.IndexByte(kept, '\n'); i >= 0 && i+1 < len(kept) {
			kept, dropped = kept[i+1:], dropped+int64(i+1)
		}
	}
	kept = bytes.ReplaceAll(bytes.ToValidUTF8(kept, []byte("�")), []byte{0}, []byte("�"))
	if dropped > 0 {
		kept = append(fmt.Appendf(nil, "[the first %d bytes were left out]\n", dropped), kept...)
	}
	return kept
}

// readMost reads all of r, at most most bytes. If r has more, it stops reading and complete is false.
func readMost(r io.Reader, most int64) (document []byte, complete bool, err error) {
	document, err = io.ReadAll(io.LimitReader(r, most+1))
	if int64(len(document)) > most {
		return nil, false, err
	}
	return document, true, err
}
