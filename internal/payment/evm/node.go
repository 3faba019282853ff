package evm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"boxoffice/internal/payment"

	"github.com/ethereum/go-ethereum/rpc"
)

// send sends requests in one JSON-RPC batch, or in several if there are more
// than batchLimit. Its error means that the node did not answer. The node's
// answer to each request is in the Result or the Error of the request.
func (c *Chain) send(ctx context.Context, op string, requests []rpc.BatchElem) error {
	client, err := c.connect(ctx)
	if err != nil {
		return c.fail(op, err)
	}
	for batch := range slices.Chunk(requests, batchLimit) {
		if err := c.sendBatch(ctx, client, batch); err != nil {
			return c.fail(op, err)
		}
	}
	return nil
}

func (c *Chain) sendBatch(ctx context.Context, client *rpc.Client, batch []rpc.BatchElem) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	if len(batch) > 1 {
		return client.BatchCallContext(ctx, batch)
	}
	err := client.CallContext(ctx, batch[0].Result, batch[0].Method, batch[0].Args...)
	if refused(err) {
		batch[0].Error, err = err, nil
	}
	return err
}

// request is send for requests that must all succeed.
func (c *Chain) request(ctx context.Context, op string, requests ...rpc.BatchElem) error {
	if err := c.send(ctx, op, requests); err != nil {
		return err
	}
	return c.firstError(op, requests)
}

func (c *Chain) firstError(op string, requests []rpc.BatchElem) error {
	for _, request := range requests {
		if request.Error != nil {
			return c.fail(op, request.Error)
		}
	}
	return nil
}

// refused reports whether err is a JSON-RPC error: the node understood the
// request and did not carry it out.
func refused(err error) bool {
	_, ok := errors.AsType[rpc.Error](err)
	return ok
}

// nodeError says which operation failed and why. Neither its text nor the error that
// it unwraps to holds a secret. The error of the rpc library is
// dropped, because it holds URLs and whole answers.
type nodeError struct {
	op, text string
	cause    error // nil, payment.ErrRefused, or one of causes
}

func (e *nodeError) Error() string { return "evm: " + e.op + ": " + e.text }
func (e *nodeError) Unwrap() error { return e.cause }

// causes are the errors that a caller can find with errors.Is.
var causes = []error{
	context.Canceled, context.DeadlineExceeded,
	ErrWrongChain, ErrBatch, ErrFeeCeiling, ErrWalletEmpty, ErrNonceTooLow, ErrUnderpriced,
}

// fail returns the error of op, without secrets.
func (c *Chain) fail(op string, err error) error {
	if done, ok := errors.AsType[*nodeError](err); ok {
		return done
	}
	e := &nodeError{op: op}
	if i := slices.IndexFunc(causes, func(cause error) bool { return errors.Is(err, cause) }); i >= 0 {
		e.cause = causes[i]
	}
	var (
		status    rpc.HTTPError
		answer    rpc.Error
		transport *url.Error
	)
	switch {
	case errors.As(err, &status): // its text holds the body, which can hold anything
		e.text = strings.TrimSpace(fmt.Sprintf("the node answered HTTP %d %s", status.StatusCode,
			http.StatusText(status.StatusCode)))
	case errors.As(err, &answer):
		e.text = fmt.Sprintf("the node refused: %s (code %d)", c.redact(answer.Error()), answer.ErrorCode())
		e.cause = cmp.Or(e.cause, payment.ErrRefused)
	case errors.Is(err, context.DeadlineExceeded):
		e.text = "no answer in time"
	case errors.As(err, &transport): // its text holds the URL
		e.text = "the node cannot be reached: " + c.redact(transport.Err.Error())
	default:
		e.text = c.redact(err.Error())
	}
	return e
}

var (
	longHex   = regexp.MustCompile(`(?:0x)?[0-9a-fA-F]{65,}`)
	anyURL    = regexp.MustCompile(`\b(?:https?|wss?)://\S+`)
	maxText   = 300
	minSecret = 6
)

// redact makes a text of the node or of a contract safe for a log. It removes the
// secrets of the URL and hex that is long enough to be a signature or a signed
// transaction (a hash of 64 digits stays), and makes one line of bounded length.
func (c *Chain) redact(text string) string {
	text = c.secrets.Replace(text)
	text = anyURL.ReplaceAllString(text, "[url]")
	text = longHex.ReplaceAllString(text, "[hex]")
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if runes := []rune(text); len(runes) > maxText {
		text = string(runes[:maxText]) + "…"
	}
	return text
}

// newRedactor returns a Replacer for the parts of a URL that may be secret: user
// and password, and the parts of path and query that are long enough for a key.
func newRedactor(rpcURL string) *strings.Replacer {
	location, err := url.Parse(rpcURL)
	if err != nil {
		return strings.NewReplacer()
	}
	parts := []string{rpcURL, location.User.String(), location.RawQuery}
	if password, ok := location.User.Password(); ok {
		parts = append(parts, location.User.Username(), password)
	}
	parts = append(parts, strings.Split(location.EscapedPath(), "/")...)
	parts = append(parts, strings.Split(location.Path, "/")...)
	for key, values := range location.Query() {
		parts = append(parts, key)
		parts = append(parts, values...)
	}
	// The replacer prefers an earlier pair where two begin at the same place.
	slices.SortFunc(parts, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, part := range parts {
		if len(part) >= minSecret {
			pairs = append(pairs, part, "[redacted]")
		}
	}
	return strings.NewReplacer(pairs...)
}
