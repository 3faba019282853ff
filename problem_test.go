package boxoffice_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"slices"
	"strconv"
	"testing"

	"boxoffice"
	"boxoffice/x402"

	"github.com/google/go-cmp/cmp"
)

// TestEveryCodeIsInTheTable reads the constants from the source: neither a code
// without a row nor a row without a constant, and the same for reasons.
func TestEveryCodeIsInTheTable(t *testing.T) {
	var codes, reasons, refusals []string
	for _, info := range boxoffice.Codes() {
		codes = append(codes, string(info.Code))
		if info.Title == "" || info.Retry == "" || http.StatusText(info.Status) == "" {
			t.Errorf("the row of %s is not complete: %+v", info.Code, info)
		}
	}
	for _, info := range boxoffice.Reasons() {
		reasons = append(reasons, string(info.Reason))
		if info.Meaning == "" || info.Remedy == "" {
			t.Errorf("the row of %s is not complete: %+v", info.Reason, info)
		}
	}
	for _, info := range boxoffice.Refusals() {
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
			t.Errorf("constants of type %s in %s and their table (-constants +table):\n%s", table.constType,
				table.file, diff)
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
	for _, info := range boxoffice.Codes() {
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
	// Every error status of docs/protocol.md §7 has a code.
	for _, status := range []int{400, 401, 402, 403, 404, 409, 410, 413, 422, 429, 503} {
		if len(boxoffice.CodesOf(status)) == 0 {
			t.Errorf("no code has the status %d", status)
		}
	}
	if rows := boxoffice.CodesOf(http.StatusOK); rows != nil {
		t.Errorf("CodesOf(200) = %v", rows)
	}
	if !slices.IsSortedFunc(boxoffice.Codes(), func(a, b boxoffice.CodeInfo) int { return a.Status - b.Status }) {
		t.Error("the table is not in the order of its statuses")
	}
}

// TestProblemBody: a problem is answered with the members of docs/protocol.md §2.8, and
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
			boxoffice.Problem{
				Code: boxoffice.PaymentRejected, Reason: string(x402.ReasonPayer), Detail: "the quote names another wallet",
			},
			`{"error":"payment_rejected","detail":"the quote names another wallet","reason":"payer_mismatch"}`,
			"payment_rejected: payer_mismatch: the quote names another wallet",
		},
		{
			boxoffice.Problem{
				Code:     boxoffice.InvalidRequest,
				Problems: []boxoffice.FieldProblem{{Path: "/input/runs", Message: "is required"}},
			},
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
