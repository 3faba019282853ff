// Package remote settles payments through somebody else's x402 facilitator,
// with the guarantees of settling them ourselves: a payment is saved before the
// facilitator hears of it, what it was told is told again in the same bytes
// until the outcome is known, and where a node can be asked the chain decides,
// not the facilitator.
package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"boxoffice"
	"boxoffice/internal/payment"
	"boxoffice/x402"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
)

// ClientConfig is what a Client needs.
type ClientConfig struct {
	URL           string        // of the facilitator, without /settle
	Authorization string        // the Authorization header, a secret; empty: none
	ChainID       uint64        // the chain to settle on
	Timeout       time.Duration // for one call
	Transport     http.RoundTripper
}

// Client speaks to a facilitator (x402 specification, version 2 §7).
type Client struct {
	ClientConfig
	http *http.Client
}

// NewClient returns a Client.
func NewClient(c ClientConfig) *Client {
	c.URL = strings.TrimRight(c.URL, "/")
	return &Client{c, &http.Client{
		Transport: c.Transport, Timeout: c.Timeout,
		// A redirect would hand the signed payment to an address that nobody configured.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Outcome is what a settle call came to.
type Outcome string

// The outcomes of a settle call.
const (
	Settled  Outcome = "settled"  // the facilitator names the transaction
	Refused  Outcome = "refused"  // it says why it did not send the payment, and that is known to be for good
	Declined Outcome = "declined" // it did not take the call, or says no in words that nobody knows
	Open     Outcome = "open"     // it may have sent the payment: pending, no answer, a broken one, a server error
)

// Answer is what a facilitator said to a settle call.
type Answer struct {
	Outcome     Outcome
	Reason      x402.Reason   // why it is not settled
	Detail      string        // for the log
	Transaction common.Hash   // of a settled payment
	RetryAfter  time.Duration // when it wants to be asked again; 0: it does not say
}

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 1 << 20

// ErrUnsupported says that the facilitator does not settle what we sell.
var ErrUnsupported = errors.New("the facilitator does not settle version 2 of scheme exact on this chain")

// Check asks what the facilitator settles. It fails with ErrUnsupported if that
// is not scheme exact on our chain.
func (c *Client) Check(ctx context.Context) error {
	status, body, _, err := c.call(ctx, http.MethodGet, x402.PathSupported, nil, "")
	if err != nil {
		return err
	}
	var supported x402.Supported
	if err := json.Unmarshal(body, &supported); status != http.StatusOK || err != nil {
		return fmt.Errorf("facilitator: %s answered %d", x402.PathSupported, status)
	}
	for _, kind := range supported.Kinds {
		if kind.X402Version == x402.Version && kind.Scheme == x402.SchemeExact &&
			(kind.Network == x402.Network(c.ChainID) || kind.Network == "eip155:*") {
			return nil
		}
	}
	return fmt.Errorf("%w: %s", ErrUnsupported, x402.Network(c.ChainID))
}

// Verify asks whether a payment would settle. It returns nil if it would, and
// why not if the facilitator says so; an error means that it did not tell.
func (c *Client) Verify(ctx context.Context, payload []byte, requirements x402.Requirements) (*payment.Rejection, error) {
	request, err := encode(payload, requirements)
	if err != nil {
		return nil, err
	}
	status, body, _, err := c.call(ctx, http.MethodPost, x402.PathVerify, request, "")
	if err != nil {
		return nil, err
	}
	var answer struct {
		IsValid *bool `json:"isValid"`
		x402.Verification
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.IsValid == nil || status >= 500 {
		return nil, fmt.Errorf("facilitator: %s answered %d", x402.PathVerify, status)
	}
	switch said := read(answer.InvalidReason); {
	case *answer.IsValid && status == http.StatusOK:
		return nil, nil
	case *answer.IsValid, said.reason == x402.ReasonUnexpectedVerify, said.reason == x402.ReasonUnexpectedSettle:
		return nil, fmt.Errorf("facilitator: %s answered %d %s", x402.PathVerify, status, said.reason)
	default:
		return &payment.Rejection{Reason: said.reason, Detail: "the facilitator refused the payment"}, nil
	}
}

// Settle hands a saved payment to the facilitator. The bytes are the same
// however often it is called: the saved payload, and the requirements that it
// accepted, which are those that were frozen with the quote. The Idempotency-Key
// tells a facilitator that asks for one, as ours does, that we know what we served.
func (c *Client) Settle(ctx context.Context, intent payment.Intent) Answer {
	request, err := settleRequest(intent)
	if err != nil {
		return Answer{Outcome: Declined, Reason: x402.ReasonPayload, Detail: err.Error()}
	}
	status, body, header, err := c.call(ctx, http.MethodPost, x402.PathSettle, request, intent.ID)
	if err != nil {
		answer := Answer{Outcome: Open, Reason: x402.ReasonPending, Detail: err.Error()}
		if operation, ok := errors.AsType[*net.OpError](err); ok && operation.Op == "dial" {
			answer.Outcome = Declined // nobody was there to hear it
		}
		return answer
	}
	answer := c.judge(status, body, intent.Permit)
	if seconds, err := strconv.Atoi(header.Get("Retry-After")); err == nil && seconds > 0 {
		answer.RetryAfter = time.Duration(seconds) * time.Second
	}
	return answer
}

func settleRequest(intent payment.Intent) ([]byte, error) {
	var payload struct {
		Accepted x402.Requirements `json:"accepted"`
	}
	if err := json.Unmarshal(intent.Payload, &payload); err != nil {
		return nil, errors.New("the saved payload cannot be read")
	}
	return encode(intent.Payload, payload.Accepted)
}

func encode(payload []byte, requirements x402.Requirements) ([]byte, error) {
	terms, err := json.Marshal(requirements)
	if err != nil {
		return nil, err
	}
	return json.Marshal(x402.FacilitatorRequest{
		X402Version: x402.Version, PaymentPayload: payload, PaymentRequirements: terms,
	})
}

// judge reads the answer of a settle call. Whatever is not a clear yes or a
// clear no leaves the payment open.
func (c *Client) judge(status int, body []byte, permit payment.Permit) Answer {
	var said struct {
		Success *bool `json:"success"`
		x402.Settlement
		ErrorReason *x402.Reason `json:"errorReason"`
	}
	malformed := json.Unmarshal(body, &said) != nil || said.Success == nil
	answer := Answer{Outcome: Open, Reason: x402.ReasonPending, Detail: fmt.Sprintf("%s answered %d", x402.PathSettle, status)}
	switch {
	case status >= 500, status == http.StatusRequestTimeout:
		return answer
	case malformed && status >= 300, status == http.StatusTooManyRequests, status == http.StatusUnauthorized, status == http.StatusForbidden:
		answer.Outcome, answer.Reason = Declined, noAnswer
		return answer
	case malformed:
		return answer
	case *said.Success:
		return c.success(answer, status, said.Settlement, permit)
	}
	reason := read("")
	if said.ErrorReason != nil {
		reason = read(*said.ErrorReason)
	}
	answer.Reason = reason.reason
	answer.Detail += " " + string(reason.reason)
	switch {
	case reason.weight == open, said.Transaction != "": // something was broadcast
	case reason.weight == refusal:
		answer.Outcome = Refused
	default:
		answer.Outcome = Declined
	}
	return answer
}

// noAnswer is the reason of a payment that the facilitator never took.
const noAnswer x402.Reason = "facilitator_unavailable"

// success believes a facilitator that says it settled, if what else it says is
// of this payment.
func (c *Client) success(answer Answer, status int, said x402.Settlement, permit payment.Permit) Answer {
	hash, err := hexutil.Decode(said.Transaction)
	switch {
	case status != http.StatusOK, err != nil || len(hash) != common.HashLength,
		said.Network != "" && said.Network != x402.Network(c.ChainID),
		said.Payer != "" && (!common.IsHexAddress(said.Payer) || common.HexToAddress(said.Payer) != permit.From),
		said.Amount != "" && said.Amount != permit.Permitted.Amount.String():
		answer.Detail += " with a success that is of no such payment"
		return answer
	}
	return Answer{Outcome: Settled, Transaction: common.BytesToHash(hash)}
}

func (c *Client) call(ctx context.Context, method, path string, request []byte, key boxoffice.UUID) (status int, body []byte, header http.Header, err error) {
	message, err := http.NewRequestWithContext(ctx, method, c.URL+path, bytes.NewReader(request))
	if err != nil {
		return 0, nil, nil, errors.New("facilitator: its address is malformed")
	}
	if request != nil {
		message.Header.Set("Content-Type", "application/json")
		message.GetBody = nil // it is for us to say when a payment is sent again
	}
	if key != "" {
		message.Header.Set("Idempotency-Key", string(key))
	}
	if c.Authorization != "" {
		message.Header.Set("Authorization", c.Authorization)
	}
	response, err := c.http.Do(message)
	if err != nil {
		return 0, nil, nil, fmt.Errorf("facilitator: %w", err)
	}
	defer response.Body.Close()
	body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return 0, nil, nil, fmt.Errorf("facilitator: read the answer of %s: %w", path, err)
	}
	return response.StatusCode, body, response.Header, nil
}
