package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"

	"boxoffice"
	"boxoffice/client"
)

func TestOutcomeOf(t *testing.T) {
	problem := func(code boxoffice.Code) error {
		return fmt.Errorf("wrapped: %w", &client.ResponseError{Problem: &boxoffice.Problem{Code: code}})
	}
	for _, test := range []struct {
		err  error
		want client.Outcome
	}{
		{nil, client.Succeeded},
		{&client.MismatchError{}, client.NotSigned},
		{&client.ShortfallError{}, client.NotSigned},
		{client.ErrNonceSpent, client.NotSigned},
		{client.ErrNoSigner, client.NotSigned},
		{fmt.Errorf("%w: %w", client.ErrDeclined, errors.New("no")), client.NotSigned},
		{problem(boxoffice.PaymentRejected), client.NotPaid},
		{problem(boxoffice.QuoteExpired), client.NotPaid},
		{errors.Join(&client.PaymentError{}, errors.New("vault")), client.NotPaid},
		{&client.PendingError{Cause: problem(boxoffice.TemporarilyUnavailable)}, client.Unknown},
		{&client.PendingError{Cause: context.DeadlineExceeded}, client.Unknown},
		{problem(boxoffice.TemporarilyUnavailable), client.Unavailable},
		{problem(boxoffice.RateLimited), client.Unavailable},
		{problem(boxoffice.Internal), client.Unavailable},
		{&url.Error{Op: "Get", URL: "http://127.0.0.1", Err: errors.New("refused")}, client.Unavailable},
		{context.DeadlineExceeded, client.Unavailable},
		{problem(boxoffice.OrderNotFound), client.Refused},
		{problem(boxoffice.ActionRefused), client.Refused},
		{problem(boxoffice.RequestKeyConflict), client.Refused},
		{errors.New("disk full"), client.Failed},
	} {
		if got := client.OutcomeOf(test.err); got != test.want {
			t.Errorf("%v: the outcome is %v, want %v", test.err, got, test.want)
		}
	}
}
