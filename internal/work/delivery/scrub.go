package delivery

import (
	"encoding/base64"
	"regexp"
	"strings"
	"unicode"
)

var (
	userinfo = regexp.MustCompile(`://[^/@\s]*@`)
	tokens   = regexp.MustCompile(`(?i)\b(?:basic|bearer|token) [a-z0-9+/=_.~-]{8,}|\b(?:gh[a-z]_|github_pat_|glpat-)\w+`)
)

const (
	redacted  = "[redacted]"
	minSecret = 4       // bytes: a shorter secret would redact ordinary words
	maxText   = 2 << 10 // bytes
)

// scrub prepares the output of a program for a failure text, which the requester reads: it removes secrets, our own
// folders and control characters, and cuts a long text to its end.
func (g *Git) scrub(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	for _, secret := range g.secrets {
		if len(secret) >= minSecret {
			text = strings.ReplaceAll(text, secret, redacted)
		}
	}
	text = strings.ReplaceAll(text, g.Dir()+"/", "")
	text = userinfo.ReplaceAllString(text, "://")
	text = tokens.ReplaceAllString(text, redacted)
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' || unicode.Is(unicode.Cf, r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > maxText {
		text = "…" + strings.ToValidUTF8(text[len(text)-maxText:], "")
	}
	return strings.TrimSpace(text)
}

// basic returns the credentials of HTTP Basic (RFC 7617).
func (c Credential) basic() string {
	return base64.StdEncoding.EncodeToString([]byte(c.Username + ":" + c.Password))
}
