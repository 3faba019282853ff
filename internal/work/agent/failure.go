package agent

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Kind names how an agent failed.
type Kind string

// The kinds of failure.
const (
	NotStarted    Kind = "not_started"   // no such program, not permitted, …
	Exited        Kind = "exited"        // with a code that is not 0
	Signaled      Kind = "signaled"      // killed by a signal that the service did not send
	TimedOut      Kind = "timed_out"     // no result in time
	OutOfMemory   Kind = "out_of_memory" // its processes together held more than MaxMemory
	TooMuchOutput Kind = "too_much_output"
	BadResult     Kind = "bad_result"  // no result, no JSON, or not what the contract says
	Unreachable   Kind = "unreachable" // over HTTP: no response
	BadStatus     Kind = "bad_status"  // over HTTP: a status that is not 200, nor 202 with a callback
)

// Failure says how an agent failed. Its text is for the operator: it may hold the last line of the agent's log.
type Failure struct {
	Kind       Kind
	Code       int           // the exit code, the signal or the HTTP status
	Detail     string        // one line
	Retryable  bool          // whether another run of the same task may succeed
	RetryAfter time.Duration // the wait that an HTTP agent asked for, or 0
}

func (f *Failure) Error() string {
	var text string
	switch f.Kind {
	case NotStarted:
		text = "the agent could not be started"
	case Exited:
		text = fmt.Sprintf("the agent ended with exit code %d", f.Code)
	case Signaled:
		text = "the agent was killed"
	case TimedOut:
		text = "the agent did not answer in time"
	case OutOfMemory:
		text = "the agent took too much memory"
	case TooMuchOutput:
		text = "the agent wrote too much"
	case BadResult:
		text = "the agent returned no valid result"
	case Unreachable:
		text = "the agent could not be reached"
	case BadStatus:
		text = fmt.Sprintf("the agent answered with HTTP status %d", f.Code)
	default:
		text = "the agent failed"
	}
	return join(text, f.Detail)
}

func join(text, detail string) string {
	if detail == "" {
		return text
	}
	return text + ": " + detail
}

// finalExitCodes are exit codes that say that another run fails in the same way: EX_USAGE and EX_CONFIG of sysexits.h,
// and the shell's codes for a command that it cannot run or cannot find.
var finalExitCodes = map[int]bool{64: true, 78: true, 126: true, 127: true}

// lastLine returns the last line of a text, at most maxLine characters of it.
func lastLine(text string) string {
	const maxLine = 300
	text = strings.TrimSpace(text)
	if i := strings.LastIndexAny(text, "\r\n"); i >= 0 {
		text = text[i+1:]
	}
	if utf8.RuneCountInString(text) > maxLine {
		text = string([]rune(text)[:maxLine]) + "…"
	}
	return text
}
