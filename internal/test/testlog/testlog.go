// Package testlog keeps what a test logs, so that the test can read it.
package testlog

import (
	"bytes"
	"sync"
)

// Log collects everything that is written to it. Many goroutines may use it. The zero Log is empty.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns everything that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
