package httpapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
)

// A document is public and may be cached. It is sent plain or gzipped; its ETag is a
// weak one because it stands for both.
type document struct {
	contentType string
	body        []byte
	gzipped     []byte
	tag         string // the ETag without W/, in its quotes
}

func newDocument(contentType string, body []byte) document {
	hash := sha256.Sum256(body)
	var gzipped bytes.Buffer
	writer, _ := gzip.NewWriterLevel(&gzipped, gzip.BestCompression) // cannot fail: the level exists
	writer.Write(body)                                               // cannot fail: writes to memory
	writer.Close()
	return document{contentType, body, gzipped.Bytes(), `"` + hex.EncodeToString(hash[:16]) + `"`}
}

// response returns the document in an encoding that the request accepts, or 304 if
// the client has it already.
func (doc document) response(header http.Header, r *http.Request, cacheControl string) response {
	header.Set("Cache-Control", cacheControl)
	header.Set("ETag", "W/"+doc.tag)
	header.Add("Vary", "Accept-Encoding")
	for _, tag := range strings.Split(strings.Join(r.Header.Values("If-None-Match"), ","), ",") {
		tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/")
		if tag == doc.tag || tag == "*" {
			return response{status: http.StatusNotModified}
		}
	}
	header.Set("Content-Type", doc.contentType)
	if acceptsGzip(r) {
		header.Set("Content-Encoding", "gzip")
		return response{http.StatusOK, doc.gzipped}
	}
	return response{http.StatusOK, doc.body}
}

// allowAnyOrigin lets pages of any origin read a document that needs no token.
func allowAnyOrigin(header http.Header) { header.Set("Access-Control-Allow-Origin", "*") }

// openapi serves GET /openapi.json (docs/protocol.md §4.1).
func (h *handler) openapi(x *exchange, r *http.Request) (response, error) {
	allowAnyOrigin(x.Header())
	return h.document.response(x.Header(), r, "public, max-age=60"), nil
}

// revalidate is the Cache-Control of what can change at any time, such as prices: a
// cache asks again before it uses its copy.
const revalidate = "public, no-cache"

// capabilities serves GET /requests/capabilities (docs/protocol.md §4.2).
func (h *handler) capabilities(x *exchange, r *http.Request) (response, error) {
	offer, err := h.offer(r.Context())
	if err != nil {
		return response{}, err
	}
	allowAnyOrigin(x.Header())
	return offer.capabilities.response(x.Header(), r, revalidate), nil
}

// publicOptions answers OPTIONS of a public document: a page of another origin may
// read it.
func publicOptions(x *exchange, _ *http.Request) (response, error) {
	allowAnyOrigin(x.Header())
	x.Header().Set("Access-Control-Allow-Methods", "GET, HEAD")
	x.Header().Set("Access-Control-Allow-Headers", "*, Authorization") // * does not include Authorization
	x.Header().Set("Access-Control-Max-Age", "3600")
	return response{status: http.StatusNoContent}, nil
}

// An offer is what the service sells at a time, for programs and for people.
type offer struct{ capabilities, page document }

// offer returns the documents of what is sold now. They are rendered again only after
// the capabilities changed.
func (h *handler) offer(ctx context.Context) (*offer, error) {
	capabilities := h.Capabilities(ctx)
	rendered, err := render(http.StatusOK, capabilities)
	if err != nil {
		return nil, err
	}
	if last := h.lastOffer.Load(); last != nil && bytes.Equal(last.capabilities.body, rendered.body) {
		return last, nil
	}
	page, err := newPage(capabilities)
	if err != nil {
		return nil, err
	}
	current := &offer{newDocument(contentType, rendered.body), page}
	h.lastOffer.Store(current)
	return current, nil
}
