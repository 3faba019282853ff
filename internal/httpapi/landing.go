package httpapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"

	"boxoffice"
)

// noRoute serves every address without a route: a 404 that says where the API is
// described. A person whose browser opens the root gets the landing page instead.
func (h *handler) noRoute(w http.ResponseWriter, r *http.Request) {
	x := w.(*exchange)
	page, err := response{}, h.notFound(x)
	if r.URL.Path == "/" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		x.Header().Add("Vary", "Accept")
		if prefersHTML(r) {
			page, err = h.landingPage(x, r)
		}
	}
	if err != nil {
		x.refuse(r, err)
		return
	}
	x.send(page)
}

func (h *handler) notFound(x *exchange) error {
	description := h.BaseURL + "/openapi.json"
	x.Header().Set("Link", "<"+description+`>; rel="service-desc"`) // RFC 8631
	return &boxoffice.Problem{Code: boxoffice.NotFound,
		Detail: "there is nothing at this address; " + description + " describes every address"}
}

// landingPage serves GET / for people.
func (h *handler) landingPage(x *exchange, r *http.Request) (response, error) {
	offer, err := h.offer(r.Context())
	if err != nil {
		return response{}, err
	}
	x.Header().Set("Content-Security-Policy", pagePolicy)
	return offer.page.response(x.Header(), r, revalidate), nil
}

func newPage(capabilities boxoffice.Capabilities) (document, error) {
	var page bytes.Buffer
	if err := pageTemplate.Execute(&page, capabilities); err != nil {
		return document{}, fmt.Errorf("render the landing page: %w", err)
	}
	return newDocument("text/html; charset=utf-8", page.Bytes()), nil
}

const pageStyle = `:root{color-scheme:light dark}` +
	`body{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:3rem auto;padding:0 1rem}` +
	`table{border-collapse:collapse}td,th{text-align:left;padding:.2rem 2rem .2rem 0}`

// pagePolicy allows the page its own style and nothing else.
var pagePolicy = func() string {
	hash := sha256.Sum256([]byte(pageStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()

// The links are relative, so that they also work behind a proxy that serves the page
// under another path.
var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"style": func() template.CSS { return pageStyle },
	"price": func(c boxoffice.Capabilities, p boxoffice.Policy) string {
		price := boxoffice.FormatUnits(p.Payment.Amount, p.Payment.Decimals) + " " + c.Payment.Asset.Symbol
		if per := boxoffice.NewPaidAction(p, c.Limits.Actions[p.Action]).PricedPer; per != "" {
			price += " a " + per
		}
		return price
	},
}).Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{{.Payment.ServiceName}}</title>
<style>{{style}}</style>
<h1>{{.Payment.ServiceName}}</h1>
<p>This service is for programs: they ask for a price, pay it with a signed
<a href="https://www.x402.org" rel="noreferrer">x402</a> token payment, and read the state of the work that they
bought. There is no registration.</p>
<table>
<tr><th>Action<th>Price{{range .Actions}}
<tr><td>{{.Action}}<td>{{price $ .}}{{end}}
</table>
<p><a href="openapi.json">openapi.json</a> describes every request,
<a href="requests/capabilities">requests/capabilities</a> lists what is sold and how to pay.</p>
`))

// prefersHTML reports whether the client prefers HTML to JSON, as browsers do and
// programs do not.
func prefersHTML(r *http.Request) bool {
	accepted := weights(r.Header.Values("Accept"))
	return accepted["text/html"] > accepted["application/json"]
}

func acceptsGzip(r *http.Request) bool {
	accepted := weights(r.Header.Values("Accept-Encoding"))
	weight, named := accepted["gzip"]
	if !named {
		weight = accepted["*"]
	}
	return weight > 0 && weight >= accepted["identity"]
}

// weights reads a list of preferences (RFC 9110 §12.4.2): each name in lowercase with
// its weight, which is 1 if it is missing and 0 if it is not a number.
func weights(lists []string) map[string]float64 {
	weights := map[string]float64{}
	for item := range strings.SplitSeq(strings.Join(lists, ","), ",") {
		name, parameters, _ := strings.Cut(item, ";")
		weight := 1.0
		for parameter := range strings.SplitSeq(parameters, ";") {
			if key, value, _ := strings.Cut(parameter, "="); strings.EqualFold(strings.TrimSpace(key), "q") {
				weight, _ = strconv.ParseFloat(strings.TrimSpace(value), 64)
			}
		}
		weights[strings.ToLower(strings.TrimSpace(name))] = weight
	}
	return weights
}
