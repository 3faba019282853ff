package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"boxoffice"
)

// A curler sends requests to one service with curl, until the first error.
type curler struct {
	ctx    context.Context
	folder string // the working directory of curl
	base   string
	token  string
	err    error // the first one; then ask does nothing
}

// curled is the last response that curl got.
type curled struct {
	command  string
	status   int
	interim  bool // 100 Continue came before
	proto    string
	header   http.Header
	body     string
	uploaded int // bytes
}

// ask runs curl.
func (c *curler) ask(path string, args ...string) (got curled) {
	if c.err != nil {
		return curled{header: http.Header{}}
	}
	options := []string{"-sS", "--max-time", "30", "-D", "headers", "-o", "body", "-w", "%{size_upload}"}
	args = append(options, append(args, c.base+path)...)
	program := exec.CommandContext(c.ctx, "curl", args...)
	program.Dir = c.folder
	var stdout, stderr bytes.Buffer
	program.Stdout, program.Stderr = &stdout, &stderr
	got.command = strings.ReplaceAll("curl "+strings.Join(args[len(options):], " "), c.token, "…")
	if err := cmp.Or(os.WriteFile(filepath.Join(c.folder, "body"), nil, 0o600), program.Run()); err != nil {
		c.err = fmt.Errorf("%s: %w\n%s", got.command, err, &stderr)
		return got
	}
	head, unread := os.ReadFile(filepath.Join(c.folder, "headers"))
	body, missing := os.ReadFile(filepath.Join(c.folder, "body"))
	got.body = string(body)
	got.uploaded, c.err = strconv.Atoi(stdout.String())
	c.err = errors.Join(c.err, unread, missing)
	for reader := bufio.NewReader(bytes.NewReader(head)); ; {
		answer, err := http.ReadResponse(reader, &http.Request{Method: http.MethodHead}) // without the body
		if err != nil {
			return got
		}
		got.interim = got.interim || answer.StatusCode == http.StatusContinue
		got.status, got.proto, got.header = answer.StatusCode, answer.Proto, answer.Header
	}
}

// want sets the error unless the condition holds.
func (c *curler) want(condition bool, got curled) {
	if !condition && c.err == nil {
		c.err = fmt.Errorf("%s: %s %d, 100 Continue: %v, %d bytes sent, %v\n%.400s",
			got.command, got.proto, got.status, got.interim, got.uploaded, got.header, got.body)
	}
}

func (c *curler) authorization() string { return "Authorization: Bearer " + c.token }

// quote asks for a quote with a body of this length, at least 200 bytes.
func (c *curler) quote(length int, args ...string) curled {
	body := fmt.Sprintf(`{"action":"job.open","input":{"objective":"Look"},"requestKey":"%s"}`, boxoffice.NewUUID())
	if c.err == nil {
		body += strings.Repeat(" ", length-len(body))
		c.err = os.WriteFile(filepath.Join(c.folder, "quote"), []byte(body), 0o600)
	}
	return c.ask("/requests/quote", append(args, "-H", c.authorization(), "--data-binary", "@quote")...)
}

const (
	maxBody = 16 << 10
	evil    = "Origin: https://evil.example"
)

// curls uses the service with curl.
func curls(ctx context.Context, d *demo) ([]row, error) {
	return curlAll(ctx, d.folder, "curl", d.BaseURL, true)
}

