package boxoffice_test

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"boxoffice"
	"boxoffice/x402"

	"github.com/google/go-cmp/cmp"
)

//go:generate go test -run ^TestErrorsPage$ . -update

var update = flag.Bool("update", false, "write docs/errors.md from the tables")

const errorsPage = "docs/errors.md"

// TestErrorsPage holds docs/errors.md to the tables of codes and reasons.
func TestErrorsPage(t *testing.T) {
	want := renderErrorsPage()
	if *update {
		if err := os.MkdirAll("docs", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(errorsPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(errorsPage)
	if err != nil {
		t.Fatalf("%v; go generate . writes it", err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is not what the tables say; go generate . writes it (-tables +page):\n%s", errorsPage, diff)
	}
}

func renderErrorsPage() string {
	var page strings.Builder
	fmt.Fprint(&page, `<!-- Generated from the tables in problem.go, reasons.go and refusals.go by "go generate .". -->

# Errors

Every error is answered with its status and a JSON body:

| Member | Type | |
|---|---|---|
| `+"`error`"+` | string | always: one of the codes below |
| `+"`detail`"+` | string | for people; `+"`invalid_payment_shape`"+` names the field in it |
| `+"`reason`"+` | string | with `+"`payment_rejected`"+` and `+"`action_refused`"+`: one of the reasons below |
| `+"`problems`"+` | array | with `+"`invalid_request`"+`: objects of `+"`path`"+` (a JSON Pointer into the body) and `+"`message`"+` |

Codes and reasons do not change once published; `+"`detail`"+` and `+"`message`"+` may.

## Codes

| Status | Code | Meaning | Ask again |
|---|---|---|---|
`)
	for _, info := range boxoffice.Codes {
		fmt.Fprintf(&page, "| %d %s | `%s` | %s | %s |\n",
			info.Status, http.StatusText(info.Status), info.Code, info.Title, askAgain[info.Retry])
	}
	fmt.Fprint(&page, `
A 402 without `+"`error`"+` is not an error: it is the challenge that offers payment.

## Reasons

Why a payment was rejected, or why a submitted one failed (`+"`payment.reason`"+` of a status). Checks run in this order and the first that fails is the reason.
What a wallet with code says of its permit is the one exception: the simulation asks it, last.

| Reason | Meaning | What the payer can do |
|---|---|---|
`)
	for _, info := range boxoffice.Reasons {
		fmt.Fprintf(&page, "| `%s` | %s | %s |\n", info.Reason, info.Meaning, info.Remedy)
	}
	fmt.Fprint(&page, `
Why an action refused an input. Where the operator's own judge refused it there is no reason, but a `+"`detail`"+`.

| Reason | Meaning |
|---|---|
`)
	for _, info := range boxoffice.Refusals {
		fmt.Fprintf(&page, "| `%s` | %s |\n", info.Reason, info.Meaning)
	}
	return page.String()
}

var askAgain = map[boxoffice.Retry]string{
	boxoffice.RetryNever:  "no: the request has to change",
	boxoffice.RetryLater:  "yes, later: after Retry-After where it is sent",
	boxoffice.RetryNewKey: "with a new quote, under a new requestKey",
}

// TestEveryCodeIsInTheTable reads the constants from the source: neither a code
// without a row nor a row without a constant, and the same for reasons.
func TestEveryCodeIsInTheTable(t *testing.T) {
	var codes, reasons, refusals []string
	for _, info := range boxoffice.Codes {
		codes = append(codes, string(info.Code))
		if info.Title == "" || askAgain[info.Retry] == "" || http.StatusText(info.Status) == "" {
			t.Errorf("the row of %s is not complete: %+v", info.Code, info)
		}
	}
	for _, info := range boxoffice.Reasons {
		reasons = append(reasons, string(info.Reason))
		if info.Meaning == "" || info.Remedy == "" {
			t.Errorf("the row of %s is not complete: %+v", info.Reason, info)
		}
	}
	for _, info := range boxoffice.Refusals {
		refusals = append(refusals, string(info.Reason))
		if info.Meaning == "" {
			t.Errorf("the row of %s is not complete", info.Reason)
		}
	}
	for _, table := range []struct {
		file, constType string
		rows            []string
	}{
		{"problem.go", "Code", codes},
		{"x402/reason.go", "Reason", reasons},
		{"refusals.go", "RefusalReason", refusals},
	} {
		declared := constantsOf(t, table.file, table.constType)
		slices.Sort(declared)
		slices.Sort(table.rows)
		if diff := cmp.Diff(declared, table.rows); diff != "" {
			t.Errorf("constants of type %s in %s and their table (-constants +table):\n%s", table.constType, table.file, diff)
		}
	}
}

func constantsOf(t *testing.T, file, typeName string) (values []string) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for spec := range ast.Preorder(parsed) {
		value, ok := spec.(*ast.ValueSpec)
		if !ok || len(value.Values) != 1 {
			continue
		}
		if name, ok := value.Type.(*ast.Ident); !ok || name.Name != typeName {
			continue
		}
		if literal, ok := value.Values[0].(*ast.BasicLit); ok {
			unquoted, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, unquoted)
		}
	}
	return values
}

func TestCodesAndStatuses(t *testing.T) {
	for _, info := range boxoffice.Codes {
		if got := info.Code.Info(); got != info {
			t.Errorf("%s.Info() = %+v, want %+v", info.Code, got, info)
		}
		if !slices.Contains(boxoffice.CodesOf(info.Status), info) {
			t.Errorf("CodesOf(%d) does not have %s", info.Status, info.Code)
		}
	}
	if got := boxoffice.Code("no_such_code").Info().Code; got != boxoffice.Internal {
		t.Errorf("an unknown code has the row of %s, want %s", got, boxoffice.Internal)
	}
	// Every error status of spec.md §7 has a code.
	for _, status := range []int{400, 401, 402, 403, 404, 409, 410, 413, 422, 429, 503} {
		if len(boxoffice.CodesOf(status)) == 0 {
			t.Errorf("no code has the status %d", status)
		}
	}
	if rows := boxoffice.CodesOf(http.StatusOK); rows != nil {
		t.Errorf("CodesOf(200) = %v", rows)
	}
	if !slices.IsSortedFunc(boxoffice.Codes, func(a, b boxoffice.CodeInfo) int { return a.Status - b.Status }) {
		t.Error("the table is not in the order of its statuses")
	}
}

// TestProblemBody: a problem is answered with the members of spec.md §2.8, and
// its cause is only for the log.
func TestProblemBody(t *testing.T) {
	cause := errors.New("dial tcp: refused")
	for _, tc := range []struct {
		problem    boxoffice.Problem
		body, text string
	}{
		{
			boxoffice.Problem{Code: boxoffice.TemporarilyUnavailable, RetryAfter: 2, Cause: cause},
			`{"error":"temporarily_unavailable"}`, "temporarily_unavailable",
		},
		{
			boxoffice.Problem{Code: boxoffice.PaymentRejected, Reason: string(x402.ReasonPayer), Detail: "the quote names another wallet"},
			`{"error":"payment_rejected","detail":"the quote names another wallet","reason":"payer_mismatch"}`,
			"payment_rejected: payer_mismatch: the quote names another wallet",
		},
		{
			boxoffice.Problem{Code: boxoffice.InvalidRequest, Problems: []boxoffice.FieldProblem{{Path: "/input/runs", Message: "is required"}}},
			`{"error":"invalid_request","problems":[{"path":"/input/runs","message":"is required"}]}`,
			"invalid_request; /input/runs is required",
		},
	} {
		if diff := cmp.Diff(tc.body, string(marshal(t, tc.problem))); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(tc.text, tc.problem.Error()); diff != "" {
			t.Error(diff)
		}
		if errors.Is(&tc.problem, cause) != (tc.problem.Cause != nil) {
			t.Errorf("%v unwraps to %v", &tc.problem, tc.problem.Unwrap())
		}
	}
}
