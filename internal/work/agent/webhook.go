package agent

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of Standard Webhooks 1.0.0
// (https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md).
const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

// Tolerance is how far a message's timestamp may be from our clock.
const Tolerance = 5 * time.Minute

// Secret signs the messages between the service and one HTTP agent, in both directions. String and GoString are
// redacted.
type Secret struct{ key []byte }

// ParseSecret reads a secret in the form of Standard Webhooks: whsec_ and the base64 of 24 to 64 random bytes.
func ParseSecret(text string) (Secret, error) {
	encoded, ok := strings.CutPrefix(text, "whsec_")
	if !ok {
		return Secret{}, errors.New("agent: secret: must start with whsec_")
	}
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return Secret{}, errors.New("agent: secret: must be base64 after whsec_")
	}
	if len(key) < 24 || len(key) > 64 {
		return Secret{}, errors.New("agent: secret: must have 24 to 64 bytes")
	}
	return Secret{key}, nil
}

func (Secret) String() string   { return "whsec_…" }
func (Secret) GoString() string { return "whsec_…" }

// Sign sets the three headers of a message.
func (s Secret) Sign(header http.Header, id string, now time.Time, body []byte) {
	timestamp := strconv.FormatInt(now.Unix(), 10)
	header.Set(headerID, id)
	header.Set(headerTimestamp, timestamp)
	header.Set(headerSignature, "v1,"+base64.StdEncoding.EncodeToString(s.sum(id, timestamp, body)))
}

// Verify returns the id of a message if the message was signed with the secret and within Tolerance of now. The header
// may hold several signatures.
func (s Secret) Verify(header http.Header, now time.Time, body []byte) (id string, err error) {
	id, timestamp := header.Get(headerID), header.Get(headerTimestamp)
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || id == "" || strings.Contains(id, ".") {
		return "", errors.New("webhook-id and webhook-timestamp are required")
	}
	if age := now.Sub(time.Unix(seconds, 0)); age > Tolerance || age < -Tolerance {
		return "", errors.New("webhook-timestamp is too far from now")
	}
	want := s.sum(id, timestamp, body)
	for signature := range strings.FieldsSeq(header.Get(headerSignature)) {
		encoded, ok := strings.CutPrefix(signature, "v1,")
		if !ok {
			continue
		}
		if got, err := base64.StdEncoding.DecodeString(encoded); err == nil && hmac.Equal(got, want) {
			return id, nil
		}
	}
	return "", errors.New("webhook-signature does not match")
}

func (s Secret) sum(id, timestamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return mac.Sum(nil)
}

// messageID returns the webhook-id of a task. The same task has the same id, also after a restart, so that an agent
// recognises a task that it got before. Only a holder of the secret can make the second half of an id. So a callback's
// id shows to which agent it belongs, and nothing about it has to be stored.
func (s Secret) messageID(document []byte) string {
	digest := sha256.Sum256(document)
	name := hex.EncodeToString(digest[:16])
	return "msg_" + name + s.tag(name)
}

// owns reports whether messageID of this secret made id.
func (s Secret) owns(id string) bool {
	rest, ok := strings.CutPrefix(id, "msg_")
	return ok && len(rest) == 64 && hmac.Equal([]byte(rest[32:]), []byte(s.tag(rest[:32])))
}

func (s Secret) tag(name string) string {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte("boxoffice-callback-v1\x00" + name))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}