// curlAll uses the service at base with curl. If direct is false, there is a proxy in front of it, which answers some
// requests itself.
func curlAll(ctx context.Context, folder, name, base string, direct bool) (rows []row, err error) {
	c := &curler{ctx: ctx, base: base, token: boxoffice.NewToken().Reveal()}
	if c.folder, err = os.MkdirTemp(folder, "curl-"); err != nil {
		return nil, err
	}
	const read, post = "GET, HEAD, OPTIONS", "OPTIONS, POST"
	id := string(boxoffice.NewUUID())
	public, routes := []string{"/openapi.json", "/requests/capabilities"}, map[string]string{
		"/openapi.json": read, "/requests/capabilities": read,
		"/requests/quote": post, "/requests/" + id + "/submit": post, "/requests/" + id: read,
		"/jobs": read, "/jobs/" + id: read, "/oracles/" + id: read, "/workflows/" + id: read, "/schedules/" + id: read,
		"/git/" + id + ".git/info/refs": read,
	}
	for _, step := range []struct {
		what, result string
		do           func()
	}{
		{"`--http1.0`, `--http1.1`", "the same documents; a quote", func() {
			for _, version := range []string{"--http1.0", "--http1.1"} {
				for _, path := range public {
					got := c.ask(path, version)
					c.want(got.status == 200 && (strings.HasSuffix(got.proto, version[6:]) || !direct) &&
						strings.HasPrefix(got.body, "{") &&
						got.header.Get("Content-Length") == strconv.Itoa(len(got.body)), got)
				}
				got := c.quote(500, version)
				c.want(got.status == 201, got)
			}
		}},
		{"`--head` on every kind of route", "the headers of GET, without a body", func() {
			for path := range routes {
				get := c.ask(path, "-H", c.authorization())
				head := c.ask(path, "-H", c.authorization(), "--head")
				c.want(head.status == get.status, head)
				for _, name := range []string{"ETag", "Allow", "Content-Type", "Content-Length"} {
					c.want(head.header.Get(name) == get.header.Get(name), head)
				}
			}
		}},
		{"`-X OPTIONS` on every kind of route", "204 and `Allow`; 403 for another `Origin` where a token is needed", func() {
			for path, allow := range routes {
				got := c.ask(path, "-X", "OPTIONS")
				c.want(got.status == 204 && got.header.Get("Allow") == allow, got)
				got = c.ask(path, "-X", "OPTIONS", "-H", evil, "-H", "Access-Control-Request-Method: GET")
				if slices.Contains(public, path) {
					c.want(got.status == 204 && got.header.Get("Access-Control-Allow-Origin") == "*", got)
				} else {
					c.want(got.status == 403 && got.header.Get("Access-Control-Allow-Origin") == "", got)
				}
			}
		}},
		{"`--compressed`", "less than half of the bytes, the same document", func() {
			for _, path := range public {
				whole, packed := c.ask(path), c.ask(path, "-H", "Accept-Encoding: gzip")
				unpacked := c.ask(path, "--compressed")
				c.want(packed.header.Get("Content-Encoding") == "gzip" && len(packed.body) < len(whole.body)/2, packed)
				c.want(unpacked.body == whole.body, unpacked)
			}
		}},
		{"`--etag-save`, then `--etag-compare`, compressed or not", "304 and no body", func() {
			for _, path := range public {
				for _, first := range []string{"--compressed", "--no-compressed"} {
					for _, then := range []string{"--compressed", "--no-compressed"} {
						got := c.ask(path, first, "--etag-save", "etag")
						c.want(got.status == 200, got)
						got = c.ask(path, then, "--etag-compare", "etag")
						c.want(got.status == 304 && got.body == "" && got.header.Get("ETag") != "", got)
					}
				}
			}
		}},
		{"`-H 'Transfer-Encoding: chunked'`", "a quote for a body of 16 KiB; 413 for a longer one", func() {
			got := c.quote(maxBody, "-H", "Transfer-Encoding: chunked")
			c.want(got.status == 201, got)
			got = c.quote(maxBody+1, "-H", "Transfer-Encoding: chunked")
			c.want(got.status == 413, got)
			got = c.quote(1<<20, "-H", "Transfer-Encoding: chunked", "-H", "Expect:")
			c.want(got.status == 413, got)
		}},
		{"`-H 'Expect: 100-continue'`", "a quote; for more than 16 KiB 413 before the body is sent", func() {
			if !direct {
				return
			}
			got := c.quote(500, "-H", "Expect: 100-continue")
			c.want(got.status == 201 && got.interim, got)
			got = c.quote(maxBody+1, "-H", "Expect: 100-continue")
			c.want(got.status == 413 && !got.interim && got.uploaded == 0, got)
			got = c.ask("/requests/quote", "-H", "Expect: 100-continue", "-d", "{}")
			c.want(got.status == 401 && !got.interim && got.uploaded == 0, got)
		}},
		{"the root and an unknown path", "404 with the address of the OpenAPI document", func() {
			for _, path := range []string{"/", "/robots.txt"} {
				got := c.ask(path)
				c.want(got.status == 404 && strings.Contains(got.body, "/openapi.json") &&
					strings.Contains(got.header.Get("Link"), "service-desc"), got)
			}
		}},
	} {
		if step.do(); c.err != nil {
			return nil, fmt.Errorf("%s, %s: %w", name, step.what, c.err)
		}
		rows = append(rows, row{name, step.what, step.result})
	}
	return rows, nil
}
