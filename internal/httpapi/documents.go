package httpapi

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
)

// A document is an answer that anybody may read and keep.
type document struct {
	body []byte
	etag string
}

func newDocument(body []byte) document {
	hash := sha256.Sum256(body)
	return document{body, `"` + hex.EncodeToString(hash[:16]) + `"`}
}

// answer returns the document, or 304 to whoever has it. The two documents are
// public and need no token, so pages of any origin may read them.
func (doc document) answer(header http.Header, r *http.Request, cacheControl string) answer {
	header.Set("Cache-Control", cacheControl)
	header.Set("ETag", doc.etag)
	header.Set("Access-Control-Allow-Origin", "*")
	for _, tag := range strings.Split(strings.Join(r.Header.Values("If-None-Match"), ","), ",") {
		tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/")
		if tag == doc.etag || tag == "*" {
			return answer{status: http.StatusNotModified}
		}
	}
	return answer{http.StatusOK, doc.body}
}

// openapi answers GET /openapi.json (spec.md §4.1).
func (d *door) openapi(x *exchange, r *http.Request) (answer, error) {
	return d.document.answer(x.Header(), r, "public, max-age=60"), nil
}

// capabilities answers GET /requests/capabilities (spec.md §4.2). Prices can
// change, so whoever keeps them asks again before it uses them.
func (d *door) capabilities(x *exchange, r *http.Request) (answer, error) {
	now, err := render(http.StatusOK, d.Capabilities(r.Context()))
	if err != nil {
		return answer{}, err
	}
	return newDocument(now.body).answer(x.Header(), r, "public, no-cache"), nil
}
