package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"boxoffice"
	"boxoffice/internal/httpapi"
)

// paymentsCmd lists the payments of a running service for its operator.
type paymentsCmd struct {
	operator
	State string `enum:",waiting,sent,settled,failed" default:"" help:"Only payments in this state: waiting, sent, settled or failed."`
	Limit int    `default:"${payments}" help:"How many payments, newest first; at most ${max_payments}."`
}

func (cmd *paymentsCmd) Run(ctx context.Context, s *Settings, std *streams) error {
	query := url.Values{"state": {cmd.State}, "limit": {strconv.Itoa(cmd.Limit)}}
	var listed httpapi.PaymentList
	if err := cmd.call(ctx, http.MethodGet, "/payments?"+query.Encode(), &listed); err != nil {
		return err
	}
	if s.JSON {
		return json.NewEncoder(std.out).Encode(listed)
	}
	p := newPage(std.out)
	p.payments(&listed)
	return p.flush()
}

func (p *page) payments(listed *httpapi.PaymentList) {
	totals := listed.Totals
	p.line("Pending", "%d waiting, %d sent%s",
		totals.Waiting, totals.Sent, p.since(", the oldest ", totals.OldestPending))
	p.line("Settled", "%d", totals.Settled)
	p.line("Failed", "%d, of which %d are not final: somebody who has the signature can still settle them",
		totals.Failed, totals.Unsettled)
	if gas := totals.Gas; gas.Payments > 0 {
		p.line("Gas", "%d per payment (%d payments in %d transactions), %d gwei per payment",
			gas.GasUsed/int64(gas.Payments), gas.Payments, gas.Transactions, gas.FeesGwei/int64(gas.Payments))
	}
	p.gap()
	p.row("PAYMENT", "STATE", "AGE", "AMOUNT", "PAYER", "PAYS FOR", "TRANSACTION", "FEE CAP", "REASON")
	for _, entry := range listed.Payments {
		transaction, fee := "", ""
		if n := len(entry.Transactions); n > 0 {
			transaction, fee = entry.Transactions[n-1].Hash.Hex(), entry.Transactions[n-1].FeeCap.String()
		}
		if entry.SettledBy != nil {
			transaction = entry.SettledBy.Hex()
		}
		paysFor := "order " + string(entry.OrderID)
		if entry.SubmissionID != "" {
			paysFor = "submission " + string(entry.SubmissionID)
		}
		reason := entry.Reason
		if reason != "" && !entry.Final {
			reason += " (not final)"
		}
		p.row(string(entry.ID), string(entry.State), span(p.now.Sub(entry.SubmittedAt.Time())), entry.Amount.String(),
			lowerHex(entry.Payer), paysFor, transaction, fee, reason)
	}
}

// since returns words and the age of a moment, "" if there is none.
func (p *page) since(words string, moment *boxoffice.Timestamp) string {
	if moment == nil {
		return ""
	}
	return words + span(p.now.Sub(moment.Time()).Round(time.Second)) + " old"
}
