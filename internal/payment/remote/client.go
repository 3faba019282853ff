// Package remote settles payments through another operator's x402 facilitator. It
// gives the same guarantees as settling with our own key: a payment is saved before
// the facilitator gets it, the facilitator gets the same bytes again until the
// outcome is known, and where an RPC node is configured the chain decides and not
// the facilitator.
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

// Client calls a facilitator (x402 specification, version 2 §7).
type Client struct {
	ClientConfig
	http *http.Client
}

// NewClient returns a Client.
func NewClient(c ClientConfig) *Client {
	c.URL = strings.TrimRight(c.URL, "/")
	return &Client{c, &http.Client{
		Transport: c.Transport, Timeout: c.Timeout,
		// A redirect would send the signed payment to an address that is not configured.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// ReplyKind is what a reply to a settle call means for the payment.
type ReplyKind string

// The kinds of replies.
const (
	ReplySettled ReplyKind = "settled" // it is settled: the facilitator names the transaction
	ReplyRefused ReplyKind = "refused" // it was not sent, for a reason that does not change
	// This call did not send it: the facilitator did not take the call, or it refused
	// for a reason that may change or that we do not know.
	ReplyNotTaken ReplyKind = "not_taken"
	ReplyUnknown  ReplyKind = "unknown" // it may be sent: the reply is pending, broken, missing or a server error
)

// Reply is what a settle call came to.
type Reply struct {
	Kind        ReplyKind
	Reason      x402.Reason   // why it is not settled
	Detail      string        // for the log
	Transaction common.Hash   // of a settled payment
	RetryAfter  time.Duration // how long the facilitator asks us to wait; 0: it does not say
}

// maxBody is how much of a response is read, in bytes.
const maxBody = 1 << 20

// ErrUnsupported says that the facilitator does not settle what we sell.
var ErrUnsupported = errors.New("the facilitator does not settle version 2 of scheme exact on this chain")

// Check asks what the facilitator settles. It fails with ErrUnsupported if scheme
// exact on our chain is not among that.
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

// Verify asks whether a payment would settle. It returns nil if it would, else why
// not. An error means that the facilitator did not answer the question.
func (c *Client) Verify(ctx context.Context, payload []byte,
	requirements x402.Requirements) (*payment.Rejection, error) {
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
	switch found := lookUp(answer.InvalidReason); {
	case *answer.IsValid && status == http.StatusOK:
		return nil, nil
	case *answer.IsValid, found.reason == x402.ReasonUnexpectedVerify, found.reason == x402.ReasonUnexpectedSettle:
		return nil, fmt.Errorf("facilitator: %s answered %d %s", x402.PathVerify, status, found.reason)
	default:
		return &payment.Rejection{Reason: found.reason, Detail: "the facilitator refused the payment"}, nil
	}
}

// Settle hands a saved intent to the facilitator. Every call sends the same bytes:
// the saved payload, and the requirements that it accepts, which were saved with
// the quote. The Idempotency-Key is the intent's ID, with which a facilitator like
// ours repeats the outcome.
func (c *Client) Settle(ctx context.Context, intent payment.Intent) Reply {
	request, err := settleRequest(intent)
	if err != nil {
		return Reply{Kind: ReplyNotTaken, Reason: x402.ReasonPayload, Detail: err.Error()}
	}
	status, body, header, err := c.call(ctx, http.MethodPost, x402.PathSettle, request, intent.ID)
	if err != nil {
		reply := Reply{Kind: ReplyUnknown, Reason: x402.ReasonPending, Detail: err.Error()}
		if operation, ok := errors.AsType[*net.OpError](err); ok && operation.Op == "dial" {
			reply.Kind = ReplyNotTaken // there was no connection
		}
		return reply
	}
	reply := c.readReply(status, body, intent.Permit)
	if seconds, err := strconv.Atoi(header.Get("Retry-After")); err == nil && seconds > 0 {
		reply.RetryAfter = time.Duration(seconds) * time.Second
	}
	return reply
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

// readReply reads the response of a settle call. A response that is neither
// clearly a success nor clearly a refusal is ReplyUnknown.
func (c *Client) readReply(status int, body []byte, permit payment.Permit) Reply {
	var response struct {
		Success *bool `json:"success"`
		x402.Settlement
		ErrorReason *x402.Reason `json:"errorReason"`
	}
	malformed := json.Unmarshal(body, &response) != nil || response.Success == nil
	reply := Reply{Kind: ReplyUnknown, Reason: x402.ReasonPending,
		Detail: fmt.Sprintf("%s answered %d", x402.PathSettle, status)}
	switch {
	case status >= 500, status == http.StatusRequestTimeout:
		return reply
	case malformed && status >= 300, status == http.StatusTooManyRequests, status == http.StatusUnauthorized,
		status == http.StatusForbidden:
		reply.Kind, reply.Reason = ReplyNotTaken, reasonNotTaken
		return reply
	case malformed:
		return reply
	case *response.Success:
		return c.readSuccess(reply, status, response.Settlement, permit)
	}
	var text x402.Reason
	if response.ErrorReason != nil {
		text = *response.ErrorReason
	}
	found := lookUp(text)
	reply.Reason = found.reason
	reply.Detail += " " + string(found.reason)
	switch {
	case found.meaning == maybeSent, response.Transaction != "": // a transaction was broadcast
	case found.meaning == refused:
		reply.Kind = ReplyRefused
	default:
		reply.Kind = ReplyNotTaken
	}
	return reply
}

// reasonNotTaken is the reason of a payment that the facilitator never took.
const reasonNotTaken x402.Reason = "facilitator_unavailable"

// readSuccess reads a response with success: true. It counts only if all its members
// fit this payment; otherwise the outcome is unknown.
func (c *Client) readSuccess(reply Reply, status int, response x402.Settlement, permit payment.Permit) Reply {
	hash, err := hexutil.Decode(response.Transaction)
	switch {
	case status != http.StatusOK, err != nil || len(hash) != common.HashLength,
		response.Network != "" && response.Network != x402.Network(c.ChainID),
		response.Payer != "" && (!common.IsHexAddress(response.Payer) ||
			common.HexToAddress(response.Payer) != permit.From),
		response.Amount != "" && response.Amount != permit.Permitted.Amount.String():
		reply.Detail += " with a success that is of no such payment"
		return reply
	}
	return Reply{Kind: ReplySettled, Transaction: common.BytesToHash(hash)}
}

func (c *Client) call(ctx context.Context, method, path string, request []byte,
	key boxoffice.UUID) (status int, body []byte, header http.Header, err error) {
	message, err := http.NewRequestWithContext(ctx, method, c.URL+path, bytes.NewReader(request))
	if err != nil {
		return 0, nil, nil, errors.New("facilitator: its address is malformed")
	}
	if request != nil {
		message.Header.Set("Content-Type", "application/json")
		message.GetBody = nil // the HTTP client must not send a payment again by itself
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
	body, err = io.ReadAll(io.LimitReader(response.Body, maxBody))
	if err != nil {
		return 0, nil, nil, fmt.Errorf("facilitator: read the response of %s: %w", path, err)
	}
	return response.StatusCode, body, response.Header, nil
}
