package agent

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Kind names how an agent failed.
type Kind string

// The kinds of failure.
const (
	NotStarted  Kind = "not_started" // no such program, not permitted, …
	Exited      Kind = "exited"      // with a code that is not 0
	Signaled    Kind = "signaled"    // killed, and not by us
	TimedOut    Kind = "timed_out"
	OutOfMemory Kind = "out_of_memory" // its processes together took more than they may
	TooMuch     Kind = "too_much_output"
	BadAnswer   Kind = "bad_answer"  // nothing, not JSON, or not what the contract says
	Unreachable Kind = "unreachable" // over HTTP: no response
	BadStatus   Kind = "bad_status"  // over HTTP: a response that is no answer
)

// Failure says how an agent failed. Its text is for the operator and may hold
// the last line of the agent's log.
type Failure struct {
	Kind       Kind
	Code       int           // the exit code, the signal or the HTTP status
	Detail     string        // one line
	Retryable  bool          // whether the same task may fare better when tried again
	RetryAfter time.Duration // what an HTTP agent asked for; 0: nothing
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
	case TooMuch:
		text = "the agent wrote too much"
	case BadAnswer:
		text = "the agent gave no valid answer"
	case Unreachable:
		text = "the agent could not be reached"
	case BadStatus:
		text = fmt.Sprintf("the agent answered with HTTP status %d", f.Code)
	default:
		text = "the agent failed"
	}
	if f.Detail != "" {
		text += ": " + f.Detail
	}
	return text
}

// Is makes errors.Is compare failures by their kind:
// errors.Is(err, agent.ErrTimeout).
func (f *Failure) Is(target error) bool {
	other, ok := target.(*Failure)
	return ok && *other == Failure{Kind: f.Kind}
}

// Targets for errors.Is, one for each Kind.
var (
	ErrStart       error = &Failure{Kind: NotStarted}
	ErrExit        error = &Failure{Kind: Exited}
	ErrSignal      error = &Failure{Kind: Signaled}
	ErrTimeout     error = &Failure{Kind: TimedOut}
	ErrMemory      error = &Failure{Kind: OutOfMemory}
	ErrOutput      error = &Failure{Kind: TooMuch}
	ErrAnswer      error = &Failure{Kind: BadAnswer}
	ErrUnreachable error = &Failure{Kind: Unreachable}
	ErrStatus      error = &Failure{Kind: BadStatus}
)

// Retryable reports whether the failed run may fare better when tried again.
// It is true of an error that is no Failure: then the fault was not the agent's.
func Retryable(err error) bool {
	failure, ok := errors.AsType[*Failure](err)
	return !ok || failure.Retryable
}

// hopeless are exit codes that say that trying again is no use: EX_USAGE and
// EX_CONFIG of sysexits.h, and the shell's "cannot run" and "not found".
var hopeless = map[int]bool{64: true, 78: true, 126: true, 127: true}

// line cuts a text to one line that fits an error.
func line(text string) string {
	const most = 300
	text = strings.TrimSpace(text)
	if i := strings.LastIndexAny(text, "\r\n"); i >= 0 {
		text = text[i+1:]
	}
	if utf8.RuneCountInString(text) > most {
		text = string([]rune(text)[:most]) + "…"
	}
	return text
}
