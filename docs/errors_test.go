package docs_test

import (
	"fmt"
	"net/http"
	"strings"

	"boxoffice"
)

// errorsPage returns docs/errors.md.
func errorsPage() string {
	return `<!-- Generated from the tables in problem.go, reasons.go and refusals.go by "go generate .". -->

# Errors

Every error is answered with an HTTP status and a JSON body:

| Member | Type | |
|---|---|---|
| ` + "`error`" + ` | string | always: one of the codes below |
| ` + "`detail`" + ` | string | for people; with ` + "`invalid_payment_shape`" + ` it names the field |
| ` + "`reason`" + ` | string | with ` + "`payment_rejected`" + ` and ` + "`action_refused`" + `: one of the reasons below |
| ` + "`problems`" + ` | array | with ` + "`invalid_request`" + `: objects of ` + "`path`" +
		` (a JSON Pointer into the body) and ` + "`message`" + ` |

Codes and reasons never change once published; ` + "`detail`" + ` and ` + "`message`" + ` can.

## Codes

` + codesTable() + `
A 402 without ` + "`error`" + ` is not an error: it is the challenge that offers payment.

## Reasons of a rejected or failed payment

The ` + "`reason`" + ` beside ` + "`payment_rejected`" + `, and the ` + "`payment.reason`" + ` of a status whose payment failed.
The table has the order of the checks: the first check that fails gives the reason. There is one exception.
The signature of a wallet with code is checked last, because only the simulation asks the wallet.

` + reasonsTable() + `
## Reasons of a refused input

When the operator's input judge refuses an input there is no reason, but a ` + "`detail`" + `.

` + refusalsTable()
}

var askAgain = map[boxoffice.Retry]string{
	boxoffice.RetryNever:  "no: change the request",
	boxoffice.RetryLater:  "yes, later: after Retry-After if it is sent",
	boxoffice.RetryNewKey: "with a new quote and a new requestKey",
}

func codesTable() string {
	rows := "| Status | Code | Meaning | Ask again |\n|---|---|---|---|\n"
	for _, info := range boxoffice.Codes() {
		rows += fmt.Sprintf("| %d %s | `%s` | %s | %s |\n",
			info.Status, http.StatusText(info.Status), info.Code, info.Title, askAgain[info.Retry])
	}
	return rows
}

func reasonsTable() string {
	rows := "| Reason | Meaning | What the payer can do |\n|---|---|---|\n"
	for _, info := range boxoffice.Reasons() {
		rows += fmt.Sprintf("| `%s` | %s | %s |\n", info.Reason, info.Meaning, info.Remedy)
	}
	return rows
}

func refusalsTable() string {
	rows := "| Reason | Meaning |\n|---|---|\n"
	for _, info := range boxoffice.Refusals() {
		rows += fmt.Sprintf("| `%s` | %s |\n", info.Reason, info.Meaning)
	}
	return rows
}

// code writes text as a fenced block.
func code(language, text string) string {
	return "```" + language + "\n" + strings.TrimRight(text, "\n") + "\n```\n"
}
