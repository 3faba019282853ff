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

// elsewhere answers at every address that has no route: 404, which says where
// the description is. A person whose browser opens the root sees a page instead.
func (d *door) elsewhere(w http.ResponseWriter, r *http.Request) {
	x := w.(*exchange)
	answer, err := answer{}, error(d.notFound(x))
	if r.URL.Path == "/" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		x.Header().Add("Vary", "Accept")
		if wantsHTML(r) {
			answer, err = d.front(x, r)
		}
	}
	if err != nil {
		d.refuse(x, r, err)
		return
	}
	x.send(answer)
}

func (d *door) notFound(x *exchange) error {
	description := d.BaseURL + "/openapi.json"
	x.Header().Set("Link", "<"+description+`>; rel="service-desc"`) // RFC 8631
	return &boxoffice.Problem{Code: boxoffice.NotFound, Detail: "there is nothing at this address; " + description + " says what there is"}
}

// front answers GET / for people.
func (d *door) front(x *exchange, r *http.Request) (answer, error) {
	sold, err := d.sold(r.Context())
	if err != nil {
		return answer{}, err
	}
	x.Header().Set("Content-Security-Policy", pagePolicy)
	return sold.page.answer(x.Header(), r, mayChange), nil
}

func newPage(capabilities boxoffice.Capabilities) (document, error) {
	var page bytes.Buffer
	if err := pageTemplate.Execute(&page, capabilities); err != nil {
		return document{}, fmt.Errorf("the page: %w", err)
	}
	return newDocument("text/html; charset=utf-8", page.Bytes()), nil
}

const pageStyle = `:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:3rem auto;padding:0 1rem}` +
	`table{border-collapse:collapse}td,th{text-align:left;padding:.2rem 2rem .2rem 0}`

// pagePolicy lets the page have its own style, and nothing else.
var pagePolicy = func() string {
	hash := sha256.Sum256([]byte(pageStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()

// The links are relative: the page is right behind a proxy that shows it under
// another path too.
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
<p>This service is for programs: they ask for a price, pay it with a signed <a href="https://www.x402.org" rel="noreferrer">x402</a> token payment, and read what became of
the work that they bought. Nobody registers.</p>
<table>
<tr><th>Sold now<th>Price{{range .Actions}}
<tr><td>{{.Action}}<td>{{price $ .}}{{end}}
</table>
<p><a href="openapi.json">openapi.json</a> describes every request, <a href="requests/capabilities">requests/capabilities</a> what is sold and how to pay.</p>
`))

// wantsHTML tells a browser that a person uses from a program: it names HTML and
// prefers it to JSON.
func wantsHTML(r *http.Request) bool {
	accepted := weights(r.Header.Values("Accept"))
	return accepted["text/html"] > accepted["application/json"]
}

func takesGzip(r *http.Request) bool {
	accepted := weights(r.Header.Values("Accept-Encoding"))
	weight, named := accepted["gzip"]
	if !named {
		weight = accepted["*"]
	}
	return weight > 0 && weight >= accepted["identity"]
}

// weights reads a list of preferences (RFC 9110 §12.4.2): each name in lowercase
// with its weight, which is 1 where it says none and 0 where it is no number.
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
