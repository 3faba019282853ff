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

// A document is an answer that anybody may read and keep, as it is and gzipped.
// Its tag is a weak one, since it names both.
type document struct {
	kind   string // its Content-Type
	body   []byte
	packed []byte
	tag    string // the part of the ETag that stands in quotes, with them
}

func newDocument(kind string, body []byte) document {
	hash := sha256.Sum256(body)
	var packed bytes.Buffer
	writer, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // of a level that there is
	writer.Write(body)                                              // to memory: neither fails
	writer.Close()
	return document{kind, body, packed.Bytes(), `"` + hex.EncodeToString(hash[:16]) + `"`}
}

// answer returns the document in the form that the request takes, or 304 to
// whoever has it.
func (doc document) answer(header http.Header, r *http.Request, cacheControl string) answer {
	header.Set("Cache-Control", cacheControl)
	header.Set("ETag", "W/"+doc.tag)
	header.Add("Vary", "Accept-Encoding")
	for _, tag := range strings.Split(strings.Join(r.Header.Values("If-None-Match"), ","), ",") {
		tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/")
		if tag == doc.tag || tag == "*" {
			return answer{status: http.StatusNotModified}
		}
	}
	header.Set("Content-Type", doc.kind)
	if takesGzip(r) {
		header.Set("Content-Encoding", "gzip")
		return answer{http.StatusOK, doc.packed}
	}
	return answer{http.StatusOK, doc.body}
}

// anyOrigin lets pages of any origin read what needs no token.
func anyOrigin(header http.Header) { header.Set("Access-Control-Allow-Origin", "*") }

// openapi answers GET /openapi.json (spec.md §4.1).
func (d *door) openapi(x *exchange, r *http.Request) (answer, error) {
	anyOrigin(x.Header())
	return d.document.answer(x.Header(), r, "public, max-age=60"), nil
}

// capabilities answers GET /requests/capabilities (spec.md §4.2). Prices can
// change, so whoever keeps them asks again before it uses them.
func (d *door) capabilities(x *exchange, r *http.Request) (answer, error) {
	sold, err := d.sold(r.Context())
	if err != nil {
		return answer{}, err
	}
	anyOrigin(x.Header())
	return sold.capabilities.answer(x.Header(), r, mayChange), nil
}

const mayChange = "public, no-cache"

// freeOptions answers OPTIONS where a document is, to a browser that asks
// whether a page of another origin may read it too.
func freeOptions(x *exchange, _ *http.Request) (answer, error) {
	anyOrigin(x.Header())
	x.Header().Set("Access-Control-Allow-Methods", "GET, HEAD")
	x.Header().Set("Access-Control-Allow-Headers", "*, Authorization") // the star alone leaves that one out
	x.Header().Set("Access-Control-Max-Age", "3600")
	return answer{status: http.StatusNoContent}, nil
}

// sold is what the service sells, for programs and for people.
type sold struct{ capabilities, page document }

// sold returns the documents of what is sold now. They are made anew only when
// that changed.
func (d *door) sold(ctx context.Context) (*sold, error) {
	capabilities := d.Capabilities(ctx)
	now, err := render(http.StatusOK, capabilities)
	if err != nil {
		return nil, err
	}
	if last := d.lastSold.Load(); last != nil && bytes.Equal(last.capabilities.body, now.body) {
		return last, nil
	}
	page, err := newPage(capabilities)
	if err != nil {
		return nil, err
	}
	made := &sold{newDocument(contentType, now.body), page}
	d.lastSold.Store(made)
	return made, nil
}
