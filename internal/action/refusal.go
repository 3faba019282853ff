package action

import (
	"errors"
	"fmt"
	"strings"

	"boxoffice"
)

// Refusal is the error of an input that matches its schema but that the service refuses. The requester gets 422
// action_refused.
type Refusal struct {
	Reason boxoffice.RefusalReason // for programs; may be empty
	Detail string                  // for people
}

func (r *Refusal) Error() string { return strings.TrimPrefix(string(r.Reason)+": "+r.Detail, ": ") }

func refuse(reason boxoffice.RefusalReason, format string, args ...any) error {
	return &Refusal{Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

func originalError(kind string, id boxoffice.UUID, err error) error {
	if errors.Is(err, ErrNoOriginal) {
		return refuse(boxoffice.RefusedOriginalNotFound, "there is no %s %s, or it belongs to another token", kind, id)
	}
	return fmt.Errorf("%s %s: %w", kind, id, err)
}

// problem returns the problem that the requester gets for an error.
func problem(err error) *boxoffice.Problem {
	if problem, ok := errors.AsType[*boxoffice.Problem](err); ok {
		return problem
	}
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return &boxoffice.Problem{
			Code: boxoffice.ActionRefused, Detail: refusal.Detail, Reason: string(refusal.Reason), Cause: err,
		}
	}
	return &boxoffice.Problem{
		Code:       boxoffice.TemporarilyUnavailable,
		Detail:     "the input could not be checked now; nothing was saved",
		RetryAfter: retryAfterSeconds,
		Cause:      err,
	}
}

func unknownAction() *boxoffice.Problem {
	var names []string
	for _, d := range definitions {
		names = append(names, d.action)
	}
	return &boxoffice.Problem{
		Code:     boxoffice.InvalidRequest,
		Detail:   "the action is unknown",
		Problems: []boxoffice.FieldProblem{{Path: "/action", Message: "must be one of " + strings.Join(names, ", ")}},
	}
}
